"""A location-scale family whose shape is a sample of residuals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .base import Array, Distribution

if TYPE_CHECKING:
    from typing_extensions import Self


class Empirical(Distribution):
    """loc + scale R, with R one of m residuals, all equally likely: no shape is assumed.

    The residuals are those of `tune` or `conformalize`, (y - mean) / std, centred and scaled to mean 0 and variance 1,
    so that a row has mean loc and variance scale^2. It has quantiles, samples and a CRPS, but no density.
    """

    name = "empirical"

    def __init__(self, *, residuals: ArrayLike, point: ArrayLike | None = None, **params: ArrayLike):
        super().__init__(point=point, **params)
        r = np.sort(np.asarray(residuals, np.float64))
        if r.ndim != 1 or len(r) < 2 or not np.all(np.isfinite(r)) or r[0] == r[-1]:
            raise ValueError("empirical needs at least two finite residuals that are not all the same")
        self.residuals = (r - r.mean()) / r.std()
        self.residuals.flags.writeable = False

    @classmethod
    def from_moments(cls, mean: Array, variance: Array, **options: Any) -> Self:
        if "residuals" not in options:
            raise ValueError("empirical needs residuals of validation rows: call model.tune or conformalize first")
        variance = np.asarray(variance, np.float64)
        point = np.where(variance <= 0.0, mean, np.nan)
        return cls(point=point, **cls._parameters(mean, np.maximum(variance, 0.0)), **options)

    @staticmethod
    def _parameters(mean: Array, variance: Array) -> dict[str, Array]:
        return {"loc": mean, "scale": np.sqrt(variance)}

    def _moments(self, loc: Array, scale: Array) -> tuple[Array, Array]:
        return loc, scale**2

    def _logpdf(self, x: Array, loc: Array, scale: Array) -> Array:
        raise NotImplementedError("the empirical distribution has no density; score it with crps")

    def _cdf(self, x: Array, loc: Array, scale: Array) -> Array:
        return self._below((x - loc) / scale) / len(self.residuals)

    def _sf(self, x: Array, loc: Array, scale: Array) -> Array:
        return 1.0 - self._cdf(x, loc, scale)

    def _ppf(self, q: Array, loc: Array, scale: Array) -> Array:
        m = len(self.residuals)
        # rounding in q * m must not push a level that lies on a step to the next one
        rank = np.ceil(q * m - 1e-9).astype(np.int64) - 1
        return loc + scale * self.residuals[np.clip(rank, 0, m - 1)]

    def _isf(self, q: Array, loc: Array, scale: Array) -> Array:
        return self._ppf(1.0 - q, loc, scale)

    def _rvs(self, rng: np.random.Generator, shape: tuple[int, ...], loc: Array, scale: Array) -> Array:
        return loc + scale * rng.choice(self.residuals, shape)

    def _crps(self, y: Array, loc: Array, scale: Array) -> Array:
        """scale (E|R - z| - E|R - R'| / 2), from sorted residuals and their running sums."""
        r, m = self.residuals, len(self.residuals)
        z = (y - loc) / scale
        k = self._below(z)
        sums = np.concatenate([[0.0], np.cumsum(r)])
        distance = (z * (2.0 * k - m) - 2.0 * sums[k] + sums[m]) / m
        spread = ((2.0 * np.arange(1, m + 1) - m - 1.0) @ r) / m**2
        return scale * (distance - spread)

    def _below(self, z: Array) -> Any:
        """How many residuals are <= z."""
        return np.searchsorted(self.residuals, z, side="right")

    def to_scipy(self) -> Any:
        raise NotImplementedError("scipy has no such location-scale family")
