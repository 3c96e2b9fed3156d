"""The Poisson distribution."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ive, pdtr, pdtrc, xlogy

from ..arrays import Array
from .discrete import Discrete
from .normal import normal_where_narrow

_NORMAL_FROM = 1e15


class Poisson(Discrete):
    """Poisson distribution with mean mu > 0; `from_moments` ignores the variance, because it is mu as well."""

    name = "poisson"
    _scipy_name = "poisson"
    _needs = "it needs a mean > 0 that is finite"

    @staticmethod
    def _fits(mean: Array, variance: Array) -> NDArray[np.bool_]:
        return np.isfinite(mean) & (mean > 0.0)

    @staticmethod
    def _parameters(mean: Array, variance: Array) -> dict[str, Array]:
        return {"mu": mean}

    @staticmethod
    def _moments(mu: Array) -> tuple[Array, Array]:
        return mu, mu

    @staticmethod
    def _logpdf(x: Array, mu: Array) -> Array:
        k = np.maximum(x, 0.0)
        return np.where((x >= 0.0) & (x == np.floor(x)), xlogy(k, mu) - mu - gammaln(k + 1.0), -np.inf)

    @staticmethod
    def _cdf(x: Array, mu: Array) -> Array:
        return np.where(x >= 0.0, pdtr(np.floor(np.maximum(x, 0.0)), mu), 0.0)

    @staticmethod
    def _sf(x: Array, mu: Array) -> Array:
        return np.where(x >= 0.0, pdtrc(np.floor(np.maximum(x, 0.0)), mu), 1.0)

    @staticmethod
    def _rvs(rng: np.random.Generator, shape: tuple[int, ...], mu: Array) -> Array:
        return poisson_samples(rng, np.broadcast_to(mu, shape))

    @staticmethod
    def _crps(y: Array, mu: Array) -> Array:
        """Return (y - mu)(2 F(y) - 1) + 2 mu f(floor y) - mu exp(-2 mu)(I0(2 mu) + I1(2 mu)) (Wei and Held 2014)."""
        # scipy's ive returns NaN for large arguments, where both functions are 1 / sqrt(4 pi mu) to eight digits
        spread = np.where(mu > 1e8, np.sqrt(mu / np.pi), mu * (ive(0, 2.0 * mu) + ive(1, 2.0 * mu)))
        mass = np.exp(Poisson._logpdf(np.floor(y), mu))
        exact = (y - mu) * (2.0 * Poisson._cdf(y, mu) - 1.0) + 2.0 * mu * mass - spread
        return normal_where_narrow(exact, y, mu, np.sqrt(mu))


def poisson_samples(rng: np.random.Generator, mu: Array) -> Array:
    """Draw a count for each mean; above 1e15, where NumPy ends in integers, from the normal distribution.

    The skewness is then below 4e-8, and a float has no digits after the point.
    """
    draws = rng.poisson(np.minimum(mu, _NORMAL_FROM)).astype(np.float64)
    large = mu > _NORMAL_FROM
    if large.any():
        draws[large] = np.rint(mu[large] + np.sqrt(mu[large]) * rng.standard_normal(np.count_nonzero(large)))
    return draws
