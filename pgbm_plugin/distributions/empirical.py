"""The empirical distribution, whose shape is a sample of residuals, or one sample per bin of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import Array
from .base import ZERO, Distribution
from .residuals import Residuals, sorted_residuals

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
        Residuals (y - mean) / std of the rows that `tune` or `conformalize` saw. Or `Residuals`, which are checked and
        in order: weights, bins and the number of rows are then theirs.
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
        residuals: ArrayLike | Residuals,
        weights: ArrayLike | None = None,
        residual_bin: ArrayLike | None = None,
        observed: int | None = None,
        lower: float = -np.inf,
        upper: float = np.inf,
        point: ArrayLike | None = None,
        **params: ArrayLike,
    ):
        super().__init__(point=point, **params)
        if not isinstance(residuals, Residuals):
            residuals = sorted_residuals(self.name, residuals, weights, residual_bin, observed)
        self._residuals = residuals
        if residuals.in_bins != ("bin" in params):
            raise ValueError(f"{self.name} needs bins of the residuals and of the rows (bin=), or neither")
        if residuals.in_bins:
            bins, count = self._params["bin"], len(residuals.start) - 1
            ends = (bins.item(),) if bins.size == 1 else (bins.min(initial=0.0), bins.max(initial=0.0))
            if not all(0.0 <= end < count for end in ends):
                raise ValueError(f"{self.name} has rows in bins other than 0 to {count - 1}")
        self.lower, self.upper = float(lower), float(upper)

    @property
    def residuals(self) -> Array:
        """Return the residuals, in order within their bins."""
        return self._residuals.values

    @property
    def weights(self) -> Array | None:
        """Return the weights of the residuals; None if all are equal."""
        return self._residuals.weights

    @property
    def observed(self) -> int:
        """Return the number of rows that the residuals are of."""
        return self._residuals.rows

    @classmethod
    def from_moments(cls, mean: Array, variance: Array, **options: Any) -> Self:
        if "residuals" not in options:
            raise ValueError(f"{cls.name} needs residuals=; a model has them after model.tune or model.conformalize")
        by, bins, edges = options.pop("by", "mean"), options.pop("bins", 1), options.pop("edges", None)
        if bins > 1 and edges is None:
            raise ValueError(f"{cls.name} needs edges= of its {bins:g} bins; a model has them after model.tune")
        mean, variance = np.asarray(mean, np.float64), np.asarray(variance, np.float64)
        fits, spread, point = cls._fits(mean, variance), variance, None
        if np.count_nonzero(fits & (variance > ZERO)) < mean.size:
            bad = mean.size - np.count_nonzero(fits)
            if bad:
                raise ValueError(f"{cls.name} needs finite moments; those of {bad} of {mean.size} rows are not finite")
            degenerate = variance <= 0.0
            spread, point = np.where(degenerate, np.nan, variance), np.where(degenerate, mean, np.nan)
        params: dict[str, Any] = {**cls._parameters(mean, spread), **options}
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
        return int(np.diff(self._residuals.start).max())

    def bin_weight(self, bin: Array | None) -> Array:
        """Return the total weight of the residuals in each bin of these."""
        return self._residuals.weight_up_to[self._ends(bin)[1]]

    def _moments(self, loc: Array, scale: Array, bin: Array | None = None) -> tuple[Array, Array]:
        sample = self._residuals
        if self._unbounded:
            once, twice = (mean[0 if bin is None else bin.astype(np.intp)] for mean in sample.means)
            mean = loc + scale * once
            shift = loc - mean
            return mean, np.maximum(shift**2 + 2.0 * shift * scale * once + scale**2 * twice, 0.0)
        up_to, sums, squares, (first, last) = sample.weight_up_to, sample.sums, sample.squares, self._ends(bin)
        a, b = self._inside(loc, scale, bin)
        total = up_to[last]
        low, high = np.where(a > first, self.lower, 0.0), np.where(b < last, self.upper, 0.0)
        on_lower, inside, on_upper = up_to[a] / total, (up_to[b] - up_to[a]) / total, (total - up_to[b]) / total
        once, twice = (sums[b] - sums[a]) / total, (squares[b] - squares[a]) / total
        mean = low * on_lower + high * on_upper + loc * inside + scale * once
        # moments around the mean, so that no digits cancel
        shift = loc - mean
        square = shift**2 * inside + 2.0 * shift * scale * once + scale**2 * twice
        return mean, np.maximum((low - mean) ** 2 * on_lower + (high - mean) ** 2 * on_upper + square, 0.0)

    @property
    def _unbounded(self) -> bool:
        return self.lower == -np.inf and self.upper == np.inf

    def _logpdf(self, x: Array, loc: Array, scale: Array, bin: Array | None = None) -> Array:
        raise NotImplementedError(f"the {self.name} distribution has no density; score it with crps")

    def _cdf(self, x: Array, loc: Array, scale: Array, bin: Array | None = None) -> Array:
        up_to, (_, last), (a, b) = self._residuals.weight_up_to, self._ends(bin), self._inside(loc, scale, bin)
        share = up_to[np.clip(self._rank((x - loc) / scale, bin), a, b)] / up_to[last]
        return np.where(x < self.lower, 0.0, np.where(x >= self.upper, 1.0, share))

    def _ppf(self, q: Array, loc: Array, scale: Array, bin: Array | None = None) -> Array:
        if bin is None:
            return self._outcome(self._quantiles_in(0, q), loc, scale)
        if bin.size == 1:  # a service's row, which should not wait for a table
            return self._outcome(self._quantiles_in(int(bin.item()), q), loc, scale)
        place = bin.ravel().astype(np.intp)
        table = np.empty((len(self._residuals.bins), *q.shape))
        for k in np.flatnonzero(np.bincount(place)).tolist():
            table[k] = self._quantiles_in(k, q)
        return self._outcome(table[place], loc, scale)

    def _quantiles_in(self, bin: int, q: Array) -> Array:
        """Return the quantiles of the residuals of a bin."""
        return self._residuals.quantiles(self.name, bin, q, self._residual_quantiles)

    def _from_uniform(self, u: Array, loc: Array, scale: Array, bin: Array | None = None) -> Array:
        residual, parts = np.empty(u.shape), self._residuals.bins
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
            part = slice(*self._residuals.start[k : k + 2])
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
        up_to, sums, (first, last) = self._residuals.weight_up_to, self._residuals.sums, self._ends(bin)
        a, b = self._inside(loc, scale, bin)
        total = up_to[last]
        low, high = np.where(a > first, self.lower, 0.0), np.where(b < last, self.upper, 0.0)
        k = np.clip(self._rank((y - loc) / scale, bin), a, b)  # outcomes <= y, for y between the bounds

        def sum_between(a: Any, b: Any) -> Array:
            """Return the weighted sum of the outcomes of ranks a + 1 to b, which are on no bound."""
            return loc * (up_to[b] - up_to[a]) + scale * (sums[b] - sums[a])

        below = low * up_to[a] + sum_between(a, k)
        above = sum_between(k, b) + high * (total - up_to[b])
        distance = above - below + y * (2.0 * up_to[k] - total)
        distance = np.where(y < self.lower, below + above - y * total, distance)
        distance = np.where(y >= self.upper, y * total - below - above, distance)
        ranks, weighted = self._residuals.rank_sums
        inside = loc * (ranks[b] - ranks[a]) + scale * (weighted[b] - weighted[a])
        return distance / total, (low * ranks[a] - high * ranks[b] + inside) / total**2

    def _ends(self, bin: Array | None) -> tuple[Any, Any]:
        """Return the first and the last rank of each row's bin."""
        return self._residuals.ends(0 if bin is None else np.asarray(bin).astype(np.intp))

    def _rows_by_bin(self, bin: Array | None) -> Iterator[tuple[int, Any]]:
        """Yield each bin that has rows, and which of the (n,) rows these are."""
        if bin is None:
            yield 0, ...
            return
        order = np.argsort(bin, kind="stable")
        ends = np.searchsorted(bin[order], np.arange(len(self._residuals.start)))
        for k in np.flatnonzero(np.diff(ends)).tolist():
            yield k, order[ends[k] : ends[k + 1]]

    def _rank(self, z: Array, bin: Array | None, side: str = "right") -> Any:
        """Return the rank of the last residual <= z in each row's bin; side="left": < z."""
        z = np.asarray(z)
        if bin is not None:
            z, bin = np.broadcast_arrays(z, bin)
        rank, flat, start = np.empty(z.size, np.intp), z.ravel(), self._residuals.start
        for k, rows in self._rows_by_bin(None if bin is None else bin.ravel()):
            part = self.residuals[start[k] : start[k + 1]]
            rank[rows] = np.searchsorted(part, flat[rows], side) + start[k] + k  # type: ignore[call-overload]
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
