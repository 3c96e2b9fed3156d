"""Categorical splits, and frames whose categories are not those of training: the booster's own answer, or an error."""

from __future__ import annotations

import json

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

from pgbm_plugin import load, wrap
from pgbm_plugin.tables.coded_matrix import CodedMatrix
from pgbm_plugin.tables.rows import read_rows

LGB = {"num_leaves": 10, "min_data_in_leaf": 5, "min_data_per_group": 5, "cat_smooth": 1.0, "verbose": -1}
LGB |= {"num_threads": 1}
XGB = {"max_depth": 4, "nthread": 1}
ODD_CODES = [-1e300, -2.0, -1.0, -0.5, -0.0, 0.5, 1.0, 2.7, 31.0, 32.0, 39.5, 40.0, 63.0, 64.0]
ODD_CODES += [1e4, 2.0**24, 2.0**31, 1e18]


def coded(levels, nan=0.0):
    """One numeric column, and one of integer codes with gaps in it."""
    rng = np.random.default_rng(5)
    code = rng.integers(0, levels, 600).astype(float)
    code[code == 3] = 1
    X = np.column_stack([rng.normal(size=600), code])
    y = X[:, 0] + np.sin(7 * code) + 0.1 * rng.normal(size=600)
    X[rng.random(600) < nan, 1] = np.nan
    return X, y


def frame(categories, nan=0.0, ordered=False):
    rng = np.random.default_rng(5)
    code = rng.integers(0, len(categories), 600)
    X = pd.DataFrame({"x": rng.normal(size=600), "c": pd.Categorical.from_codes(code, categories, ordered=ordered)})
    y = X["x"].to_numpy() + np.sin(7 * code) + 0.1 * rng.normal(size=600)
    X.loc[rng.random(600) < nan, "c"] = np.nan
    return X, y


@pytest.mark.parametrize("nan", [0.0, 0.2])
@pytest.mark.parametrize(("levels", "onehot"), [(4, 8), (12, 4), (70, 4)])
@pytest.mark.parametrize("use_missing", [True, False])
def test_lightgbm_codes(levels, onehot, nan, use_missing, leaf_labels):
    X, y = coded(levels, nan)
    params = {**LGB, "max_cat_to_onehot": onehot, "use_missing": use_missing}
    booster = lgb.train(params, lgb.Dataset(X, y, categorical_feature=[1]), 6)
    model = wrap(booster, X, y)
    assert model.certificate.status == "certified"
    hostile = np.repeat(X[:40], len(ODD_CODES) + 2, axis=0)
    hostile[:, 1] = np.tile([*ODD_CODES, np.nan, np.inf], 40)
    assert np.array_equal(leaf_labels(model, hostile), booster.predict(hostile, pred_leaf=True))
    assert np.array_equal(model.predict(hostile), booster.predict(hostile))


@pytest.mark.parametrize("nan", [0.0, 0.2])
@pytest.mark.parametrize("method", ["hist", "approx"])
@pytest.mark.parametrize(("levels", "onehot"), [(4, 8), (12, 4), (70, 4)])
def test_xgboost_codes(levels, onehot, method, nan, leaf_labels):
    X, y = coded(levels, nan)
    types = ["q", "c"]
    params = {**XGB, "max_cat_to_onehot": onehot, "tree_method": method}
    booster = xgb.train(params, xgb.DMatrix(X, y, feature_types=types, enable_categorical=True), 6)
    model = wrap(booster, X, y)
    assert model.certificate.status == "certified"
    codes = [c for c in ODD_CODES if abs(c) < 1e38]
    hostile = np.repeat(X[:40], len(codes) + 1, axis=0)
    hostile[:, 1] = np.tile([*codes, np.nan], 40)
    data = xgb.DMatrix(hostile, feature_types=types, enable_categorical=True)
    assert np.array_equal(leaf_labels(model, hostile), booster.predict(data, pred_leaf=True))
    assert np.array_equal(model.predict(hostile), booster.predict(data))


STRINGS = ["m", "b", "z", "a", "k", "q", "c"]
INTEGERS = [30, 7, 1000, -4, 2, 11, 5]


def lightgbm_pair(X, y):
    booster = lgb.train(LGB, lgb.Dataset(X, y), 6)
    return booster.predict, lambda rows: booster.predict(rows, pred_leaf=True), wrap(booster, X, y)


def xgboost_pair(X, y):
    booster = xgb.train(XGB, xgb.DMatrix(X, y, enable_categorical=True), 6)

    def data(rows):
        return xgb.DMatrix(rows, enable_categorical=True)

    return (
        lambda rows: booster.predict(data(rows)),
        lambda rows: booster.predict(data(rows), pred_leaf=True),
        wrap(booster, X, y),
    )


@pytest.mark.parametrize("pair", [lightgbm_pair, xgboost_pair])
@pytest.mark.parametrize("nan", [0.0, 0.2])
@pytest.mark.parametrize("categories", [STRINGS, INTEGERS], ids=["strings", "integers"])
def test_frame_in_another_order(categories, nan, pair, leaf_labels):
    """Codes follow the training frame's categories, whatever the order they have at prediction."""
    X, y = frame(categories, nan)
    predict, pred_leaf, model = pair(X, y)
    other = X.copy()
    other["c"] = other["c"].cat.reorder_categories(categories[::-1])
    assert np.array_equal(leaf_labels(model, other), pred_leaf(other))
    assert np.array_equal(model.predict(other), predict(other))
    assert np.array_equal(model.predict(other), model.predict(X))
    # fewer categories than in training
    some = X[X["c"].isin(categories[2:])].copy()
    some["c"] = some["c"].cat.remove_unused_categories()
    assert np.array_equal(model.predict(some), predict(some))


@pytest.mark.parametrize("unseen", ["A", "j", "zz"], ids=["before", "between", "after"])
def test_unseen_string(unseen, leaf_labels):
    """LightGBM reads an unseen category as missing. XGBoost 3.2 takes a neighbour for it: here it is an error."""
    X, y = frame(STRINGS, nan=0.2)
    new = X[:60].copy()
    new["c"] = new["c"].cat.add_categories([unseen])
    listed = new.copy()
    new.loc[new.index[::3], "c"] = unseen

    predict, pred_leaf, model = lightgbm_pair(X, y)
    assert np.array_equal(leaf_labels(model, new), pred_leaf(new))
    assert np.array_equal(model.predict(new), predict(new))

    _, _, model = xgboost_pair(X, y)
    with pytest.raises(ValueError, match=rf"(?s)'c'.*not see.*{unseen}"):
        model.predict(new)
    # a category that is only listed, and not used, does no harm
    assert np.array_equal(model.predict(listed), model.predict(X[:60]))


def test_unseen_integer():
    X, y = frame(INTEGERS)
    new = X[:60].copy()
    new["c"] = new["c"].cat.add_categories([6])
    new.loc[new.index[::3], "c"] = 6
    predict, _, model = lightgbm_pair(X, y)
    assert np.array_equal(model.predict(new), predict(new))
    _, _, model = xgboost_pair(X, y)
    with pytest.raises(ValueError, match=r"(?s)'c'.*6"):
        model.predict(new)


def test_lightgbm_ordered_categories(leaf_labels):
    """LightGBM splits ordered categoricals as numbers, their codes."""
    X, y = frame(STRINGS, nan=0.2, ordered=True)
    predict, pred_leaf, model = lightgbm_pair(X, y)
    assert model.certificate.status == "certified"
    other = X.copy()
    other["c"] = other["c"].cat.reorder_categories(STRINGS[::-1], ordered=True)
    for rows in (X, other):
        assert np.array_equal(leaf_labels(model, rows), pred_leaf(rows))
        assert np.array_equal(model.predict(rows), predict(rows))


@pytest.mark.parametrize("suffix", ["json", "ubj"])
def test_xgboost_categories_from_file(suffix, tmp_path):
    X, y = frame(STRINGS, nan=0.2)
    booster = xgb.train(XGB, xgb.DMatrix(X, y, enable_categorical=True), 6)
    booster.save_model(tmp_path / f"m.{suffix}")
    model = wrap(tmp_path / f"m.{suffix}", X, y)
    other = X.copy()
    other["c"] = other["c"].cat.reorder_categories(STRINGS[::-1])
    assert model.certificate.status == "certified"
    assert np.array_equal(model.predict(other), booster.predict(xgb.DMatrix(X, enable_categorical=True)))


def test_category_in_the_wrong_column():
    X, y = frame(STRINGS)
    as_numbers = X.assign(c=X["c"].cat.codes)
    for pair in (lightgbm_pair, xgboost_pair):
        _, _, model = pair(X, y)
        with pytest.raises(ValueError, match="categorical"):
            model.predict(as_numbers)


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
def test_text_in_place_of_a_category_is_named(kind, mixed):
    X, y = mixed
    column = next(name for name in X if isinstance(X[name].dtype, pd.CategoricalDtype))
    if kind == "lightgbm":
        booster = lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(X, y), 3)
    else:
        booster = xgb.train({"nthread": 1}, xgb.DMatrix(X, y, enable_categorical=True), 3)
    model = wrap(booster, X, y)
    with pytest.raises(ValueError, match=rf"column '{column}' has type .*categorical, as in training"):
        model.predict(X.assign(**{column: X[column].astype(str)}))


def test_lightgbm_columns_are_remembered(tmp_path):
    """LightGBM stores the categories and not where they were; the frame that was wrapped tells."""
    rng = np.random.default_rng(0)
    numbers = rng.choice([10, 20, 30], (400, 2))
    X = pd.DataFrame({"a": pd.Categorical(numbers[:, 0]), "b": numbers[:, 1], "c": rng.normal(size=400)})
    y = numbers @ [0.1, 0.02] + X["c"]
    booster = lgb.train(LGB, lgb.Dataset(X, y), 5)
    model = wrap(booster, X, y)
    assert np.array_equal(model.predict(X), booster.predict(X))
    with pytest.raises(ValueError, match="column 'a' was categorical in training"):
        model.predict(X.astype({"a": int, "b": "category"}))
    model.save(tmp_path / "model.pgbm")
    X.astype({"a": int}).to_parquet(tmp_path / "rows.parquet")  # where the category is a number again
    again = next(load(tmp_path / "model.pgbm").predict_dist(tmp_path / "rows.parquet"))
    assert np.array_equal(again.mean(), booster.predict(X))


def coded_model(X, y, tmp_path):
    """A model as XGBoost before 3.1 wrote it: codes alone."""
    booster = xgb.train(XGB, xgb.DMatrix(X, y, enable_categorical=True), 5)
    path = tmp_path / "old.json"
    booster.save_model(path)
    content = json.loads(path.read_text())
    del content["learner"]["gradient_booster"]["model"]["cats"]
    path.write_text(json.dumps(content))
    return path, booster


@pytest.mark.parametrize("rows", [600, 300], ids=["certified", "held-out"])
@pytest.mark.filterwarnings("ignore:not certified")
def test_codes_must_mean_what_they_meant(rows, tmp_path):
    """The booster takes any frame's codes as they are: so do we, for the categories of the frame that was wrapped."""
    X, y = frame(STRINGS, nan=0.1)
    path, booster = coded_model(X, y, tmp_path)
    want = booster.predict(xgb.DMatrix(X, enable_categorical=True))
    model = wrap(path, X[:rows], y[:rows])
    model.save(tmp_path / "model.pgbm")
    embedded = xgb.Booster(model_file=path)
    for again in (model, load(tmp_path / "model.pgbm"), wrap(embedded, X[:rows], y[:rows])):
        assert np.array_equal(again.predict(X), want)
        assert np.array_equal(again.predict(xgb.DMatrix(X, enable_categorical=True)), want)
        assert np.array_equal(again.predict(X.assign(c=X["c"].cat.codes.replace(-1, np.nan))), want)  # codes as numbers
        longer = X.assign(c=X["c"].cat.add_categories(["zz"]))  # listed, and not used
        assert np.array_equal(again.predict(longer), want)
        turned = X.assign(c=X["c"].cat.reorder_categories(STRINGS[::-1]))
        fewer = X[X["c"] != STRINGS[0]].assign(c=lambda rows: rows["c"].cat.remove_unused_categories())
        for table in (turned, fewer, xgb.DMatrix(turned, enable_categorical=True)):
            with pytest.raises(ValueError, match=r"column 'c' has other codes.*set_categories\(\['m', 'b'"):
                again.predict(table)
        restored = fewer.assign(c=fewer["c"].cat.set_categories(STRINGS))
        assert np.array_equal(again.predict(restored), want[(X["c"] != STRINGS[0]).to_numpy()])
        with pytest.raises(ValueError, match="categories that training did not see: zz"):
            again.predict(longer.assign(c=longer["c"].fillna("zz")))


@pytest.mark.filterwarnings("ignore:.*letters beyond ASCII")
@pytest.mark.parametrize("names", [["éa", "é"], ["Köln", "Bonn", "Ulm"], ["é", "ß", "日本"]])
def test_xgboost_names_that_are_not_ascii(names, tmp_path):
    """XGBoost before 3.4 stores them in pieces: then their codes count, which must be those of the wrapped frame."""
    rng = np.random.default_rng(1)
    code = rng.integers(0, len(names), 400)
    X = pd.DataFrame({"c": pd.Categorical.from_codes(code, names), "x": rng.normal(size=400)})
    y = code + 0.1 * rng.normal(size=400)
    data = xgb.DMatrix(X, y, enable_categorical=True)
    booster = xgb.train(XGB, data, 5)
    model = wrap(booster, X, y)
    assert model.certificate.status == wrap(booster, data).certificate.status == "certified"
    want = booster.predict(data)
    model.save(tmp_path / "model.pgbm")
    turned = X.assign(c=X["c"].cat.reorder_categories(names[::-1]))
    stored_whole = bool(model.forest.features.category_columns) and not model.forest.features.code_columns
    assert stored_whole == (tuple(map(int, xgb.__version__.split(".")[:2])) >= (3, 4))
    for again in (model, load(tmp_path / "model.pgbm")):
        assert np.array_equal(again.predict(X), want)
        assert np.array_equal(again.predict(data), want)
        if stored_whole:
            assert np.array_equal(again.predict(turned), want)
            assert np.array_equal(again.predict(xgb.DMatrix(turned, enable_categorical=True)), want)
        else:
            with pytest.raises(ValueError, match="has other codes"):
                again.predict(turned)
        with pytest.raises(ValueError, match="categories that training did not see: Rom"):
            again.predict(X.assign(c=X["c"].cat.rename_categories({names[0]: "Rom"})))


def test_names_in_pieces_in_a_newer_file(tmp_path):
    """XGBoost 3.4 keeps the pieces of a model that an older version trained: their codes count."""
    X, y = frame(STRINGS)
    booster = xgb.train(XGB, xgb.DMatrix(X, y, enable_categorical=True), 5)
    booster.save_model(tmp_path / "m.json")
    content = json.loads((tmp_path / "m.json").read_text())
    content["version"] = [3, 4, 1]
    entry = content["learner"]["gradient_booster"]["model"]["cats"]["enc"][1]
    entry["values"][:2] = [-61, -87]  # the two bytes of one letter, cut in two
    (tmp_path / "m.json").write_text(json.dumps(content))
    model = wrap(tmp_path / "m.json", X, y)
    assert model.forest.features.code_columns == (1,)
    assert np.array_equal(model.predict(X), booster.predict(xgb.DMatrix(X, enable_categorical=True)))


def test_a_data_set_with_unreadable_categories():
    """Where the model knows its categories, codes that mean no one knows what are refused."""
    X, y = frame(STRINGS)
    booster = xgb.train(XGB, xgb.DMatrix(X, y, enable_categorical=True), 3)
    model = wrap(booster, X, y)
    matrix = xgb.DMatrix(X, enable_categorical=True).get_data()
    with pytest.raises(ValueError, match="does not tell the categories of column 'c': give the frame"):
        read_rows(CodedMatrix(matrix, ["x", "c"], {1: None}), model.forest.features)
