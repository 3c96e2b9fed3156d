"""The normal distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr, ndtri

from .base import Array, Distribution

if TYPE_CHECKING:
    from typing_extensions import Self

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_INV_SQRT_PI = 1.0 / math.sqrt(math.pi)


class Normal(Distribution):
    """Normal(loc, scale). A scale of 0 is a point mass: finite quantiles, and |y - loc| as CRPS."""

    name = "normal"

    @classmethod
    def from_moments(cls, mean: Array, variance: Array) -> Self:
        return cls(loc=mean, scale=np.sqrt(variance))

    def mean(self) -> Array:
        return self.params["loc"]

    def var(self) -> Array:
        return self.params["scale"] ** 2

    def std(self) -> Array:
        return self.params["scale"]

    def logpdf(self, x: ArrayLike) -> Array:
        z, scale = self._standardised(x)
        with np.errstate(divide="ignore"):
            return np.where((scale == 0.0) & (z == 0.0), np.inf, -0.5 * z * z - np.log(scale) - _LOG_SQRT_2PI)

    def cdf(self, x: ArrayLike) -> Array:
        z, scale = self._standardised(x)
        return np.where((scale == 0.0) & (z == 0.0), 1.0, ndtr(z))

    def sf(self, x: ArrayLike) -> Array:
        z, scale = self._standardised(x)
        return np.where((scale == 0.0) & (z == 0.0), 0.0, ndtr(-z))

    def logcdf(self, x: ArrayLike) -> Array:
        """Log of the cdf, without underflow in the lower tail."""
        z, scale = self._standardised(x)
        return np.where((scale == 0.0) & (z == 0.0), 0.0, log_ndtr(z))

    def ppf(self, q: ArrayLike) -> Array:
        q, p = self._per_level(q)
        return _scaled(p["loc"], p["scale"], ndtri(q))

    def isf(self, q: ArrayLike) -> Array:
        q, p = self._per_level(q)
        return _scaled(p["loc"], p["scale"], -ndtri(q))

    def rvs(self, size: int | None = None, random_state: Any = None) -> Array:
        draws = np.random.default_rng(random_state).standard_normal((len(self), 1 if size is None else size))
        out = self.params["loc"][:, None] + self.params["scale"][:, None] * draws
        return out[:, 0] if size is None else out

    def crps(self, y: ArrayLike) -> Array:
        """scale * (z (2 Phi(z) - 1) + 2 phi(z) - 1/sqrt(pi)) (Gneiting et al. 2005, eq. 5)."""
        y, p = self._per_row(y)
        z, scale = self._standardised(y)
        with np.errstate(invalid="ignore"):
            pdf = np.exp(-0.5 * z * z - _LOG_SQRT_2PI)
            score = scale * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * pdf - _INV_SQRT_PI)
        return np.where(scale == 0.0, np.abs(y - p["loc"]), score)

    def to_scipy(self) -> Any:
        from scipy.stats import norm

        return norm(**self.params)

    def _standardised(self, x: ArrayLike) -> tuple[Array, Array]:
        """(x - loc) / scale, which is 0 or infinite where the scale is 0; and the scale."""
        x, p = self._per_row(x)
        difference = x - p["loc"]
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.where(difference == 0.0, 0.0, difference / p["scale"])
        return z, p["scale"]


def _scaled(loc: Array, scale: Array, z: Array) -> Array:
    """loc + scale * z, with loc where the scale is 0 and z infinite."""
    with np.errstate(invalid="ignore"):
        return np.where(scale == 0.0, loc, loc + scale * z)
