"""Rows whose spread varies, and models of them to conformalize."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np

from pgbm_plugin import wrap

POOL = 500


def data(n, seed, noise="normal"):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    error = {"normal": rng.standard_normal, "cauchy": rng.standard_cauchy}[noise](n)
    return X, 2 * X[:, 0] + np.exp(X[:, 1]) * error


def train(X, y, rounds=20, **params):
    params = {"num_leaves": 8, "num_threads": 1, "verbose": -1, **params}
    return wrap(lgb.train(params, lgb.Dataset(X, y), rounds), X, y, n_jobs=1)


def tips(n, seed):
    """Tips that are 0 if paid in cash, but for one row in fifty; a tree's first split tells cash from cards."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    X[:, 0] = rng.random(n) < 0.6
    card = 20.0 + X[:, 1] + np.exp(0.5 * X[:, 2]) * rng.normal(size=n)
    # training saw none of these
    odd = 5.0 * (rng.random(n) < 0.02) * (seed > 0)
    return X, np.where(X[:, 0] > 0, card, odd)
