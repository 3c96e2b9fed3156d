"""The normal distribution."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri

from ..arrays import Array
from .base import Symmetric

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


class Normal(Symmetric):
    """Normal distribution with mean loc and variance scale^2."""

    name = "normal"
    _scipy_name = "norm"

    @classmethod
    def complexity(cls) -> float:
        return 0.0

    @staticmethod
    def _parameters(mean: Array, variance: Array) -> dict[str, Array]:
        return {"loc": mean, "scale": np.sqrt(variance)}

    @staticmethod
    def _moments(loc: Array, scale: Array) -> tuple[Array, Array]:
        return loc, scale**2

    @staticmethod
    def _logpdf(x: Array, loc: Array, scale: Array) -> Array:
        z = (x - loc) / scale
        return -0.5 * z * z - np.log(scale) - LOG_SQRT_2PI

    @staticmethod
    def _cdf(x: Array, loc: Array, scale: Array) -> Array:
        return ndtr((x - loc) / scale)

    _standard_ppf = staticmethod(ndtri)

    @staticmethod
    def _rvs(rng: np.random.Generator, shape: tuple[int, ...], loc: Array, scale: Array) -> Array:
        return loc + scale * rng.standard_normal(shape)

    @staticmethod
    def _crps(y: Array, loc: Array, scale: Array) -> Array:
        """Return scale (z (2 Phi(z) - 1) + 2 phi(z) - 1/sqrt(pi)) (Gneiting et al. 2005, eq. 5)."""
        z = (y - loc) / scale
        density = np.exp(-0.5 * z * z - LOG_SQRT_2PI)
        return scale * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / math.sqrt(math.pi))

    @staticmethod
    def _entropy(loc: Array, scale: Array) -> Array:
        return 0.5 + LOG_SQRT_2PI + np.log(scale)


def normal_where_narrow(crps: Array, y: Array, mean: Array, sd: Array) -> Array:
    """Replace a family's CRPS by the normal distribution's where the mean exceeds 1e5 standard deviations.

    There the family's closed form subtracts numbers as large as the mean, and loses its digits. The families that use
    this (gamma, Poisson, negative binomial) are sums of many small parts, so that they are normal there to 1e-5.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(mean > 1e5 * sd, Normal._crps(y, mean, sd), crps)
