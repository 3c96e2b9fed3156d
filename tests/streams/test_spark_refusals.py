"""Refuse Spark frames without what a model needs: before any work, or with the partition where it is missing."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pgbm_plugin import spark as pgbm_spark
from pgbm_plugin import wrap
from tests.streams.streamed import LGB

pytest.importorskip("pyspark")

from pyspark.errors import PythonException
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import functions

from tests.streams.spark_session import QUIET, in_parts, sorted_frame, stop

pytestmark = QUIET

NAMES = list("abc")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 3)), columns=NAMES)
    return frame.assign(y=frame["a"] + rng.normal(size=300), d=1.0, key=np.arange(300))


@pytest.fixture(scope="module")
def booster(rows):
    return lgb.train(LGB, lgb.Dataset(rows[NAMES], rows["y"]), 2)


def no_work(df):
    """A frame whose rows cannot be read."""
    never = functions.raise_error(functions.lit("rows were read"))
    return df.withColumn("key", functions.when(functions.lit(True), never).cast("long"))


def with_text(name):
    return lambda df: df.withColumn(name, functions.lit("1"))


def as_pandas_on_spark(df):
    try:
        return df.pandas_api()
    except ImportError:
        pytest.skip("this Spark does not know this pandas")


@pytest.mark.parametrize(
    ("change", "options", "error", "match"),
    [
        (no_work, {"label": None}, TypeError, "needs the name of the column of labels: label='y'"),
        (no_work, {"label": "Y"}, ValueError, "df: it has no column 'Y', only .* did you mean 'y'"),
        (no_work, {"weight": "x"}, ValueError, "df: it has no column 'x'"),
        (lambda df: no_work(df).drop("b"), {}, ValueError, "df: it lacks columns of the model: 'b'"),
        (no_work, {"features": ["a", "x", "c"]}, ValueError, "df: it has no column 'x'"),
        (no_work, {"features": ["a", "b"]}, ValueError, "X has 2 columns, the model was trained on 3"),
        (with_text("y"), {}, TypeError, "label='y' is a column of type string, not of numbers"),
        (with_text("b"), {}, ValueError, "df: column 'b' has type string; make it"),
        (
            lambda df: VectorAssembler(inputCols=["a", "b"], outputCol="v").transform(df),
            {"features": "v"},
            ValueError,
            "df: column 'v' has vectors of 2 numbers, the model was trained on 3",
        ),
        (
            lambda df: df.withColumn("v", functions.array(functions.lit("a"))),
            {"features": "v"},
            TypeError,
            "column 'v' holds arrays of string, not of numbers",
        ),
        (as_pandas_on_spark, {}, TypeError, r"df is a pyspark DataFrame: give df.to_spark\(\)"),
        (lambda df: df.toPandas(), {}, TypeError, "df is a pandas DataFrame: give a pyspark.sql.DataFrame"),
        (lambda df: df.where("key < 0"), {}, ValueError, "there are no rows"),
    ],
)
def test_before_any_work(change, options, error, match, session, rows, booster):
    with pytest.raises(error, match=match):
        pgbm_spark.wrap(booster, change(in_parts(session, rows)), **{"label": "y", **options})


def replaced(name, where, by):
    """A frame with another value in some rows."""
    return lambda df: df.withColumn(name, functions.expr(f"if({where}, {by}, {name})"))


@pytest.mark.parametrize(
    ("change", "options", "match"),
    [
        (replaced("y", "key in (5, 6)", "null"), {}, r"partition 0: 'y' is null or NaN in 2 of 100 rows.*dropna"),
        (replaced("y", "key in (105, 106)", "double('nan')"), {}, "partition 1: 'y' is null or NaN in 2 of 100 rows"),
        (
            replaced("y", "key > 100", "null"),
            {},
            r"partition 1: 'y' is null .* 99 of 100.*\(1 further partitions fail\)",
        ),
        (replaced("d", "key = 250", "null"), {"weight": "d"}, "partition 2: 'd' is null or NaN in 1 of 100 rows"),
        (lambda df: df, {"weight": "c"}, "partition 0: weight must not be negative"),
    ],
)
@pytest.mark.parametrize("start", ["mean label", "zero"])
def test_in_a_partition(start, change, options, match, session, rows, booster):
    """In the pass over the labels, or in that over the rows if boosting does not start from the mean label."""
    if start == "zero":
        booster = lgb.train({**LGB, "boost_from_average": False}, lgb.Dataset(rows[NAMES], rows["y"]), 2)
    df = session.createDataFrame(rows).repartitionByRange(3, "key")
    with pytest.raises(ValueError, match=match):
        pgbm_spark.wrap(booster, change(df), label="y", **options)


def test_vectors_of_another_length(session, rows, booster):
    df = session.createDataFrame(rows).repartitionByRange(3, "key").withColumn("v", functions.array(*NAMES))
    for by, match in (
        ("array(a, b)", "a vector has 2 numbers, the model was trained on 3"),
        ("null", "are null"),
    ):
        broken = replaced("v", "key = 150", by)(df)
        with pytest.raises(ValueError, match=f"partition 1: .*{match}"):
            pgbm_spark.wrap(booster, broken, label="y", features="v")
        lazy = pgbm_spark.SparkModel(wrap(booster, rows[NAMES], rows["y"]), features="v").predict(broken)
        with pytest.raises(PythonException, match=match):
            lazy.collect()


def test_predictions(session, rows, booster):
    lazy = pgbm_spark.SparkModel(wrap(booster, rows[NAMES], rows["y"]))
    df = no_work(in_parts(session, rows))
    for change, match in (
        (lambda df: df.drop("b"), "df: it lacks columns of the model: 'b'"),
        (with_text("b"), "df: column 'b' has type string"),
        (lambda df: df.withColumnRenamed("y", "Mean"), "df has a column 'Mean', as a predicted one is called"),
    ):
        with pytest.raises(ValueError, match=match):
            lazy.predict(change(df))
    with pytest.raises(ValueError, match="quantiles must lie"):
        lazy.predict(df, quantiles=[5])


def test_layers_around_a_booster(session, rows):
    """Their steps take rows in memory: not in training, but of each batch to predict."""
    scaler, regressor = StandardScaler().set_output(transform="pandas"), lgb.LGBMRegressor(n_estimators=2, verbose=-1)
    pipeline = make_pipeline(scaler, regressor).fit(rows[NAMES], rows["y"])
    df = in_parts(session, rows)
    with pytest.raises(TypeError, match="a Spark frame cannot pass through the layers around a booster"):
        pgbm_spark.wrap(pipeline, df, label="y")
    model = wrap(pipeline, rows[NAMES], rows["y"])
    found = sorted_frame(pgbm_spark.SparkModel(model).predict(df))
    assert np.array_equal(found["q05"], model.predict_frame(rows[NAMES])["q05"])


def test_the_other_wrap(session, rows, booster):
    with pytest.raises(TypeError, match=r"X is a Spark frame: call pgbm_plugin\.spark\.wrap"):
        wrap(booster, in_parts(session, rows), label="y")
    with pytest.raises(TypeError, match=r"X is a Spark frame: call pgbm_plugin\.spark\.wrap"):
        wrap(booster, in_parts(session, rows), rows["y"])
    model = wrap(booster, rows[NAMES], rows["y"])
    for call in (model.predict, model.predict_dist, model.predict_support, lambda X: model.tune(X, rows["y"])):
        with pytest.raises(TypeError, match=r"not read into memory: pgbm_plugin\.spark wraps and predicts it"):
            call(in_parts(session, rows).select(*NAMES))


def test_a_session_that_was_stopped(session, rows, booster):
    df = in_parts(session, rows)
    stop()
    with pytest.raises(ValueError, match="the SparkSession of df was stopped"):
        pgbm_spark.wrap(booster, df, label="y")
