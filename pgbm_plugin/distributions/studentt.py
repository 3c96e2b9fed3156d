"""Student's t distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import beta, betaln, digamma, stdtr, stdtrit

from .base import Distribution
from .rowwise import Array


class StudentT(Distribution):
    """Student's t with df degrees of freedom: mean loc, variance scale^2 df / (df - 2).

    `from_moments` takes ``df`` (3 by default, more than 2): tails heavier than the normal's.
    """

    name = "studentt"

    @staticmethod
    def _parameters(mean: Array, variance: Array, df: float = 3.0) -> dict[str, Array]:
        if not 2.0 < df < np.inf:
            raise ValueError(f"df must be more than 2, for a finite variance, and finite, not {df}")
        return {"df": np.full_like(mean, df), "loc": mean, "scale": np.sqrt(variance * (df - 2.0) / df)}

    @staticmethod
    def _moments(df: Array, loc: Array, scale: Array) -> tuple[Array, Array]:
        return loc, scale**2 * df / (df - 2.0)

    @staticmethod
    def _logpdf(x: Array, df: Array, loc: Array, scale: Array) -> Array:
        z = (x - loc) / scale
        return -0.5 * (df + 1.0) * np.log1p(z * z / df) - betaln(0.5, 0.5 * df) - 0.5 * np.log(df) - np.log(scale)

    @staticmethod
    def _cdf(x: Array, df: Array, loc: Array, scale: Array) -> Array:
        return stdtr(df, (x - loc) / scale)

    @staticmethod
    def _sf(x: Array, df: Array, loc: Array, scale: Array) -> Array:
        return stdtr(df, (loc - x) / scale)

    @staticmethod
    def _ppf(q: Array, df: Array, loc: Array, scale: Array) -> Array:
        return loc + scale * _quantile(df, q)

    @staticmethod
    def _isf(q: Array, df: Array, loc: Array, scale: Array) -> Array:
        return loc - scale * _quantile(df, q)

    @staticmethod
    def _rvs(rng: np.random.Generator, shape: tuple[int, ...], df: Array, loc: Array, scale: Array) -> Array:
        return loc + scale * rng.standard_t(df, shape)

    @staticmethod
    def _crps(y: Array, df: Array, loc: Array, scale: Array) -> Array:
        """Jordan, Krueger and Lerch (2019), appendix A: t distribution."""
        z = (y - loc) / scale
        density = np.exp(StudentT._logpdf(z, df, np.zeros(1), np.ones(1)))
        spread = 2.0 * np.sqrt(df) / (df - 1.0) * beta(0.5, df - 0.5) / beta(0.5, 0.5 * df) ** 2
        return scale * (z * (2.0 * stdtr(df, z) - 1.0) + 2.0 * density * (df + z * z) / (df - 1.0) - spread)

    @staticmethod
    def _entropy(df: Array, loc: Array, scale: Array) -> Array:
        half = 0.5 * (df + 1.0)
        return half * (digamma(half) - digamma(0.5 * df)) + 0.5 * np.log(df) + betaln(0.5 * df, 0.5) + np.log(scale)

    def to_scipy(self) -> Any:
        from scipy.stats import t

        return t(**self.params)


def _quantile(df: Array, q: Array) -> Array:
    """The standard quantile; scipy has +inf at levels near 0."""
    z = stdtrit(df, q)
    return np.where(q < 0.5, -np.abs(z), z)
