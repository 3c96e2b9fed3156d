"""The negative binomial distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import betainc, betaincc, betaln, xlog1py, xlogy

from ..arrays import Array
from .base import Positive
from .discrete import Discrete
from .normal import normal_where_narrow
from .poisson import Poisson, poisson_samples

# If the variance exceeds the mean by less than this share of it, the family equals the Poisson to the last digits.
_POISSON_EXCESS = 1e-12


class NegativeBinomial(Discrete):
    """Negative binomial distribution: the mean mu = n (1 - p) / p must be positive, the variance is mu / p.

    No negative binomial has a variance at or below its mean. Such rows become the limit of the family, the Poisson
    distribution with the same mean; their parameters are n = inf, p = 1 and ``mu``, the mean.
    """

    name = "negativebinomial"
    _needs = Positive._needs
    _fits = staticmethod(Positive._fits)

    @staticmethod
    def _parameters(mean: Array, variance: Array) -> dict[str, Array]:
        excess = np.maximum(variance - mean, 0.0)
        with np.errstate(divide="ignore", over="ignore"):
            n = mean / excess * mean
        limit = excess <= _POISSON_EXCESS * mean
        return {
            "n": np.where(limit, np.inf, n),
            "p": np.where(limit, 1.0, mean / variance),
            "mu": mean,
        }

    @staticmethod
    def _moments(n: Array, p: Array, mu: Array) -> tuple[Array, Array]:
        return mu, mu / p

    @staticmethod
    def _or_poisson(regular: Array, limit: Callable[[], Array], n: Array) -> Array:
        """Replace `regular` by ``limit()``, the Poisson distribution's, where n is infinite."""
        at_limit = np.isinf(n)
        return np.where(at_limit, limit(), regular) if at_limit.any() else regular

    @staticmethod
    def _logpdf(x: Array, n: Array, p: Array, mu: Array) -> Array:
        k = np.maximum(x, 0.0)
        with np.errstate(invalid="ignore"):
            # mu p / n is 1 - p without cancellation
            mass = -betaln(n, k + 1.0) - np.log(n + k) - xlog1py(n, mu / n) + xlogy(k, mu * p / n)
        inside = np.where((x >= 0.0) & (x == np.floor(x)), mass, -np.inf)
        return NegativeBinomial._or_poisson(inside, lambda: Poisson._logpdf(x, mu), n)

    @staticmethod
    def _cdf(x: Array, n: Array, p: Array, mu: Array) -> Array:
        k = np.floor(np.maximum(x, 0.0))
        inside = np.where(x >= 0.0, _beta_cdf(n, k + 1.0, p, mu), 0.0)
        return NegativeBinomial._or_poisson(inside, lambda: Poisson._cdf(x, mu), n)

    @staticmethod
    def _sf(x: Array, n: Array, p: Array, mu: Array) -> Array:
        k = np.floor(np.maximum(x, 0.0))
        inside = np.where(x >= 0.0, betainc(k + 1.0, n, mu * p / n), 1.0)
        return NegativeBinomial._or_poisson(inside, lambda: Poisson._sf(x, mu), n)

    @staticmethod
    def _rvs(rng: np.random.Generator, shape: tuple[int, ...], n: Array, p: Array, mu: Array) -> Array:
        # a Poisson whose rate is gamma distributed; in the limit the rate is mu
        finite = np.where(np.isinf(n), 1.0, n)
        rate = np.where(np.isinf(n), mu, rng.gamma(finite, mu / finite, shape))
        return poisson_samples(rng, rate)

    @staticmethod
    def _crps(y: Array, n: Array, p: Array, mu: Array) -> Array:
        """Return E|Y - y| - E|Y - Y'| / 2; the first term has a closed form (Wei and Held 2014, eq. 3)."""
        finite = np.where(np.isinf(n), 1.0, n)
        cdf = NegativeBinomial._cdf(y, finite, p, mu)
        k = np.floor(np.maximum(y, 1.0))
        shifted = np.where(y >= 1.0, _beta_cdf(finite + 1.0, k, p, mu * (finite + 1.0) / finite), 0.0)
        distance = y * (2.0 * cdf - 1.0) - mu * (2.0 * shifted - 1.0)
        score = normal_where_narrow(distance - 0.5 * _mean_difference(finite, p, mu), y, mu, np.sqrt(mu / p))
        return NegativeBinomial._or_poisson(score, lambda: Poisson._crps(y, mu), n)

    def to_scipy(self) -> Any:
        """Return scipy's nbinom, with a very large n in rows at the Poisson limit."""
        from scipy.stats import nbinom

        n, mu = self.params["n"], self.params["mu"]
        n = np.where(np.isinf(n), 1e7 * mu, n)  # a larger n would leave no digits of 1 - p
        return nbinom(n, n / (n + mu))


def _beta_cdf(n: Array, k: Array, p: Array, mu: Array) -> Array:
    """Return I_p(n, k), the regularised incomplete beta function.

    For p near 1, the digits of 1 - p are lost. There the complement takes 1 - p as mu p / n; it is ten times slower.
    """
    out = betainc(n, k, p)
    n, k, p, mu = np.broadcast_arrays(n, k, p, mu)
    near_1 = p > 1.0 - 1e-4
    if near_1.any():
        out[near_1] = betaincc(k[near_1], n[near_1], mu[near_1] * p[near_1] / n[near_1])
    return out


def _mean_difference(n: Array, p: Array, mu: Array) -> Array:
    """Return E|Y - Y'|, the mean absolute difference of two independent draws.

    It is a hypergeometric function, whose series loses its digits for large n. This integral does not: with
    a = 4 (1 - p) / p^2,

        (1/pi) * integral over u > 0 of (1 - (1 + a u^2 / (1 + u^2))^-n) / u^2.

    It follows from the characteristic function by u = tan(t / 2). In v = log u, the integrand has one peak and
    exponential tails. After a double exponential substitution, 65 points of the trapezoid rule are exact to 2e-9.
    """
    n, p, mu = np.broadcast_arrays(n, p, mu)
    a = 4.0 * mu / (n * p)  # 4 (1 - p) / p^2 without cancellation, as mu = n (1 - p) / p
    x, h = np.linspace(-3.3, 3.3, 65, retstep=True)
    offset, jacobian = 2.5 * np.sinh(x), 2.5 * np.cosh(x) * h
    peak = -0.5 * np.log1p(n * a)
    total = np.zeros(n.shape)
    for step, weight in zip(offset, jacobian, strict=True):
        u = np.exp(peak + step)
        total -= weight * np.expm1(-n * np.log1p(a * u * u / (1.0 + u * u))) / u
    return total / np.pi
