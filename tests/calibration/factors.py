"""Rows that err together: designs of levels, outcomes from an explicit matrix, and slow sums of pairs."""

from __future__ import annotations

import numpy as np
from scipy import stats

from pgbm_plugin.distributions import Empirical, NegativeBinomial, Normal, Poisson

RESIDUALS = (np.random.default_rng(7).gamma(2.0, size=400) - 2.0) / np.sqrt(2.0)


def nested(days=40, per=12):
    """Day, and department of a day; groups of different sizes."""
    rng = np.random.default_rng(1)
    day = np.sort(rng.integers(0, days, days * per))
    return {"day": day, "department": day * 3 + rng.integers(0, 3, len(day))}


def crossed(days=30, shops=14):
    """Day and shop, which come in all pairs."""
    return {"day": np.repeat(np.arange(days), shops), "shop": np.tile(np.arange(shops), days)}


def correlation(levels, r):
    """(n, n) matrix of the normal scores: the r of all levels that two rows share."""
    n = len(next(iter(levels.values())))
    matrix = np.zeros((n, n))
    for code, share in zip(levels.values(), r, strict=True):
        matrix += share * (np.asarray(code)[:, None] == np.asarray(code)[None])
    np.fill_diagonal(matrix, 1.0)
    return matrix


def distributions(kind, n, seed=0):
    """n rows of different means and spreads."""
    rng = np.random.default_rng(seed)
    if kind == "normal":
        return Normal(loc=rng.normal(size=n), scale=rng.uniform(0.5, 2.0, n))
    if kind == "poisson":
        return Poisson(mu=rng.uniform(0.5, 6.0, n))
    if kind == "negativebinomial":
        mean = rng.uniform(0.3, 3.0, n)
        return NegativeBinomial.from_moments(mean, 2.0 * mean)
    return Empirical.from_moments(rng.normal(size=n), rng.uniform(0.5, 2.0, n) ** 2, residuals=RESIDUALS)


def simulated(rows, matrix, times, seed):
    """(n, times) outcomes of a Gaussian copula, by the Cholesky root of its matrix and scipy's quantiles."""
    z = np.linalg.cholesky(matrix) @ np.random.default_rng(seed).standard_normal((len(rows), times))
    u, params = stats.norm.cdf(z), {key: value[:, None] for key, value in rows.params.items()}
    if isinstance(rows, Empirical):
        return params["loc"] + params["scale"] * np.quantile(RESIDUALS, u, method="inverted_cdf")
    if isinstance(rows, NegativeBinomial):
        return stats.nbinom.ppf(u, params["n"], params["p"])
    return {Normal: stats.norm, Poisson: stats.poisson}[type(rows)].ppf(u, **params)


def slow_pair_sum(codes, values):
    """Sum of v_i v_j over ordered pairs of different rows that share all groups, pair by pair."""
    total = 0.0
    for i in range(len(values)):
        for j in range(len(values)):
            if i != j and all(code[i] == code[j] for code in codes):
                total += values[i] * values[j]
    return total
