"""The gamma distribution."""

from __future__ import annotations

import numpy as np
from scipy.special import betaln, digamma, gammainc, gammaincc, gammainccinv, gammaincinv, gammaln, xlogy

from ..arrays import Array
from .base import Positive
from .normal import normal_where_narrow


class Gamma(Positive):
    """Gamma distribution of shape a: the mean is a scale and must be positive, the variance is a scale^2."""

    name = "gamma"
    _scipy_name = "gamma"

    @staticmethod
    def _parameters(mean: Array, variance: Array) -> dict[str, Array]:
        return {"a": mean / variance * mean, "scale": variance / mean}

    @staticmethod
    def _moments(a: Array, scale: Array) -> tuple[Array, Array]:
        return a * scale, a * scale**2

    @staticmethod
    def _logpdf(x: Array, a: Array, scale: Array) -> Array:
        t = np.maximum(x, 0.0) / scale
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = xlogy(a - 1.0, t) - t - gammaln(a) - np.log(scale)
        return np.where(x >= 0.0, inside, -np.inf)

    @staticmethod
    def _cdf(x: Array, a: Array, scale: Array) -> Array:
        return gammainc(a, np.maximum(x, 0.0) / scale)

    @staticmethod
    def _sf(x: Array, a: Array, scale: Array) -> Array:
        return gammaincc(a, np.maximum(x, 0.0) / scale)

    @staticmethod
    def _ppf(q: Array, a: Array, scale: Array) -> Array:
        return scale * gammaincinv(a, q)

    @staticmethod
    def _isf(q: Array, a: Array, scale: Array) -> Array:
        return scale * gammainccinv(a, q)

    @staticmethod
    def _rvs(rng: np.random.Generator, shape: tuple[int, ...], a: Array, scale: Array) -> Array:
        return rng.gamma(a, scale, shape)

    @staticmethod
    def _crps(y: Array, a: Array, scale: Array) -> Array:
        """Return y (2 F_a - 1) - a scale (2 F_(a+1) - 1) - scale / B(1/2, a) (Scheuerer and Moeller 2015)."""
        t = np.maximum(y, 0.0) / scale
        spread = scale * np.exp(-betaln(0.5, a))
        exact = y * (2.0 * gammainc(a, t) - 1.0) - a * scale * (2.0 * gammainc(a + 1.0, t) - 1.0) - spread
        return normal_where_narrow(exact, y, a * scale, np.sqrt(a) * scale)

    @staticmethod
    def _entropy(a: Array, scale: Array) -> Array:
        return a + np.log(scale) + gammaln(a) + (1.0 - a) * digamma(a)
