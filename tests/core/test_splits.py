"""Numeric and missing splits at hostile values: every route and prediction is the booster's own."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pgbm_plugin import wrap

FEATURES = 3
SPECIAL = [np.nan, 0.0, -0.0, 1e-36, -1e-36, 1e-35, -1e-35, 1.0000001e-35, 5e-324, 1.0, -1.0, 3e38, -3e38]
BEYOND_FLOAT32 = [np.inf, -np.inf, 1e300, -1e300]
LGB = {"num_leaves": 12, "min_data_in_leaf": 5, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 4, "nthread": 1}


def training_data(nan=0.0, zero=0.3, inf=False):
    """Features with many exact zeros, so that zero is where splits are; optionally NaN and inf."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(500, FEATURES))
    X[rng.random(X.shape) < zero] = 0.0
    y = np.where(X[:, 0] == 0, 2.0, X[:, 0]) + np.abs(X[:, 1]) + 0.1 * rng.normal(size=500)
    X[rng.random(X.shape) < nan] = np.nan
    if inf:
        X[rng.random(X.shape) < 0.05] = np.inf
        X[rng.random(X.shape) < 0.05] = -np.inf
    return X, y


def hostile_rows(thresholds, special):
    """Every special value, every threshold and its neighbours in both precisions, in random combinations."""
    t = np.asarray(thresholds, np.float64)
    with np.errstate(over="ignore"):  # LightGBM's threshold below inf is the largest float64
        t32 = t.astype(np.float32)
        near = [t, np.nextafter(t, np.inf), np.nextafter(t, -np.inf)]
        near += [t32, np.nextafter(t32, np.float32(np.inf)), np.nextafter(t32, np.float32(-np.inf))]
    values = np.concatenate([special, *near])
    return np.random.default_rng(0).choice(values, (1500, FEATURES))


def thresholds(model):
    """All of them: LightGBM's own +-1e-35f around zero are among them."""
    t = model.forest.nodes["threshold"]
    return t[np.isfinite(t)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("data", "params"),
    [
        pytest.param({}, {}, id="none"),
        pytest.param({"nan": 0.2}, {}, id="nan"),
        pytest.param({"nan": 0.2}, {"zero_as_missing": True}, id="nan-as-zero"),
        pytest.param({}, {"zero_as_missing": True}, id="zero"),
        pytest.param({"nan": 0.2}, {"use_missing": False}, id="unused"),
        pytest.param({"nan": 0.1, "inf": True}, {}, id="inf"),
        pytest.param({"inf": True}, {"max_bin": 8}, id="inf-few-bins"),
    ],
)
def test_lightgbm(data, params, dtype, leaf_labels):
    X, y = training_data(**data)
    booster = lgb.train({**LGB, **params}, lgb.Dataset(X, y), 8)
    model = wrap(booster, X, y)
    hostile = hostile_rows(thresholds(model), SPECIAL + BEYOND_FLOAT32)
    with np.errstate(over="ignore"):
        hostile = hostile.astype(dtype)
    assert np.array_equal(leaf_labels(model, hostile), booster.predict(hostile, pred_leaf=True))
    assert np.array_equal(model.predict(hostile), booster.predict(hostile))


def test_lightgbm_missing_types_all_occur():
    """What the cases above rest on: each of LightGBM's missing types is really in one of their models."""
    found = set()
    for data, params in (({}, {}), ({"nan": 0.2}, {}), ({}, {"zero_as_missing": True})):
        X, y = training_data(**data)
        text = lgb.train({**LGB, **params}, lgb.Dataset(X, y), 8).model_to_string()
        lines = [line for line in text.split("\n") if line.startswith("decision_type=")]
        found |= {(int(d) >> 2) & 3 for line in lines for d in line.partition("=")[2].split()}
    assert found == {0, 1, 2}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("nan", [0.0, 0.2])
@pytest.mark.parametrize("method", ["hist", "approx", "exact"])
def test_xgboost(method, nan, dtype, leaf_labels):
    X, y = training_data(nan=nan)
    booster = xgb.train({**XGB, "tree_method": method}, xgb.DMatrix(X, y), 8)
    model = wrap(booster, X, y)
    hostile = hostile_rows(thresholds(model), SPECIAL).astype(dtype)
    data = xgb.DMatrix(hostile)
    assert np.array_equal(leaf_labels(model, hostile), booster.predict(data, pred_leaf=True))
    assert np.array_equal(model.predict(hostile), booster.predict(data))


def test_xgboost_infinities_as_inplace_predict():
    """A DMatrix refuses inf; inplace_predict takes it, and so do we."""
    X, y = training_data(nan=0.2)
    booster = xgb.train(XGB, xgb.DMatrix(X, y), 8)
    model = wrap(booster, X, y)
    hostile = hostile_rows(thresholds(model), [np.nan, np.inf, -np.inf]).astype(np.float32)
    assert np.array_equal(model.predict(hostile), booster.inplace_predict(hostile))


@pytest.mark.parametrize("missing", [-1.0, 0.0, 0.1])
def test_xgboost_own_missing_value(missing, leaf_labels):
    """missing= is nowhere in the model; the estimator brings it, and it is compared in float32."""
    X, y = training_data(nan=0.1)
    X[X > 1] = missing
    estimator = xgb.XGBRegressor(n_estimators=6, missing=missing, **XGB).fit(X, y)
    model = wrap(estimator, X, y)
    assert model.certificate.status == "certified"
    assert np.array_equal(model.predict(X), estimator.predict(X))
    assert np.array_equal(leaf_labels(model, X), estimator.apply(X))


@pytest.fixture(scope="module", params=["lightgbm", "xgboost"])
def trained(request):
    X, y = training_data(nan=0.1)
    if request.param == "lightgbm":
        booster = lgb.train(LGB, lgb.Dataset(X, y), 5)
        return booster, wrap(booster, X, y), lambda rows: booster.predict(rows, pred_leaf=True)
    booster = xgb.train(XGB, xgb.DMatrix(X, y), 5)
    return booster, wrap(booster, X, y), lambda rows: booster.predict(xgb.DMatrix(rows), pred_leaf=True)


@settings(max_examples=60)
@given(rows=hnp.arrays(np.float64, (20, FEATURES), elements=st.floats(width=64, allow_infinity=False) | st.just(0.0)))
def test_any_row(trained, leaf_labels, rows):
    booster, model, pred_leaf = trained
    if isinstance(booster, xgb.Booster):
        rows = np.clip(rows, -3e38, 3e38)  # what XGBoost accepts
    assert np.array_equal(leaf_labels(model, rows), pred_leaf(rows))


@pytest.mark.parametrize("n_trees", [1, 4])
def test_one_leaf_trees(n_trees, leaf_labels):
    X, y = training_data()
    booster = lgb.train({**LGB, "min_data_in_leaf": 400}, lgb.Dataset(X, y), n_trees)
    model = wrap(booster, X, y)
    assert model.forest.n_leaves == model.forest.n_trees
    assert np.array_equal(model.predict(X), booster.predict(X))
    booster = xgb.train({**XGB, "min_child_weight": 400}, xgb.DMatrix(X, y), n_trees)
    model = wrap(booster, X, y)
    assert model.forest.n_leaves == n_trees
    assert np.array_equal(model.predict(X), booster.predict(xgb.DMatrix(X)))
    assert np.array_equal(leaf_labels(model, X), np.zeros((len(X), n_trees)))


def test_constant_label():
    X, _ = training_data()
    y = np.full(len(X), 3.25)
    booster = lgb.train(LGB, lgb.Dataset(X, y), 4)
    model = wrap(booster, X, y)
    assert np.array_equal(model.predict(X), booster.predict(X))
    assert np.array_equal(model.predict_var(X), np.zeros(len(X)))
    booster = xgb.train(XGB, xgb.DMatrix(X, y), 4)
    model = wrap(booster, X, y)
    assert np.array_equal(model.predict(X), booster.predict(xgb.DMatrix(X)))
    assert np.array_equal(model.predict_var(X), np.zeros(len(X)))


def test_random_forests(leaf_labels):
    X, y = training_data(nan=0.1)
    rf = {**LGB, "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7, "feature_fraction": 0.7}
    booster = lgb.train(rf, lgb.Dataset(X, y), 6)
    with pytest.warns(UserWarning, match="subsampled"):
        model = wrap(booster, X, y)
    assert np.array_equal(model.predict(X), booster.predict(X))
    assert np.array_equal(leaf_labels(model, X), booster.predict(X, pred_leaf=True))

    estimator = xgb.XGBRFRegressor(n_estimators=6, subsample=0.7, colsample_bynode=0.7, **XGB).fit(X, y)
    with pytest.warns(UserWarning, match="subsampled"):
        model = wrap(estimator, X, y)
    assert np.array_equal(model.predict(X), estimator.predict(X))
    assert np.array_equal(leaf_labels(model, X), estimator.apply(X))

    booster = xgb.train({**XGB, "num_parallel_tree": 3, "colsample_bynode": 0.7}, xgb.DMatrix(X, y), 4)
    model = wrap(booster, X, y)
    assert model.certificate.status == "certified"
    assert np.array_equal(model.predict(X), booster.predict(xgb.DMatrix(X)))
