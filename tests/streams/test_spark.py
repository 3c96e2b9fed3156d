"""Real Spark on this machine: any partitions give the moments of one table, and predictions are lazy columns."""

from __future__ import annotations

import copy
import os

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

from pgbm_plugin import load, wrap
from pgbm_plugin import spark as pgbm_spark
from tests.same import assert_same_model, assert_same_moments
from tests.streams.streamed import LGB, XGB

pytest.importorskip("pyspark")

from pyspark.ml import PipelineModel
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import functions

from tests.streams.spark_session import QUIET, in_parts, sorted_frame

pytestmark = QUIET

NAMES = list("abcd")


@pytest.fixture(scope="module")
def rows(make_data):
    """A frame with a label, weights, a key, and a mark of rows for validation."""
    X, y = make_data("nan", n=900)
    rng = np.random.default_rng(0)
    more = {"y": y, "w": rng.uniform(0.5, 2.0, len(y)), "held": rng.random(len(y)) < 0.3, "key": np.arange(len(y))}
    return pd.DataFrame(X, columns=NAMES).assign(**more)


@pytest.fixture(scope="module", params=["lightgbm", "huber", "xgboost"])
def trained(request, rows):
    """A booster with weights, and what one machine makes of it."""
    X, y, w = rows[NAMES], rows["y"], rows["w"]
    if request.param == "xgboost":
        booster = xgb.train({**XGB, "objective": "reg:gamma"}, xgb.DMatrix(X, y, weight=w), 4)
    else:
        objective = "huber" if request.param == "huber" else "regression"
        booster = lgb.train({**LGB, "objective": objective}, lgb.Dataset(X, y, weight=w), 4)
    return booster, wrap(booster, X, y, sample_weight=w)


@pytest.fixture(scope="module")
def model(rows):
    """A plain model without weights."""
    return wrap(lgb.train(LGB, lgb.Dataset(rows[NAMES], rows["y"]), 4), rows[NAMES], rows["y"])


def test_partitions(session, rows, trained):
    """Empty ones among them, in any number; the same partitions give the same bits."""
    booster, whole = trained
    assert whole.certificate.status == "certified"
    models = []
    for parts in (1, 11, 11):
        df = in_parts(session, rows, parts)
        if parts == 11:
            df = df.union(df.where("key < 0"))
        models.append(pgbm_spark.wrap(booster, df, label="y", weight="w").model)
        assert_same_model(models[-1], whole, rows[NAMES])
        assert models[-1].moments.rows == 900
    for name, values in models[1].moments.arrays().items():
        assert np.array_equal(values, models[2].moments.arrays()[name])


def test_predictions(session, rows, model, tmp_path):
    """Columns are added to the frame's own, which may have any type; saved models do the same."""
    df = in_parts(session, rows).withColumn("list", functions.array("key", "a"))
    df = VectorAssembler(inputCols=["y", "w"], outputCol="vector").transform(df)
    model.save(tmp_path / "m.pgbm")
    options = {"quantiles": [0.05, 0.975], "intervals": [0.8]}
    want = model.predict_frame(rows[NAMES], **options)
    for own in (model, load(tmp_path / "m.pgbm")):
        out = pgbm_spark.SparkModel(own).predict(df, **options)
        assert out.columns == [*df.columns, *want.columns] == [*df.columns, *out.columns[-6:]]
        assert [out.schema[name] for name in df.columns] == df.schema.fields
        found = sorted_frame(out)
        assert found["vector"][3].toArray().tolist() == rows.loc[3, ["y", "w"]].tolist()
        for name in want:
            assert np.array_equal(found[name], want[name])
    assert out.where("key < 0").count() == 0


def test_predictions_are_lazy_and_of_their_time(session, rows, model):
    model, want = copy.copy(model), model.predict_frame(rows[NAMES])
    never = functions.raise_error(functions.lit("rows were read"))
    broken = in_parts(session, rows).withColumn("a", functions.when(functions.lit(True), never).cast("double"))
    pgbm_spark.SparkModel(model).predict(broken)
    before = pgbm_spark.SparkModel(model).predict(in_parts(session, rows))
    model.rho = 0.5
    assert np.array_equal(sorted_frame(before)["std"], want["std"])


@pytest.fixture(scope="module")
def estimator(spark_sessions, rows):
    """A model of xgboost.spark, stopped early, with weights, and rows of validation among the others."""
    from xgboost.spark import SparkXGBRegressor

    return SparkXGBRegressor(
        features_col=NAMES,
        label_col="y",
        weight_col="w",
        validation_indicator_col="held",
        early_stopping_rounds=2,
        n_estimators=300,
        learning_rate=0.5,
        max_depth=4,
        num_workers=2,
        verbose=False,
    ).fit(in_parts(spark_sessions(), rows))


def test_xgboost_spark(session, rows, estimator):
    """Its columns are known, it is cut at its best iteration, and its own predictions come back."""
    df = in_parts(session, rows)
    best, rounds = estimator.get_booster().best_iteration, estimator.get_booster().num_boosted_rounds()
    assert best + 1 < rounds
    lazy = pgbm_spark.wrap(estimator, df)
    trained_on = rows[~rows["held"]]
    whole = wrap(estimator, trained_on[NAMES], trained_on["y"], sample_weight=trained_on["w"])
    assert whole.certificate.status == "certified"
    assert whole.forest.n_trees == best + 1
    assert_same_model(lazy.model, whole, rows[NAMES])
    own = sorted_frame(estimator.transform(df))["prediction"]
    assert np.array_equal(sorted_frame(lazy.predict(df))["mean"], own)
    only = df.where("not held").drop("held")
    assert_same_moments(pgbm_spark.wrap(estimator, only).model.moments, lazy.model.moments)
    with pytest.warns(UserWarning, match=f"at iteration {best + 1} of {rounds}.*all trees.*xgboost.spark"):
        everything = wrap(estimator.get_booster(), trained_on[NAMES], trained_on["y"], sample_weight=trained_on["w"])
    assert everything.forest.n_trees == rounds
    with pytest.raises(TypeError, match=r"if its .stages\[-1\] is one, give that"):
        pgbm_spark.wrap(PipelineModel([estimator]), df, label="y")


def test_xgboost_spark_on_vectors(session, rows):
    """Dense and sparse vectors, arrays, margins, and a number that stands for missing values."""
    from xgboost.spark import SparkXGBRegressor

    table = rows.assign(margin=rows["w"], **{name: rows[name].fillna(-9.0).round(1) for name in NAMES})
    df = in_parts(session, table, 2)
    df = VectorAssembler(inputCols=NAMES, outputCol="vectors").transform(df)
    options = {"label_col": "y", "base_margin_col": "margin", "num_workers": 1, "n_estimators": 3, "verbose": False}
    model = SparkXGBRegressor(features_col="vectors", missing=-9.0, **options).fit(df)
    lazy = pgbm_spark.wrap(model, df)
    whole = wrap(model, table[NAMES], table["y"], init_score=table["margin"])
    assert whole.certificate.status == "certified"
    assert_same_model(lazy.model, whole, table[NAMES], table["margin"])
    out = sorted_frame(lazy.predict(df))
    assert np.array_equal(out["mean"], sorted_frame(model.transform(df))["prediction"])
    assert np.array_equal(out["std"], lazy.model.predict(table[NAMES], True, init_score=table["margin"])[1])
    arrays = df.withColumn("vectors", functions.array(*NAMES))
    assert np.array_equal(sorted_frame(lazy.predict(arrays))["std"], out["std"])


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
def test_text_is_categories(kind, session, mixed):
    """In a frame with names that Spark would read as paths, and a label that is a whole number."""
    X, y = mixed
    X, y = X.rename(columns={"a": "a.b", "c": "c`d"}), np.round(10 * y)
    if kind == "lightgbm":
        booster = lgb.train(LGB, lgb.Dataset(X, y), 5)
    else:
        booster = xgb.train(XGB, xgb.DMatrix(X, y, enable_categorical=True), 5)
    text = X.assign(**{name: X[name].astype(object).where(X[name].notna(), None) for name in ("few", "many")})
    df = in_parts(session, text.assign(**{"l.y": y.astype(int), "key": np.arange(len(y))}))
    df = df.select(*[f"`{name.replace('`', '``')}`" for name in df.columns[::-1]])  # columns are found by name
    lazy = pgbm_spark.wrap(booster, df, label="l.y")
    whole = wrap(booster, X, y)
    assert whole.certificate.status == "certified"
    assert_same_model(lazy.model, whole, X)
    assert np.array_equal(sorted_frame(lazy.predict(df))["q05"], lazy.model.predict_frame(X)["q05"])


def test_columns_in_the_order_of_training(session, rows, tmp_path):
    """A model file without names."""
    X = rows[NAMES].to_numpy()
    lgb.train(LGB, lgb.Dataset(X, rows["y"]), 4).save_model(tmp_path / "m.txt")
    df = in_parts(session, rows)
    lazy = pgbm_spark.wrap(tmp_path / "m.txt", df, label="y", features=NAMES)
    assert_same_model(lazy.model, wrap(tmp_path / "m.txt", X, rows["y"]), X)
    assert np.array_equal(sorted_frame(lazy.predict(df))["mean"], lazy.model.predict(X))
    with pytest.raises(TypeError, match="the model stores no column names: give features="):
        pgbm_spark.wrap(xgb.train(XGB, xgb.DMatrix(X, rows["y"]), 2), df, label="y")


def test_init_scores(session, rows):
    booster = lgb.train(LGB, lgb.Dataset(rows[NAMES], rows["y"], init_score=rows["w"]), 4)
    df = in_parts(session, rows)
    lazy = pgbm_spark.wrap(booster, df, label="y", init_score="w")
    whole = wrap(booster, rows[NAMES], rows["y"], init_score=rows["w"])
    assert_same_model(lazy.model, whole, rows[NAMES], rows["w"])
    want = lazy.model.predict_frame(rows[NAMES], init_score=rows["w"])
    assert np.array_equal(sorted_frame(lazy.predict(df))["std"], want["std"])
    with pytest.warns(UserWarning, match="not certified.*give .* init_score="):
        pgbm_spark.wrap(booster, df, label="y")
    with pytest.warns(UserWarning, match="training had an init_score"):
        pgbm_spark.SparkModel(whole).predict(df)


def test_groups(session, rows, model):
    model, half, groups = copy.copy(model), slice(300, None), (rows["key"] % 2).astype(str)
    model.conformalize(rows[NAMES][half], rows["y"][half], groups=groups[half])
    lazy, df = pgbm_spark.SparkModel(model), in_parts(session, rows.assign(shop=groups))
    want = model.predict_frame(rows[NAMES], groups=groups)
    assert np.array_equal(sorted_frame(lazy.predict(df, groups="shop"))["q95"], want["q95"])
    with pytest.raises(ValueError, match="conformalize got groups="):
        lazy.predict(df)


def fail_once(batches, folder):
    """Pass rows on; the first task on rows of each kind ends in the middle of its work, its process with it or not."""
    for batch in batches:
        yield batch
        for kind in {*batch.column("key").to_numpy()} & {7, 11}:
            try:
                os.close(os.open(f"{folder}/{kind}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            if kind == 7:
                os._exit(1)
            raise OSError("a disk failed")


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
def test_a_task_that_fails_is_not_counted_twice(kind, session, rows, tmp_path):
    X, y = rows[NAMES], rows["y"]
    booster = lgb.train(LGB, lgb.Dataset(X, y), 4) if kind == "lightgbm" else xgb.train(XGB, xgb.DMatrix(X, y), 4)
    df = in_parts(session, rows, 4)
    df = df.mapInArrow(lambda batches, folder=str(tmp_path): fail_once(batches, folder), df.schema)
    lazy = pgbm_spark.wrap(booster, df, label="y")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["11", "7"]
    assert_same_model(lazy.model, wrap(booster, X, y), X)
    assert lazy.model.moments.rows == 900


def test_rows_are_never_collected(session, rows, monkeypatch):
    collected = []
    df = in_parts(session, rows, 20)
    collect = type(df).collect

    def counted(df):
        found = collect(df)
        collected.append((df.columns, len(found)))
        return found

    for name in ("toPandas", "toArrow", "toLocalIterator"):
        monkeypatch.setattr(type(df), name, None, raising=False)
    monkeypatch.setattr(type(df), "collect", counted)
    booster = lgb.train(LGB, lgb.Dataset(rows[NAMES], rows["y"]), 2)
    pgbm_spark.wrap(booster, df, label="y").predict(df)
    assert {tuple(columns) for columns, _ in collected} == {("number", "result", "error")}
    assert collected[-1][1] <= 8
