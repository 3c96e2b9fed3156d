"""record(): moments taken while training, equal to those that wrap takes from the rows afterwards."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings

import lightgbm as lgb
import pytest
import xgboost as xgb

from pgbm_plugin import record, wrap
from pgbm_plugin.boosters.xgboost import recorder
from pgbm_plugin.training.recorded import ATTRIBUTE
from tests.same import assert_same_moments
from tests.training.recorded import LGB, TREES, XGB, check, train_lightgbm, train_xgboost

LIGHTGBM = {
    "regression": {},
    "regression sqrt": {"objective": "regression", "reg_sqrt": True},
    "huber": {"alpha": 0.6},
    "fair": {"fair_c": 0.8},
    "poisson": {"poisson_max_delta_step": 0.3},
    "gamma": {},
    "tweedie": {"tweedie_variance_power": 1.3},
    "regression_l1": {},
    "mape": {},
}
XGBOOST = {
    "reg:squarederror": {},
    "reg:pseudohubererror": {"huber_slope": 1.5, "base_score": 1.0},
    "reg:squaredlogerror": {"base_score": 1.0},
    "count:poisson": {"max_delta_step": 0.4},
    "reg:gamma": {},
    "reg:tweedie": {"tweedie_variance_power": 1.3},
    "reg:absoluteerror": {},
}
RENEWED = ("regression_l1", "mape", "reg:absoluteerror")


@pytest.mark.parametrize("column", ["plain", "weighted", "init_score"])
@pytest.mark.parametrize("objective", LIGHTGBM)
def test_lightgbm_objectives(objective, column, numeric, weight, score):
    X, y = numeric
    weight, score = (
        weight if column == "weighted" else None,
        score if column == "init_score" else None,
    )
    booster = train_lightgbm(X, y, {"objective": objective, **LIGHTGBM[objective]}, weight=weight, init_score=score)
    status = "approximate" if objective in RENEWED else "certified"
    check(booster, X, y, status, sample_weight=weight, init_score=score)


@pytest.mark.parametrize("matrix", [xgb.DMatrix, xgb.QuantileDMatrix])
@pytest.mark.parametrize("column", ["plain", "weighted", "base_margin"])
@pytest.mark.parametrize("objective", XGBOOST)
def test_xgboost_objectives(objective, column, matrix, numeric, weight, score):
    X, y = numeric
    weight, score = (
        weight if column == "weighted" else None,
        score if column == "base_margin" else None,
    )
    params = {"objective": objective, **XGBOOST[objective]}
    booster = train_xgboost(X, y, params, matrix=matrix, weight=weight, base_margin=score)
    # starting far from the labels, Poisson's max_delta_step clips leaves of every tree, which then prove nothing
    clipped = objective == "count:poisson" and score is not None
    status = "approximate" if objective in RENEWED or clipped else "certified"
    check(booster, X, y, status, sample_weight=weight, init_score=score)


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"learning_rate": 1.0}, "certified"),
        ({"boost_from_average": False}, "certified"),
        ({"feature_fraction": 0.5, "extra_trees": True}, "certified"),
        ({"bagging_freq": 1, "bagging_fraction": 0.5}, "subsampled"),  # rows out of the bag get scores, too
        ({"bagging_freq": 2, "bagging_fraction": 0.9, "objective": "poisson"}, "subsampled"),
        ({"data_sample_strategy": "goss", "learning_rate": 0.5}, "subsampled"),
        ({"boosting": "rf", "feature_fraction": 0.5}, "certified"),
        ({"boosting": "rf", "feature_fraction": 0.5, "objective": "poisson"}, "certified"),
        ({"boosting": "rf", "feature_fraction": 0.5, "boost_from_average": False}, "certified"),
        ({"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}, "subsampled"),
        ({"path_smooth": 1.0}, "approximate"),
        ({"num_leaves": 2}, "certified"),
    ],
    ids=str,
)
def test_lightgbm_settings(params, status, numeric):
    check(train_lightgbm(*numeric, params), *numeric, status)


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"eta": 1.0}, "certified"),
        ({"subsample": 0.5}, "subsampled"),
        ({"num_parallel_tree": 3, "colsample_bynode": 0.5}, "certified"),
        ({"num_parallel_tree": 3, "colsample_bynode": 0.5, "objective": "reg:gamma"}, "certified"),
        ({"tree_method": "exact"}, "certified"),
        ({"tree_method": "approx"}, "certified"),
        ({"grow_policy": "lossguide", "max_leaves": 6}, "certified"),
        ({"monotone_constraints": "(1,0,0,0)"}, "approximate"),
        ({"min_child_weight": 1e6}, "certified"),  # every tree is one leaf of 0
        ({"max_depth": 1}, "certified"),
    ],
    ids=str,
)
def test_xgboost_settings(params, status, numeric):
    check(train_xgboost(*numeric, params), *numeric, status)


def test_categories_and_missing_values(mixed):
    X, y = mixed
    check(train_lightgbm(X, y, {"min_data_per_group": 5, "cat_smooth": 1.0}), X, y)
    check(train_xgboost(X, y, matrix=xgb.QuantileDMatrix, enable_categorical=True), X, y)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_several_chunks(offset, n_jobs, make_data):
    """Any number of threads; and labels so far from 0 that float32 scores hide which leaf was added."""
    X, y = make_data("nan", n=150_000)
    y = y + offset
    booster = lgb.train(LGB, lgb.Dataset(X, y), 4, callbacks=[record(n_jobs=n_jobs)])
    check(booster, X, y)
    train = xgb.QuantileDMatrix(X, y)
    booster = xgb.train(XGB, train, 4, callbacks=[record(train, n_jobs=n_jobs)])
    check(booster, X, y)


def test_scores_that_do_not_tell_are_not_guessed(numeric, monkeypatch):
    """XGBoost is asked for the leaves whenever two of them would lead to the same float32."""
    X, y = numeric
    asked = []
    real = recorder._predicted_leaves
    monkeypatch.setattr(recorder, "_predicted_leaves", lambda *given: asked.append(given) or real(*given))
    check(train_xgboost(X, y), X, y)
    assert not asked
    check(train_xgboost(X, y + 1e6), X, y + 1e6)
    assert asked


def split(X, y):
    return (X[:250], y[:250]), (X[250:], y[250:])


@pytest.mark.parametrize("keep", [False, True])
def test_lightgbm_early_stopping(keep, numeric):
    train, valid = split(*numeric)
    data = lgb.Dataset(*train)
    stop = lgb.early_stopping(3, verbose=False)
    params = {**LGB, "learning_rate": 0.5}
    booster = lgb.train(
        params,
        data,
        60,
        [lgb.Dataset(*valid, reference=data)],
        callbacks=[stop, record()],
        keep_training_booster=keep,
    )
    assert 0 < booster.best_iteration < 50
    check(booster, *train)
    seen = len(booster._pgbm_recorded.leaves)
    # those beyond the best are not used; the last is not read if its scores were to be read with the next tree's
    assert seen in (booster.best_iteration + 2, booster.best_iteration + 3)


@pytest.mark.parametrize("rounds", range(1, 8))
def test_lightgbm_stops_after_any_iteration(rounds, numeric):
    """Scores are read after every other tree, and in any case after the last."""
    X, y = numeric
    check(train_lightgbm(X, y, rounds=rounds), X, y)
    train, valid = split(X, y)
    data = lgb.Dataset(*train)
    stop = lgb.early_stopping(1, verbose=False)
    worse = {"learning_rate": lambda i: 0.1 if i < rounds else 50.0}  # which ends training at once
    callbacks = [lgb.reset_parameter(**worse), stop, record()]
    booster = lgb.train(LGB, data, 60, [lgb.Dataset(*valid, reference=data)], callbacks=callbacks)
    assert booster.best_iteration == rounds
    # one tree does not tell whether its rate is another than the stated one, or the labels are in another unit
    check(booster, *train, status="certified" if rounds > 1 else "approximate")


def test_two_trees_are_told_from_one_score_where_rounding_allows(numeric, monkeypatch):
    X, y = numeric
    read = []
    real = lgb.Booster._Booster__inner_predict
    monkeypatch.setattr(lgb.Booster, "_Booster__inner_predict", lambda *given, **k: read.append(1) or real(*given, **k))
    check(train_lightgbm(X, y, rounds=9), X, y)
    assert len(read) == 5  # the first tree alone, because it holds the mean label
    read.clear()
    check(train_lightgbm(X, y + 1e6, rounds=9), X, y + 1e6)  # scores of 1e6 hide too much
    assert len(read) == 9


@pytest.mark.parametrize("last", [False, True])
def test_xgboost_early_stopping(last, numeric):
    """A callback that ends training keeps those after it from the last tree: it is recorded all the same."""
    train, valid = split(*numeric)
    data, evals = xgb.DMatrix(*train), [(xgb.DMatrix(*valid), "v")]
    stop = xgb.callback.EarlyStopping(rounds=3)
    callbacks = [stop, record(data)] if last else [record(data), stop]
    booster = xgb.train({**XGB, "eta": 0.5}, data, 60, evals=evals, callbacks=callbacks, verbose_eval=False)
    assert booster.best_iteration + 1 < booster.num_boosted_rounds() < 60
    check(booster, *train)


def test_xgboost_keeps_the_best_model(numeric):
    """save_best makes a new booster; a record after it hands over."""
    train, valid = split(*numeric)
    data, evals = xgb.DMatrix(*train), [(xgb.DMatrix(*valid), "v")]
    callbacks = [xgb.callback.EarlyStopping(rounds=3, save_best=True), record(data)]
    booster = xgb.train({**XGB, "eta": 0.5}, data, 60, evals=evals, callbacks=callbacks, verbose_eval=False)
    assert booster.num_boosted_rounds() == booster.best_iteration + 1
    check(booster, *train)


def test_estimators(numeric, weight):
    X, y = numeric
    check(
        lgb.LGBMRegressor(n_estimators=TREES, **LGB).fit(X, y, weight, callbacks=[record()]),
        X,
        y,
        sample_weight=weight,
    )
    train, valid = split(X, y)
    data = xgb.QuantileDMatrix(*train)
    estimator = xgb.XGBRegressor(n_estimators=60, early_stopping_rounds=3, **{**XGB, "eta": 0.5})
    estimator.set_params(callbacks=[record(data)]).fit(*train, eval_set=[valid], verbose=False)
    assert estimator.best_iteration + 1 < estimator.get_booster().num_boosted_rounds()
    check(estimator, *train)
    check(estimator.get_booster(), *train)  # has all trees
    check(pickle.loads(pickle.dumps(estimator)), *train)  # noqa: S301
    with pytest.raises(ValueError, match="lost its matrix"):
        copy.deepcopy(estimator).fit(*train, eval_set=[valid])


@pytest.mark.parametrize("first", [False, True])
def test_learning_rate_schedules(first, numeric):
    X, y = numeric
    check(train_lightgbm(X, y, callbacks=[lgb.reset_parameter(learning_rate=lambda i: 0.3 * 0.8**i)]), X, y)
    train = xgb.DMatrix(X, y)
    callbacks = [xgb.callback.LearningRateScheduler(lambda i: 0.3 * 0.8**i), record(train)]
    for depth in (1, 3):
        params = {**XGB, "max_depth": depth}
        booster = xgb.train(params, train, TREES, callbacks=callbacks if first else callbacks[::-1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            status = wrap(booster, X, y).certificate.status
        check(booster, X, y, status)


def test_one_callback_for_several_trainings(numeric):
    X, y = numeric
    callback = record()
    for label in (y, 2 * y):
        check(lgb.train(LGB, lgb.Dataset(X, label), TREES, callbacks=[callback]), X, label)
    train = xgb.DMatrix(X, y)
    callback = record(train)
    for eta in (0.1, 0.5):
        check(xgb.train({**XGB, "eta": eta}, train, TREES, callbacks=[callback]), X, y)


def test_pickle_and_copy(numeric):
    X, y = numeric
    for booster in (train_lightgbm(X, y), train_xgboost(X, y)):
        check(pickle.loads(pickle.dumps(booster)), X, y)  # noqa: S301
    check(copy.copy(booster), X, y)
    with pytest.raises(TypeError, match=r"neither moments nor training data.*record"):
        wrap(xgb.train(XGB, xgb.DMatrix(X, y), 2))


@pytest.mark.parametrize("objective", ["regression", "huber", "poisson", "regression_l1"])
def test_lightgbm_constants(objective, numeric):
    """No split is possible, or only from a later tree on: its objective decides what the constant's moments are."""
    X, y = numeric
    params = {"objective": objective, "alpha": 0.3}
    status = "approximate" if objective in RENEWED else "certified"
    check(train_lightgbm(X, y, {**params, "min_data_in_leaf": 399}), X, y, status)
    reset = lgb.reset_parameter(min_data_in_leaf=[399, 399, 20, 20])
    params |= {"feature_pre_filter": False}
    booster = train_lightgbm(X, y, params, rounds=4, callbacks=[reset])
    assert [tree["num_leaves"] > 1 for tree in booster.dump_model()["tree_info"]] == [False, True, True]
    check(booster, X, y, status)


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
def test_a_pickled_booster_needs_no_plugin(kind, numeric, tmp_path):
    X, y = numeric
    booster = train_lightgbm(X, y) if kind == "lightgbm" else train_xgboost(X, y)
    (tmp_path / "booster.pkl").write_bytes(pickle.dumps(booster))
    code = "import sys; sys.modules['pgbm_plugin'] = None; import pickle; pickle.load(open('booster.pkl', 'rb'))"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    again = wrap(pickle.loads((tmp_path / "booster.pkl").read_bytes()))  # noqa: S301
    assert_same_moments(again.moments, wrap(booster).moments)
    assert again.certificate == wrap(booster).certificate


def test_record_goes_first(numeric):
    """LightGBM puts a callback without an order before all that have one, and such a callback may end training."""
    X, y = numeric
    seen = []
    lgb.train(LGB, lgb.Dataset(X, y), 3, callbacks=[lambda env: seen.append(hasattr(env.model, ATTRIBUTE)), record()])
    assert seen == [True] * 3
