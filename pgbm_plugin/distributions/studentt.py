"""Student's t distribution."""

from __future__ import annotations

import numpy as np
from scipy.special import beta, betaln, digamma, stdtr, stdtrit

from ..arrays import Array
from .base import Symmetric


class StudentT(Symmetric):
    """Student's t distribution with mean loc and variance scale^2 df / (df - 2).

    Its tails are heavier than the normal distribution's. `from_moments` takes the degrees of freedom ``df``, more than
    2; the default is 3.
    """

    name = "studentt"
    _scipy_name = "t"

    @staticmethod
    def _parameters(mean: Array, variance: Array, df: float = 3.0) -> dict[str, Array]:
        if not 2.0 < df < np.inf:
            raise ValueError(f"df must be more than 2 (else the variance is infinite) and finite, not {df}")
        return {"df": np.full_like(mean, df), "loc": mean, "scale": np.sqrt(variance / df * (df - 2.0))}

    @staticmethod
    def _moments(df: Array, loc: Array, scale: Array) -> tuple[Array, Array]:
        return loc, scale**2 / (df - 2.0) * df

    @staticmethod
    def _logpdf(x: Array, df: Array, loc: Array, scale: Array) -> Array:
        z = (x - loc) / scale
        return -0.5 * (df + 1.0) * np.log1p(z * z / df) - betaln(0.5, 0.5 * df) - 0.5 * np.log(df) - np.log(scale)

    @staticmethod
    def _cdf(x: Array, df: Array, loc: Array, scale: Array) -> Array:
        return stdtr(df, (x - loc) / scale)

    @staticmethod
    def _standard_ppf(q: Array, df: Array) -> Array:
        """Return the quantile for loc 0 and scale 1; scipy returns +inf for levels near 0, or NaN at 0 and 1."""
        z = np.where((q <= 0.0) | (q >= 1.0), np.inf, stdtrit(df, q))
        return np.where(q < 0.5, -np.abs(z), z)

    @staticmethod
    def _rvs(rng: np.random.Generator, shape: tuple[int, ...], df: Array, loc: Array, scale: Array) -> Array:
        return loc + scale * rng.standard_t(df, shape)

    @staticmethod
    def _crps(y: Array, df: Array, loc: Array, scale: Array) -> Array:
        """Return the CRPS of the t distribution (Jordan, Krueger and Lerch 2019, appendix A)."""
        z = (y - loc) / scale
        density = np.exp(StudentT._logpdf(z, df, np.zeros(1), np.ones(1)))
        spread = 2.0 * np.sqrt(df) / (df - 1.0) * beta(0.5, df - 0.5) / beta(0.5, 0.5 * df) ** 2
        return scale * (z * (2.0 * stdtr(df, z) - 1.0) + 2.0 * density * (df + z * z) / (df - 1.0) - spread)

    @staticmethod
    def _entropy(df: Array, loc: Array, scale: Array) -> Array:
        half = 0.5 * (df + 1.0)
        return half * (digamma(half) - digamma(0.5 * df)) + 0.5 * np.log(df) + betaln(0.5 * df, 0.5) + np.log(scale)
