"""Train a booster, wrap it and check its certificate against the warning that it gives."""

from __future__ import annotations

import warnings

import lightgbm as lgb
import xgboost as xgb

from pgbm_plugin import wrap

LGB = {"num_leaves": 15, "learning_rate": 0.1, "reg_lambda": 0.7, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 4, "eta": 0.2, "nthread": 1}
TREES = 5


def train(kind, X, y, params=None, rounds=TREES, **dataset):
    if kind == "lightgbm":
        return lgb.train({**LGB, **(params or {})}, lgb.Dataset(X, y, **dataset), rounds)
    return xgb.train({**XGB, **(params or {})}, xgb.DMatrix(X, y, **dataset), rounds)


def certificate(model, X, y, **given):
    """Return the certificate, and assert that one UserWarning says so if the model is not certified."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = wrap(model, X, y, **given).certificate
    expected = [] if found.status == "certified" else [(UserWarning, f"not certified: {found}")]
    assert [(w.category, str(w.message)) for w in caught] == expected
    assert all(w.filename == __file__ for w in caught)  # it points at the caller of wrap
    assert str(found).startswith(f"{found.status} (leaf error {found.error:.1e}")
    assert found.status != "certified" or found.error <= found.tolerance
    return found
