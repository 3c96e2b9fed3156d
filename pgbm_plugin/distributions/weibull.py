"""The Weibull distribution."""

from __future__ import annotations

import numpy as np
from scipy.special import digamma, gammainc, gammaln, zeta

from ..arrays import Array
from .base import Positive


class Weibull(Positive):
    """Weibull distribution of shape c: the mean is scale Gamma(1 + 1/c) and must be positive."""

    name = "weibull"
    _scipy_name = "weibull_min"

    @staticmethod
    def _parameters(mean: Array, variance: Array) -> dict[str, Array]:
        c = _shape(np.log1p(variance / mean / mean))
        return {"c": c, "scale": mean * np.exp(-gammaln(1.0 + 1.0 / c))}

    @staticmethod
    def _moments(c: Array, scale: Array) -> tuple[Array, Array]:
        mean = scale * np.exp(gammaln(1.0 + 1.0 / c))
        return mean, mean**2 * np.expm1(_log_second_moment(np.log(c)))

    @staticmethod
    def _power(x: Array, c: Array, scale: Array) -> Array:
        """Return (x / scale)^c; 0 for x <= 0."""
        with np.errstate(over="ignore"):
            return (np.maximum(x, 0.0) / scale) ** c

    @staticmethod
    def _logpdf(x: Array, c: Array, scale: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.log(np.maximum(x, 0.0) / scale)
            # at x = 0 the density is 0 for c > 1, 1 / scale for c = 1, infinite for c < 1
            inside = np.where(c == 1.0, 0.0, (c - 1.0) * t) - Weibull._power(x, c, scale) + np.log(c / scale)
        return np.where(x >= 0.0, inside, -np.inf)

    @staticmethod
    def _cdf(x: Array, c: Array, scale: Array) -> Array:
        return -np.expm1(-Weibull._power(x, c, scale))

    @staticmethod
    def _sf(x: Array, c: Array, scale: Array) -> Array:
        return np.exp(-Weibull._power(x, c, scale))

    @staticmethod
    def _ppf(q: Array, c: Array, scale: Array) -> Array:
        with np.errstate(divide="ignore"):
            return scale * (-np.log1p(-q)) ** (1.0 / c)

    @staticmethod
    def _isf(q: Array, c: Array, scale: Array) -> Array:
        with np.errstate(divide="ignore"):
            return scale * (-np.log(q)) ** (1.0 / c)

    @staticmethod
    def _rvs(rng: np.random.Generator, shape: tuple[int, ...], c: Array, scale: Array) -> Array:
        return scale * rng.standard_exponential(shape) ** (1.0 / c)

    @staticmethod
    def _crps(y: Array, c: Array, scale: Array) -> Array:
        """Return y (2 F - 1) + mean (2^(-1/c) - 2 P(1 + 1/c, (y / scale)^c)).

        From E|Y - y| - E|Y - Y'| / 2. The first term is an incomplete gamma function; the second is closed because
        the minimum of two Weibull variables is again Weibull.
        """
        mean = scale * np.exp(gammaln(1.0 + 1.0 / c))
        power = Weibull._power(y, c, scale)
        return y * (1.0 - 2.0 * np.exp(-power)) + mean * (2.0 ** (-1.0 / c) - 2.0 * gammainc(1.0 + 1.0 / c, power))

    @staticmethod
    def _entropy(c: Array, scale: Array) -> Array:
        return np.euler_gamma * (1.0 - 1.0 / c) + np.log(scale / c) + 1.0


# log Gamma(1 + 2u) - 2 log Gamma(1 + u) as a power series in u, from u^2 on
_ORDERS = np.arange(2, 15)
_SERIES = (-1.0) ** _ORDERS * zeta(_ORDERS) * (2.0**_ORDERS - 2.0) / _ORDERS
# for u below this, the series is exact to rounding, while the difference of gamma functions loses digits
_SMALL = 0.02


def _log_second_moment(log_c: Array) -> Array:
    """Return log(1 + cv^2) = log Gamma(1 + 2/c) - 2 log Gamma(1 + 1/c), which decreases with c.

    cv is the coefficient of variation, the standard deviation over the mean.
    """
    u = np.exp(-log_c)
    exact = gammaln(1.0 + 2.0 * u) - 2.0 * gammaln(1.0 + u)
    return np.where(u < _SMALL, u * u * np.polynomial.polynomial.polyval(np.minimum(u, _SMALL), _SERIES), exact)


def _slope(log_c: Array) -> Array:
    """Return the derivative of `_log_second_moment` by log c."""
    u = np.exp(-log_c)
    exact = -2.0 * u * (digamma(1.0 + 2.0 * u) - digamma(1.0 + u))
    series = np.polynomial.polynomial.polyval(np.minimum(u, _SMALL), _ORDERS * _SERIES)
    return np.where(u < _SMALL, -u * u * series, exact)


def _shape(target: Array) -> Array:
    """Return the shape c whose `_log_second_moment` is `target`: interpolate on a grid, then take two Newton steps."""
    log_c = np.interp(-np.log(target), _GRID_LOG_TARGET, _GRID_LOG_C)
    for _ in range(2):
        value = _log_second_moment(log_c)
        log_c -= value * np.log(value / target) / _slope(log_c)  # steps in log target, which is nearly linear in log c
    return np.exp(log_c)


# the grid covers coefficients of variation from 1e-8 to 1e10
_GRID_LOG_C = np.linspace(np.log(0.04), np.log(2e8), 4096)
_GRID_LOG_TARGET = -np.log(_log_second_moment(_GRID_LOG_C))
