"""The Gumbel distribution of maxima."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import exp1

from .base import Distribution
from .rowwise import Array

_SD = math.pi / math.sqrt(6.0)


class Gumbel(Distribution):
    """Gumbel(loc, scale), skewed to the right: mean loc + euler_gamma scale, variance (pi scale)^2 / 6."""

    name = "gumbel"

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
        """scale (-z + 2 E1(exp(-z)) + euler_gamma - log 2) (Friederichs and Thorarinsdottir 2012, eq. 9)."""
        z = (y - loc) / scale
        with np.errstate(over="ignore"):
            # far to the right E1(exp(-z)) = z - euler_gamma, and exp(-z) underflows
            tail = np.where(z > 700.0, z - np.euler_gamma, exp1(np.exp(-np.minimum(z, 700.0))))
        return scale * (-z + 2.0 * tail + np.euler_gamma - math.log(2.0))

    @staticmethod
    def _entropy(loc: Array, scale: Array) -> Array:
        return np.log(scale) + np.euler_gamma + 1.0

    def to_scipy(self) -> Any:
        from scipy.stats import gumbel_r

        return gumbel_r(**self.params)
