"""Bad input: the right exception, before any work, that names the culprit and the way out."""

from __future__ import annotations

import json

import lightgbm as lgb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xgboost as xgb

from pgbm_plugin import UnsupportedModelError, wrap

LGB = {"num_leaves": 8, "min_data_in_leaf": 10, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 3, "nthread": 1}


def train(kind, X, y, params=None, rounds=3):
    if kind == "lightgbm":
        return lgb.train({**LGB, **(params or {})}, lgb.Dataset(X, y), rounds)
    return xgb.train({**XGB, **(params or {})}, xgb.DMatrix(X, y), rounds)


@pytest.fixture(scope="module", params=["lightgbm", "xgboost"])
def booster(request, numeric):
    return train(request.param, *numeric)


@pytest.fixture(scope="module", params=["lightgbm", "xgboost"])
def named(request, numeric):
    """A model with feature names, and its frame."""
    X = pd.DataFrame(numeric[0], columns=list("abcd"))
    return train(request.param, X, numeric[1]), X


def changed(y, value):
    y = y.copy()
    y[17] = value
    return y


@pytest.mark.parametrize(
    ("bad", "error", "match"),
    [
        (lambda X, y: (X[:, :3], y), ValueError, "X has 3 columns, the model was trained on 4"),
        (lambda X, y: (X[0], y), ValueError, r"two dimensions.*reshape\(1, -1\)"),
        (lambda X, y: (X[None], y), ValueError, "two dimensions, it has 3"),
        (lambda X, y: (X[:0], y[:0]), ValueError, "X has no rows"),
        (lambda X, y: (X, y[:-1]), ValueError, "y has 399 values, X has 400 rows"),
        (lambda X, y: (X, np.stack([y, y], 1)), ValueError, r"y must have one dimension.*\(400, 2\)"),
        (lambda X, y: (X, changed(y, np.nan)), ValueError, r"y has 1 NaN.*row 17"),
        (lambda X, y: (X, changed(y, -np.inf)), ValueError, r"y has 1 .*infinite.*row 17"),
        # finite, and infinite in the float32 in which both boosters hold labels
        (lambda X, y: (X, changed(y, 1e39)), ValueError, r"y .*row 17"),
        (lambda X, y: (X, ["a"] * len(y)), TypeError, "y must be a column of numbers"),
        (
            lambda X, y: (X, pa.array(["a"] * len(y))),
            TypeError,
            "y must be a column of numbers, not StringArray: .*'a'",
        ),
        (lambda X, y: (np.where(X > 0, "a", "b"), y), TypeError, r"cannot read X.*give a NumPy array"),
        (lambda X, y: (object(), y), TypeError, "cannot read X of type object"),
        (lambda X, y: (X, None), TypeError, r"wrap\(booster, X, y\)"),
        (lambda X, y: (None, y), TypeError, "y without X"),
    ],
)
def test_tables_and_labels(bad, error, match, booster, numeric):
    X, y = bad(*numeric)
    with pytest.raises(error, match=match):
        wrap(booster, X, y)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"sample_weight": np.ones(3)}, "sample_weight has 3 values, X has 400 rows"),
        ({"sample_weight": -np.ones(400)}, "sample_weight must not be negative"),
        ({"sample_weight": np.zeros(400)}, "sample_weight must not be .*zero"),
        ({"sample_weight": np.full(400, np.nan)}, "sample_weight has 400 NaN"),
        ({"sample_weight": np.full(400, 1e39)}, "sample_weight has 400 .*too large"),
        ({"init_score": np.ones(401)}, "init_score has 401 values, X has 400 rows"),
        ({"init_score": np.full(400, np.inf)}, "init_score has 400 .*infinite"),
        ({"mean": "median"}, "mean must be 'booster' or 'pgbm', not 'median'"),
        ({"device": "tpu"}, "device must be 'auto', 'cpu', 'cuda' or 'cuda:1', not 'tpu'"),
        ({"n_jobs": 0}, "n_jobs must not be 0"),
    ],
)
def test_other_arguments(given, match, booster, numeric):
    with pytest.raises(ValueError, match=match):
        wrap(booster, *numeric, **given)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda m, X: m.predict(X[:, :2]), "X has 2 columns, the model was trained on 4"),
        (lambda m, X: m.predict_dist(X[:0]), "X has no rows"),
        (lambda m, X: m.predict(X, init_score=[1.0]), "init_score has 1 values, X has 400 rows"),
        (lambda m, X: m.predict_dist(X, distribution="cauchy"), "'cauchy'; known: .*normal"),
        (lambda m, X: m.predict_dist(X, device="gpu"), "device must be .*'gpu'"),
        (lambda m, X: m.predict_dist(X, rho=1.5), r"rho must lie in \[-1, 1\], not 1.5"),
        (lambda m, X: setattr(m, "rho", np.nan), "rho must lie in"),
        (lambda m, X: setattr(m, "distribution", "x"), "unknown distribution 'x'"),
        (lambda m, X: m.predict_quantiles(X, [0.1, 1.0]), "q must lie strictly between 0 and 1"),
        (lambda m, X: m.predict_quantiles(X, []), "q must lie strictly between 0 and 1"),
        (lambda m, X: m.predict_interval(X, 90), "coverage must lie strictly between 0 and 1, not 90"),
        (lambda m, X: m.predict_interval(X, 0.0), "coverage must lie"),
    ],
)
def test_prediction(call, match, booster, numeric):
    with pytest.raises(ValueError, match=match):
        call(wrap(booster, *numeric), numeric[0])


def test_feature_names(named, numeric):
    booster, X = named
    y = numeric[1]
    model = wrap(booster, X, y)
    with pytest.raises(ValueError, match=r"missing \['b'\], unknown \['beta'\]"):
        wrap(booster, X.rename(columns={"b": "beta"}), y)
    with pytest.raises(ValueError, match=r"missing \['d'\]"):
        model.predict(X[["a", "b", "c"]])
    with pytest.raises(ValueError, match=r"unknown \['e'\]"):
        model.predict(X.assign(e=1))
    with pytest.raises(ValueError, match=r"unknown none, repeated \['a'\]"):
        model.predict(X[["a", "a", "b", "c", "d"]])
    with pytest.raises(ValueError, match=r"another order; give X\[\['a', 'b', 'c', 'd'\]\]"):
        model.predict(X[["b", "a", "c", "d"]])
    # and the way out that this message names
    shuffled = X[["b", "a", "c", "d"]]
    assert np.array_equal(model.predict(shuffled[["a", "b", "c", "d"]]), model.predict(X))
    with pytest.raises(ValueError, match=r"column 'b' .*make it numeric"):
        model.predict(X.assign(b="text"))
    with pytest.raises(ValueError, match=r"column 'b' .*make it numeric"):
        model.predict(X.assign(b=pd.Timestamp("2020-01-01")))


@pytest.mark.parametrize(
    ("kind", "objective", "least", "strict"),
    [
        ("lightgbm", "poisson", 0, False),
        ("lightgbm", "tweedie", 0, False),
        ("lightgbm", "gamma", 0, True),
        ("xgboost", "count:poisson", 0, False),
        ("xgboost", "reg:tweedie", 0, False),
        ("xgboost", "reg:gamma", 0, True),
        ("xgboost", "reg:squaredlogerror", -1, True),
    ],
)
def test_labels_outside_the_objectives_domain(kind, objective, least, strict, numeric):
    X, y = numeric
    booster = train(kind, X, y, {"objective": objective})
    with pytest.raises(ValueError, match=rf"1 of 400 labels.*'{objective}'.*needs.*y\[17\] = {least - 2}"):
        wrap(booster, X, changed(y, least - 2))
    if strict:
        with pytest.raises(ValueError, match=f"y > {least}"):
            wrap(booster, X, changed(y, least))
    else:
        with pytest.warns(UserWarning, match="not certified"):  # allowed; another label than in training
            wrap(booster, X, changed(y, least))


@pytest.mark.parametrize(
    ("kind", "params", "match"),
    [
        ("lightgbm", {"objective": "binary"}, "'binary'.*regression objective"),
        ("lightgbm", {"objective": "quantile"}, "'quantile'.*regression objective"),
        ("lightgbm", {"objective": "cross_entropy"}, "'cross_entropy'"),
        ("lightgbm", {"objective": "multiclass", "num_class": 2}, "multiclass"),
        ("lightgbm", {"boosting": "dart"}, "dart.*boosting=gbdt"),
        ("lightgbm", {"linear_tree": True}, "linear_tree.*train without it"),
        ("xgboost", {"objective": "binary:logistic"}, "'binary:logistic'.*regression objective"),
        ("xgboost", {"objective": "reg:quantileerror", "quantile_alpha": 0.5}, "'reg:quantileerror'"),
        ("xgboost", {"objective": "multi:softprob", "num_class": 2}, "several outputs"),
        ("xgboost", {"booster": "dart", "rate_drop": 0.5, "one_drop": 1}, "dart.*booster=gbtree"),
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


def test_files(numeric, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no model file at .*nowhere.txt"):
        wrap(tmp_path / "nowhere.txt", *numeric)
    for content in (b"", b"hello", b"PK\x03\x04", b"{}", b'{"learner": 3}', b"{L\x00", b"\x00" * 100):
        (tmp_path / "no.model").write_bytes(content)
        with pytest.raises(ValueError, match=r"no.model.*(neither|not an XGBoost model)"):
            wrap(tmp_path / "no.model", *numeric)


@pytest.mark.parametrize(("kind", "name"), [("lightgbm", "m.txt"), ("xgboost", "m.json"), ("xgboost", "m.ubj")])
def test_truncated_files(kind, name, numeric, tmp_path):
    """Cut anywhere: an error that names the file, never a model of fewer trees."""
    path = tmp_path / name
    train(kind, *numeric).save_model(path)
    raw = path.read_bytes()
    end = raw.index(b"end of trees") if kind == "lightgbm" else len(raw) - 1
    for cut in np.linspace(10, end, 60).astype(int):
        path.write_bytes(raw[:cut])
        with pytest.raises(ValueError, match=name):
            wrap(path, *numeric)


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


@pytest.mark.parametrize("damage", [{"model": []}, {"model": {}}, {"name": "gbtree"}])
def test_damaged_xgboost_files(damage, numeric, tmp_path):
    X, y = numeric
    xgb.train({"max_depth": 2}, xgb.DMatrix(X, y), 3).save_model(tmp_path / "model.json")
    document = json.loads((tmp_path / "model.json").read_text())
    document["learner"]["gradient_booster"] = {"name": "gbtree", **damage}
    (tmp_path / "model.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"model\.json': damaged XGBoost model"):
        wrap(tmp_path / "model.json", X, y)


def test_an_odd_best_iteration(numeric, tmp_path):
    X, y = numeric
    xgb.train({"max_depth": 2}, xgb.DMatrix(X, y), 3).save_model(tmp_path / "model.json")
    document = json.loads((tmp_path / "model.json").read_text())
    document["learner"]["attributes"] = {"best_iteration": []}
    (tmp_path / "model.json").write_text(json.dumps(document))
    assert wrap(tmp_path / "model.json", X, y).certificate.status == "certified"


def test_a_booster_without_training(numeric):
    with pytest.raises(ValueError, match="Booster cannot be read; train it first"):
        wrap(xgb.Booster(), *numeric)
