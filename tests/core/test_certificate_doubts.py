"""What a certificate must not be given for, and what it must not be refused for: units, clipped leaves, schedules."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import wrap
from tests.core.certified import LGB, XGB, certificate, train


@pytest.mark.parametrize("objective", ["reg:squarederror", "count:poisson"])
def test_fewer_rows_or_weights_are_not_only_called_a_sample(objective, numeric_4000):
    """XGBoost does not store whether it sampled; where trees are all of one size it did not."""
    X, y = numeric_4000
    params = {"objective": objective}
    fewer = certificate(train("xgboost", X[:3000], y[:3000], params), X, y)
    weighted = certificate(train("xgboost", X, y, params, weight=np.linspace(0.1, 0.9, len(y))), X, y)
    if objective == "reg:squarederror":
        assert (fewer.status, weighted.status) == ("held-out", "approximate")
    else:
        assert all("sample_weight=" in found.sentence for found in (fewer, weighted))
    sampled = certificate(train("xgboost", X, y, {**params, "subsample": 0.5}), X, y)
    assert sampled.status == "subsampled"
    assert "sample_weight" not in sampled.sentence


@pytest.mark.parametrize(
    "booster",
    [
        xgb.XGBRFRegressor(n_estimators=5, max_depth=4, subsample=1.0, n_jobs=1),
        xgb.XGBRegressor(n_estimators=1, max_depth=4, base_score=0.0, n_jobs=1),
    ],
    ids=["forest", "one tree"],
)
def test_labels_in_another_unit(booster, numeric_4000, tmp_path):
    """One iteration: a learning rate that is a thousandth would fit labels that are a thousandfold."""
    X, y = numeric_4000[0], numeric_4000[1] - numeric_4000[1].mean()
    booster.fit(X, y)
    booster.save_model(tmp_path / "model.ubj")
    for model in (booster, tmp_path / "model.ubj"):
        assert certificate(model, X, y).status == "certified"
        assert certificate(model, X, 1000.0 * y).status == "approximate"


def test_clipped_leaves_prove_nothing(numeric_4000):
    X, y = numeric_4000
    for kind in ("lightgbm", "xgboost"):
        model = train(kind, X, y, {"max_delta_step": 0.001})
        for label in (y, y.mean() + 2.0 * (y - y.mean())):
            with pytest.warns(UserWarning, match=r"approximate.*prove nothing.*max_delta_step"):
                wrap(model, X, label)
    assert certificate(train("lightgbm", X, y, {"max_delta_step": 5.0}), X, y).status == "certified"


def test_a_row_less_where_gradients_are_large(numeric_4000):
    """Its share of the leaf is within the tolerance; the leaf's size tells."""
    X, y = numeric_4000[0], 1000.0 + numeric_4000[1]
    model = train("xgboost", X, y, {"base_score": 0.5, "eta": 0.1})
    assert certificate(model, X, y).status == "certified"
    with pytest.warns(UserWarning, match="held-out"):
        wrap(model, X[1:], y[1:])


@pytest.mark.parametrize("leaves", [2, 8])
def test_learning_rates_that_change(leaves, numeric_4000):
    """With l1, and with trees of two leaves, which tell no more than one number each."""
    X, y = numeric_4000
    params = {"lambda_l1": 0.5, "num_leaves": leaves}
    rates = [0.3 * 0.9**i for i in range(10)]
    model = lgb.train({**LGB, **params}, lgb.Dataset(X, y), 10, callbacks=[lgb.reset_parameter(learning_rate=rates)])
    wrapped = wrap(model, X, y)
    assert wrapped.certificate.status == "certified"
    np.testing.assert_allclose(wrapped.spec.alpha, rates, rtol=1e-5)
    schedule = xgb.callback.LearningRateScheduler(rates.__getitem__)
    model = xgb.train({**XGB, "alpha": 0.5}, xgb.DMatrix(X, y), 10, callbacks=[schedule])
    wrapped = wrap(model, X, y)
    assert wrapped.certificate.status == "certified"
    np.testing.assert_allclose(wrapped.spec.alpha, [XGB["eta"], *rates[:-1]], rtol=1e-3)  # set after an iteration


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
def test_forgotten_and_wrong_weights(kind):
    """The sums of g and of h grow alike in every leaf, so that only the stored sums of hessians tell."""
    x = np.repeat(np.arange(4.0), 100)[:, None]
    noise, weight = np.tile([0.1, -0.1, 10.0, -10.0], 100), np.tile([100.0, 100.0, 0.01, 0.01], 100)
    y = 5.0 * x[:, 0] + noise
    model = train(kind, x, y, {"reg_lambda": 0.0}, weight=weight)
    assert certificate(model, x, y, sample_weight=weight).status == "certified"
    forgotten = certificate(model, x, y)
    assert forgotten.status != "certified"
    assert "sample_weight=" in forgotten.sentence
    for wrong in (np.roll(weight, 1), 2.0 * weight):
        assert certificate(model, x, y, sample_weight=wrong).status != "certified"


@pytest.mark.parametrize(
    ("kind", "objective"),
    [
        ("lightgbm", "regression"),
        ("lightgbm", "poisson"),
        ("xgboost", "reg:squarederror"),
        ("xgboost", "count:poisson"),
    ],
)
def test_one_weight(kind, objective, numeric_4000):
    X, y = numeric_4000
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    model = train(kind, X, y, {"objective": objective}, weight=weight)
    assert certificate(model, X, y, sample_weight=weight).status == "certified"
    weight[7] *= 1.5
    assert certificate(model, X, y, sample_weight=weight).status != "certified"


def test_stumps_do_not_tell_their_rate():
    """At the mean label the two leaves of a tree are one equation, which any learning rate solves."""
    rng = np.random.default_rng(1)
    X = np.stack([np.arange(200) >= 60, rng.permutation(200) >= 100], axis=1).astype(float)
    X[199, 1] = X[0, 1]
    y = 5 * X[:, 0] + X[:, 1] + rng.normal(size=200)
    y[[0, 199]] = -30.0, 40.0
    params = {"num_leaves": 2, "learning_rate": 0.05, "min_data_in_leaf": 5, "feature_fraction": 0.5}
    models = (train("lightgbm", X, y, {**params, "seed": seed}, rounds=2) for seed in range(40))
    # rows 0 and 199 differ in the first tree only
    model = next(
        m for m in models if list(m.trees_to_dataframe()["split_feature"].dropna()) == ["Column_0", "Column_1"]
    )
    assert certificate(model, X, y).status == "certified"
    y[[0, 199]] = y[[199, 0]]
    assert certificate(model, X, y).status != "certified"


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("factor", [1.01, 1.1])
def test_stated_rates_are_not_overruled(kind, factor, numeric_4000):
    """With one iteration, a smaller learning rate would fit labels that are farther from the base score."""
    X, y = numeric_4000[0], numeric_4000[1].astype(np.float32).astype(float)
    model = train(kind, X, y, rounds=1)
    start = wrap(model, X, y).spec.start
    assert certificate(model, X, start + factor * (y - start)).status == "approximate"


def test_clipped_leaves_of_some_rows():
    """Fewer than half of the leaves are clipped, but always those of the same rows."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 5, 900)
    X, y = group[:, None].astype(float), np.array([-30.0, 30.0, 0.0, 0.2, -0.2])[group] + 0.5 * rng.normal(size=900)
    model = train("lightgbm", X, y, {"num_leaves": 5, "max_delta_step": 2.0, "min_data_in_leaf": 5}, rounds=20)
    found = certificate(model, X, y)
    assert found.status == "approximate"
    assert f"{np.count_nonzero(group < 2)} of 900 rows" in found.sentence


def test_clipped_leaves_are_in_the_sentence(numeric_4000):
    X, y = numeric_4000
    label = np.round(np.exp(y / 2))
    model = train("xgboost", X, label, {"objective": "count:poisson", "max_delta_step": 0.3}, rounds=20)
    found = certificate(model, X, label)
    assert found.status == "certified"
    assert "prove nothing" in found.sentence


@pytest.mark.parametrize("params", [{"alpha": 1.0, "gamma": 1e9}, {"min_child_weight": 1e6}], ids=str)
def test_trees_without_splits_prove_the_mean_label(params, numeric_4000):
    X, y = numeric_4000
    model = train("xgboost", X, y, params)
    assert certificate(model, X, y).status == "certified"
    assert certificate(model, X, y + 1.0).status == "approximate"


def test_trees_without_splits_and_another_base_score(numeric_4000):
    """Before XGBoost 3.4 such a tree is a leaf of 0, which tells nothing of the labels; since then it is a step."""
    X, y = numeric_4000
    model = train("xgboost", X, y, {"min_child_weight": 1e6, "base_score": 0.5})
    steps = model.get_dump()[0].strip() != "0:leaf=0"
    assert certificate(model, X, y).status == ("certified" if steps else "approximate")


@pytest.mark.parametrize("lambda_", [0.1, 10.0])
def test_reloaded_booster_reports_defaults(lambda_, numeric_4000, tmp_path):
    """Without splits, nothing contradicts the defaults that XGBoost reports after a file."""
    X, y = numeric_4000
    params = {"eta": 1.0, "lambda": lambda_, "gamma": 1e9, "base_score": float(y.mean()) + 1.0}
    live = train("xgboost", X, y, params)
    live.save_model(tmp_path / "model.ubj")
    assert certificate(live, X, y).status == "certified"
    for model in (xgb.Booster(model_file=tmp_path / "model.ubj"), tmp_path / "model.ubj"):
        assert certificate(model, X, y).status == "approximate"


def test_a_row_is_missing(numeric_4000):
    X, y = numeric_4000
    found = certificate(train("xgboost", X, y), X[:-1], y[:-1])
    assert found.status == "held-out"
    assert "3999 were given, training saw 4000" in found.sentence
    assert "these are not all of the training rows" in found.sentence  # some leaves hold as much as in training
    x, label = np.repeat(np.arange(12.0), 50)[:, None], np.repeat(np.arange(12.0), 50)
    exact = train("xgboost", x, label, {"lambda": 0.0, "eta": 1.0, "base_score": 0.0}, rounds=1)
    found = certificate(exact, x[:-1], label[:-1])
    assert found.status == "approximate"
    assert "599, in training 600" in found.sentence


@pytest.mark.parametrize("eta", [0.01, 0.1])
def test_a_file_that_does_not_tell_its_rate(eta, numeric_4000, tmp_path):
    X, y = numeric_4000
    model = train("xgboost", X, y, {"max_depth": 1, "eta": eta}, rounds=1)
    model.save_model(tmp_path / "model.ubj")
    assert certificate(model, X, y).status == "certified"
    with pytest.warns(UserWarning, match="learning rate"):
        loaded = wrap(tmp_path / "model.ubj", X, y)
    assert loaded.certificate.status == "approximate"
    np.testing.assert_allclose(loaded.predict_var(X), wrap(model, X, y).predict_var(X), rtol=1e-3)


@pytest.mark.parametrize(
    "params", [{"num_parallel_tree": 10, "colsample_bynode": 0.5}, {"eta": 0.3}], ids=["forest", "default rate"]
)
def test_stumps_of_one_iteration_do_not_tell_their_unit(params, numeric_4000, tmp_path):
    """A file has lost the rate; no tree saw the step of another, so that labels in any unit fit some rate."""
    X, y = numeric_4000
    model = train("xgboost", X, y, {"max_depth": 1, **params}, rounds=1)
    model.save_model(tmp_path / "model.ubj")
    start = wrap(model, X, y).spec.start
    for factor in (1.0, 0.5, 1000.0):
        assert certificate(tmp_path / "model.ubj", X, start + factor * (y - start)).status == "approximate"


@pytest.mark.parametrize("params", [{}, {"disable_default_eval_metric": True}], ids=str)
def test_default_rates_of_a_live_booster(params, numeric_4000):
    """They are stated, though its configuration is that of a booster which was read from a file, but for metrics."""
    X, y = numeric_4000
    model = train("xgboost", X, y, {"max_depth": 1, "eta": 0.3, **params}, rounds=1)
    assert certificate(model, X, y).status == "certified"


def test_l1_of_stumps_in_a_file(numeric_4000, tmp_path):
    """A stump is one equation for three lost numbers; the leaves of several, on the training rows, tell them all."""
    X, y = numeric_4000
    train("xgboost", X, y, {"max_depth": 1, "alpha": 50.0}).save_model(tmp_path / "model.ubj")
    loaded = wrap(tmp_path / "model.ubj", X, y)
    assert loaded.certificate.status == "certified"
    np.testing.assert_allclose((loaded.spec.l1, loaded.spec.alpha[0]), (50.0, XGB["eta"]), rtol=1e-3)


def test_exposure_is_not_its_logarithm(numeric_4000):
    X, y = numeric_4000
    exposure = np.random.default_rng(0).uniform(1.0, 30.0, len(y))
    label = np.random.default_rng(1).poisson(exposure).astype(float)
    model = train("lightgbm", X, label, {"objective": "poisson"}, init_score=np.log(exposure))
    assert certificate(model, X, label, init_score=np.log(exposure)).status == "certified"
    assert "log(exposure), not exposure" in certificate(model, X, label, init_score=exposure).sentence


def test_wrong_weights_are_named(numeric_4000):
    """XGBoost stores no counts, so that other weights look like other rows, or like samples of them."""
    X, y = numeric_4000
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    model = train("xgboost", X, y, weight=weight)
    for wrong in (2.0 * weight, np.where(np.arange(len(y)) == 7, 1.5, 1.0) * weight, np.full(len(y), 0.5)):
        found = certificate(model, X, y, sample_weight=wrong)
        assert found.status != "certified"
        assert "weights" in found.sentence


def test_whole_weights_are_not_rows(numeric_4000, tmp_path):
    """The file has lost its bound and its rate, but the rows are those of training."""
    X, y = numeric_4000
    weight = np.random.default_rng(0).integers(1, 4, len(y)).astype(float)
    train("xgboost", X, y, {"max_delta_step": 0.3, "eta": 0.3}, weight=weight).save_model(tmp_path / "model.ubj")
    assert certificate(tmp_path / "model.ubj", X, y, sample_weight=weight).status != "held-out"


def test_a_constant_is_the_mean_of_all_rows(numeric_4000):
    X, y = numeric_4000
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    model = train("lightgbm", np.zeros_like(X), y, weight=weight)
    assert certificate(model, X, y, sample_weight=weight).status == "certified"
    assert certificate(model, X[1:], y[1:], sample_weight=weight[1:]).status != "certified"
