"""What the certificate tells apart: each departure from training has its status, its sentence and one warning."""

from __future__ import annotations

import warnings

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import wrap
from tests.core.certified import TREES, XGB, certificate, train

both = pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])

QUANTIZES = pytest.mark.skipif(
    tuple(map(int, lgb.__version__.split(".")[:2])) < (4, 3), reason="LightGBM 4.0 and 4.1 fail to train it"
)


@both
def test_the_training_rows(kind, numeric_4000):
    found = certificate(train(kind, *numeric_4000), *numeric_4000)
    assert found.status == "certified"
    assert found.error <= {"lightgbm": 1e-12, "xgboost": 1e-6}[kind]


@both
@pytest.mark.parametrize("by", [1.0, -0.01])
def test_one_label_of_4000(kind, by, numeric_4000):
    X, y = numeric_4000
    wrong = y.copy()
    wrong[1234] += by
    found = certificate(train(kind, X, y), X, wrong)
    assert found.status == "approximate"
    assert found.error > 10 * found.tolerance


@both
def test_shuffled_labels(kind, numeric_4000):
    X, y = numeric_4000
    found = certificate(train(kind, X, y), X, np.random.default_rng(0).permutation(y))
    assert found.status == "approximate"
    assert "labels" in found.sentence


def test_labels_of_a_constant(numeric_4000):
    """A first tree of one leaf is its own start; the labels must still have that mean."""
    X, y = numeric_4000
    model = train("lightgbm", X, y, {"min_data_in_leaf": 3000})
    assert certificate(model, X, y).status == "certified"
    assert certificate(model, X, y + 5.0).status == "approximate"


@both
def test_other_rows(kind, numeric_4000):
    X, y = numeric_4000
    found = certificate(train(kind, X[:2000], y[:2000]), X[2000:], y[2000:])
    assert found.status == "held-out"
    assert "not the training rows" in found.sentence


@both
def test_some_of_the_rows(kind, numeric_4000):
    X, y = numeric_4000
    found = certificate(train(kind, X, y), X[:3000], y[:3000])
    assert found.status == "held-out"
    assert "not all of the training rows" in found.sentence
    assert "if they are some of them, give all" in found.sentence


@both
def test_order_of_rows_does_not_matter(kind, numeric_4000):
    X, y = numeric_4000
    order = np.random.default_rng(0).permutation(len(y))
    assert certificate(train(kind, X, y), X[order], y[order]).status == "certified"


@both
@pytest.mark.parametrize(("low", "high"), [(0.5, 2.0), (0.3, 0.9), (1.5, 3.0)])
def test_forgotten_weights(kind, low, high, numeric_4000):
    """Small weights must not pass for a sample of the rows, nor large ones for other rows without a word of it."""
    X, y = numeric_4000
    weight = np.random.default_rng(0).uniform(low, high, len(y))
    model = train(kind, X, y, weight=weight)
    assert certificate(model, X, y, sample_weight=weight).status == "certified"
    forgotten = certificate(model, X, y)
    assert forgotten.status in ("approximate", "held-out")
    assert "sample_weight=" in forgotten.sentence


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("lightgbm", {"bagging_fraction": 0.5, "bagging_freq": 1}),
        ("lightgbm", {"bagging_fraction": 0.9, "bagging_freq": 3}),
        # GOSS begins after 1 / learning_rate trees
        ("lightgbm", {"data_sample_strategy": "goss", "learning_rate": 0.5}),
        ("lightgbm", {"boosting": "rf", "bagging_fraction": 0.7, "bagging_freq": 1}),
        ("xgboost", {"subsample": 0.5}),
        ("xgboost", {"subsample": 0.9}),
    ],
)
def test_subsampled(kind, params, numeric_4000):
    found = certificate(train(kind, *numeric_4000, params), *numeric_4000)
    assert found.status == "subsampled"
    assert "samples of these rows" in found.sentence


def test_subsampled_from_file(numeric_4000, tmp_path):
    train("lightgbm", *numeric_4000, {"bagging_fraction": 0.5, "bagging_freq": 1}).save_model(tmp_path / "m.txt")
    assert certificate(tmp_path / "m.txt", *numeric_4000).status == "subsampled"
    train("xgboost", *numeric_4000, {"subsample": 0.5}).save_model(tmp_path / "m.json")
    assert certificate(tmp_path / "m.json", *numeric_4000).status == "subsampled"


@pytest.mark.parametrize(
    ("kind", "params", "word"),
    [
        ("lightgbm", {"objective": "l1"}, "renews"),
        ("lightgbm", {"objective": "mape"}, "renews"),
        ("xgboost", {"objective": "reg:absoluteerror"}, "renews"),
        ("lightgbm", {"path_smooth": 5.0}, "path_smooth"),
        ("lightgbm", {"monotone_constraints": [1, 1, 1, 1]}, "monotone"),
        ("xgboost", {"monotone_constraints": "(1,1,1,1)"}, "monotone"),
        pytest.param("lightgbm", {"use_quantized_grad": True}, "quantized", marks=QUANTIZES),
    ],
)
def test_leaves_that_follow_another_formula(kind, params, word, numeric_4000):
    found = certificate(train(kind, *numeric_4000, params), *numeric_4000)
    assert found.status == "approximate"
    assert word in found.sentence


@QUANTIZES
def test_quantized_gradients_with_renewed_leaves_are_exact(numeric_4000):
    params = {"use_quantized_grad": True, "quant_train_renew_leaf": True}
    assert certificate(train("lightgbm", *numeric_4000, params), *numeric_4000).status == "certified"


def test_refitted(numeric_4000):
    X, y = numeric_4000
    booster = train("lightgbm", X, y)
    refitted = booster.refit(X, y + X[:, 2], decay_rate=0.5)
    assert certificate(refitted, X, y).status == "approximate"
    assert certificate(refitted, X, y + X[:, 2]).status == "approximate"
    update = {"process_type": "update", "updater": "refresh", "refresh_leaf": True}
    model = train("xgboost", X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # XGBoost's, that an updater was set
        model = xgb.train({**XGB, **update}, xgb.DMatrix(X, y + X[:, 2]), TREES, xgb_model=model)
    assert certificate(model, X, y).status == "approximate"


def test_a_custom_objective_in_disguise(numeric_4000, tmp_path):
    """XGBoost saves any custom objective as reg:squarederror: only the leaves tell."""
    X, y = numeric_4000

    def log_cosh(margin, dtrain):
        t = np.tanh(margin - dtrain.get_label())
        return t, np.maximum(1 - t * t, 1e-3)

    xgb.train(XGB, xgb.DMatrix(X, y), TREES, obj=log_cosh).save_model(tmp_path / "m.ubj")
    found = certificate(tmp_path / "m.ubj", X, y)
    assert found.status in ("approximate", "held-out")
    assert found.error > 0.01
    assert "objective=" in found.sentence


@both
def test_sentences_differ(kind, numeric_4000):
    X, y = numeric_4000
    model = train(kind, X, y)
    wrong = y.copy()
    wrong[7] += 1
    renewed = {"objective": "l1" if kind == "lightgbm" else "reg:absoluteerror"}
    sampling = {"bagging_fraction": 0.5, "bagging_freq": 1} if kind == "lightgbm" else {"subsample": 0.5}
    sentences = {
        certificate(model, X, y).sentence,
        certificate(model, X, wrong).sentence,
        certificate(model, X, y[::-1]).sentence,
        certificate(model, X[:2000], y[:2000]).sentence,
        certificate(train(kind, X, y, sampling), X, y).sentence,
        certificate(train(kind, X, y, renewed), X, y).sentence,
    }
    assert len(sentences) == 6


@pytest.mark.parametrize(
    ("kind", "params", "score"),
    [("lightgbm", {"objective": "poisson"}, 800.0), ("xgboost", {"objective": "reg:gamma"}, -800.0)],
)
def test_overflow_is_never_certified(kind, params, score, numeric_4000):
    """exp(800) is inf, and inf - inf a NaN that no comparison finds too large."""
    X, y = numeric_4000
    start = {"init_score" if kind == "lightgbm" else "base_margin": np.ones(len(y))}
    booster = train(kind, X, y, params, **start)
    assert certificate(booster, X, y, init_score=np.ones(len(y))).status == "certified"
    with pytest.warns(UserWarning, match="not certified"):
        assert wrap(booster, X, y, init_score=np.full(len(y), score)).certificate.status != "certified"


def test_what_is_not_certified_still_predicts(numeric_4000):
    X, y = numeric_4000
    booster = train("lightgbm", X[:2000], y[:2000])
    with pytest.warns(UserWarning, match="held-out"):
        model = wrap(booster, X[2000:2100], y[2000:2100])
    assert np.array_equal(model.predict(X), booster.predict(X))
    # leaves that none of these rows reached have a spread, too
    assert (model.moments.count == 0).any()
    assert np.all(model.weights.variance[model.moments.count == 0] > 0)
    assert np.all(np.isfinite(model.predict_var(X)))
