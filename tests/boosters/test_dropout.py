"""Dropout (dart): trees that were dropped while others were grown, and rescaled later, get a boosted scale."""

from __future__ import annotations

import json
import re

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

from pgbm_plugin import UnsupportedModelError, embed, load, out_of_fold, partial_moments, plot, wrap
from pgbm_plugin.boosters import read_model

ROUNDS = 12
LGB = {"boosting": "dart", "drop_rate": 0.4, "num_leaves": 8, "num_threads": 1, "verbose": -1, "seed": 3}
XGB = {"booster": "dart", "rate_drop": 0.4, "one_drop": 1, "max_depth": 3, "eta": 0.2, "nthread": 1, "seed": 3}
KINDS = ["lightgbm", "xgboost"]
pytestmark = [
    pytest.mark.filterwarnings("ignore:not certified"),
    pytest.mark.filterwarnings("ignore:this model is untuned"),
]


@pytest.fixture(scope="module")
def data():
    """Rows with missing values, whose noise depends on the second column."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(1200, 4))
    y = 4.0 + X[:, 0] + 0.5 * X[:, 1] + np.exp(X[:, 1]) * rng.normal(size=1200)
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, y


def train(kind, X, y, rounds=ROUNDS, **params):
    if kind == "lightgbm":
        return lgb.train({**LGB, **params}, lgb.Dataset(X, y), rounds)
    return xgb.train({**XGB, **params}, xgb.DMatrix(X, y, enable_categorical=True), rounds)


def predict(booster, X, **options):
    if isinstance(booster, lgb.Booster):
        return booster.predict(X)
    return booster.predict(xgb.DMatrix(X, enable_categorical=True, **options))


@pytest.fixture(scope="module", params=KINDS)
def trained(request, data):
    X, y = data
    booster = train(request.param, X[:700], y[:700], rounds=40)
    return booster, X[:700], y[:700], X[700:], y[700:]


PARAMS = [
    ("lightgbm", {}),
    ("lightgbm", {"xgboost_dart_mode": True, "uniform_drop": True}),
    ("lightgbm", {"objective": "poisson"}),
    ("lightgbm", {"boost_from_average": False, "bagging_freq": 1, "bagging_fraction": 0.7}),
    ("xgboost", {}),
    ("xgboost", {"normalize_type": "forest", "sample_type": "weighted"}),
    ("xgboost", {"objective": "count:poisson"}),
    ("xgboost", {"num_parallel_tree": 3, "subsample": 0.7}),
]


@pytest.mark.parametrize(("kind", "params"), PARAMS)
def test_bits(kind, params, data, tmp_path):
    """Live and from all kinds of files, on double and single precision, on many rows and on few."""
    X, y = data[0], np.abs(np.round(data[1])) if "objective" in params else data[1]
    booster = train(kind, X, y, **params)
    paths = [tmp_path / name for name in (("m.txt",) if kind == "lightgbm" else ("m.json", "m.ubj"))]
    for path in paths:
        booster.save_model(path)
    for source in (booster, *paths):
        model = wrap(source, X, y)
        assert not model.spec.sequential
        assert model.certificate.status == "approximate"
        for rows in (X, X.astype(np.float32), X[:3]):
            expected = predict(booster, rows)
            assert np.array_equal(model.predict(rows), expected)
            assert np.array_equal(model.predict(rows, return_std=True)[0], expected)
    plain = train(kind, X, y, **params, **({"drop_rate": 0} if kind == "lightgbm" else {"rate_drop": 0, "one_drop": 0}))
    assert not np.array_equal(predict(plain, X), predict(booster, X))  # some trees were dropped


@pytest.mark.parametrize("kind", KINDS)
def test_bits_with_categories(kind, data):
    frame = pd.DataFrame(data[0], columns=list("abcd"))
    frame["k"] = pd.Categorical.from_codes(np.arange(len(frame)) % 7, list("tuvwxyz"))
    y = data[1] + frame["k"].cat.codes
    booster = train(kind, frame, y, **({"cat_smooth": 1} if kind == "lightgbm" else {"max_cat_to_onehot": 2}))
    assert np.array_equal(wrap(booster, frame, y).predict(frame), predict(booster, frame))


def test_bits_of_estimators(data):
    """XGBoost's predict in place before 3.3, with another rounding; and with the trees up to the best iteration."""
    X, y = data
    estimator = xgb.XGBRegressor(n_estimators=20, early_stopping_rounds=3, base_score=0.7, **XGB)
    estimator.fit(X[:700], y[:700], eval_set=[(X[700:] + 1.0, y[700:])], verbose=False)
    model = wrap(estimator, X[:700], y[:700])
    assert model.forest.n_trees == estimator.best_iteration + 1 < estimator.get_booster().num_boosted_rounds()
    assert np.array_equal(model.predict(X), estimator.predict(X))
    part = estimator.get_booster()[: estimator.best_iteration + 1]
    assert np.array_equal(wrap(part, X[:700], y[:700]).predict(X), predict(part, X))
    for drop in ({}, {"rate_drop": 0.0, "one_drop": 0}):
        estimator = xgb.XGBRegressor(n_estimators=ROUNDS, **{**XGB, **drop}).fit(X, y + 100.0)
        assert np.array_equal(wrap(estimator, X, y + 100.0).predict(X), estimator.predict(X))
    estimator = lgb.LGBMRegressor(n_estimators=ROUNDS, **LGB).fit(X, y)
    assert np.array_equal(wrap(estimator, X, y).predict(X), estimator.predict(X))


@pytest.mark.parametrize("kind", KINDS)
def test_init_scores(kind, data):
    X, y = data
    offset = 0.5 * np.nan_to_num(X[:, 2])
    if kind == "lightgbm":
        booster = lgb.train(LGB, lgb.Dataset(X, y, init_score=offset), ROUNDS)
        expected = booster.predict(X) + offset
    else:
        booster = xgb.train(XGB, xgb.DMatrix(X, y, base_margin=offset), ROUNDS)
        expected = predict(booster, X, base_margin=offset)
    model = wrap(booster, X, y, init_score=offset)
    assert np.allclose(model.predict(X, init_score=offset), expected, rtol=1e-12 if kind == "lightgbm" else 0, atol=0)


def test_weights_count_in_the_leverage(data):
    """The learning rate of a tree is what it counts in the end: the final leaf values follow from it."""
    X, y = data
    booster = train("xgboost", X, y)
    weights = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]
    weights = np.float32(weights.get("weight_drop") or weights["model"]["weight_drop"])
    assert weights.min() < weights.max() < 1.0
    assert np.allclose(read_model(booster)[1].alpha, 0.2 * weights, rtol=1e-6)
    # LightGBM shrinks a new tree by 1 + the number of dropped ones
    alpha = read_model(train("lightgbm", X, y))[1].alpha
    assert np.all(alpha < 0.1)
    assert alpha[-1] == pytest.approx(0.1 / round(0.1 / alpha[-1]), rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_training_are_recognised(kind, data):
    """By the first trees, where later hessians are not those of training."""
    X, y = data[0], np.abs(np.round(data[1]))
    booster = train(kind, X, y, objective="poisson" if kind == "lightgbm" else "count:poisson")
    with pytest.warns(UserWarning, match=r"(?s)approximate.*dropout .*dart.*can only be boosted from residuals"):
        model = wrap(booster, X, y)
    assert model.certificate.status == "approximate"
    for rows in (slice(0, 700), slice(700, None)):
        part = wrap(booster, X[rows], y[rows])
        assert part.certificate.status == "held-out"
        assert re.search("not all of the training rows.*; dropout .*boosted from residuals", part.certificate.sentence)


def test_without_dropped_trees(data):
    """Dart that drops nothing is ordinary boosting, and certified."""
    X, y = data
    for booster in (train("lightgbm", X, y, drop_rate=0.0), train("xgboost", X, y, rate_drop=0.0, one_drop=0)):
        model = wrap(booster, X, y)
        assert model.certificate.status == "certified"
        assert model.chosen.scale is None
        assert np.array_equal(model.predict(X), predict(booster, X))


def test_default_predicts_with_a_boosted_scale(trained):
    booster, X, y, X_new, y_new = trained
    plain, auto, boosted = (
        wrap(booster, X, y),
        wrap(booster, X, y, variance="auto"),
        wrap(booster, X, y, variance="boosted"),
    )
    assert plain.variance == auto.variance == "auto"
    assert str(plain.chosen) == "normal, untuned boosted variance"
    std = plain.predict_dist(X_new).std()
    for other in (auto, boosted):
        assert np.array_equal(other.predict_dist(X_new).std(), std)
    noise = np.exp(np.nan_to_num(X_new[:, 1]))
    assert np.corrcoef(np.log(std), np.log(noise))[0, 1] > 0.6
    low, high = plain.predict_interval(X_new, coverage=0.9).T
    assert 0.8 < np.mean((low <= y_new) & (y_new <= high)) < 0.98


def test_no_recursion_anywhere(trained):
    """Neither in what `tune` blends, nor in what follows from the moments."""
    booster, X, y, X_new, y_new = trained
    model = wrap(booster, X, y)
    assert not model.weights.sd.any()
    for variance in (None, "auto", "boosted"):
        result = model.tune(X_new, y_new, variance=variance)
        assert (result.variance, result.share, model.chosen.scale.power) == ("boosted", 0.0, 0.0)
        assert result.best.score < result.constant.score == result.before.score
        assert "paper" not in str(result)
    parts = model.explain_variance(X_new[:20])
    assert np.allclose(parts.sum(axis=1), model.predict_dist(X_new[:20], "normal").var())
    with pytest.raises(ValueError, match=r"rho has no effect.*not with dropout"):
        model.rho = 0.3
    with pytest.raises(UnsupportedModelError, match="variance_by_tree needs the gradients of training"):
        plot.variance_by_tree(model, X_new)


REFUSED = [
    ({"variance": "pgbm"}, r"variance='pgbm' needs the gradients of training, but dropout .*give variance='boosted'"),
    ({"mean": "pgbm"}, r"mean='pgbm' needs the gradients of training, but dropout .*leave mean= out"),
]


@pytest.mark.parametrize(("options", "match"), REFUSED)
def test_recursion_is_refused(options, match, trained):
    booster, X, y, X_new, y_new = trained
    with pytest.raises(UnsupportedModelError, match=match):
        wrap(booster, "rows that are never read.parquet", label="y", **options)
    if "variance" in options:
        model = wrap(booster, X, y)
        with pytest.raises(UnsupportedModelError, match=match):
            model.tune(X_new, y_new, **options)
        with pytest.raises(ValueError, match="it needs calibrate=True"):
            model.tune(X_new, y_new, calibrate=False)


def test_calibrated_on_folds(trained):
    booster, X, y, X_new, y_new = trained
    model = wrap(booster, X, y, cv=3)
    assert model.chosen.tuned
    assert model.chosen.scale.power == 0.0
    low, high = model.predict_interval(X_new, coverage=0.9).T
    assert 0.8 < np.mean((low <= y_new) & (y_new <= high)) < 0.98


@pytest.mark.parametrize("kind", KINDS)
def test_refit_drops_the_same_trees(kind, data):
    """With the seed and the rates of the original training."""
    X, y = data
    half = np.arange(len(y)) < 600
    folds = [(np.flatnonzero(half), np.flatnonzero(~half)), (np.flatnonzero(~half), np.flatnonzero(half))]
    predicted = out_of_fold(train(kind, X, y), X, y, cv=folds)
    assert np.array_equal(
        predicted[~half].astype(np.float32), predict(train(kind, X[half], y[half]), X[~half]).astype("f")
    )


def test_lost_parameters(data, tmp_path):
    X, y = data
    train("xgboost", X, y).save_model(tmp_path / "m.ubj")
    for lost in (tmp_path / "m.ubj", xgb.Booster(model_file=tmp_path / "m.ubj")):
        with pytest.raises(UnsupportedModelError, match="which XGBoost does not store in files"):
            out_of_fold(lost, X, y)


def test_saved(trained, tmp_path):
    booster, X, y, X_new, y_new = trained
    model = wrap(booster, X, y)
    model.tune(X_new[:300], y_new[:300])
    model.conformalize(X_new[300:], y_new[300:])
    model.save(tmp_path / "m.pgbm")
    loaded = load(tmp_path / "m.pgbm")
    assert not loaded.spec.sequential
    assert np.array_equal(loaded.predict(X_new), predict(booster, X_new))
    assert np.array_equal(loaded.predict_interval(X_new), model.predict_interval(X_new))
    with pytest.raises(UnsupportedModelError, match="variance='pgbm' needs the gradients"):
        loaded.tune(X_new, y_new, variance="pgbm")


def test_embedded(data, tmp_path):
    X, y = data
    booster = train("xgboost", X, y)
    model = wrap(booster, X, y)
    embed(booster, model)
    booster.save_model(tmp_path / "m.ubj")
    for source in (booster, tmp_path / "m.ubj"):
        assert np.array_equal(wrap(source).predict_dist(X).std(), model.predict_dist(X).std())


def test_rows_in_parts(trained):
    """Without a table there is no scale, and no distribution before `tune`."""
    booster, X, y, X_new, y_new = trained
    merged = partial_moments(booster, X[:300], y[:300]).merge(partial_moments(booster, X[300:], y[300:]))
    for parts in (iter([(X[:300], y[:300]), (X[300:], y[300:])]), merged):
        model = wrap(booster, parts)
        assert model.certificate.status == "approximate"
        assert np.array_equal(model.predict(X_new), predict(booster, X_new))
        for call in (
            lambda model=model: model.predict_dist(X_new),
            lambda model=model: model.predict_dist(iter([X_new])),
            lambda model=model: model.predict_var(X_new),
            lambda model=model: model.explain_variance(X_new),
            lambda model=model: model.conformalize(X_new, y_new),
        ):
            with pytest.raises(ValueError, match=r"no variance yet: dropout .*model\.tune\(X_val, y_val\)"):
                call()
        model.tune(X_new, y_new)
        whole = np.concatenate([d.std() for d in model.predict_dist(iter([X_new[:99], X_new[99:]]))])
        assert np.array_equal(whole, model.predict_dist(X_new).std())
    with pytest.raises(TypeError, match="variance='boosted' goes through the rows tree by tree"):
        wrap(booster, iter([(X, y)]), variance="boosted")


def test_update(trained):
    """Residuals rescale the scale; moments alone cannot."""
    booster, X, y, X_new, y_new = trained
    model = wrap(booster, X, y)
    model.tune(X_new[:250], y_new[:250])
    before = model.predict_dist(X_new).std()
    louder = model.predict(X_new) + 2.0 * (y_new - model.predict(X_new))
    for parts in (iter([(X_new, louder)]), partial_moments(model, X_new, louder)):
        with pytest.raises(UnsupportedModelError, match=r"update from batches.*give the rows as one table"):
            model.update(parts)
    assert model.moments.rows == 700
    model.update(X_new, louder, decay=0.0)
    assert 1.6 < np.exp(np.mean(np.log(model.predict_dist(X_new).std() / before))) < 2.4
    assert "update brought" in model.certificate.sentence


def test_residuals_that_are_all_zero(data):
    X, y = data[0], np.zeros(len(data[0]))
    booster = train("xgboost", X, y, base_score=0.0)
    with pytest.warns(UserWarning, match="no scale was boosted, and there is no variance"):
        model = wrap(booster, X, y)
    with pytest.raises(ValueError, match="no variance yet"):
        model.predict_dist(X)


def xgboost_file(path, booster, put):
    """Write the model with the weights of its trees where `put` puts them, and return the path."""
    document = json.loads(booster.save_raw("json"))
    old = document["learner"]["gradient_booster"]
    weights = old.get("weight_drop") or old["model"]["weight_drop"]
    trees = dict(old.get("gbtree", old)["model"])
    trees.pop("weight_drop", None)
    document["learner"]["gradient_booster"] = put(trees, weights)
    path.write_text(json.dumps(document))
    return path


LAYOUTS = {
    "3.2": lambda trees, w: {"name": "dart", "gbtree": {"name": "gbtree", "model": trees}, "weight_drop": w},
    "3.3": lambda trees, w: {"name": "gbtree", "model": trees, "weight_drop": w},
    "3.4": lambda trees, w: {"name": "gbtree", "model": {**trees, "weight_drop": w}},
}


@pytest.mark.parametrize("put", LAYOUTS.values(), ids=LAYOUTS)
def test_layouts_of_xgboost(put, data, tmp_path):
    X, y = data
    booster = train("xgboost", X, y)
    model = wrap(xgboost_file(tmp_path / "m.json", booster, put), X, y)
    assert np.array_equal(model.predict(X), predict(booster, X))
    assert not model.spec.sequential
    ones = wrap(xgboost_file(tmp_path / "m.json", booster, lambda trees, w: put(trees, [1.0] * len(w))), X, y)
    assert ones.spec.sequential  # no tree was dropped


DAMAGED = [
    (lambda w: w[:-1], "weight_drop has 11 weights for 12 trees"),
    (lambda w: [*w, 0.5], "weight_drop has 13 weights for 12 trees"),
    (lambda w: [[x] for x in w], "weight_drop has 12 weights for 12 trees, in 2 axes"),
    (lambda w: [*w[:-1], float("nan")], "negative or not finite"),
    (lambda w: [*w[:-1], float("inf")], "negative or not finite"),
    (lambda w: [*w[:-1], 1e39], "negative or not finite"),
    (lambda w: [*w[:-1], -0.5], "negative or not finite"),
    (lambda w: [*w[:-1], "0.5x"], "damaged XGBoost model"),
    (lambda w: [*w[:-1], None], "negative or not finite"),
    (lambda w: {"a": 1}, "damaged XGBoost model"),
    (lambda w: 0.5, "damaged XGBoost model"),
]


@pytest.mark.parametrize("put", LAYOUTS.values(), ids=LAYOUTS)
def test_damaged_weights(put, data, tmp_path):
    booster = train("xgboost", *data)
    for damage, match in DAMAGED:
        path = xgboost_file(tmp_path / "m.json", booster, lambda trees, w, damage=damage: put(trees, damage(w)))
        with pytest.raises(ValueError, match=match):
            wrap(path, *data)


@pytest.mark.parametrize("damage", [{"gbtree": None}, {"gbtree": 3}, {"gbtree": {}}, {"gbtree": {"model": []}}, {}])
def test_damaged_layouts(damage, tmp_path):
    booster = {"name": "dart", "weight_drop": [0.5], **damage}
    (tmp_path / "m.json").write_text(json.dumps({"learner": {"gradient_booster": booster}}))
    with pytest.raises(ValueError, match=r"damaged|there are no trees"):
        wrap(tmp_path / "m.json", np.zeros((3, 1)), np.zeros(3))


def test_weights_in_an_unknown_place(data, tmp_path):
    def put(trees, weights):
        return {"name": "gbtree", "model": {**trees, "other": {"weights": weights}}}

    path = xgboost_file(tmp_path / "m.json", train("xgboost", *data), put)
    with pytest.raises(
        UnsupportedModelError, match=r"'weights' has a number for each tree.*not in a place that is known"
    ):
        wrap(path, *data)


@pytest.mark.parametrize("change", [("[drop_rate: 0.4]", "[drop_rate: nan]"), ("shrinkage=0.", "shrinkage=nan\n0.")])
def test_damaged_rates_of_lightgbm(change, data, tmp_path):
    text = re.sub(r"^tree_sizes=.*\n", "", train("lightgbm", *data).model_to_string(), flags=re.MULTILINE)
    assert change[0] in text
    (tmp_path / "m.txt").write_text(text.replace(*change))
    with pytest.raises(ValueError, match=r"drop_rate is nan|shrinkage is not finite"):
        wrap(tmp_path / "m.txt", *data)


@pytest.mark.filterwarnings("ignore:(?s).*are not used")
def test_gbtree_with_dropout(data, tmp_path):
    """XGBoost's gbtree drops trees since 3.3, and ignores the parameter before."""
    X, y = data
    booster = train("xgboost", X, y, booster="gbtree")
    booster.save_model(tmp_path / "m.ubj")
    same = np.array_equal(
        predict(booster, X), predict(train("xgboost", X, y, booster="gbtree", rate_drop=0, one_drop=0), X)
    )
    for source in (booster, tmp_path / "m.ubj"):
        model = wrap(source, X, y)
        assert model.spec.sequential == same
        assert np.array_equal(model.predict(X), predict(booster, X))
