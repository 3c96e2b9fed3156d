"""Bad input: the right exception, before any work, that names the culprit and the way out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xgboost as xgb
from scipy import sparse

from pgbm_plugin import wrap
from pgbm_plugin.trees.forest import ZERO_BOUND
from tests.small import XGB, train


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
        # NumPy would turn text into numbers, and leave out imaginary parts
        (
            lambda X, y: (X, y.astype(str).astype(object)),
            TypeError,
            "y must .* it holds .*: give real numbers",
        ),
        (lambda X, y: (X, np.array([*map(str.encode, y.astype(str))], object)), TypeError, "give real numbers"),
        (
            lambda X, y: (X, (y + 1j).astype(object)),
            TypeError,
            "y must .* it holds .*: give real numbers",
        ),
        (lambda X, y: (X, np.array([*(y + 1j)], object)), TypeError, "give real numbers"),
        (lambda X, y: (X, np.array([*(y + 1j).astype(np.complex64)], object)), TypeError, "give real numbers"),
        (lambda X, y: ((X + 1j).astype(object), y), TypeError, "cannot read X of type ndarray as a numeric table"),
        (lambda X, y: (X.astype(bytes).astype(object), y), TypeError, "cannot read X"),
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


def test_one_column(numeric):
    X, y = numeric
    column = pd.Series(X[:, 0], name="a")
    model = wrap(xgb.train(XGB, xgb.DMatrix(column.to_frame(), y), 2), column.to_frame(), y)
    for table in (column, column.to_numpy()):
        with pytest.raises(ValueError, match=r"for one column give X.reshape\(-1, 1\), or series.to_frame\(\)"):
            model.predict(table)


def test_the_end_of_what_is_zero(numeric):
    """LightGBM takes it for 0 in dense rows and as it is in sparse ones."""
    X, y = numeric
    model = wrap(train("lightgbm", X, y), X, y)
    rows = sparse.csr_matrix(np.array([[0.0, 1.0, -ZERO_BOUND, 2.0]]))
    with pytest.raises(ValueError, match=r"X stores -1\.00.*e-35.*store 0\.0"):
        model.predict(rows)
    rows.data[1] = np.nextafter(-ZERO_BOUND, 0.0)
    assert np.array_equal(model.predict(rows), model.predict(rows.toarray()))
