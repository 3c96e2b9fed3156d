"""The log-normal distribution."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri

from ..arrays import Array
from .base import Positive
from .normal import LOG_SQRT_2PI


class LogNormal(Positive):
    """Log-normal distribution: log Y is normal with mean log(scale) and standard deviation s.

    The mean is scale exp(s^2 / 2) and must be positive; the variance is mean^2 (exp(s^2) - 1).
    """

    name = "lognormal"
    _scipy_name = "lognorm"
    is_lognormal = True

    @staticmethod
    def _parameters(mean: Array, variance: Array) -> dict[str, Array]:
        s2 = np.log1p(variance / mean / mean)
        return {"s": np.sqrt(s2), "scale": mean * np.exp(-0.5 * s2)}

    @staticmethod
    def _moments(s: Array, scale: Array) -> tuple[Array, Array]:
        mean = scale * np.exp(0.5 * s * s)
        return mean, mean**2 * np.expm1(s * s)

    @staticmethod
    def _z(x: Array, s: Array, scale: Array) -> Array:
        """Return the standardised logarithm of x; -inf for x <= 0."""
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(x, 0.0) / scale) / s

    @staticmethod
    def _logpdf(x: Array, s: Array, scale: Array) -> Array:
        z = LogNormal._z(x, s, scale)
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = -0.5 * z * z - np.log(x) - np.log(s) - LOG_SQRT_2PI
        return np.where(x > 0.0, inside, -np.inf)

    @staticmethod
    def _cdf(x: Array, s: Array, scale: Array) -> Array:
        return ndtr(LogNormal._z(x, s, scale))

    @staticmethod
    def _sf(x: Array, s: Array, scale: Array) -> Array:
        return ndtr(-LogNormal._z(x, s, scale))

    @staticmethod
    def _ppf(q: Array, s: Array, scale: Array) -> Array:
        return scale * np.exp(s * ndtri(q))

    @staticmethod
    def _isf(q: Array, s: Array, scale: Array) -> Array:
        return scale * np.exp(-s * ndtri(q))

    @staticmethod
    def _rvs(rng: np.random.Generator, shape: tuple[int, ...], s: Array, scale: Array) -> Array:
        return scale * np.exp(s * rng.standard_normal(shape))

    @staticmethod
    def _crps(y: Array, s: Array, scale: Array) -> Array:
        """Return y (2 Phi(z) - 1) - 2 mean (Phi(z - s) + Phi(s / sqrt 2) - 1) (Baran and Lerch 2015)."""
        z = LogNormal._z(y, s, scale)
        mean = scale * np.exp(0.5 * s * s)
        return y * (2.0 * ndtr(z) - 1.0) - 2.0 * mean * (ndtr(z - s) - ndtr(-s / math.sqrt(2.0)))

    @staticmethod
    def _entropy(s: Array, scale: Array) -> Array:
        return np.log(scale) + 0.5 + np.log(s) + LOG_SQRT_2PI
