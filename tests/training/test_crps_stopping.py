"""Early stopping on the CRPS in both boosters, and what crps_callback refuses."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import UnsupportedModelError, crps_callback
from tests.training.validated import LGB, ROUNDS, RUN, XGB, assert_same_scores, brute, run_lightgbm, run_xgboost, split


def overfitting(seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(400, 4))
    return split(X, X[:, 0] + rng.normal(size=400) * np.exp(0.5 * X[:, 1]), 200)


def stop(scores, rounds):
    """Where early stopping ends: (best iteration, last iteration), from 0."""
    best = 0
    for k, score in enumerate(scores):
        if score < scores[best]:
            best = k
        if k - best >= rounds:
            return best, k
    raise AssertionError("it did not stop")


@pytest.fixture(scope="module")
def lightgbm_curve():
    train, valid = overfitting()
    booster = lgb.train(LGB, lgb.Dataset(*train), 40)
    return train, valid, brute(booster, train, valid, range(1, 41))


@pytest.fixture(scope="module")
def xgboost_curve():
    train, valid = overfitting()
    booster = xgb.train(XGB, xgb.DMatrix(*train), 40)
    return train, valid, brute(booster, train, valid, range(1, 41))


@pytest.mark.parametrize("metrics", ["none", "first", "both"])
def test_lightgbm_stops_early(metrics, lightgbm_curve, capsys):
    train, valid, curve = lightgbm_curve
    best, last = stop(curve, 4)
    assert 0 < best < last < 39
    data = lgb.Dataset(*train)
    held_out = lgb.Dataset(*valid, reference=data)
    stopping = lgb.early_stopping(4, first_metric_only=metrics != "none", verbose=False)
    sets = {"none": [], "first": [held_out], "both": [data, held_out]}[metrics]
    params = {**LGB, "metric": "None" if metrics == "none" else ["l1", "l2"]}
    seen = {}
    booster = lgb.train(
        params,
        data,
        40,
        sets,
        ["train", "valid"][-len(sets) :] if sets else None,
        callbacks=[
            stopping,
            lgb.log_evaluation(),
            lgb.record_evaluation(seen),
            crps_callback(*valid, X=train[0], y=train[1]),
        ],
    )
    assert (booster.best_iteration, len(seen["valid"]["crps"])) == (best + 1, last + 1)
    assert booster.num_trees() == best + 1
    np.testing.assert_allclose(seen["valid"]["crps"], curve[: last + 1], rtol=1e-12)
    assert booster.best_score["valid"]["crps"] == pytest.approx(curve[best], rel=1e-12)
    assert f"[{last + 1}]\tvalid's crps: {curve[last]:g}" in capsys.readouterr().out
    if metrics == "both":  # LightGBM wants every metric on every data set
        want = brute(booster, train, train, [best + 1])
        np.testing.assert_allclose(seen["train"]["crps"][best], want[0], rtol=1e-12)


@pytest.mark.parametrize("how", ["argument", "callback", "beside rmse"])
def test_xgboost_stops_early(how, xgboost_curve):
    train, valid, curve = xgboost_curve
    best, last = stop(curve, 4)
    assert 0 < best < last < 39
    lines, seen = [], {}
    callbacks = [crps_callback(*valid, X=train[0], y=train[1]), xgb.callback.EvaluationMonitor(logger=lines.append)]
    options = {"early_stopping_rounds": 4}
    if how != "argument":
        stopping = xgb.callback.EarlyStopping(rounds=4, data_name="valid", metric_name="crps", save_best=True)
        callbacks, options = [*callbacks, stopping], {}
    if how == "beside rmse":
        options["evals"] = [(xgb.DMatrix(*valid), "valid"), (xgb.DMatrix(*train), "train")]
    booster = xgb.train(
        XGB, xgb.DMatrix(*train), 40, callbacks=callbacks, evals_result=seen, verbose_eval=False, **options
    )
    assert booster.best_iteration == best
    assert booster.best_score == pytest.approx(curve[best], rel=1e-12)
    assert booster.num_boosted_rounds() == (last if how == "argument" else best) + 1
    np.testing.assert_allclose(seen["valid"]["crps"], curve[: last + 1], rtol=1e-12)
    assert f"valid-crps:{curve[last]:.5f}" in lines[-1]
    assert len(lines) == last + 1


def test_estimators_stop_early(lightgbm_curve, xgboost_curve):
    train, valid, curve = lightgbm_curve
    callback = crps_callback(*valid, X=train[0], y=train[1])
    estimator = lgb.LGBMRegressor(n_estimators=40, **LGB)
    estimator.fit(*train, callbacks=[callback, lgb.early_stopping(4, verbose=False)])
    assert estimator.best_iteration_ == stop(curve, 4)[0] + 1
    np.testing.assert_allclose(estimator.evals_result_["valid"]["crps"], curve[: stop(curve, 4)[1] + 1], rtol=1e-12)

    train, valid, curve = xgboost_curve
    estimator = xgb.XGBRegressor(n_estimators=40, callbacks=[callback], early_stopping_rounds=4, **XGB)
    estimator.fit(*train, verbose=False)  # the same object, in the other package
    assert estimator.best_iteration == stop(curve, 4)[0]
    np.testing.assert_allclose(estimator.evals_result()["valid"]["crps"], curve[: stop(curve, 4)[1] + 1], rtol=1e-12)


def test_several_in_one_training(numeric_sets):
    train, valid = numeric_sets
    seen = {}
    callbacks = [
        crps_callback(*valid, X=train[0], y=train[1], distribution=family, name=family, data_name="held out")
        for family in ("normal", "laplace")
    ]
    booster = lgb.train(LGB, lgb.Dataset(*train), ROUNDS, callbacks=[*callbacks, lgb.record_evaluation(seen)])
    for family in ("normal", "laplace"):
        assert_same_scores(seen["held out"][family], brute(booster, train, valid, distribution=family))


def test_training_is_not_changed(numeric_sets):
    train, valid = numeric_sets
    callback = crps_callback(*valid, X=train[0], y=train[1])
    with_it, _ = run_lightgbm({}, callback, *train)
    assert with_it.model_to_string() == lgb.train(LGB, lgb.Dataset(*train), ROUNDS).model_to_string()
    with_it, _ = run_xgboost({}, callback, *train)
    assert with_it.save_raw("json") == xgb.train(XGB, xgb.DMatrix(*train), ROUNDS).save_raw("json")


def test_sets_without_a_score_are_told(numeric_sets):
    """LightGBM's early stopping would say that a zip is too short."""
    train, valid = numeric_sets
    data = lgb.Dataset(*train)
    sets = [lgb.Dataset(*valid, reference=data), lgb.Dataset(*valid, reference=data)]
    with pytest.warns(
        UserWarning, match=r"crps is not known on b: leave these out of valid_sets, or set metric='None'"
    ):
        lgb.train(LGB, data, 2, sets, ["valid", "b"], callbacks=[crps_callback(*valid, X=train[0], y=train[1])])


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"distribution": "empirical"}, ValueError, "'empirical' needs residuals of held-out rows"),
        ({"distribution": "conformal"}, ValueError, "'conformal' needs residuals of held-out rows"),
        ({"distribution": "cauchy"}, ValueError, "unknown distribution 'cauchy'"),
        ({"rho": 1.5}, ValueError, r"rho must lie in \[-1, 1\], not 1.5"),
        ({"X": np.ones((3, 2))}, TypeError, "needs labels: give X=X, y=y"),
        ({"y": np.ones(3)}, TypeError, "labels without rows"),
        ({"y_val": None}, TypeError, "needs labels: give X_val, y_val"),
        ({"X_val": None}, TypeError, "labels without rows"),
    ],
)
def test_bad_arguments(options, error, match):
    with pytest.raises(error, match=match):
        crps_callback(**{"X_val": np.ones((3, 2)), "y_val": np.ones(3), **options})


@pytest.mark.parametrize(
    ("kind", "params", "match"),
    [
        ("lightgbm", {"boosting": "dart"}, "boosting=dart"),
        ("lightgbm", {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}, "boosting=rf.*averaged"),
        ("lightgbm", {"objective": "quantile"}, "'quantile' is not supported"),
        ("lightgbm", {"linear_tree": True}, "linear_tree=True"),
        ("lightgbm", {"objective": lambda s, d: (s - d.get_label(), np.ones(len(s)))}, "objective=f"),
        ("xgboost", {"booster": "dart", "rate_drop": 0.5}, "booster=dart"),
        ("xgboost", {"booster": "gblinear"}, "booster=gblinear"),
        ("xgboost", {"objective": "reg:quantileerror", "quantile_alpha": 0.5}, "'reg:quantileerror' is not supported"),
    ],
)
def test_refused(kind, params, match, numeric_sets):
    train, valid = numeric_sets
    with pytest.raises(UnsupportedModelError, match=match):
        RUN[kind](params, crps_callback(*valid, X=train[0], y=train[1]), *train)


def test_refused_where_rows_are_not_known(numeric_sets):
    train, valid = numeric_sets
    callback = crps_callback(*valid, X=train[0], y=train[1])
    with pytest.raises(UnsupportedModelError, match="does not work in cv"):
        lgb.cv(LGB, lgb.Dataset(*train), 2, stratified=False, callbacks=[callback])
    with pytest.raises(UnsupportedModelError, match="does not work in cv"):
        xgb.cv(XGB, xgb.DMatrix(*train), 2, callbacks=[callback])
    with pytest.raises(TypeError, match=r"rows of training.*give X= and y=, or X=dtrain"):
        run_xgboost({}, crps_callback(*valid), *train)
    with pytest.raises(TypeError, match=r"data set did not keep its rows.*X=X, y=y.*free_raw_data=False"):
        run_lightgbm({}, crps_callback(*valid), *train)
    old = lgb.train(LGB, lgb.Dataset(*train), 2)
    with pytest.raises(UnsupportedModelError, match=r"continued training \(init_model\).*tables as X and X_val"):
        run_lightgbm({}, crps_callback(*valid), *train, init_model=old, free_raw_data=False)
