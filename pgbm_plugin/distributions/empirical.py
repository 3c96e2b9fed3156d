"""The empirical distribution, whose shape is a sample of residuals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import Array
from .base import Distribution

if TYPE_CHECKING:
    from typing_extensions import Self


class Empirical(Distribution):
    """Empirical distribution: loc + scale R, where R is one of m observed residuals, all equally likely.

    It assumes no shape. If the residuals do not have mean 0 and variance 1, they also correct the mean and the
    spread. It has quantiles, samples and a continuous ranked probability score (CRPS), but no density.

    Parameters
    ----------
    residuals : array-like of shape (m,)
        Residuals (y - mean) / std of the rows that `tune` or `conformalize` saw.
    lower : float, optional
        Smallest possible outcome; outcomes that would be smaller become this one. Default: no bound.
    point : array-like of shape (n,), optional
        Place of each row that is a point mass, NaN in all other rows.
    **params : float or array-like of shape (n,)
        Parameters ``loc`` and ``scale``, the mean and standard deviation that the model predicts.
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
            raise ValueError(f"{cls.name} needs residuals=; a model has them after model.tune or model.conformalize")
        mean, variance = np.asarray(mean, np.float64), np.asarray(variance, np.float64)
        bad = ~cls._fits(mean, variance)
        if bad.any():
            raise ValueError(f"{cls.name} needs finite moments; those of {bad.sum()} of {bad.size} rows are not finite")
        point = np.where(variance <= 0.0, mean, np.nan)
        params: dict[str, Any] = {**cls._parameters(mean, np.where(variance <= 0.0, np.nan, variance)), **options}
        return cls(point=point, **params)

    @staticmethod
    def _parameters(mean: Array, variance: Array) -> dict[str, Array]:
        return {"loc": mean, "scale": np.sqrt(variance)}

    def _moments(self, loc: Array, scale: Array) -> tuple[Array, Array]:
        r, m, k = self.residuals, len(self.residuals), self._count_on_lower(loc, scale)
        sums, squares = _running_sum(r), _running_sum(r * r)
        share, low = k / m, np.where(k > 0, self.lower, 0.0)
        first, second = (sums[m] - sums[k]) / m, (squares[m] - squares[k]) / m
        mean = low * share + loc * (1.0 - share) + scale * first
        # moments around the mean, so that no digits cancel
        shift = loc - mean
        above = shift**2 * (1.0 - share) + 2.0 * shift * scale * first + scale**2 * second
        return mean, np.maximum((low - mean) ** 2 * share + above, 0.0)

    def _logpdf(self, x: Array, loc: Array, scale: Array) -> Array:
        raise NotImplementedError(f"the {self.name} distribution has no density; score it with crps")

    def _cdf(self, x: Array, loc: Array, scale: Array) -> Array:
        below = np.maximum(self._count_at_most((x - loc) / scale), self._count_on_lower(loc, scale))
        return np.where(x < self.lower, 0.0, below / len(self.residuals))

    def _ppf(self, q: Array, loc: Array, scale: Array) -> Array:
        m = len(self.residuals)
        # if q * m is a whole number, rounding must not raise the rank by 1
        rank = np.ceil(q * m - 1e-9).astype(np.int64) - 1
        return self._outcome(self.residuals[np.clip(rank, 0, m - 1)], loc, scale)

    def _rvs(self, rng: np.random.Generator, shape: tuple[int, ...], loc: Array, scale: Array) -> Array:
        return self._outcome(rng.choice(self.residuals, shape), loc, scale)

    def _crps(self, y: Array, loc: Array, scale: Array) -> Array:
        """Return E|Y - y| - E|Y - Y'| / 2, with Y' a copy of Y, from cumulative sums of sorted residuals."""
        r, m = self.residuals, len(self.residuals)
        on_lower = self._count_on_lower(loc, scale)
        low = np.where(on_lower > 0, self.lower, 0.0)
        k = np.maximum(self._count_at_most((y - loc) / scale), on_lower)  # count of outcomes <= y, for y >= lower
        sums = _running_sum(r)

        def sum_between(a: Any, b: Any) -> Array:
            """Return the sum of the outcomes of ranks a + 1 to b."""
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

    def _count_at_most(self, z: Array) -> Any:
        """Count the residuals <= z."""
        return np.searchsorted(self.residuals, z, side="right")

    def _outcome(self, residual: Array, loc: Array, scale: Array) -> Array:
        """Return the outcome of a residual, at least `lower`."""
        outcome = loc + scale * residual
        if self.lower == -np.inf:
            return outcome
        return np.where(residual <= self._lower_residual(loc, scale), self.lower, outcome)

    def _count_on_lower(self, loc: Array, scale: Array) -> Any:
        """Count the outcomes that lie on the lower bound."""
        if self.lower == -np.inf:
            return np.zeros(np.shape(loc), np.int64)
        return self._count_at_most(self._lower_residual(loc, scale))

    def _lower_residual(self, loc: Array, scale: Array) -> Array:
        """Return the residual of the lower bound, plus a margin for rounding.

        Under a log link, if the standard deviation is proportional to the mean, a label of 0 has the same residual,
        -mean / std, in every row. Rounding must not turn it into an outcome above the bound.
        """
        residual = (self.lower - loc) / scale
        return residual + 1e-9 * (1.0 + np.abs(residual))


def _running_sum(values: NDArray[Any]) -> Array:
    return np.concatenate([[0.0], np.cumsum(values)])
