"""The flavor of MLflow: round trips, signatures, serving, the registry; nothing half-written."""

from __future__ import annotations

import json
import sys

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pgbm_plugin import wrap
from tests.small import LGB, XGB

mlflow = pytest.importorskip("mlflow")

import pgbm_plugin.mlflow as flavor  # noqa: E402

# MLflow calls what its own dependencies deprecate, and asks for examples
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 3)), columns=list("abc"))
    return X, X["a"] + rng.normal(size=300)


@pytest.fixture(scope="module")
def model(rows):
    X, y = rows
    return wrap(lgb.train(LGB, lgb.Dataset(X, y), 5), X, y, cv=2)


@pytest.fixture(scope="module")
def saved(model, rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("mlflow") / "model"
    flavor.save_model(model, path, input_example=rows[0][:5])
    return path


def test_round_trip(saved, model, rows):
    X, _ = rows
    loaded = flavor.load_model(saved, n_jobs=1)
    assert np.array_equal(loaded.predict_quantiles(X, [0.1, 0.9]), model.predict_quantiles(X, [0.1, 0.9]))
    assert loaded.n_jobs == 1
    predictor = mlflow.pyfunc.load_model(str(saved))
    pd.testing.assert_frame_equal(predictor.predict(X), model.predict_frame(X))
    asked = predictor.predict(X, params={"quantiles": [0.1], "coverage": 0.8})
    pd.testing.assert_frame_equal(asked, model.predict_frame(X, [0.1], [0.8]))
    assert np.array_equal(predictor.get_raw_model().predict(X), model.predict(X))


def test_no_pickle_and_requirements(saved):
    assert not [file.name for file in saved.rglob("*") if file.suffix in (".pkl", ".pickle", ".joblib")]
    assert "pgbm-plugin==" in (saved / "requirements.txt").read_text()
    assert (saved / "data" / "model.pgbm").is_file()


def test_signature(saved):
    signature = mlflow.models.get_model_info(str(saved)).signature
    assert signature.inputs.input_names() == ["a", "b", "c"]
    assert signature.outputs.input_names() == ["mean", "std", "q05", "q50", "q95"]
    assert [spec.name for spec in signature.params] == ["quantiles", "coverage"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X[["a", "b"]], "missing inputs \\['c'\\]"),
        (lambda X: X.assign(a="much"), "convert column a from type"),
    ],
)
def test_input_of_another_signature(saved, rows, change, message):
    with pytest.raises(mlflow.MlflowException, match=message):
        mlflow.pyfunc.load_model(str(saved)).predict(change(rows[0][:3]))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"quantiles": [1.5]}, "quantiles must lie strictly between 0 and 1"),
        ({"coverage": 2.0}, "intervals must lie strictly between 0 and 1"),
        ({"quantiles": 0.5}, "must be a 1D array"),
    ],
)
def test_bad_params(saved, rows, params, message):
    with pytest.raises((ValueError, mlflow.MlflowException), match=message):
        mlflow.pyfunc.load_model(str(saved)).predict(rows[0][:3], params=params)


def test_without_an_example_the_model_checks_its_rows(model, rows, tmp_path):
    flavor.save_model(model, tmp_path / "model")
    predictor = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    assert list(predictor.predict(rows[0][:3], params={"coverage": 0.9}).columns[-2:]) == ["lower90", "upper90"]
    with pytest.raises(ValueError, match=r"trained on 3: missing \['c'\]"):
        predictor.predict(rows[0][["a", "b"]])


def test_a_given_signature_gets_the_params(model, rows, tmp_path):
    given = mlflow.models.infer_signature(rows[0])
    flavor.save_model(model, tmp_path / "model", signature=given)
    found = mlflow.models.get_model_info(str(tmp_path / "model")).signature
    assert found.inputs == given.inputs
    assert [spec.name for spec in found.params] == ["quantiles", "coverage"]


def test_serving(saved, model, rows):
    """Predict from the text of a request, as a server of MLflow does, without a server."""
    from mlflow.pyfunc.scoring_server import invocations

    X = rows[0][:3]
    predictor = mlflow.pyfunc.load_model(str(saved))
    request = {"dataframe_split": X.to_dict("split"), "params": {"quantiles": [0.5], "coverage": 0.9}}
    response = invocations(json.dumps(request), "application/json", predictor, predictor.metadata.get_input_schema())
    found = pd.DataFrame(json.loads(response.response)["predictions"])
    pd.testing.assert_frame_equal(found, model.predict_frame(X, [0.5], [0.9]))


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
def test_categories_come_as_text(kind, rows, tmp_path):
    X, y = rows
    X = X.assign(town=pd.Categorical(np.random.default_rng(1).choice(["Ulm", "Trier", "Jena"], 300)))
    y = y + 3.0 * (X["town"] == "Jena")
    if kind == "lightgbm":
        booster = lgb.train(LGB, lgb.Dataset(X, y), 5)
    else:
        booster = xgb.train(XGB, xgb.DMatrix(X, y, enable_categorical=True), 5)
    model = wrap(booster, X, y, cv=2)
    flavor.save_model(model, tmp_path / "model", input_example=X[:5])
    predictor = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    expected = model.predict_frame(X[5:9])
    pd.testing.assert_frame_equal(predictor.predict(X[5:9].astype({"town": object})), expected)


def test_logged_and_registered(model, rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    try:
        with mlflow.start_run():
            info = flavor.log_model(model, "prices", input_example=rows[0][:3], registered_model_name="prices")
        for uri in (info.model_uri, "models:/prices/1"):
            assert np.array_equal(flavor.load_model(uri).predict_var(rows[0]), model.predict_var(rows[0]))
    finally:
        mlflow.set_tracking_uri(before)


def test_spark_udf(saved, model, rows, monkeypatch):
    pytest.importorskip("pyspark")
    from pyspark.sql import SparkSession

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    before, builder = SparkSession.getActiveSession(), SparkSession.builder.master("local[2]")
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(name, "127.0.0.1")
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    try:
        frame = session.createDataFrame(rows[0].assign(key=range(300))).repartition(2)
        columns = "mean double, std double, q10 double"
        udf = mlflow.pyfunc.spark_udf(session, str(saved), columns, params={"quantiles": [0.1]}, env_manager="local")
        found = frame.withColumn("found", udf("a", "b", "c")).select("key", "found.*").toPandas().sort_values("key")
    finally:
        if before is None:
            session.stop()
    assert np.array_equal(found[["mean", "std", "q10"]], model.predict_frame(rows[0], [0.1]))


def test_nothing_is_left_of_a_failure(model, rows, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.yaml"):
        flavor.save_model(model, tmp_path / "model", input_example=rows[0][:3], conda_env="nowhere.yaml")
    assert list(tmp_path.iterdir()) == []
    flavor.save_model(model, tmp_path / "model", input_example=rows[0][:3])
    with pytest.raises(FileExistsError, match=r"model' is there already: give a new directory"):
        flavor.save_model(model, tmp_path / "model")
    assert [folder.name for folder in tmp_path.iterdir()] == ["model"]


def test_what_is_no_whole_model_is_refused(rows, tmp_path):
    X, y = rows
    pipeline = make_pipeline(StandardScaler(), lgb.LGBMRegressor(n_estimators=2, n_jobs=1, verbose=-1)).fit(X, y)
    with pytest.raises(ValueError, match=r"rows pass through 'standardscaler'.*wrap the booster alone"):
        flavor.save_model(wrap(pipeline, X, y), tmp_path / "model")
    with pytest.raises(TypeError, match="a ProbabilisticModel is needed, not Pipeline: make one with wrap"):
        flavor.log_model(pipeline)
    assert list(tmp_path.iterdir()) == []


def test_models_of_other_flavors_are_refused(tmp_path, rows):
    mlflow.pyfunc.save_model(str(tmp_path / "model"), loader_module="json", pip_requirements=[])
    with pytest.raises(ValueError, match=r"is not a model of pgbm_plugin\.mlflow, but of python_function"):
        flavor.load_model(tmp_path / "model")
