"""The boosters' own data sets as tables: lgb.Dataset and xgb.DMatrix, which bring their labels."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import wrap
from tests.tables.whole_numbers import with_gaps

LGB = {"num_leaves": 8, "min_data_in_leaf": 10, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 3, "nthread": 1}


def test_lightgbm_dataset():
    X, y = with_gaps()
    weight = np.abs(y) + 1
    data = lgb.Dataset(X, y, weight=weight, free_raw_data=False)
    booster = lgb.train(LGB, data, 5, keep_training_booster=True)
    expected = wrap(booster, X, y, sample_weight=weight)
    for model in (wrap(booster, data), wrap(booster)):  # the booster still holds it
        assert model.certificate.status == "certified"
        assert np.array_equal(model.predict_var(data), expected.predict_var(X))


@pytest.mark.parametrize("matrix", [xgb.DMatrix, xgb.QuantileDMatrix])
def test_xgboost_dmatrix(matrix):
    """A QuantileDMatrix gives back the middle of each bin: other numbers, the same leaves."""
    X, y = with_gaps()
    data = matrix(X, y, weight=np.abs(y) + 1)
    booster = xgb.train(XGB, data, 5)
    expected = wrap(booster, X, y, sample_weight=np.abs(y) + 1)
    model = wrap(booster, data)
    assert model.certificate == expected.certificate
    assert np.array_equal(model.predict_var(data), expected.predict_var(X))
    assert np.array_equal(model.predict(data), booster.predict(data))


def test_data_sets_of_continued_training():
    """LightGBM keeps the first model's predictions in them as an init_score, and the trees are in the model as well."""
    X, y = with_gaps()
    first = lgb.train(LGB, lgb.Dataset(X, y), 3)
    data = lgb.Dataset(X, y, free_raw_data=False)
    booster = lgb.train(LGB, data, 3, init_model=first)
    model = wrap(booster, data)
    assert model.certificate.status == "certified"
    assert np.array_equal(model.predict(data), booster.predict(X))


def test_a_data_set_that_is_not_constructed():
    X, y = with_gaps()
    booster = lgb.train(LGB, lgb.Dataset(X, y), 3)
    model = wrap(booster, lgb.Dataset(X, y))
    assert model.certificate.status == "certified"
    assert np.array_equal(model.predict(lgb.Dataset(X)), booster.predict(X))
