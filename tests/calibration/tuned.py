"""Rows whose spread grows a hundredfold, boosters of them, and a short search."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import xgboost as xgb

from pgbm_plugin.scores import crps, nll

LGB = {"num_leaves": 12, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 4, "nthread": 1}
SCORES = {"crps": crps, "nll": nll}
FEW = {"distributions": ["normal", "laplace"], "rho": [0.0, 0.05, 0.3]}


def heteroscedastic(n, seed):
    """Prices as California's: the spread grows a hundredfold along one feature, and errors have heavy tails."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, 3 * X[:, 0] + np.sin(3 * X[:, 1]) + np.exp(1.5 * X[:, 2]) * 0.3 * rng.standard_t(4, n)


def train(kind, X, y, rounds=60, **params):
    if kind == "lightgbm":
        return lgb.train({**LGB, **params}, lgb.Dataset(X, y), rounds)
    return xgb.train({**XGB, **params}, xgb.DMatrix(X, y), rounds)
