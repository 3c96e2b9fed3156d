"""Train with record(), and compare the recording with the moments of the rows."""

from __future__ import annotations

import warnings

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import record, wrap
from tests.same import assert_same_moments

LGB = {"num_leaves": 8, "min_data_in_leaf": 10, "learning_rate": 0.1, "lambda_l2": 0.7, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 3, "eta": 0.2, "lambda": 0.7, "nthread": 1}
TREES = 6


def check(booster, X, y, status="certified", **given):
    """Compare `wrap(booster)`, which uses the recording, with `wrap(booster, X, y)`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "not certified|the model stopped early", UserWarning)
        want, got = wrap(booster, X, y, **given), wrap(booster)
    assert want.certificate.status == got.certificate.status == status
    assert_same_moments(got.moments, want.moments)
    assert got.spec.start == pytest.approx(want.spec.start, rel=1e-14)
    assert np.array_equal(got.spec.folded, want.spec.folded)
    assert np.array_equal(got.predict(X), want.predict(X))
    # rates that were solved from the moments carry their rounding
    np.testing.assert_allclose(got.weights.sd, want.weights.sd, rtol=1e-10)
    score = given.get("init_score")
    np.testing.assert_allclose(got.predict_var(X, init_score=score), want.predict_var(X, init_score=score), rtol=1e-10)


def train_lightgbm(X, y, params=None, rounds=TREES, callbacks=(), **dataset):
    train = lgb.Dataset(X, y, **dataset)
    booster = lgb.train({**LGB, **(params or {})}, train, rounds, callbacks=[record(), *callbacks])
    assert train.data is None  # the rows were free to go
    return booster


def train_xgboost(X, y, params=None, rounds=TREES, matrix=xgb.DMatrix, callbacks=(), **columns):
    train = matrix(X, y, **columns)
    return xgb.train({**XGB, **(params or {})}, train, rounds, callbacks=[record(train), *callbacks])
