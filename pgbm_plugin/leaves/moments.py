"""LeafMoments: per leaf, the sample moments of gradient and hessian (paper eq. 3-7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any

import numpy as np

from ..arrays import AnyArray, Array
from ..tables.ranges import Ranges
from ..trees.forest import Forest
from .moments_as_bytes import pack_moments, unpack_moments

# Decay stops at this count of a leaf's rows, because smaller counts would underflow.
_FAINT = 1e-100


@dataclass(frozen=True, eq=False)
class LeafMoments:
    """Moments of (g, h) over the rows of each leaf; L leaves. Moments over different rows merge exactly.

    If rows have weights, means and sums are weighted, but g and h are those of a row of weight 1. So weights that have
    nothing to do with the labels do not widen the spread, and a row of weight 0 is as if it were left out.

    Attributes
    ----------
    rows : float
        Number of rows with a weight above 0; after a decay, what they still count for.
    count : (L,) int64 array
        Number of rows in the leaf, n_j, with those of weight 0; after a decay, what they still count for, as float64.
    g_mean, h_mean : (L,) float array
        Mean gradient and hessian; 0 in an empty leaf.
    gg, hh, gh : (L,) float array
        Sums of squares and products of the deviations from the means.
    weight : (L,) float array or None
        Sum of the rows' weights, W. None if rows have no weights: count.
    freedom : (L,) float array or None
        Degrees of freedom, W - sum w^2 / W, which divide these sums to give variances. None before weights and decay:
        count - 1.
    effective : (L,) float array or None
        The sum of weights, corrected for a decay. None without weights or before a decay.
    ranges : Ranges or None
        What the rows held of each feature, also those that a decay has faded; None if it is not known.
    """

    rows: float
    count: AnyArray
    g_mean: Array
    h_mean: Array
    gg: Array
    hh: Array
    gh: Array
    weight: Array | None = None
    freedom: Array | None = None
    effective: Array | None = None
    ranges: Ranges | None = None

    @classmethod
    def of_nothing(cls, leaves: int) -> LeafMoments:
        """Return moments over no rows, to merge others into."""
        return cls(0, np.zeros(leaves, np.int64), *np.zeros((5, leaves)))

    @property
    def mass(self) -> AnyArray:
        """Return the (L,) sums of the rows' weights, W; n_j if they have none."""
        return self.count if self.weight is None else self.weight

    @property
    def decayed(self) -> bool:
        """Return whether older rows count less."""
        return self.count.dtype.kind == "f"

    @property
    def size(self) -> AnyArray:
        """Return the (L,) numbers that lambda is divided by: W, but after a decay that of the effective rows.

        A decay with weights d leaves (sum d)^2 / sum d^2 effective rows.
        """
        if not self.decayed:
            return self.mass
        if self.effective is not None:
            return self.effective
        return self.count / np.where(self.count > 0, self.count - self._freedom, 1.0)

    @property
    def kish(self) -> AnyArray:
        """Return the (L,) effective numbers of rows, (sum w)^2 / sum w^2 for weights w; 0 in an empty leaf."""
        if self.freedom is None:
            return self.count
        return self.mass / np.where(self.mass > 0, np.maximum(self.mass - self.freedom, _FAINT), 1.0)

    @property
    def _freedom(self) -> AnyArray:
        return np.maximum(self.count - 1.0, 0.0) if self.freedom is None else self.freedom

    @property
    def var_g(self) -> Array:
        """Return the (L,) sample variances of the gradient, divisor n - 1; 0 for a single row."""
        return self.gg / self._divisor

    @property
    def var_h(self) -> Array:
        """Return the (L,) sample variances of the hessian."""
        return self.hh / self._divisor

    @property
    def cov_gh(self) -> Array:
        """Return the (L,) sample covariances of gradient and hessian."""
        return self.gh / self._divisor

    @property
    def _divisor(self) -> AnyArray:
        if self.freedom is None:
            return np.maximum(self.count - 1, 1)
        return np.where(self.freedom > 0, self.freedom, 1.0)

    @property
    def g_sum(self) -> Array:
        """Return the (L,) sums of gradients, G."""
        return self.mass * self.g_mean

    @property
    def h_sum(self) -> Array:
        """Return the (L,) sums of hessians, H."""
        return self.mass * self.h_mean

    @np.errstate(over="ignore", invalid="ignore")  # gradients that overflowed are not certified
    def merge(self, other: LeafMoments) -> LeafMoments:
        """Return the moments over the rows of both (the update of Chan, Golub and LeVeque)."""
        if len(self.count) != len(other.count):
            raise ValueError(
                f"moments of {len(self.count)} leaves do not merge with moments of {len(other.count)}: they belong to "
                f"another model"
            )
        mass = self.mass + other.mass
        positive = np.where(mass > 0, mass, 1)
        share = other.mass / positive
        dg, dh = other.g_mean - self.g_mean, other.h_mean - self.h_mean
        between = self.mass * share
        return LeafMoments(
            self.rows + other.rows,
            self.count + other.count,
            self.g_mean + dg * share,
            self.h_mean + dh * share,
            self.gg + other.gg + dg * dg * between,
            self.hh + other.hh + dh * dh * between,
            self.gh + other.gh + dg * dh * between,
            **self._merged_weights(other, mass, positive),
            ranges=self._merged_ranges(other),
        )

    def _merged_weights(self, other: LeafMoments, mass: AnyArray, positive: AnyArray) -> dict[str, Array]:
        """Return `weight`, `freedom` and `effective` over the rows of both, as far as these need them."""
        weighted = self.weight is not None or other.weight is not None
        decayed = self.decayed or other.decayed
        a, b, merged = self.mass, other.mass, {}
        if weighted:
            merged["weight"] = mass.astype(np.float64)
        if weighted or decayed:  # W - sum w^2 / W, as a sum of terms that cannot be negative
            merged["freedom"] = (2.0 * a * b + a * self._freedom + b * other._freedom) / positive
        if weighted and decayed:
            squares = sum(m / np.where(part.size > 0, part.size, 1.0) * m for m, part in ((a, self), (b, other)))
            merged["effective"] = mass / np.where(mass > 0, squares, 1.0) * mass
        return merged

    def _merged_ranges(self, other: LeafMoments) -> Ranges | None:
        """Return the ranges of the rows of both, if they are known for all of these."""
        if self.ranges is None or other.ranges is None:
            return self.ranges if other.rows == 0 else other.ranges if self.rows == 0 else None
        return self.ranges.merge(other.ranges)

    def faded(self, decay: float) -> LeafMoments:
        """Return the moments with the weight of every row multiplied by `decay`; 0 returns moments over no rows.

        Means and variances stay as they are, so that a leaf without new rows keeps its variance. Only merging with
        other moments shows the lower weight.
        """
        if decay == 1.0:
            return self
        if decay == 0.0:
            return LeafMoments.of_nothing(len(self.count))
        # the count of a leaf without new rows would underflow; compared with one new row, this count is negligible
        share = np.where(self.mass * decay > _FAINT, decay, 1.0)
        return LeafMoments(
            self.rows * decay,
            self.count * share,
            self.g_mean,
            self.h_mean,
            share * self.gg,
            share * self.hh,
            share * self.gh,
            weight=None if self.weight is None else share * self.weight,
            freedom=share * self._freedom,
            effective=None if self.weight is None else self.size,
            ranges=self.ranges,
        )

    def part(self, lo: int, hi: int) -> LeafMoments:
        """Return the moments of leaves lo..hi."""
        arrays: dict[str, Any] = {name: array[lo:hi] for name, array in self.arrays().items()}
        return LeafMoments(self.rows, **arrays, ranges=self.ranges)

    def arrays(self) -> dict[str, AnyArray]:
        """Return the arrays over leaves, by name."""
        arrays = {name: getattr(self, name) for name in ARRAYS}
        return {name: array for name, array in arrays.items() if array is not None}

    def to_bytes(self) -> bytes:
        """Return the moments as bytes, for another process or machine; `from_bytes` reads them."""
        return pack_moments(self.rows, self.arrays(), self.ranges)

    @classmethod
    def from_bytes(cls, raw: bytes) -> LeafMoments:
        """Read moments that `to_bytes` returned; other bytes raise a ValueError."""
        rows, arrays, ranges = unpack_moments(raw)
        return cls(rows, **arrays, ranges=ranges)


ARRAYS = tuple(field.name for field in fields(LeafMoments) if field.name not in ("rows", "ranges"))
"""The arrays over leaves; those that have a default may be None."""


def joined(trees: Sequence[LeafMoments]) -> LeafMoments:
    """Concatenate the moments of several trees over the same rows, before any decay; ranges are those of the last."""
    arrays = [moments.arrays() for moments in trees]
    names = arrays[0].keys()
    joint: dict[str, Any] = {name: np.concatenate([part[name] for part in arrays]) for name in names}
    return LeafMoments(trees[0].rows, **joint, ranges=trees[-1].ranges)


def from_sums(sums: Array, rows: int) -> LeafMoments:
    """Return the moments from the accumulators of `kernels.accumulate`, merged over lanes."""
    lanes = np.moveaxis(sums, 0, 2)
    return reduce(LeafMoments.merge, (_from_lane(*lane, rows=rows if i == 0 else 0) for i, lane in enumerate(lanes)))


def _from_lane(count: Array, shift_g: Array, g: Array, gg: Array, *further: Array, rows: int) -> LeafMoments:
    """Return the moments from the columns of one accumulator per leaf."""
    hessian_sums, weights = further[:4], further[4:]
    mass = weights[0] if weights else count
    n = np.where(mass > 0.0, mass, 1.0)
    whole = count.astype(np.int64)
    g_mean, gg = shift_g + g / n, np.maximum(gg - g * g / n, 0.0)
    if not hessian_sums:  # every hessian is 1
        zero = np.zeros(len(count))
        return LeafMoments(rows, whole, g_mean, np.minimum(count, 1.0), gg, zero, zero)
    shift_h, h, hh, gh = hessian_sums
    h_mean, hh, gh = shift_h + h / n, np.maximum(hh - h * h / n, 0.0), gh - g * h / n
    freedom: dict[str, Any] = {"weight": mass, "freedom": 2.0 * weights[1] / n} if weights else {}
    return LeafMoments(rows, whole, g_mean, h_mean, gg, hh, gh, **freedom)


def check_moments(forest: Forest, moments: LeafMoments) -> None:
    """Refuse moments of another model: every row must be in one leaf of each tree."""
    leaves = len(moments.count)
    if leaves != forest.n_leaves:
        raise ValueError(
            f"the moments have {leaves} leaves, the model has {forest.n_leaves}: they belong to another model"
        )
    rows_of_tree = np.add.reduceat(moments.count, forest.leaf_start[:-1])
    rows = moments.rows if moments.weight is None else rows_of_tree[0]  # with weights of 0, more than those that count
    if not np.allclose(rows_of_tree, rows, rtol=1e-9, atol=0.0):
        raise ValueError("the leaves of some tree do not hold all rows of the moments: they belong to another model")
    if moments.rows == 0:
        raise ValueError("the moments have no rows")
    if moments.ranges is not None and len(moments.ranges.low) != forest.features.count:
        raise ValueError("the moments hold ranges of other features than the model's: they belong to another model")
