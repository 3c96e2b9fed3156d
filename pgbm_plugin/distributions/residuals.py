"""Residuals: a sample of residuals in bins, with all that quantiles and moments need of it, computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import Array
from .per_row import read_only

# Quantiles that are kept: lists of so few levels, and so many lists.
_FEW_LEVELS, _KEPT = 32, 256


@dataclass(frozen=True, eq=False)
class Residuals:
    """Residuals in order within their bins; immutable, so that all predictions of a model share one.

    Running sums are arrays of m + B numbers: for each of B bins a 0, and then the sums over its residuals. A rank is a
    place in them.

    Attributes
    ----------
    values : (m,) float array
        The residuals, bin after bin, rising within a bin.
    weights : (m,) float array or None
        Their weights; None if all are equal.
    start : (B + 1,) int array
        Where each bin starts in `values`.
    in_bins : bool
        Whether rows have bins. If not, there is one bin.
    rows : int
        Number of rows that the residuals are of. It is below m if some are in several bins.
    """

    values: Array
    weights: Array | None
    start: NDArray[np.intp]
    in_bins: bool
    rows: int

    def __post_init__(self) -> None:
        for array in (self.values, self.weights, self.start):
            if array is not None:
                array.flags.writeable = False

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is cached."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # pickle makes arrays writable

    @cached_property
    def weight_up_to(self) -> Array:
        """Return the running sums of the weights."""
        return self._running_sum(np.ones(len(self.values)) if self.weights is None else self.weights)

    @cached_property
    def sums(self) -> Array:
        """Return the running sums of the residuals, times their weights."""
        return self._weighted_sums(self.values)

    @cached_property
    def squares(self) -> Array:
        """Return the running sums of their squares, times their weights."""
        return self._weighted_sums(self.values * self.values)

    @cached_property
    def rank_sums(self) -> tuple[Array, Array]:
        """Return the running sums of the residuals' ranks, and of ranks times residuals, both times their weights.

        A rank here is the weight of smaller residuals, less that of larger ones; those of a bin sum to 0.
        """
        rank = np.concatenate([part[1:] + part[:-1] - part[-1] for part in self._parts(self.weight_up_to)])
        ranks, weighted = self._weighted_sums(rank), self._weighted_sums(rank * self.values)
        ranks[self.start[1:] + np.arange(len(self.start) - 1)] = 0.0
        return ranks, weighted

    @cached_property
    def means(self) -> tuple[Array, Array]:
        """Return the (B,) means of the residuals of each bin, and of their squares."""
        _, last = self.ends(np.arange(len(self.start) - 1))
        total = self.weight_up_to[last]
        return self.sums[last] / total, self.squares[last] / total

    @cached_property
    def bins(self) -> list[tuple[Array, Array]]:
        """Return the residuals of each bin, and the running sums of their weights."""
        values = (self.values[a:b] for a, b in zip(self.start[:-1], self.start[1:], strict=True))
        return list(zip(values, self._parts(self.weight_up_to), strict=True))

    def ends(self, bin: Any) -> tuple[Any, Any]:
        """Return the first and the last rank of each of these bins."""
        return self.start[bin] + bin, self.start[bin + 1] + bin

    def quantiles(self, rule: str, bin: int, q: Array, compute: Callable[..., Array]) -> Array:
        """Return ``compute(q, residuals, running sums of their weights)`` of a bin, which is kept under this rule.

        Callers ask for the same levels again and again.
        """
        key = rule, bin, q.shape, q.tobytes()
        found = self._kept.get(key)
        if found is None:
            found = read_only(compute(q, *self.bins[bin]))
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            if q.size <= _FEW_LEVELS:
                self._kept[key] = found
        return found

    @cached_property
    def _kept(self) -> dict[Any, Array]:
        return {}

    def _weighted_sums(self, values: Array) -> Array:
        return self._running_sum(values if self.weights is None else self.weights * values)

    def _running_sum(self, values: Array) -> Array:
        bins = (values[a:b] for a, b in zip(self.start[:-1], self.start[1:], strict=True))
        return np.concatenate([part for bin in bins for part in ([0.0], np.cumsum(bin))])

    def _parts(self, running: Array) -> list[Array]:
        """Return the running sums of each bin."""
        return [
            running[a + k : b + k + 1] for k, (a, b) in enumerate(zip(self.start[:-1], self.start[1:], strict=True))
        ]


def sorted_residuals(
    name: str,
    values: ArrayLike,
    weights: ArrayLike | None = None,
    bins: ArrayLike | None = None,
    rows: int | None = None,
) -> Residuals:
    """Check residuals, and return them in order within their bins.

    Parameters
    ----------
    name : str
        The family that they are for, in errors.
    values, weights, bins : array-like of shape (m,)
        Residuals, weights and bins, as those of `Empirical`.
    rows : int, optional
        Number of rows that they are of. Default: m.
    """
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or len(values) < 2 or not np.all(np.isfinite(values)):
        raise ValueError(f"{name} needs at least two finite residuals")
    code = np.zeros(len(values), np.int64) if bins is None else np.asarray(bins)
    if code.shape != values.shape or code.dtype.kind not in "iu" or np.any(code < 0):
        raise ValueError(f"{name} needs a bin for each residual, a whole number from 0")
    # a larger number would need more bins than there are residuals
    count = np.bincount(np.minimum(code.astype(np.intp), len(code)))
    if not np.all(count):
        raise ValueError(f"{name} needs residuals in every bin, and bin {int(np.argmin(count))} has none")
    order = np.lexsort((values, code))
    if weights is not None:
        weights = np.asarray(weights, np.float64)
        if weights.shape != values.shape or not np.all((weights > 0.0) & np.isfinite(weights)):
            raise ValueError(f"{name} needs a positive, finite weight for each residual")
        weights = weights[order]
    start = np.concatenate([[0], np.cumsum(count)])
    return Residuals(values[order], weights, start, bins is not None, len(values) if rows is None else rows)
