"""Small boosters of two kinds, for tests of what is refused."""

from __future__ import annotations

import lightgbm as lgb
import xgboost as xgb

LGB = {"num_leaves": 8, "min_data_in_leaf": 10, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 3, "nthread": 1}


def train(kind, X, y, params=None, rounds=3):
    if kind == "lightgbm":
        return lgb.train({**LGB, **(params or {})}, lgb.Dataset(X, y), rounds)
    return xgb.train({**XGB, **(params or {})}, xgb.DMatrix(X, y), rounds)
