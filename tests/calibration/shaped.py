"""Rows whose shape differs, whose labels have bounds or lie on a lattice, and models of them."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np

from pgbm_plugin import wrap

PARAMS = {"num_leaves": 15, "learning_rate": 0.1, "num_threads": 1, "verbose": -1}
KINDS = ("skewed", "tips", "ratings")


def rows(kind, n, seed):
    """Errors are skewed to one side for small means, to the other for large ones; or half of the labels are 0; or
    labels are marks from 3 to 8."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    if kind == "skewed":
        side = np.where(X[:, 0] > 0.0, 1.0, -1.0)
        return X, 6.0 * X[:, 0] + side * (rng.exponential(2.0, n) - 2.0)
    if kind == "tips":
        return X, np.maximum(1.5 * X[:, 0] + rng.normal(size=n), 0.0)
    return X, np.clip(np.rint(5.5 + 0.7 * X[:, 0] + 0.7 * rng.normal(size=n)), 3.0, 8.0)


def model(kind, n=1500, **params):
    X, y = rows(kind, n, 0)
    return wrap(lgb.train({**PARAMS, **params}, lgb.Dataset(X, y), 40), X, y, n_jobs=1)
