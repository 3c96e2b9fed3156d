"""The Laplace distribution."""

from __future__ import annotations

import math

import numpy as np

from ..arrays import Array
from .base import Symmetric


class Laplace(Symmetric):
    """Laplace distribution with mean loc and variance 2 scale^2."""

    name = "laplace"
    _scipy_name = "laplace"

    @staticmethod
    def _parameters(mean: Array, variance: Array) -> dict[str, Array]:
        return {"loc": mean, "scale": np.sqrt(0.5 * variance)}

    @staticmethod
    def _moments(loc: Array, scale: Array) -> tuple[Array, Array]:
        return loc, 2.0 * scale**2

    @staticmethod
    def _logpdf(x: Array, loc: Array, scale: Array) -> Array:
        return -np.abs(x - loc) / scale - np.log(2.0 * scale)

    @staticmethod
    def _cdf(x: Array, loc: Array, scale: Array) -> Array:
        z = (x - loc) / scale
        tail = 0.5 * np.exp(-np.abs(z))
        return np.where(z < 0.0, tail, 1.0 - tail)

    @staticmethod
    def _standard_ppf(q: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.where(q < 0.5, np.log(2.0 * q), -np.log(2.0 * (1.0 - q)))

    def _isf(self, q: Array, loc: Array, scale: Array) -> Array:  # type: ignore[override]
        return 2.0 * loc - self._ppf(q, loc, scale)

    @staticmethod
    def _rvs(rng: np.random.Generator, shape: tuple[int, ...], loc: Array, scale: Array) -> Array:
        return rng.laplace(loc, scale, shape)

    @staticmethod
    def _crps(y: Array, loc: Array, scale: Array) -> Array:
        """Return scale (|z| + exp(-|z|) - 3/4) (Jordan et al. 2019)."""
        z = np.abs((y - loc) / scale)
        return scale * (z + np.exp(-z) - 0.75)

    @staticmethod
    def _entropy(loc: Array, scale: Array) -> Array:
        return 1.0 + math.log(2.0) + np.log(scale)
