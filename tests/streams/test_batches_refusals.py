"""Batches that are refused: which of them is wrong, and why."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

from pgbm_plugin import wrap
from tests.same import assert_same_model
from tests.streams.streamed import LGB, XGB, cut, parts_of


def with_nans(y):
    y = y.copy()
    y[[3, 5]] = np.nan
    return y


@pytest.mark.parametrize(
    ("bad", "error", "match"),
    [
        (lambda X, y: (X, with_nans(y)), ValueError, r"batch 2: y has 2 NaN.*row 3"),
        (lambda X, y: (X[:, :3], y), ValueError, "batch 2: X has 3 columns, the model was trained on 4"),
        (lambda X, y: (X, y[1:]), ValueError, "batch 2: y has 99 values, X has 100 rows"),
        (lambda X, y: (X, None), ValueError, "batch 2: .*no labels"),
        (lambda X, y: (X, y, np.ones(100)), ValueError, "batch 2: it has a weight, unlike the batches before"),
        (lambda X, y: (X, y, 1, 1), TypeError, r"batch 2 is a tuple of 4: batches are \(X, y\)"),
        (lambda X, y: X, TypeError, r"batch 2 is a ndarray: batches are \(X, y\)"),
        (lambda X, y: pd.DataFrame(X), TypeError, r"batch 2 is a table without labels.*label='y'"),
    ],
)
def test_a_bad_batch_is_named(bad, error, match, make_data):
    parts, X, y = parts_of(make_data)
    booster = lgb.train(LGB, lgb.Dataset(X, y), 3)
    with pytest.raises(error, match=match):
        wrap(booster, iter([*parts[:2], bad(*parts[2]), parts[3]]))


def test_bad_weights(make_data):
    parts, X, y = parts_of(make_data)
    booster = xgb.train(XGB, xgb.DMatrix(X, y), 3)
    with pytest.raises(ValueError, match="batch 1: weight must not be negative"):
        wrap(booster, iter([(*parts[0], np.ones(100)), (*parts[1], -np.ones(100))]))
    with pytest.raises(ValueError, match="weights of all rows are zero"):
        wrap(booster, iter([(*part, np.zeros(100)) for part in parts]))
    weight = np.repeat([0.0, 1.0, 1.0, 1.0], 100)  # a batch of zeros is fine
    booster = xgb.train(XGB, xgb.DMatrix(X, y, weight=weight), 3)
    streamed = wrap(booster, [(*part, weight[rows]) for part, rows in zip(parts, cut(400, 4), strict=True)])
    assert_same_model(streamed, wrap(booster, X, y, sample_weight=weight), X)


def test_labels_outside_the_objective(make_data):
    parts, X, y = parts_of(make_data)
    booster = lgb.train({**LGB, "objective": "poisson"}, lgb.Dataset(X, y), 3)
    with pytest.raises(ValueError, match=r"batch 3: .*domain of objective 'poisson'"):
        wrap(booster, iter([*parts[:3], (parts[3][0], -parts[3][1])]))


def test_unseen_categories_name_the_batch(mixed):
    X, y = mixed
    booster = xgb.train(XGB, xgb.DMatrix(X, y, enable_categorical=True), 3)
    bad = X.iloc[200:].assign(few=pd.Categorical(["mauve"] * 200))
    with pytest.raises(ValueError, match=r"batch 1: column 'few' .*mauve"):
        wrap(booster, iter([(X.iloc[:200], y[:200]), (bad, y[200:])]))


def test_codes_without_stored_categories_must_agree():
    """Trained on a matrix of codes: a frame's own codes are used, and must mean the same in each batch."""
    rng = np.random.default_rng(0)
    codes, y = rng.integers(0, 3, (300, 1)).astype(float), rng.normal(size=300)
    data = xgb.DMatrix(codes, y + codes[:, 0], feature_types=["c"], feature_names=["c"], enable_categorical=True)
    booster = xgb.train(XGB, data, 3)
    names = np.array(["x", "y", "z"])[codes[:, 0].astype(int)]
    frames = [pd.DataFrame({"c": pd.Categorical(names[rows], ["x", "y", "z"])}) for rows in cut(300, 2)]
    labels = [(y + codes[:, 0])[rows] for rows in cut(300, 2)]
    assert wrap(booster, zip(frames, labels, strict=True)).certificate.status == "certified"
    frames[1] = frames[1].assign(c=frames[1]["c"].cat.reorder_categories(["z", "y", "x"]))
    with pytest.raises(ValueError, match="batch 1: column 'c' has other categories"):
        wrap(booster, zip(frames, labels, strict=True))


def test_no_batches_and_empty_ones(make_data):
    parts, X, y = parts_of(make_data)
    booster = lgb.train(LGB, lgb.Dataset(X, y), 3)
    for nothing in (iter([]), [], [(X[:0], y[:0])]):
        with pytest.raises(ValueError, match="no batches, or none of them has rows"):
            wrap(booster, nothing)
    streamed = wrap(booster, [(X[:0], y[:0]), *parts[:2], (X[:0], y[:0]), *parts[2:]])
    assert_same_model(streamed, wrap(booster, X, y), X)


def test_errors_of_the_iterator_pass(make_data):
    parts, X, y = parts_of(make_data)
    booster = lgb.train(LGB, lgb.Dataset(X, y), 3)

    def failing():
        yield parts[0]
        raise ConnectionError("the line is dead")

    with pytest.raises(ConnectionError, match="the line is dead"):
        wrap(booster, failing())


@pytest.mark.parametrize("name", ["sample_weight", "init_score", "y"])
def test_arguments_that_batches_bring_themselves(name, make_data):
    parts, X, y = parts_of(make_data)
    booster = lgb.train(LGB, lgb.Dataset(X, y), 3)
    with pytest.raises(TypeError, match=f"{name} was given, but batches"):
        wrap(booster, iter(parts), **{name: y})
    with pytest.raises(TypeError, match="label was given, but X is no file or batch"):
        wrap(booster, X, y, label="y")


def test_what_takes_one_table_says_so(make_data):
    X, y = make_data("numeric")
    model = wrap(lgb.train(LGB, lgb.Dataset(X, y), 3), X, y)
    for call in (
        lambda: model.predict(iter([X])),
        lambda: model.predict_var(iter([X])),
        lambda: model.predict_interval("rows.parquet"),
        lambda: model.predict_quantiles(iter([X]), 0.5),
        lambda: model.tune(iter([X]), y),
        lambda: model.explain_variance(iter([X])),
    ):
        with pytest.raises(TypeError, match=r"one table.*predict_dist.*predict_parquet.*into a table first"):
            call()
