"""Check ranges of features: from any form of table, in any parts, with categories; and which values lie outside."""

from __future__ import annotations

import warnings

import lightgbm as lgb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import xgboost as xgb
from sklearn.ensemble import HistGradientBoostingRegressor

from pgbm_plugin import LeafMoments, embed, load, partial_moments, wrap
from pgbm_plugin.tables import ranges as ranges_module
from tests import ROOT
from tests.same import assert_same_ranges
from tests.small import LGB, XGB, train

FORMS = {
    "matrix": lambda X: X,
    "fortran": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "pandas": lambda X: pd.DataFrame(X, columns=list("abcd")),
    "polars": lambda X: pl.DataFrame(X, schema=list("abcd")),
    "arrow": lambda X: pa.table({name: X[:, j] for j, name in enumerate("abcd")}),
}


def naive_outside(X, new):
    """Row by row, value by value."""
    found = []
    for row in new:
        outside = []
        for j, x in enumerate(row):
            seen = X[:, j]
            numbers = seen[~np.isnan(seen)]
            if np.isnan(x):
                is_outside = not np.isnan(seen).any()
            else:
                is_outside = len(numbers) == 0 or not numbers.min() <= x <= numbers.max()
            if is_outside:
                outside.append(j)
        found.append(tuple(outside))
    return found


def numbers_of(model, X):
    place = {name: j for j, name in enumerate(model.forest.features.shown_names)}
    return [tuple(place[name] for name in names) for names in model.predict_support(X).outside]


@pytest.fixture(scope="module")
def some():
    """A feature with missing values, one without, one that is always missing, and a constant one."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(10_000, 2)), np.full(10_000, np.nan), np.full(10_000, 2020.0)])
    X[rng.random(10_000) < 0.1, 0] = np.nan
    new = 1.3 * X[:200]
    new[rng.random(new.shape) < 0.2] = np.nan
    new[::5, 2], new[::7, 3], new[1, :], new[2, :] = 1.0, 2021.0, np.inf, -np.inf
    return X, np.nan_to_num(X[:, 0]) + X[:, 1], new


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
def test_tables_of_all_forms(kind, form, some):
    X, y, new = some
    if kind == "xgboost":
        X, new = X.astype(np.float32).astype(float), new.astype(np.float32).astype(float)
    made = FORMS[form]
    booster = train(kind, pd.DataFrame(X, columns=list("abcd")) if form in ("pandas", "polars", "arrow") else X, y)
    model = wrap(booster, made(X), y)
    assert numbers_of(model, made(new)) == naive_outside(X, new)
    assert not any(model.predict_support(made(X)).outside)


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
def test_sparse_rows(kind):
    """Read entries that a sparse matrix does not store as 0 for LightGBM, and as missing for XGBoost."""
    rng = np.random.default_rng(1)
    X = sp.random_array((500, 4), density=0.4, rng=rng, format="csr")
    X.data[:] = np.float32(rng.normal(size=X.nnz))
    full = sp.csr_array(np.column_stack([np.float32(rng.uniform(1, 2, 500)), np.zeros(500)]))  # always, never stored
    X = sp.csr_array(sp.hstack([X, full]))
    new = (X[:50] * 1.5).tolil()
    new[0, 5], new[1, 4], new[2, 0], new[3, 3] = 3.0, 3.0, np.nan, np.nan
    new = sp.csr_array(new)
    y = X[:, [0]].toarray()[:, 0]
    model = wrap(train(kind, X, y), X, y)

    def dense(rows):
        out = np.full(rows.shape, 0.0 if kind == "lightgbm" else np.nan)
        stored = rows.tocoo()
        out[stored.coords] = stored.data
        return out

    assert numbers_of(model, new) == naive_outside(dense(X), dense(new))


def test_wide_sparse_rows_stay_sparse():
    """As a dense matrix, these rows would take 16 GB."""
    X = sp.csr_array((np.arange(1.0, 1001.0), (np.arange(1000), np.arange(1000))), shape=(1000, 2_000_000))
    y = np.arange(1000.0)
    model = wrap(lgb.train({**LGB, "min_data_in_bin": 1, "min_data_in_leaf": 1}, lgb.Dataset(X, y), 1), X, y)
    new = X[:2].copy()
    new.data[:] = 1e6
    assert [len(names) for names in model.predict_support(new).outside] == [1, 1]


def test_rows_of_weight_0_were_not_seen(some):
    X, y, _ = some
    weight = (X[:, 1] < 1.0).astype(float)
    model = wrap(lgb.train(LGB, lgb.Dataset(X, y, weight=weight), 3), X, y, sample_weight=weight)
    assert model.moments.ranges.high[1] == X[weight > 0, 1].max()


@pytest.fixture(scope="module")
def shops():
    rng = np.random.default_rng(2)
    shop = rng.choice(["a", "b", "c"], 600)
    X = pd.DataFrame({"x": rng.normal(size=600), "shop": pd.Categorical(shop, categories=["c", "b", "a", "never"])})
    return X, X.x + 2.0 * (shop == "a") + 0.1 * rng.normal(size=600)


def with_shops(X, names):
    return X.iloc[: len(names)].assign(shop=pd.Categorical(names))


def test_lightgbm_categories(shops):
    """A category may be unknown to the model, or known from the frame's type alone."""
    X, y = shops
    model = wrap(lgb.train(LGB, lgb.Dataset(X, y), 5), X, y)
    new = with_shops(X, ["a", "never", "new", None, "c"])
    flagged = ((), ("shop",), ("shop",), ("shop",), ())
    assert model.predict_support(new).outside == flagged
    gaps = X.copy()
    gaps.loc[5, "shop"] = None  # so that training knows missing values
    model = wrap(lgb.train(LGB, lgb.Dataset(gaps, y), 5), gaps, y)
    assert model.predict_support(new).outside == ((), ("shop",), ("shop",), (), ())


def test_xgboost_categories(shops):
    X, y = shops
    model = wrap(xgb.train(XGB, xgb.DMatrix(X, y, enable_categorical=True), 5), X, y)
    new = with_shops(X, ["a", "never", None, "c"])
    assert model.predict_support(new).outside == ((), ("shop",), ("shop",), ())


def test_scikit_learn_categories(shops):
    X, y = shops
    estimator = HistGradientBoostingRegressor(max_iter=5, categorical_features="from_dtype").fit(X, y)
    model = wrap(estimator, X, y)
    assert model.predict_support(with_shops(X, ["a", "new", "c"])).outside == ((), ("shop",), ())
    numbers = np.column_stack([X.x, X.shop.cat.codes.to_numpy() * 3.0])
    estimator = HistGradientBoostingRegressor(max_iter=5, categorical_features=[1]).fit(numbers, y)
    model = wrap(estimator, numbers, y)
    new = numbers[:3].copy()
    new[:, 1] = 0.0, 1.0, np.nan
    assert numbers_of(model, new) == [(), (1,), (1,)]


@pytest.mark.parametrize("one_hot", [10, 1])
def test_catboost_categories(one_hot, shops):
    cb = pytest.importorskip("catboost")
    X, y = shops
    X = X.assign(shop=X.shop.astype(str))
    params = {"iterations": 5, "verbose": False, "allow_writing_files": False, "one_hot_max_size": one_hot}
    booster = cb.CatBoostRegressor(**params, cat_features=["shop"]).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # target statistics are not certified
        model = wrap(booster, X, y)
    new = X.iloc[:3].assign(shop=["a", "new", "c"])
    new.loc[2, "x"] = 50.0
    assert model.predict_support(new).outside == ((), ("shop",), ("x",))
    assert not any(model.predict_support(X).outside)


@pytest.mark.parametrize("size", [7, 200])
def test_small_batches_keep_categories(size, shops):
    """They are converted and joined, but what they held is read before."""
    cb = pytest.importorskip("catboost")
    X, y = shops
    X = X.assign(shop=X.shop.astype(str))
    params = {"iterations": 5, "verbose": False, "allow_writing_files": False, "one_hot_max_size": 10}
    booster = cb.CatBoostRegressor(**params, cat_features=["shop"]).fit(X, y)
    parts = [slice(lo, lo + size) for lo in range(0, 600, size)]
    batches = wrap(booster, ((X.iloc[rows], y.iloc[rows]) for rows in parts))
    assert_same_ranges(batches.moments.ranges, wrap(booster, X, y).moments.ranges)


def test_codes_without_names_are_categories(shops):
    """Codes between those of training are none of them, although their numbers lie inside."""
    X, y = shops
    coded = np.column_stack([X.x, 3.0 * X.shop.cat.codes.to_numpy()])
    model = wrap(lgb.train(LGB, lgb.Dataset(coded, y, categorical_feature=[1]), 5), coded, y)
    new = coded[:4].copy()
    new[:, 1] = 3.0, 3.7, 4.0, 9.0
    assert numbers_of(model, new) == [(), (), (1,), (1,)]


def test_of_very_many_categories_none_is_kept(shops, monkeypatch):
    X, y = shops
    monkeypatch.setattr(ranges_module, "MAX_CATEGORIES", 2)
    booster = lgb.train(LGB, lgb.Dataset(X, y), 5)
    parts = [partial_moments(booster, X.iloc[rows], y.iloc[rows]) for rows in (slice(1), slice(1, 2), slice(2, 600))]
    for moments in (partial_moments(booster, X, y), parts[0].merge(parts[1]).merge(parts[2])):
        assert len(moments.ranges.column) == 0
        model = wrap(booster, moments)
        assert model.predict_support(with_shops(X, ["never", None])).outside == ((), ("shop",))


def test_update_widens_and_forgets(some):
    X, y, _ = some
    model = wrap(train("lightgbm", X, y), X, y)
    new = X[:10] + 100.0
    assert all(len(names) > 1 for names in model.predict_support(new).outside)
    model.update(new, y[:10])
    assert not any(model.predict_support(new).outside)
    assert not any(model.predict_support(X).outside)
    model.update(X[10:], y[10:], decay=0.0)
    assert any(model.predict_support(new).outside)


def test_files_bytes_and_models_keep_the_ranges(shops, tmp_path):
    X, y = shops
    booster = xgb.train(XGB, xgb.DMatrix(X, y, enable_categorical=True), 5)
    model = wrap(booster, X, y)
    ranges = model.moments.ranges
    assert len(ranges.column) == 1
    model.save(tmp_path / "m.pgbm")
    embed(booster, model)
    for again in (load(tmp_path / "m.pgbm"), wrap(booster)):
        assert_same_ranges(again.moments.ranges, ranges)
    assert_same_ranges(LeafMoments.from_bytes(model.moments.to_bytes()).ranges, ranges)
    wider = LeafMoments(**{**vars(model.moments), "ranges": wrap_of_three_features()})
    with pytest.raises(ValueError, match="ranges of other features"):
        wrap(xgb.train(XGB, xgb.DMatrix(X, y, enable_categorical=True), 5), wider)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests" / "saving" / "version_1").glob("*.pgbm")), ids=lambda path: path.stem
)
def test_files_without_ranges_say_so(path):
    model = load(path)
    support = model.predict_support(np.zeros((3, model.forest.features.count)))
    assert support.outside is None
    assert "an older file" in repr(support)
    assert np.all(support.rows >= 1.0)


def wrap_of_three_features():
    X = np.random.default_rng(0).normal(size=(50, 3))
    return wrap(train("lightgbm", X, X[:, 0]), X, X[:, 0]).moments.ranges


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"high": np.zeros(1)}, "differ in length"),
        ({"low": np.array([np.nan, 0.0])}, "not a number"),
        ({"category": np.array([np.nan, 0.0])}, "not a number"),
        ({"column": np.array([2], np.int32)}, "do not exist"),
        ({"column": np.array([-1], np.int32)}, "do not exist"),
        ({"start": np.array([0, 3])}, "out of order"),
        ({"start": np.array([1, 2])}, "out of order"),
        ({"start": np.array([0])}, "differ in length"),
    ],
)
def test_ranges_that_contradict_themselves(change, match):
    good = {
        "low": np.zeros(2),
        "high": np.ones(2),
        "missing": np.zeros(2, bool),
        "column": np.array([1], np.int32),
        "start": np.array([0, 2]),
        "category": np.array([0.0, 1.0]),
    }
    ranges_module.Ranges(**good)
    with pytest.raises(ValueError, match=match):
        ranges_module.Ranges(**(good | change))
