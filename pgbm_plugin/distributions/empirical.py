"""A location-scale family whose shape is a sample of residuals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .base import Distribution
from .rowwise import Array

if TYPE_CHECKING:
    from typing_extensions import Self


class Empirical(Distribution):
    """loc + scale R, with R one of m residuals, all equally likely: no shape is assumed.

    The residuals are those of `tune` or `conformalize`, (y - mean) / std, as they were seen: where they are not centred
    or not of variance 1, they correct the mean and the spread. It has quantiles, samples and a CRPS, but no density.

    `lower` is a bound below which no outcome can lie; what would fall below lies on it.
    """

    name = "empirical"
    needs_residuals = True

    def __init__(
        self, *, residuals: ArrayLike, lower: float = -np.inf, point: ArrayLike | None = None, **params: ArrayLike
    ):
        super().__init__(point=point, **params)
        self.residuals = np.sort(np.asarray(residuals, np.float64))
        if self.residuals.ndim != 1 or len(self.residuals) < 2 or not np.all(np.isfinite(self.residuals)):
            raise ValueError(f"{self.name} needs at least two finite residuals")
        self.residuals.flags.writeable = False
        self.lower = float(lower)

    @classmethod
    def from_moments(cls, mean: Array, variance: Array, **options: Any) -> Self:
        if "residuals" not in options:
            raise ValueError(f"{cls.name} needs residuals of validation rows: call model.tune or conformalize first")
        mean, variance = np.asarray(mean, np.float64), np.asarray(variance, np.float64)
        if not np.all(cls._fits(mean, variance)):
            raise ValueError(f"{cls.name} cannot have moments that are not finite")
        point = np.where(variance <= 0.0, mean, np.nan)
        params: dict[str, Any] = {**cls._parameters(mean, np.where(variance <= 0.0, np.nan, variance)), **options}
        return cls(point=point, **params)

    @staticmethod
    def _parameters(mean: Array, variance: Array) -> dict[str, Array]:
        return {"loc": mean, "scale": np.sqrt(variance)}

    def _moments(self, loc: Array, scale: Array) -> tuple[Array, Array]:
        r, m, k = self.residuals, len(self.residuals), self._on_lower(loc, scale)
        sums, squares = _running_sum(r), _running_sum(r * r)
        share, low = k / m, np.where(k > 0, self.lower, 0.0)
        first, second = (sums[m] - sums[k]) / m, (squares[m] - squares[k]) / m
        mean = low * share + loc * (1.0 - share) + scale * first
        # around the mean, so that nothing cancels
        shift = loc - mean
        above = shift**2 * (1.0 - share) + 2.0 * shift * scale * first + scale**2 * second
        return mean, np.maximum((low - mean) ** 2 * share + above, 0.0)

    def _logpdf(self, x: Array, loc: Array, scale: Array) -> Array:
        raise NotImplementedError(f"the {self.name} distribution has no density; score it with crps")

    def _cdf(self, x: Array, loc: Array, scale: Array) -> Array:
        below = np.maximum(self._below((x - loc) / scale), self._on_lower(loc, scale))
        return np.where(x < self.lower, 0.0, below / len(self.residuals))

    def _ppf(self, q: Array, loc: Array, scale: Array) -> Array:
        m = len(self.residuals)
        # rounding in q * m must not push a level that lies on a step to the next one
        rank = np.ceil(q * m - 1e-9).astype(np.int64) - 1
        return self._outcome(self.residuals[np.clip(rank, 0, m - 1)], loc, scale)

    def _rvs(self, rng: np.random.Generator, shape: tuple[int, ...], loc: Array, scale: Array) -> Array:
        return self._outcome(rng.choice(self.residuals, shape), loc, scale)

    def _crps(self, y: Array, loc: Array, scale: Array) -> Array:
        """E|Y - y| - E|Y - Y'| / 2, from sorted residuals and running sums over them."""
        r, m = self.residuals, len(self.residuals)
        on_lower = self._on_lower(loc, scale)
        low = np.where(on_lower > 0, self.lower, 0.0)
        k = np.maximum(self._below((y - loc) / scale), on_lower)  # outcomes at most y, if y is not below the bound
        sums = _running_sum(r)

        def sum_between(a: Any, b: Any) -> Array:
            """Sum of the outcomes of ranks a..b."""
            return loc * (b - a) + scale * (sums[b] - sums[a])

        below, above = low * on_lower + sum_between(on_lower, k), sum_between(k, m)
        distance = np.where(y < self.lower, below + above - y * m, above - below + y * (2.0 * k - m))
        rank_weight = 2.0 * np.arange(1.0, m + 1.0) - m - 1.0
        weights, weighted = _running_sum(rank_weight), _running_sum(rank_weight * r)
        spread = low * weights[on_lower] - loc * weights[on_lower] + scale * (weighted[m] - weighted[on_lower])
        return distance / m - spread / m**2

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.residuals.flags.writeable = False

    def _below(self, z: Array) -> Any:
        """How many residuals are <= z."""
        return np.searchsorted(self.residuals, z, side="right")

    def _outcome(self, residual: Array, loc: Array, scale: Array) -> Array:
        """What a residual stands for."""
        outcome = loc + scale * residual
        return outcome if self.lower == -np.inf else np.where(residual <= self._bound(loc, scale), self.lower, outcome)

    def _on_lower(self, loc: Array, scale: Array) -> Any:
        """How many outcomes lie on the lower bound."""
        bounded = self.lower > -np.inf
        return self._below(self._bound(loc, scale)) if bounded else np.zeros(np.shape(loc), np.int64)

    def _bound(self, loc: Array, scale: Array) -> Array:
        """The residual of the lower bound, and a little more.

        Under a log link with one relative spread, a label of 0 leaves the same residual, -mean / std, in every row;
        rounding must not lift it off the bound again.
        """
        residual = (self.lower - loc) / scale
        return residual + 1e-9 * (1.0 + np.abs(residual))

    def to_scipy(self) -> Any:
        raise NotImplementedError("scipy has no such location-scale family")


def _running_sum(values: NDArray[Any]) -> Array:
    return np.concatenate([[0.0], np.cumsum(values)])
