"""The empirical distribution, whose shape is a sample of residuals, or one sample per bin of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import Array
from .base import Distribution
from .per_row import read_only

if TYPE_CHECKING:
    from typing_extensions import Self

BINNED_BY = ("mean", "spread")
MAX_BINS = 100


class Empirical(Distribution):
    """Empirical distribution: loc + scale R, where R is one of m observed residuals, equally likely unless weighted.

    It assumes no shape. If the residuals do not have mean 0 and variance 1, they also correct the mean and the
    spread. It has quantiles, samples and a continuous ranked probability score (CRPS), but no density.

    With bins, such as ``empirical(by='mean', bins=3)``, R is one of the residuals of the row's own bin. Bins are made
    of rows with a similar predicted mean or spread, so that the shape may differ from row to row.

    Parameters
    ----------
    residuals : array-like of shape (m,)
        Residuals (y - mean) / std of the rows that `tune` or `conformalize` saw.
    weights : array-like of shape (m,), optional
        Positive weights of the residuals, to which their probabilities are proportional. Default: all are equal.
    residual_bin : array-like of shape (m,), optional
        Bin of each residual: 0, 1, ... without a gap. Default: one bin, and no parameter ``bin``.
    observed : int, optional
        Number of rows that the residuals are of, if some are in several bins. Default: m.
    lower, upper : float, optional
        Smallest and largest possible outcome; outcomes beyond become these. Default: no bounds.
    point : array-like of shape (n,), optional
        Place of each row that is a point mass, NaN in all other rows.
    **params : float or array-like of shape (n,)
        Parameters ``loc`` and ``scale``, the mean and standard deviation that the model predicts; with bins also
        ``bin``, the bin of each row.
    """

    name = "empirical"
    needs_residuals = True
    variants = tuple(f"empirical(by='{by}', bins={bins})" for by in BINNED_BY for bins in (3, 10))

    def __init__(
        self,
        *,
        residuals: ArrayLike,
        weights: ArrayLike | None = None,
        residual_bin: ArrayLike | None = None,
        observed: int | None = None,
        lower: float = -np.inf,
        upper: float = np.inf,
        point: ArrayLike | None = None,
        **params: ArrayLike,
    ):
        super().__init__(point=point, **params)
        residuals = np.asarray(residuals, np.float64)
        if residuals.ndim != 1 or len(residuals) < 2 or not np.all(np.isfinite(residuals)):
            raise ValueError(f"{self.name} needs at least two finite residuals")
        bins = np.zeros(len(residuals), np.int64) if residual_bin is None else np.asarray(residual_bin)
        if bins.shape != residuals.shape or bins.dtype.kind not in "iu" or np.any(bins < 0):
            raise ValueError(f"{self.name} needs a bin for each residual, a whole number from 0")
        # a larger number would need more bins than there are residuals
        count = np.bincount(np.minimum(bins.astype(np.intp), len(bins)))
        if not np.all(count):
            raise ValueError(f"{self.name} needs residuals in every bin, and bin {int(np.argmin(count))} has none")
        self.observed = len(residuals) if observed is None else observed
        if (residual_bin is not None) != ("bin" in params):
            raise ValueError(f"{self.name} needs bins of the residuals and of the rows (bin=), or neither")
        if "bin" in params and not np.all((self._params["bin"] >= 0) & (self._params["bin"] < len(count))):
            raise ValueError(f"{self.name} has rows in bins other than 0 to {len(count) - 1}")
        order = slice(None)
        if np.any((residuals[1:] < residuals[:-1]) & (bins[1:] == bins[:-1]) | (bins[1:] < bins[:-1])):
            order = np.lexsort((residuals, bins))  # type: ignore[assignment]
        self.residuals, self.weights = read_only(residuals[order]), None
        if weights is not None:
            weights = np.asarray(weights, np.float64)
            if weights.shape != residuals.shape or not np.all((weights > 0.0) & np.isfinite(weights)):
                raise ValueError(f"{self.name} needs a positive, finite weight for each residual")
            self.weights = read_only(weights[order])
        self._start = read_only(np.concatenate([[0], np.cumsum(count)]))  # where each bin starts in the residuals
        self.lower, self.upper = float(lower), float(upper)

    @classmethod
    def from_moments(cls, mean: Array, variance: Array, **options: Any) -> Self:
        if "residuals" not in options:
            raise ValueError(f"{cls.name} needs residuals=; a model has them after model.tune or model.conformalize")
        by, bins, edges = options.pop("by", "mean"), options.pop("bins", 1), options.pop("edges", None)
        if bins > 1 and edges is None:
            raise ValueError(f"{cls.name} needs edges= of its {bins:g} bins; a model has them after model.tune")
        mean, variance = np.asarray(mean, np.float64), np.asarray(variance, np.float64)
        bad = ~cls._fits(mean, variance)
        if bad.any():
            raise ValueError(f"{cls.name} needs finite moments; those of {bad.sum()} of {bad.size} rows are not finite")
        point = np.where(variance <= 0.0, mean, np.nan)
        params: dict[str, Any] = {**cls._parameters(mean, np.where(variance <= 0.0, np.nan, variance)), **options}
        if edges is not None:
            params["bin"] = bin_of(edges, mean if by == "mean" else np.sqrt(variance))
        return cls(point=point, **params)

    @staticmethod
    def _parameters(mean: Array, variance: Array, by: str = "mean", bins: float = 1.0) -> dict[str, Array]:
        return {"loc": mean, "scale": np.sqrt(variance)}

    @classmethod
    def check_options(cls, by: str = "mean", bins: float = 1.0) -> None:
        if by not in BINNED_BY:
            raise ValueError(f"by must be 'mean' or 'spread', not {by!r:.60}")
        if not (1.0 <= bins <= MAX_BINS and bins == int(bins)):
            raise ValueError(f"bins must be a whole number from 1 to {MAX_BINS}, not {bins:g}")

    @classmethod
    def complexity(cls, by: str = "mean", bins: float = 1.0) -> float:
        return 10.0 * bins

    def left_out_crps(self, y: Array, weight: Array) -> Array:
        """Return the (n,) CRPS of rows whose own residuals are among those of the distributions, without their own.

        `weight` is that of each row's own residual, in the unit of `weights`.
        """
        distance, half_spread = self._distance_and_half_spread(y, **self.params)
        return without_own(distance, half_spread, weight / self.bin_weight(self.params.get("bin")))

    def sample_size(self) -> NDArray[np.int64]:
        """Return the (n,) numbers of residuals that each row's distribution is made of."""
        first, last = self._ends(self.params.get("bin"))
        return np.broadcast_to(last - first, len(self))

    @property
    def most_residuals(self) -> int:
        """Return the number of residuals in the largest bin."""
        return int(np.diff(self._start).max())

    def bin_weight(self, bin: Array | None) -> Array:
        """Return the total weight of the residuals in each bin of these."""
        return self._weight_up_to[self._ends(bin)[1]]

    def _moments(self, loc: Array, scale: Array, bin: Array | None = None) -> tuple[Array, Array]:
        r, up_to, (first, last) = self.residuals, self._weight_up_to, self._ends(bin)
        a, b = self._inside(loc, scale, bin)
        sums, squares, total = self._weighted_sums(r), self._weighted_sums(r * r), up_to[last]
        low, high = np.where(a > first, self.lower, 0.0), np.where(b < last, self.upper, 0.0)
        on_lower, inside, on_upper = up_to[a] / total, (up_to[b] - up_to[a]) / total, (total - up_to[b]) / total
        once, twice = (sums[b] - sums[a]) / total, (squares[b] - squares[a]) / total
        mean = low * on_lower + high * on_upper + loc * inside + scale * once
        # moments around the mean, so that no digits cancel
        shift = loc - mean
        square = shift**2 * inside + 2.0 * shift * scale * once + scale**2 * twice
        return mean, np.maximum((low - mean) ** 2 * on_lower + (high - mean) ** 2 * on_upper + square, 0.0)

    def _logpdf(self, x: Array, loc: Array, scale: Array, bin: Array | None = None) -> Array:
        raise NotImplementedError(f"the {self.name} distribution has no density; score it with crps")

    def _cdf(self, x: Array, loc: Array, scale: Array, bin: Array | None = None) -> Array:
        up_to, (_, last), (a, b) = self._weight_up_to, self._ends(bin), self._inside(loc, scale, bin)
        share = up_to[np.clip(self._rank((x - loc) / scale, bin), a, b)] / up_to[last]
        return np.where(x < self.lower, 0.0, np.where(x >= self.upper, 1.0, share))

    def _ppf(self, q: Array, loc: Array, scale: Array, bin: Array | None = None) -> Array:
        parts = self._parts()
        if bin is None:
            return self._outcome(self._residual_quantiles(q, *parts[0]), loc, scale)
        place = bin.ravel().astype(np.intp)
        table = np.empty((len(parts), *q.shape))
        for k in np.flatnonzero(np.bincount(place)):
            table[k] = self._residual_quantiles(q, *parts[k])
        return self._outcome(table[place], loc, scale)

    def _from_uniform(self, u: Array, loc: Array, scale: Array, bin: Array | None = None) -> Array:
        residual, parts = np.empty(u.shape), self._parts()
        for k, rows in self._rows_by_bin(None if bin is None else bin.ravel()):
            residual[rows] = Empirical._residual_quantiles(self, u[rows], *parts[k])
        return self._outcome(residual, loc, scale)

    def _residual_quantiles(self, q: Array, residuals: Array, up_to: Array) -> Array:
        """Return the quantiles of the residuals of one bin, with the weights before each."""
        m = len(residuals)
        # if q reaches a residual's weight exactly, rounding must not raise the rank by 1
        rank = np.searchsorted(up_to, q * up_to[-1] - 1e-9 * up_to[-1] / m) - 1
        return residuals[np.clip(rank, 0, m - 1)]

    def _rvs(
        self, rng: np.random.Generator, shape: tuple[int, ...], loc: Array, scale: Array, bin: Array | None = None
    ) -> Array:
        draws = np.empty(shape)
        for k, rows in self._rows_by_bin(None if bin is None else bin.ravel()):
            part = slice(self._start[k], self._start[k + 1])
            share = None if self.weights is None else self.weights[part] / self.weights[part].sum()
            draws[rows] = rng.choice(self.residuals[part], draws[rows].shape, p=share)
        return self._outcome(draws, loc, scale)

    def _crps(self, y: Array, loc: Array, scale: Array, bin: Array | None = None) -> Array:
        distance, half_spread = self._distance_and_half_spread(y, loc, scale, bin)
        return distance - half_spread

    def _distance_and_half_spread(
        self, y: Array, loc: Array, scale: Array, bin: Array | None = None
    ) -> tuple[Array, Array]:
        """Return E|Y - y| and E|Y - Y'| / 2, with Y' a copy of Y, from cumulative sums of sorted residuals."""
        r, up_to, (first, last) = self.residuals, self._weight_up_to, self._ends(bin)
        a, b = self._inside(loc, scale, bin)
        total = up_to[last]
        low, high = np.where(a > first, self.lower, 0.0), np.where(b < last, self.upper, 0.0)
        k = np.clip(self._rank((y - loc) / scale, bin), a, b)  # outcomes <= y, for y between the bounds
        sums = self._weighted_sums(r)

        def sum_between(a: Any, b: Any) -> Array:
            """Return the weighted sum of the outcomes of ranks a + 1 to b, which are on no bound."""
            return loc * (up_to[b] - up_to[a]) + scale * (sums[b] - sums[a])

        below = low * up_to[a] + sum_between(a, k)
        above = sum_between(k, b) + high * (total - up_to[b])
        distance = above - below + y * (2.0 * up_to[k] - total)
        distance = np.where(y < self.lower, below + above - y * total, distance)
        distance = np.where(y >= self.upper, y * total - below - above, distance)
        # the rank is the weight of smaller residuals, less that of larger ones; those of a bin sum to 0
        rank = np.concatenate([part[1:] + part[:-1] - part[-1] for _, part in self._parts()])
        ranks, weighted = self._weighted_sums(rank), self._weighted_sums(rank * r)
        ranks[self._start[1:] + np.arange(len(self._start) - 1)] = 0.0
        inside = loc * (ranks[b] - ranks[a]) + scale * (weighted[b] - weighted[a])
        return distance / total, (low * ranks[a] - high * ranks[b] + inside) / total**2

    # Running sums are arrays of m + B numbers: for each of B bins a 0, and then the sums over its residuals. A rank is
    # a place in them.

    @property
    def _weight_up_to(self) -> Array:
        """Return the running sums of the weights."""
        return self._running_sum(np.ones(len(self.residuals)) if self.weights is None else self.weights)

    def _weighted_sums(self, values: Array) -> Array:
        """Return the running sums of values of the residuals, times their weights."""
        return self._running_sum(values if self.weights is None else self.weights * values)

    def _running_sum(self, values: Array) -> Array:
        bins = (values[a:b] for a, b in zip(self._start[:-1], self._start[1:], strict=True))
        return np.concatenate([part for bin in bins for part in ([0.0], np.cumsum(bin))])

    def _parts(self) -> list[tuple[Array, Array]]:
        """Return the residuals of each bin, and the running sums of their weights."""
        up_to, ends = self._weight_up_to, zip(self._start[:-1], self._start[1:], strict=True)
        return [(self.residuals[a:b], up_to[a + k : b + k + 1]) for k, (a, b) in enumerate(ends)]

    def _ends(self, bin: Array | None) -> tuple[Any, Any]:
        """Return the first and the last rank of each row's bin."""
        k = 0 if bin is None else np.asarray(bin).astype(np.intp)
        return self._start[k] + k, self._start[k + 1] + k

    def _rows_by_bin(self, bin: Array | None) -> Iterator[tuple[int, Any]]:
        """Yield each bin that has rows, and which of the (n,) rows these are."""
        if bin is None:
            yield 0, ...
            return
        order = np.argsort(bin, kind="stable")
        ends = np.searchsorted(bin[order], np.arange(len(self._start)))
        for k in np.flatnonzero(np.diff(ends)).tolist():
            yield k, order[ends[k] : ends[k + 1]]

    def _rank(self, z: Array, bin: Array | None, side: str = "right") -> Any:
        """Return the rank of the last residual <= z in each row's bin; side="left": < z."""
        z = np.asarray(z)
        if bin is not None:
            z, bin = np.broadcast_arrays(z, bin)
        rank, flat = np.empty(z.size, np.intp), z.ravel()
        for k, rows in self._rows_by_bin(None if bin is None else bin.ravel()):
            part = self.residuals[self._start[k] : self._start[k + 1]]
            rank[rows] = np.searchsorted(part, flat[rows], side) + self._start[k] + k  # type: ignore[call-overload]
        return rank.reshape(z.shape)

    def _outcome(self, residual: Array, loc: Array, scale: Array) -> Array:
        """Return the outcome of a residual, within the bounds."""
        outcome = loc + scale * residual
        if self.lower != -np.inf:
            outcome = np.where(residual <= self._bound_residual(self.lower, loc, scale, 1.0), self.lower, outcome)
        if self.upper != np.inf:
            outcome = np.where(residual >= self._bound_residual(self.upper, loc, scale, -1.0), self.upper, outcome)
        return outcome

    def _inside(self, loc: Array, scale: Array, bin: Array | None) -> tuple[Any, Any]:
        """Return the ranks of the last outcome on the lower bound, and of the last below the upper one."""
        a, b = (np.broadcast_to(end, np.shape(loc)) for end in self._ends(bin))
        if self.lower != -np.inf:
            a = self._rank(self._bound_residual(self.lower, loc, scale, 1.0), bin)
        if self.upper != np.inf:
            b = np.maximum(self._rank(self._bound_residual(self.upper, loc, scale, -1.0), bin, "left"), a)
        return a, b

    @staticmethod
    def _bound_residual(bound: float, loc: Array, scale: Array, inwards: float) -> Array:
        """Return the residual of a bound, plus a margin for rounding.

        Under a log link, if the standard deviation is proportional to the mean, a label of 0 has the same residual,
        -mean / std, in every row. Rounding must not turn it into an outcome above the bound.
        """
        residual = (bound - loc) / scale
        return residual + inwards * 1e-9 * (1.0 + np.abs(residual))


def bin_of(edges: ArrayLike, key: Array) -> NDArray[np.intp]:
    """Return the bin of each number; one that equals an edge is in the bin below."""
    return np.searchsorted(edges, key, side="left")


def without_own(distance: Array, half_spread: Array, share: Array) -> Array:
    """Return the CRPS of rows under a sample without their own residuals, which have this share of its weight.

    `distance` and `half_spread` are E|Y - y| and E|Y - Y'| / 2 with all residuals; a row's own one is at distance 0.
    """
    rest = 1.0 - share
    return distance / rest - (half_spread - share * distance) / rest**2
