"""Recording: custom objectives, and what is refused or ends it."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import UnsupportedModelError, record, torch_objective, wrap
from pgbm_plugin.boosters import read_model
from tests.training.recorded import LGB, TREES, XGB, check, train_lightgbm, train_xgboost


def log_cosh(margin, y):
    t = np.tanh(margin - y)
    return t, np.maximum(1 - t * t, 1e-3)


def native(margin, data):
    return log_cosh(margin, data.get_label())


def test_custom_objectives(numeric, score):
    X, y = numeric
    booster = lgb.train(
        {**LGB, "objective": native},
        lgb.Dataset(X, y, init_score=score),
        TREES,
        callbacks=[record(objective=log_cosh)],
    )
    check(booster, X, y, objective=log_cosh, init_score=score)
    for params in ({}, {"num_parallel_tree": 2, "colsample_bynode": 0.5}):
        train = xgb.QuantileDMatrix(X, y)
        callbacks = [record(train, objective=log_cosh)]
        booster = xgb.train({**XGB, **params}, train, TREES, obj=native, callbacks=callbacks)
        check(booster, X, y, objective=log_cosh)


def test_torch_objectives(numeric, weight):
    pytest.importorskip("torch")
    X, y = numeric
    loss = torch_objective(lambda p, t: (p - t) ** 2 + (p - t) ** 4)
    params = {**LGB, "objective": loss}
    booster = lgb.train(params, lgb.Dataset(X, y, weight=weight), TREES, callbacks=[record(objective=loss)])
    check(booster, X, y, objective=loss, sample_weight=weight)
    train = xgb.DMatrix(X, y)
    booster = xgb.train(XGB, train, TREES, obj=loss, callbacks=[record(train, objective=loss)])
    check(booster, X, y, objective=loss)
    coupled = torch_objective(
        lambda p, t: (p - t) ** 2, levels=[(None, 1.0), (np.arange(400) // 4, 0.1)], hessian="rowsum"
    )
    with pytest.raises(UnsupportedModelError, match="rowsum"):
        record(objective=coupled)


def test_a_custom_objective_must_be_given(numeric):
    X, y = numeric
    with pytest.raises(UnsupportedModelError, match=r"custom objective.*record\(objective=f\)"):
        lgb.train({**LGB, "objective": native}, lgb.Dataset(X, y), TREES, callbacks=[record()])
    train = xgb.DMatrix(X, y)
    with pytest.raises(UnsupportedModelError, match=r"custom objective.*record\(dtrain, objective=f\)"):
        xgb.train(XGB, train, TREES, obj=native, callbacks=[record(train)])
    with pytest.raises(ValueError, match=r"'poisson'.*leave objective= out"):
        lgb.train({**LGB, "objective": "poisson"}, lgb.Dataset(X, y), 2, callbacks=[record(objective=log_cosh)])
    with pytest.raises(TypeError, match="function"):
        record(objective="huber")


def test_another_matrix_is_seen(numeric, weight):
    X, y = numeric
    for other in (xgb.DMatrix(X, y[::-1]), xgb.DMatrix(X, y, weight=weight), xgb.DMatrix(X[:300], y[:300])):
        with pytest.raises(UnsupportedModelError, match="same matrix as to training"):
            xgb.train(XGB, xgb.DMatrix(X, y), TREES, callbacks=[record(other)])


@pytest.mark.parametrize(
    "params", [{"monotone_constraints": [1, 0, 0, 0]}, {"lambda_l1": 15.0}, {"max_delta_step": 0.05}], ids=str
)
def test_equal_leaves_end_the_recording(params, numeric):
    """LightGBM's scores cannot tell the rows of two leaves of one value apart; XGBoost can be asked."""
    X, y = numeric
    with pytest.warns(UserWarning, match=r"record\(\) ends here.*leaves \d and \d of tree \d have the same value"):
        booster = train_lightgbm(X, y, params)
    assert booster.num_trees() == TREES  # training went on
    with pytest.raises(ValueError, match=r"saw \d of the model's 6 trees: leaves.*same value.*wrap\(booster, X, y\)"):
        wrap(booster)


def test_equal_leaves_in_xgboost(numeric):
    X, y = numeric
    booster = train_xgboost(X, y, {"max_delta_step": 0.05})
    first = read_model(booster)[0].first_trees(1)
    assert len(set(first.leaf_value)) < first.n_leaves
    check(booster, X, y, "approximate")  # most of them are clipped


def test_trees_that_were_not_seen_or_were_changed(numeric):
    X, y = numeric
    booster = lgb.train(LGB, lgb.Dataset(X, y), TREES, callbacks=[record()], keep_training_booster=True)
    booster.set_leaf_output(2, 3, 0.5)
    with pytest.raises(ValueError, match=r"tree 2 is not the one.*wrap\(booster, X, y\)"):
        wrap(booster)
    booster.update()
    with pytest.raises(ValueError, match="saw 6 of the model's 7 trees: training went on without it"):
        wrap(booster)
    train = xgb.DMatrix(X, y)
    booster = xgb.train(XGB, train, TREES, callbacks=[record(train)])
    booster.update(train, TREES)
    with pytest.raises(ValueError, match="saw 6 of the model's 7 trees"):
        wrap(booster)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"boosting": "dart"}, "boosting=dart"),
        ({"linear_tree": True}, "linear_tree"),
        ({"objective": "quantile"}, "quantile"),
        ({"objective": "binary"}, "binary"),
    ],
)
def test_lightgbm_refusals(params, match, numeric):
    X, y = numeric
    y = (y > 1) if match == "binary" else y
    with pytest.raises(UnsupportedModelError, match=match):
        lgb.train({**LGB, **params}, lgb.Dataset(X, y), 3, callbacks=[record()])


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"booster": "dart", "rate_drop": 0.5}, "booster=dart"),
        ({"booster": "gblinear"}, "booster=gblinear"),
        ({"objective": "reg:quantileerror", "quantile_alpha": 0.5}, "quantileerror"),
    ],
)
def test_xgboost_refusals(params, match, numeric):
    train = xgb.DMatrix(*numeric)
    with pytest.raises(UnsupportedModelError, match=match):
        xgb.train({"nthread": 1, **params}, train, 3, callbacks=[record(train)])


def test_cv_and_continued_training_are_refused(numeric):
    X, y = numeric
    train = xgb.DMatrix(X, y)
    with pytest.raises(UnsupportedModelError, match="cv"):
        lgb.cv(LGB, lgb.Dataset(X, y), 2, nfold=2, stratified=False, callbacks=[record()])
    with pytest.raises(UnsupportedModelError, match="cv"):
        xgb.cv(XGB, train, 2, nfold=2, callbacks=[record(train)])
    first = lgb.train(LGB, lgb.Dataset(X, y), 2)
    with pytest.raises(UnsupportedModelError, match=r"init_model.*wrap\(booster, X, y\)"):
        lgb.train(LGB, lgb.Dataset(X, y), 2, init_model=first, callbacks=[record()])
    with pytest.raises(UnsupportedModelError, match="xgb_model"):
        xgb.train(XGB, train, 2, xgb_model=xgb.train(XGB, train, 2), callbacks=[record(train)])


def test_the_callback_of_the_other_booster(numeric):
    X, y = numeric
    train = xgb.DMatrix(X, y)
    with pytest.raises(TypeError, match=r"LightGBM takes record\(\)"):
        lgb.train(LGB, lgb.Dataset(X, y), 2, callbacks=[record(train)])
    with pytest.raises(TypeError):
        xgb.train(XGB, train, 2, callbacks=[record()])
    for other in (X, lgb.Dataset(X, y)):
        with pytest.raises(TypeError, match=r"xgb.DMatrix of training.*record\(\)"):
            record(other)
    with pytest.raises(ValueError, match="n_jobs"):
        record(n_jobs=0)


@pytest.mark.parametrize(
    "given", [{"sample_weight": np.ones(400)}, {"init_score": np.zeros(400)}, {"objective": print}]
)
def test_what_was_recorded_is_not_told_again(given, numeric):
    X, y = numeric
    booster = lgb.train({"verbose": -1}, lgb.Dataset(X, y), 3, callbacks=[record()])
    with pytest.raises(TypeError, match="recorded moments"):
        wrap(booster, **given)
