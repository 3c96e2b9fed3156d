"""The Gumbel distribution of maxima."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import exp1

from ..arrays import Array
from .base import Distribution

_SD = math.pi / math.sqrt(6.0)


class Gumbel(Distribution):
    """Gumbel distribution of maxima, skewed to the right.

    The mean is loc + euler_gamma scale, the variance (pi scale)^2 / 6.
    """

    name = "gumbel"
    _scipy_name = "gumbel_r"

    @staticmethod
    def _parameters(mean: Array, variance: Array) -> dict[str, Array]:
        scale = np.sqrt(variance) / _SD
        return {"loc": mean - np.euler_gamma * scale, "scale": scale}

    @staticmethod
    def _moments(loc: Array, scale: Array) -> tuple[Array, Array]:
        return loc + np.euler_gamma * scale, (_SD * scale) ** 2

    @staticmethod
    def _logpdf(x: Array, loc: Array, scale: Array) -> Array:
        z = (x - loc) / scale
        with np.errstate(over="ignore"):
            return -z - np.exp(-z) - np.log(scale)

    @staticmethod
    def _cdf(x: Array, loc: Array, scale: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.exp(-np.exp(-(x - loc) / scale))

    @staticmethod
    def _sf(x: Array, loc: Array, scale: Array) -> Array:
        with np.errstate(over="ignore"):
            return -np.expm1(-np.exp(-(x - loc) / scale))

    @staticmethod
    def _ppf(q: Array, loc: Array, scale: Array) -> Array:
        with np.errstate(divide="ignore"):
            return loc - scale * np.log(-np.log(q))

    @staticmethod
    def _isf(q: Array, loc: Array, scale: Array) -> Array:
        with np.errstate(divide="ignore"):
            return loc - scale * np.log(-np.log1p(-q))

    @staticmethod
    def _rvs(rng: np.random.Generator, shape: tuple[int, ...], loc: Array, scale: Array) -> Array:
        return rng.gumbel(loc, scale, shape)

    @staticmethod
    def _crps(y: Array, loc: Array, scale: Array) -> Array:
        """Return scale (-z + 2 E1(exp(-z)) + euler_gamma - log 2) (Friederichs and Thorarinsdottir 2012, eq. 9)."""
        z = (y - loc) / scale
        with np.errstate(over="ignore"):
            # for large z, exp(-z) underflows and E1(exp(-z)) is z - euler_gamma
            tail = np.where(z > 700.0, z - np.euler_gamma, exp1(np.exp(-np.minimum(z, 700.0))))
        return scale * (-z + 2.0 * tail + np.euler_gamma - math.log(2.0))

    @staticmethod
    def _entropy(loc: Array, scale: Array) -> Array:
        return np.log(scale) + np.euler_gamma + 1.0
