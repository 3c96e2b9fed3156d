"""Models that are refused: by name, before any work, with the way out."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import UnsupportedModelError, wrap
from tests.small import LGB, XGB, train


@pytest.mark.parametrize(
    ("kind", "params", "match"),
    [
        ("lightgbm", {"objective": "binary"}, "'binary'.*regression objective"),
        ("lightgbm", {"objective": "quantile"}, "'quantile'.*regression objective"),
        ("lightgbm", {"objective": "cross_entropy"}, "'cross_entropy'"),
        ("lightgbm", {"objective": "multiclass", "num_class": 2}, "multiclass"),
        ("lightgbm", {"linear_tree": True}, "linear_tree.*train without it"),
        ("xgboost", {"objective": "binary:logistic"}, "'binary:logistic'.*regression objective"),
        ("xgboost", {"objective": "reg:quantileerror", "quantile_alpha": 0.5}, "'reg:quantileerror'"),
        ("xgboost", {"objective": "multi:softprob", "num_class": 2}, "several outputs"),
        ("xgboost", {"booster": "gblinear", "max_depth": None}, "gblinear.*use gbtree"),
    ],
)
def test_unsupported_models(kind, params, match, numeric, tmp_path):
    X = numeric[0]
    y = (numeric[1] > 1).astype(float)
    params = {k: v for k, v in {**(LGB if kind == "lightgbm" else XGB), **params}.items() if v is not None}
    library, dataset = (lgb, lgb.Dataset) if kind == "lightgbm" else (xgb, xgb.DMatrix)
    booster = library.train(params, dataset(X, y), 3)
    path = tmp_path / ("m.txt" if kind == "lightgbm" else "m.ubj")
    booster.save_model(path)
    for model in (booster, path):
        with pytest.raises(UnsupportedModelError, match=f"(?s){match}"):
            wrap(model, X, y)


def test_ranking_and_several_targets(numeric):
    X, y = numeric
    label = (y > 1).astype(int)
    booster = lgb.train({**LGB, "objective": "lambdarank"}, lgb.Dataset(X, label, group=[200, 200]), 3)
    with pytest.raises(UnsupportedModelError, match=r"'lambdarank'.*regression"):
        wrap(booster, X, label)
    booster = xgb.train({**XGB, "objective": "rank:pairwise"}, xgb.DMatrix(X, label, group=[200, 200]), 3)
    with pytest.raises(UnsupportedModelError, match=r"'rank:pairwise'.*regression"):
        wrap(booster, X, label)
    booster = xgb.train(XGB, xgb.DMatrix(X, np.stack([y, y], 1)), 3)
    with pytest.raises(UnsupportedModelError, match="one regressor per target"):
        wrap(booster, X, y)


@pytest.mark.parametrize("estimator", [lgb.LGBMClassifier(**LGB), xgb.XGBClassifier(**XGB)])
def test_classifiers(estimator, numeric):
    X, y = numeric
    with pytest.raises(UnsupportedModelError, match=r"'binary.*regression objective"):
        wrap(estimator.fit(X, y > 1), X, y)


@pytest.mark.parametrize("estimator", [lgb.LGBMRegressor(), xgb.XGBRegressor()])
def test_untrained_estimator(estimator, numeric):
    with pytest.raises(ValueError, match=rf"{type(estimator).__name__} is not fitted; call fit"):
        wrap(estimator, *numeric)


def test_no_trees(numeric):
    with pytest.raises(UnsupportedModelError, match="no trees; train it first"):
        wrap(train("xgboost", *numeric, rounds=0), *numeric)


@pytest.mark.parametrize("thing", [None, 3, np.zeros(3), {}])
def test_what_is_no_model(thing, numeric):
    with pytest.raises(TypeError, match=rf"cannot wrap a {type(thing).__name__}.*give a lightgbm.Booster"):
        wrap(thing, *numeric)


def test_models_inside_of_others(numeric):
    """A CVBooster claims to have any attribute."""
    cv = lgb.cv(LGB, lgb.Dataset(*numeric), 2, stratified=False, return_cvbooster=True)["cvbooster"]
    with pytest.raises(TypeError, match=r"cannot wrap a CVBooster.*; if its \.boosters\[i\] is one.*of its fold"):
        wrap(cv, *numeric)


def test_two_quantiles(numeric):
    params = {**XGB, "objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.9]}
    with pytest.raises(UnsupportedModelError, match="'reg:quantileerror' is not supported"):
        wrap(xgb.train(params, xgb.DMatrix(*numeric), 2), *numeric)


def test_no_data_reachable(numeric):
    X, y = numeric
    for model in (train("lightgbm", X, y), train("xgboost", X, y), lgb.LGBMRegressor(**LGB).fit(X, y)):
        with pytest.raises(TypeError, match=r"(?s)wrap\(booster, X, y\).*keep_training_booster=True"):
            wrap(model)
    freed = lgb.Dataset(X, y)
    booster = lgb.train(LGB, freed, 3, keep_training_booster=True)
    for call in (lambda: wrap(booster), lambda: wrap(booster, freed)):
        with pytest.raises(TypeError, match="free_raw_data=False"):
            call()
    with pytest.raises(ValueError, match="no labels; give y"):
        wrap(train("xgboost", X, y), xgb.DMatrix(X))


def test_a_booster_without_training(numeric):
    with pytest.raises(ValueError, match="Booster cannot be read; train it first"):
        wrap(xgb.Booster(), *numeric)
