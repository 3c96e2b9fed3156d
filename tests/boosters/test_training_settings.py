"""How training turns gradients into leaves, in all its settings: each is reproduced, so each is certified."""

from __future__ import annotations

import json
import warnings

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

from pgbm_plugin import wrap
from pgbm_plugin.boosters import read_model
from tests import naive

LGB = {"num_leaves": 8, "min_data_in_leaf": 10, "learning_rate": 0.1, "lambda_l2": 0.7, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 3, "eta": 0.2, "lambda": 0.7, "nthread": 1}
TREES = 6


def certified(model, tolerance, clipped=False):
    """Clipped leaves are reproduced, too, but prove nothing."""
    assert model.certificate.status == ("approximate" if clipped else "certified")
    assert ("prove nothing" in model.certificate.sentence) >= clipped
    assert model.certificate.error <= tolerance
    assert np.all(model.moments.count.reshape(-1) > 0)


def train_lightgbm(X, y, params=None, rounds=TREES, **dataset):
    return lgb.train({**LGB, **(params or {})}, lgb.Dataset(X, y, **dataset), rounds)


def train_xgboost(X, y, params=None, rounds=TREES, **dmatrix):
    return xgb.train({**XGB, **(params or {})}, xgb.DMatrix(X, y, enable_categorical=True, **dmatrix), rounds)


@pytest.mark.parametrize(
    ("params", "alpha", "l1", "max_step"),
    [
        ({"lambda_l1": 2.5}, 0.1, 2.5, np.inf),
        ({"reg_alpha": 2.5, "reg_lambda": 3.0}, 0.1, 2.5, np.inf),
        ({"max_delta_step": 0.15}, 0.1, 0.0, 0.15),
        ({"lambda_l1": 2.5, "max_delta_step": 0.15}, 0.1, 2.5, 0.15),
        ({"learning_rate": 1.0}, 1.0, 0.0, np.inf),
        ({"boost_from_average": False}, 0.1, 0.0, np.inf),
        ({"boost_from_average": False, "learning_rate": 1.0}, 1.0, 0.0, np.inf),
        ({"feature_fraction": 0.5, "extra_trees": True}, 0.1, 0.0, np.inf),
    ],
)
@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.filterwarnings("ignore:not certified.*clipped:UserWarning")
def test_lightgbm_settings(params, alpha, l1, max_step, saved, numeric, tmp_path):
    X, y = numeric
    booster = train_lightgbm(X, y, params)
    booster.save_model(tmp_path / "m.txt")
    model = wrap(tmp_path / "m.txt" if saved else booster, X, y)
    certified(model, 1e-12, clipped=np.isfinite(max_step))
    assert np.array_equal(model.spec.alpha, np.full(TREES, alpha))
    assert (model.spec.l1, model.spec.max_step) == (l1, max_step)
    assert np.array_equal(model.predict(X), booster.predict(X))


@pytest.mark.parametrize(
    "params",
    [
        {"alpha": 2.5},
        {"eta": 1.0},
        {"lambda": 0.0},
        {"num_parallel_tree": 3, "colsample_bynode": 0.5},
        {"tree_method": "exact"},
        {"tree_method": "approx"},
        {"grow_policy": "lossguide", "max_leaves": 6},
        {"gamma": 1.0},
        {"base_score": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("saved", ["live", "json", "ubj", "pickle"])
def test_xgboost_settings(params, saved, numeric, tmp_path):
    """XGBoost's files have lost eta, lambda and alpha; the distribution is the live model's all the same."""
    X, y = numeric
    booster = train_xgboost(X, y, params)
    live = wrap(booster, X, y)
    certified(live, 1e-6)
    path = tmp_path / f"m.{saved}"
    if saved in ("json", "ubj"):
        booster.save_model(path)
        loaded = xgb.Booster(model_file=path)
        for model in (wrap(path, X, y), wrap(loaded, X, y)):
            certified(model, 1e-6)
            assert np.array_equal(model.predict_var(X), live.predict_var(X))
            assert np.array_equal(model.predict(X), live.predict(X))
    elif saved == "pickle":
        import pickle

        copy = wrap(pickle.loads(pickle.dumps(booster)), X, y)  # noqa: S301
        assert np.array_equal(copy.predict_var(X), live.predict_var(X))


@pytest.mark.parametrize("params", [{"max_delta_step": 0.15}, {"alpha": 2.5, "max_delta_step": 0.15}], ids=str)
@pytest.mark.filterwarnings("ignore:not certified.*clipped:UserWarning")
def test_xgboost_max_delta_step(params, numeric):
    X, y = numeric
    model = wrap(train_xgboost(X, y, params), X, y)
    certified(model, 1e-6, clipped=True)
    clipped = np.float32(0.2) * np.float32(0.15)
    assert np.isclose(np.abs(model.forest.leaf_value).max(), clipped, rtol=1e-6)  # the bound was really reached


@pytest.mark.filterwarnings("ignore:not certified.*clipped:UserWarning")
def test_xgboost_max_delta_step_saved(numeric, tmp_path):
    """The bound is lost on save, too, and seen in the leaves at it; their rounding is then that of the bound."""
    X, y = numeric
    booster = train_xgboost(X, y, {"max_delta_step": 0.15})
    booster.save_model(tmp_path / "m.ubj")
    live, loaded = wrap(booster, X, y), wrap(tmp_path / "m.ubj", X, y)
    certified(loaded, 1e-5, clipped=True)
    np.testing.assert_allclose(loaded.predict_var(X), live.predict_var(X), rtol=1e-5)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_xgboost_poisson_saved(seed, make_data, tmp_path):
    """Poisson clips leaves as a rule (max_delta_step is 0.7 unless set): a few at the bound hide eta there."""
    X, y = make_data("numeric", seed=seed)
    booster = train_xgboost(X, y, {"objective": "count:poisson", "max_delta_step": 0.5})
    booster.save_model(tmp_path / "m.ubj")
    live, loaded = wrap(booster, X, y), wrap(tmp_path / "m.ubj", X, y)
    certified(loaded, 1e-5)
    assert np.array_equal(loaded.predict_var(X), live.predict_var(X))


@pytest.mark.parametrize(
    ("params", "status"),
    [({}, "held-out"), ({"alpha": 2.5}, "held-out"), ({"subsample": 0.6, "seed": 1}, "subsampled")],
)
def test_xgboost_saved_without_the_training_rows(params, status, make_data, tmp_path):
    """The rates are then solved from the trees alone."""
    X, y = make_data("numeric", n=600)
    train = slice(0, 400) if status == "held-out" else slice(None)
    booster = train_xgboost(X[train], y[train], params)
    booster.save_model(tmp_path / "m.ubj")
    rows = slice(400, None) if status == "held-out" else slice(None)
    with pytest.warns(UserWarning, match=status):
        live = wrap(booster, X[rows], y[rows])
    with pytest.warns(UserWarning, match=status):
        loaded = wrap(tmp_path / "m.ubj", X[rows], y[rows])
    assert live.certificate.status == loaded.certificate.status == status
    assert np.array_equal(loaded.predict_var(X), live.predict_var(X))


@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("levels", [3, 4, 5, 6])
@pytest.mark.parametrize("max_cat_to_onehot", [4, 5])
def test_cat_l2(levels, max_cat_to_onehot, nan, numeric):
    """cat_l2 is added to lambda in leaves of sorted splits, not of one-hot ones: which is which changes at the edge."""
    X, y = numeric
    rng = np.random.default_rng(2)
    code = rng.integers(0, levels, len(y)).astype(float)
    y = y + code % 3
    if nan:
        code[rng.random(len(y)) < 0.2] = np.nan
    X = np.column_stack([X, code])
    params = {"max_cat_to_onehot": max_cat_to_onehot, "cat_l2": 7.0, "min_data_per_group": 5, "cat_smooth": 1.0}
    booster = train_lightgbm(X, y, params, categorical_feature=[4])
    certified(wrap(booster, X, y), 1e-12)


def test_cat_l2_of_a_frame(mixed):
    X, y = mixed
    y = y + X["few"].cat.codes.to_numpy() + np.sin(5 * X["many"].cat.codes.to_numpy())
    booster = lgb.train(LGB | {"min_data_per_group": 5, "cat_smooth": 1.0}, lgb.Dataset(X, y), TREES)
    model = wrap(booster, X, y)
    certified(model, 1e-12)
    assert set(np.round(model.spec.lambda_, 10)) == {0.7, 10.7}


def test_lightgbm_random_forest(numeric):
    """Without bagging its leaves are reproduced: gradients at the start, for every tree."""
    X, y = numeric
    params = {"boosting": "rf", "feature_fraction": 0.5, "learning_rate": 0.3}
    booster = train_lightgbm(X, y, params)
    model = wrap(booster, X, y)
    certified(model, 1e-12)
    assert np.array_equal(model.predict(X), booster.predict(X))
    # an average of trees: each brings 1/T of its spread
    assert np.allclose(model.weights.sd, np.sqrt(model.weights.variance) / TREES, rtol=1e-15)


@pytest.mark.parametrize("booster_kind", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("saved", [False, True])
def test_learning_rate_schedule(booster_kind, saved, numeric, tmp_path):
    X, y = numeric
    if booster_kind == "lightgbm":
        booster = lgb.train(
            LGB, lgb.Dataset(X, y), TREES, callbacks=[lgb.reset_parameter(learning_rate=lambda i: 0.3 * 0.8**i)]
        )
        want = 0.3 * 0.8 ** np.arange(TREES)
    else:
        schedule = xgb.callback.LearningRateScheduler(lambda i: 0.3 * 0.8**i)
        booster = xgb.train(XGB, xgb.DMatrix(X, y), TREES, callbacks=[schedule])
        want = np.array([0.2, *0.3 * 0.8 ** np.arange(TREES - 1)])  # XGBoost's scheduler lags by a tree
    path = tmp_path / ("m.txt" if booster_kind == "lightgbm" else "m.ubj")
    booster.save_model(path)
    model = wrap(path if saved else booster, X, y)
    certified(model, 1e-6)
    np.testing.assert_allclose(model.spec.alpha, want, rtol=1e-5)


@pytest.mark.parametrize("saved", [False, True])
def test_more_digits_than_model_text_has(saved, numeric, tmp_path):
    X, y = numeric
    booster = train_lightgbm(X, y, {"learning_rate": 0.123456789, "lambda_l2": 0.7654321})
    booster.save_model(tmp_path / "m.txt")
    model = wrap(tmp_path / "m.txt" if saved else booster, X, y)
    certified(model, 1e-6)
    np.testing.assert_allclose(model.spec.alpha, 0.123456789, rtol=1e-8 if saved else 0)


@pytest.mark.parametrize("saved", [False, True])
def test_continued_training(saved, numeric, tmp_path):
    X, y = numeric
    first = train_lightgbm(X, y)
    booster = lgb.train({**LGB, "learning_rate": 0.05, "lambda_l2": 3.0}, lgb.Dataset(X, y), TREES, init_model=first)
    booster.save_model(tmp_path / "m.txt")
    model = wrap(tmp_path / "m.txt" if saved else booster, X, y)
    certified(model, 1e-6)
    np.testing.assert_allclose(model.spec.alpha, np.repeat([0.1, 0.05], TREES), rtol=1e-6)
    np.testing.assert_allclose(model.spec.lambda_[[0, -1]], [0.7, 3.0], rtol=1e-6)
    assert np.array_equal(model.predict(X), booster.predict(X))

    first = train_xgboost(X, y)
    booster = xgb.train({**XGB, "eta": 0.05, "lambda": 3.0}, xgb.DMatrix(X, y), TREES, xgb_model=first)
    booster.save_model(tmp_path / "m.ubj")
    model = wrap(tmp_path / "m.ubj" if saved else booster, X, y)
    certified(model, 1e-5)
    np.testing.assert_allclose(model.spec.alpha, np.repeat([0.2, 0.05], TREES), rtol=1e-3)
    assert np.array_equal(model.predict(X), booster.predict(xgb.DMatrix(X)))


def test_variance_with_l1_and_parallel_trees(numeric):
    """Leaves that are certified say little about V: eq. 9 and 12 once more against the oracle."""
    X, y = numeric
    booster = train_lightgbm(X, y, {"lambda_l1": 2.5})
    model = wrap(booster, X, y)
    ids = booster.predict(X, pred_leaf=True)
    start = float(np.mean(y.astype(np.float32).astype(float)))
    values = naive.lightgbm_leaf_values(booster)
    trees = naive.replay(ids, values, naive.squared, 0.0, y, start, folded=start)
    np.testing.assert_allclose(model.predict_var(X), naive.variance(ids, trees, 0.1, 0.7, model.rho, 2.5), rtol=1e-12)

    params = {"num_parallel_tree": 3, "colsample_bynode": 0.5, "alpha": 0.5, "objective": "reg:gamma"}
    booster = train_xgboost(X, y, params)
    model = wrap(booster, X, y)
    ids = booster.predict(xgb.DMatrix(X), pred_leaf=True)
    start = naive.f32(np.log(naive.xgboost_base_score(booster)))
    values = naive.xgboost_leaf_values(booster)
    trees = naive.replay(ids, values, naive.gamma, 0.0, y, start, single=True, parallel=3)
    sigma2 = naive.variance(ids, trees, naive.f32(0.2) / 3, naive.f32(0.7), model.rho, 0.5)
    want = booster.predict(xgb.DMatrix(X)).astype(float) ** 2 * sigma2
    np.testing.assert_allclose(model.predict_var(X), want, rtol=1e-12)


def test_variance_of_a_random_forest(numeric):
    """Every tree of LightGBM's rf holds the start, sees its gradients, and is divided by the number of trees."""
    X, y = numeric
    booster = train_lightgbm(X, y, {"boosting": "rf", "feature_fraction": 0.5})
    model = wrap(booster, X, y)
    ids = booster.predict(X, pred_leaf=True)
    start = float(np.mean(y.astype(np.float32).astype(float)))
    values = naive.lightgbm_leaf_values(booster)
    trees = naive.replay(ids, values, naive.squared, 0.0, y, start, parallel=TREES)
    np.testing.assert_allclose(model.predict_var(X), naive.variance(ids, trees, 1 / TREES, 0.7, model.rho), rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_scale_and_offset_of_labels(scale, offset, numeric):
    X, y = numeric
    y = scale * (y + offset)
    certified(wrap(train_lightgbm(X, y), X, y), 1e-6)
    certified(wrap(train_xgboost(X, y), X, y), 1e-5)


@pytest.mark.parametrize("frame", [False, True])
def test_categories_do_not_change_xgboosts_lambda(frame, make_data):
    X, y = make_data("categorical")
    X = X if frame else X.assign(few=X["few"].cat.codes, many=X["many"].cat.codes).to_numpy()
    assert isinstance(X, pd.DataFrame) == frame
    model = wrap(train_xgboost(X, y, {"max_cat_to_onehot": 4}), X, y)
    certified(model, 1e-6)
    assert set(model.spec.lambda_) == {np.float32(0.7)}


@pytest.mark.parametrize("suffix", ["ubj", "json"])
@pytest.mark.parametrize(
    "params", [{"min_child_weight": 1e6}, {"gamma": 1e9}, {"gamma": 1e9, "base_score": 0.5}], ids=str
)
def test_xgboost_without_a_single_split(params, suffix, numeric, tmp_path):
    """Single leaves, which are 0 or real steps: the model is a constant, and its spread that of the labels."""
    X, y = numeric
    booster = xgb.train({**XGB, "lambda": 0.0, **params}, xgb.DMatrix(X, y), 3)
    booster.save_model(tmp_path / f"m.{suffix}")
    live = wrap(booster, X, y)
    assert live.certificate.status == "certified"
    # float32 labels and margins
    np.testing.assert_allclose(live.predict_var(X), np.var(y, ddof=1), rtol=1e-6)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "not certified")  # single leaves do not tell lambda
        from_file = wrap(tmp_path / f"m.{suffix}", X, y)
    assert np.array_equal(from_file.predict(X), live.predict(X))
    np.testing.assert_allclose(from_file.predict_var(X), live.predict_var(X), rtol=0.01)


UNTOUCHED = {"exact": {"tree_method": "exact"}, "single leaves": {"gamma": 1e9, "base_score": 0.0}}


@pytest.mark.parametrize("params", UNTOUCHED.values(), ids=UNTOUCHED)
def test_weights_before_the_learning_rate(params, numeric, tmp_path):
    """Leaves that store them tell each tree's rate: taken if it is another than the model's, which has more digits."""
    X, y = numeric
    eta = 0.123456789
    schedule = xgb.callback.LearningRateScheduler(lambda i: eta if i < 2 else 0.025)
    booster = xgb.train({**XGB, **params, "eta": eta}, xgb.DMatrix(X, y), TREES, callbacks=[schedule])
    booster.save_model(tmp_path / "m.json")
    want = np.where(np.arange(TREES) < 3, np.float32(eta), np.float32(0.025)).astype(float)
    np.testing.assert_allclose(read_model(tmp_path / "m.json")[1].alpha, want, rtol=1e-5)
    booster.set_param({"eta": eta})  # after training it is that of the last tree
    alpha = read_model(booster)[1].alpha
    assert np.array_equal(alpha[:3], want[:3])
    np.testing.assert_allclose(alpha[3:], want[3:], rtol=1e-5)
    booster.set_param({"eta": 1.01 * eta})
    np.testing.assert_allclose(read_model(booster)[1].alpha, want, rtol=1e-5)

    content = json.loads((tmp_path / "m.json").read_text())
    for odd in (-1.0, 1e-4):  # a rate that is negative or above 100 is none
        weights = json.loads(json.dumps(content))
        tree = weights["learner"]["gradient_booster"]["model"]["trees"][1]
        leaf = tree["left_children"].index(-1)
        tree["base_weights"][leaf] = tree["split_conditions"][leaf] * odd
        (tmp_path / "odd.json").write_text(json.dumps(weights))
        nominal = read_model(tmp_path / "odd.json")[1].alpha
        assert np.all((nominal > 0) & (nominal < 100))


def test_a_single_leaf_at_full_rate(numeric, tmp_path):
    X, y = numeric
    booster = xgb.train({**XGB, "gamma": 1e9, "base_score": 0.0, "eta": 1.0}, xgb.DMatrix(X, y), 1)
    booster.save_model(tmp_path / "m.ubj")
    assert read_model(tmp_path / "m.ubj")[1].alpha == [1.0]


def test_xgboost_squaredlogerror_below_minus_one(numeric):
    """XGBoost keeps the margin just above -1, where derivatives depend on the last bits of float32."""
    X, _ = numeric
    y = np.random.default_rng(0).uniform(-0.9, -0.8, len(X))
    params = {"objective": "reg:squaredlogerror", "base_score": -2.0, "eta": 0.3}
    booster = train_xgboost(X, y, params)
    assert booster.predict(xgb.DMatrix(X)).max() < -1.0
    certified(wrap(booster, X, y), 1e-5)
