"""Calibration on training rows, with predictions by models that were trained without them."""

from __future__ import annotations

import warnings
from dataclasses import replace

import lightgbm as lgb
import numpy as np
import pandas as pd
import polars
import pytest
import xgboost as xgb
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit, TimeSeriesSplit, cross_val_predict

from pgbm_plugin import UnsupportedModelError, out_of_fold, record, wrap
from pgbm_plugin.calibration import Calibration
from pgbm_plugin.calibration.folds import read_folds
from tests.calibration.tuned import FEW, heteroscedastic, train

KINDS = ["lightgbm", "xgboost"]


def estimator(kind):
    if kind == "lightgbm":
        return lgb.LGBMRegressor(n_estimators=20, n_jobs=1, verbose=-1)
    return xgb.XGBRegressor(n_estimators=20, max_depth=4, n_jobs=1)


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def rows():
    return heteroscedastic(600, 0)


@pytest.fixture(scope="module")
def fitted(kind, rows):
    return estimator(kind).fit(*rows)


@pytest.fixture(scope="module")
def predicted(kind, fitted, rows):
    return cross_val_predict(clone(fitted), *rows, cv=KFold(4, shuffle=True, random_state=1))


def test_predictions_are_those_of_cross_val_predict(fitted, predicted, rows):
    splitter = KFold(4, shuffle=True, random_state=1)
    for cv in (splitter, list(splitter.split(*rows)), splitter.split(*rows)):
        assert np.array_equal(out_of_fold(fitted, *rows, cv=cv), predicted)


def test_frames_with_categories(kind, mixed):
    X, y = mixed
    model = estimator(kind)
    if kind == "xgboost":
        model.set_params(enable_categorical=True)
    cv = KFold(3)
    assert np.array_equal(out_of_fold(clone(model).fit(X, y), X, y, cv=cv), cross_val_predict(model, X, y, cv=cv))


def test_wrap_tunes_on_them(fitted, predicted, rows):
    X, y = rows
    model = wrap(fitted, X, y, cv=KFold(4, shuffle=True, random_state=1))
    by_hand = wrap(fitted, X, y)
    result = by_hand.tune(X, y, out_of_fold=predicted, variance="auto")
    assert result.rows == len(y)
    assert np.array_equal(model.predict(X), fitted.predict(X))
    assert np.array_equal(model.predict_quantiles(X, [0.1, 0.9]), by_hand.predict_quantiles(X, [0.1, 0.9]))
    assert model.chosen.tuned
    assert model.certificate.status == "certified"


def test_intervals_hold_without_any_held_out_row(kind):
    """In-sample residuals would give far too narrow ones; the standard error of 3,000 rows is 0.5 %."""
    X, y = heteroscedastic(1500, 0)
    X_new, y_new = heteroscedastic(3000, 1)
    booster = train(kind, X, y, 200)

    def cover(model):
        low, high = model.predict_interval(X_new, 0.9).T
        return np.mean((low <= y_new) & (y_new <= high))

    in_sample = wrap(booster, X, y)
    with pytest.warns(UserWarning, match="wrap has seen these rows"):
        in_sample.tune(X, y)
    assert cover(in_sample) < 0.85
    assert cover(wrap(booster, X, y, cv=5)) == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize("objective", ["poisson", "tweedie", "regression"])
def test_margins_are_around_the_given_predictions(objective, numeric):
    """A constant spread in the margin's unit is found from the given predictions, not from the model's own."""
    X, y = numeric
    booster = lgb.train({"objective": objective, "num_threads": 1, "verbose": -1}, lgb.Dataset(X, y), 10)
    model = wrap(booster, X, y, variance="pgbm")
    own = model.predict(X)
    given = own * np.exp(np.random.default_rng(0).normal(0.0, 0.3, len(y)))  # as if y itself were predicted
    model.tune(X, own, out_of_fold=given, distributions="normal", score="nll")
    spread = model.predict_dist(X, "normal").std() / (given if objective == "regression" else own)
    residual = (own - given) / given
    expected = np.sqrt(np.mean(residual**2))
    if objective != "regression":
        assert np.median(spread) == pytest.approx(expected, rel=0.1)
    z = (own - given) / model.predict_dist(X, "normal").std()
    assert np.sqrt(np.mean(z**2)) == pytest.approx(1.0, rel=0.25)


def test_rows_without_a_prediction_are_left_out(fitted, predicted, rows):
    X, y = rows
    some = np.where(np.arange(len(y)) < 200, np.nan, predicted)
    results = [wrap(fitted, X, y, variance="pgbm") for _ in range(2)]
    a = results[0].tune(X, y, out_of_fold=some, **FEW)
    b = results[1].tune(X[200:], y[200:], out_of_fold=predicted[200:], **FEW)
    assert a.rows == 400
    assert a.best == b.best
    results[0].conformalize(X, y, out_of_fold=some)
    results[1].conformalize(X[200:], y[200:], out_of_fold=predicted[200:])
    assert np.array_equal(*(model.predict_interval(X) for model in results))


def test_conformal_scores_are_of_the_given_predictions(fitted, predicted, rows):
    X, y = rows
    model = wrap(fitted, X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # neither for rows that training saw, nor for rows that tune saw
        model.tune(X, y, out_of_fold=predicted, variance="pgbm", **FEW)
        std = model.predict_dist(X, "normal").std()
        model.conformalize(X, y, out_of_fold=predicted)
    np.testing.assert_allclose(model.chosen.residuals, (y - predicted) / std, rtol=1e-12)


def test_conformal_scores_of_rows_that_a_scale_has_seen(fitted, predicted, rows):
    """They are those of scales that have not seen the row: these are larger, and honest."""
    X, y = rows
    model = wrap(fitted, X, y)
    result = model.tune(X, y, out_of_fold=predicted, variance="boosted", distributions="normal")
    tuned = model.state
    assert np.array_equal(model.conformalize(X, y, out_of_fold=predicted).chosen.residuals, result.residuals)
    for change in ({"rho": 0.5}, {"calibration": Calibration(1.0, 4.0, 1e-3)}, {"cross_fitted": None}):
        model.state = replace(tuned, chosen=replace(tuned.chosen, **change))
        std = model.predict_dist(X, "normal").std()
        with pytest.warns(UserWarning, match="tune has boosted the variance from these rows"):
            own = model.conformalize(X, y, out_of_fold=predicted).chosen.residuals
        np.testing.assert_allclose(own, (y - predicted) / std, rtol=1e-12)
    assert np.mean(own**2) <= np.mean(result.residuals**2)


def test_no_bins_of_spreads_that_know_the_labels(fitted, predicted, rows):
    """A row with a large residual raises the spread of its leaves, so such bins look better than they are."""
    X, y = rows
    model, few = wrap(fitted, X, y), {"rho": 0.03, "variance": "pgbm"}
    result = model.tune(X, y, out_of_fold=predicted, **few)
    binned = ["empirical(by='spread', bins=3)", "empirical(by='spread', bins=10)"]
    assert all("depend on their own labels" in result.failed[name] for name in binned)
    assert "empirical(by='mean', bins=3)" not in result.failed
    assert model.tune(X, y, out_of_fold=predicted, distributions=binned[0], **few).best.distribution == binned[0]


def test_conformal_scores_of_other_predictions(fitted, predicted, rows):
    """The scores that `tune` kept are of its rows in their order, and of its predictions."""
    X, y = rows
    model = wrap(fitted, X, y)
    result = model.tune(X, y, out_of_fold=predicted, variance="boosted", distributions="normal")
    tuned, std = model.state, model.predict_dist(X).std()
    turned, wider = np.arange(600)[::-1], 2.0 * predicted - y
    for order, p in ((turned, predicted), (slice(None), wider)):
        model.state = tuned
        with pytest.warns(UserWarning, match="call tune again, and then conformalize with the same rows"):
            model.conformalize(X[order], y[order], out_of_fold=p[order])
        np.testing.assert_allclose(model.chosen.residuals, (y - p)[order] / std[order], rtol=1e-12)
    model.state = replace(tuned, chosen=replace(tuned.chosen, scale=None))  # nothing has seen the rows
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.conformalize(X[turned], y[turned], out_of_fold=predicted[turned])
    assert not np.array_equal(model.chosen.residuals, result.residuals)


def test_folds_by_time_and_by_group(fitted, rows):
    X, y = rows
    p = out_of_fold(fitted, X, y, cv=TimeSeriesSplit(5))
    assert np.isnan(p[:100]).all()
    assert np.isfinite(p[100:]).all()
    assert wrap(fitted, X, y, cv=TimeSeriesSplit(5)).chosen.tuned
    groups = np.repeat(np.arange(20), 30)
    p = out_of_fold(fitted, X, y, cv=GroupKFold(5).split(X, y, groups))
    expected = cross_val_predict(clone(fitted), X, y, cv=GroupKFold(5), groups=groups)
    assert np.array_equal(p, expected)
    with pytest.raises(
        ValueError, match=r"needs groups, split by them: cv=GroupKFold\(\.\.\.\)\.split\(X, y, groups\)"
    ):
        wrap(fitted, X, y, cv=GroupKFold(5))


@pytest.mark.parametrize("table", [pd.DataFrame, polars.DataFrame, lambda X: polars.DataFrame(X).to_arrow()])
def test_other_tables(table, rows):
    X, y = rows
    booster = train("xgboost", X, y, 10)
    frame = table(X if table is pd.DataFrame else {f"c{i}": column for i, column in enumerate(X.T)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names by position
        assert np.array_equal(out_of_fold(booster, frame, y), out_of_fold(booster, X, y))


def test_data_sets(rows):
    X, y = rows
    weight, start = np.linspace(1, 2, len(y)), 0.1 * X[:, 0]
    data = xgb.DMatrix(X, y, weight=weight, base_margin=start)
    booster = xgb.train({"nthread": 1}, data, 10)
    by_columns = out_of_fold(booster, X, y, sample_weight=weight, init_score=start)
    assert np.array_equal(out_of_fold(booster, data), by_columns)
    assert wrap(booster, data, cv=3).chosen.tuned
    kept = lgb.Dataset(X, y, free_raw_data=False)
    booster = lgb.train({"num_threads": 1, "verbose": -1}, kept, 10, keep_training_booster=True)
    assert wrap(booster, cv=KFold(3)).chosen.tuned


def fold_lists(n):
    half, rest = np.arange(n // 2), np.arange(n // 2, n)
    yield "row 0 is in the test rows of 2 folds", [(rest, half), (rest, half)]
    yield rf"row {n - 1} is in the test rows of no fold", [(rest, half), (half, rest[:-1])]
    yield r"fold 0 trains on row 0 and tests it", [(np.arange(n), half), (half, rest)]
    yield r"fold 1 has no training rows", [(rest, half), ([], rest)]
    yield r"fold 1 has no test rows", [(rest, half), (half, [])]
    yield rf"names row {n}, but rows are numbered from 0 to {n - 1}", [(rest, half), (half, rest + 1)]
    yield r"names row -1", [(rest, half - 1), (half, rest)]
    yield r"the test rows of fold 0 hold row 3 2 times", [(rest, np.append(half, 3)), (half, rest)]
    yield r"the training rows of fold 1 hold row 0 3 times", [(rest, half), (np.append(half, [0, 0]), rest)]
    yield r"fold 0 must be a pair of \(train, test\) rows", [(1, 2, 3)]
    yield r"the training rows of fold 0 must be a list of row numbers", [(rest + 0.5, half)]
    yield "cv has no folds", []
    yield "is in the test rows of . folds.*ShuffleSplit", ShuffleSplit(5, random_state=0)


@pytest.mark.parametrize(
    ("message", "cv"), list(fold_lists(600)), ids=lambda value: value if isinstance(value, str) else ""
)
def test_bad_folds(fitted, rows, message, cv):
    with pytest.raises((ValueError, TypeError), match=message):
        wrap(fitted, *rows, cv=cv)


@pytest.mark.parametrize("cv", [1, 0, -3, True, 2.5, "5", b"5", object(), KFold])
def test_no_way_to_make_folds(cv):
    """Before the model is looked at."""
    for call in (wrap, out_of_fold):
        with pytest.raises((ValueError, TypeError), match="cv must be"):
            call(None, None, None, cv=cv)


def test_more_folds_than_rows():
    with pytest.raises(ValueError, match="cv=7 folds need at least 7 rows, there are 6"):
        read_folds(7, None, np.arange(6.0), None)


def test_folds_that_teach_nothing():
    y, weight = np.repeat([0.0, 1.0], 10), np.repeat([0.0, 1.0], 10)
    halves = [(np.arange(10), np.arange(10, 20)), (np.arange(10, 20), np.arange(10))]
    with pytest.raises(ValueError, match="training rows of fold 0 have one label only, 0"):
        read_folds(halves, None, y, None)
    with pytest.raises(ValueError, match="training rows of fold 0 have no row with a positive weight"):
        read_folds(halves, None, np.arange(20.0), weight)


def test_random_folds_are_the_same_every_time():
    a, b = (read_folds(5, None, np.arange(23.0), None) for _ in range(2))
    assert all(np.array_equal(x.test, y.test) and len(x.test) in (4, 5) for x, y in zip(a, b, strict=True))
    assert not np.array_equal(a[0].test, np.arange(len(a[0].test)))


@pytest.mark.parametrize("method", ["tune", "conformalize"])
def test_bad_predictions(fitted, predicted, rows, method):
    X, y = rows
    model = wrap(fitted, X, y)
    call = getattr(model, method)
    with pytest.raises(ValueError, match="equals the model's own predictions: these are in-sample"):
        call(X, y, out_of_fold=model.predict(X).astype(np.float32))
    with pytest.raises(ValueError, match="out_of_fold equals the labels"):
        call(X, y, out_of_fold=y)
    with pytest.raises(ValueError, match="out_of_fold has 599 values, X has 600 rows"):
        call(X, y, out_of_fold=predicted[1:])
    with pytest.raises(ValueError, match="out_of_fold has 1 infinite values"):
        call(X, y, out_of_fold=np.where(np.arange(600) == 3, np.inf, predicted))
    with pytest.raises(ValueError, match="rows with an out-of-fold prediction, it got 0"):
        call(X, y, out_of_fold=np.full(600, np.nan))
    with pytest.raises(TypeError, match="out_of_fold must be a column of numbers"):
        call(X, y, out_of_fold=["a"] * 600)


@pytest.mark.parametrize("offset", [1e6, 1e8])
def test_predictions_far_from_zero_are_not_taken_for_the_own(offset):
    """Only float32 is too coarse to tell them apart, and that is told."""
    X, y = heteroscedastic(100, 0)
    booster = train("lightgbm", X, y + offset, rounds=3)
    model = wrap(booster, X, y + offset)
    model.tune(X, y + offset, out_of_fold=out_of_fold(booster, X, y + offset, cv=3), **FEW)
    own = model.predict(X)
    for copied in (own, own.astype(np.float32)):
        with pytest.raises(ValueError, match="equals the model's own"):
            model.tune(X, y + offset, out_of_fold=copied)


@pytest.mark.parametrize("method", ["tune", "conformalize"])
def test_predictions_whose_index_has_another_order(fitted, predicted, rows, method):
    X, y = rows
    turned = pd.Series(predicted)[::-1]
    with pytest.warns(UserWarning, match=r"the index of out_of_fold .* give out_of_fold\.loc\[X\.index\]"):
        getattr(wrap(fitted, X, y), method)(pd.DataFrame(X), y, out_of_fold=turned)


def test_logarithms_in_place_of_predictions(numeric):
    X, y = numeric
    booster = lgb.train({"objective": "poisson", "num_threads": 1, "verbose": -1}, lgb.Dataset(X, y), 10)
    with pytest.raises(ValueError, match="must be positive, because the model has a log link"):
        wrap(booster, X, y).tune(X, y, out_of_fold=booster.predict(X, raw_score=True) - 3.0)


def test_rows_that_are_not_in_one_table(rows, tmp_path):
    X, y = rows
    booster = train("lightgbm", X, y, 5)
    with pytest.raises(TypeError, match="cv= trains again on folds, and needs the rows in one table"):
        wrap(booster, iter([(X, y)]), cv=5)
    booster = lgb.train({"num_threads": 1, "verbose": -1}, lgb.Dataset(X, y), 5, callbacks=[record()])
    with pytest.raises(TypeError, match=r"recorded trainings do not have them: tune with held-out rows"):
        wrap(booster, cv=5)


def test_rows_that_training_did_not_see(rows):
    X, y = rows
    booster = train("lightgbm", X, y, 20)
    new = heteroscedastic(600, 5)
    with (
        pytest.warns(UserWarning, match="not certified"),
        pytest.raises(ValueError, match=r"need no cv=: wrap\(booster, X, y\)\.tune\(X, y\)"),
    ):
        wrap(booster, *new, cv=5)


def test_objectives_that_couple_rows(rows):
    X, y = rows

    def coupled(margin, y):
        return margin - y + 0.1 * (margin.mean() - y.mean()), np.ones(len(y))

    def whole_table_only(margin, y):
        return (margin - y) * np.ones(600), np.ones(600)

    for objective, message in ((coupled, "couples rows"), (whole_table_only, "fails on a part of the rows")):
        booster = lgb.train(
            {"num_threads": 1, "verbose": -1, "objective": lambda s, d, f=objective: f(s, d.get_label())},
            lgb.Dataset(X, y),
            5,
        )
        with pytest.raises(UnsupportedModelError, match=message):
            wrap(booster, X, y, objective=objective, cv=3)


def test_progress(fitted, rows, capsys):
    out_of_fold(fitted, *rows, cv=3, progress=True)
    assert "3.00/3.00" in capsys.readouterr().err
