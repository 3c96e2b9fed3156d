"""Models wrapped inside scikit-learn's pipelines and searches: the same as wrapping the booster with prepared rows."""

from __future__ import annotations

import pickle

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, KFold, RandomizedSearchCV, cross_val_predict
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler

from pgbm_plugin import load, out_of_fold, partial_moments, wrap
from pgbm_plugin.report import report
from tests.people.commands import run


@pytest.fixture(scope="module")
def table():
    """Return rows with text, numbers and missing values, and their labels."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=300), "town": rng.choice(["x", "y", "z"], 300), "b": rng.normal(size=300)})
    y = np.exp(0.5 * X["a"] + 0.3 * (X["town"] == "y") + 0.2 * rng.normal(size=300)).to_numpy()
    X.loc[::7, "b"] = np.nan
    return X, y


def encoder(**options):
    return ColumnTransformer(
        [("towns", OneHotEncoder(handle_unknown="ignore", **options), ["town"])], remainder=StandardScaler()
    )


def nested(kind, regressor):
    """Return an unfitted estimator around a regressor."""
    steps = [("encode", encoder()), ("none", "passthrough"), ("booster", regressor)]
    grid = {"n_estimators": [4, 6]}
    return {
        "pipeline": Pipeline(steps),
        "pipelines": make_pipeline(
            encoder(sparse_output=False), make_pipeline(SimpleImputer(), PCA(2, random_state=0), regressor)
        ),
        "search": GridSearchCV(Pipeline(steps), {"booster__n_estimators": [4, 6]}, cv=2),
        "inner search": make_pipeline(encoder(), RandomizedSearchCV(regressor, grid, n_iter=2, cv=2)),
        "frames": make_pipeline(encoder(sparse_output=False).set_output(transform="pandas"), regressor),
    }[kind]


@pytest.mark.parametrize("kind", ["pipeline", "pipelines", "search", "inner search", "frames"])
def test_equals_the_booster_with_prepared_rows(kind, regressor, table):
    X, y = table
    around = nested(kind, regressor).fit(X, y)
    inside = around.best_estimator_ if kind == "search" else around
    Z, booster = inside[:-1].transform(X), inside[-1]
    while hasattr(booster, "steps") or hasattr(booster, "best_estimator_"):
        Z = booster[:-1].transform(Z) if hasattr(booster, "steps") else Z
        booster = booster[-1] if hasattr(booster, "steps") else booster.best_estimator_
    model, plain = wrap(around, X, y), wrap(booster, Z, y)
    assert model.certificate.status == "certified"
    assert np.array_equal(model.predict(X), around.predict(X))
    for one, table_ in ((model, X), (plain, Z)):
        one.tune(table_, y, out_of_fold=y + np.sin(np.arange(len(y))), distributions="normal", rho=0.1)
        one.update(table_[:50], y[:50])
    assert np.array_equal(model.predict_quantiles(X[:9], [0.1, 0.9]), plain.predict_quantiles(Z[:9], [0.1, 0.9]))
    assert np.array_equal(model.explain_variance(X[:9]), plain.explain_variance(Z[:9]))
    for one, table_ in ((model, X), (plain, Z)):
        one.conformalize(table_[:50], y[:50] + 0.01)
    assert np.array_equal(model.predict_interval(X), plain.predict_interval(Z))
    assert "rows pass through 'columntransformer'" in repr(model).replace("'encode'", "'columntransformer'")


def test_copies_and_files(regressor, table, tmp_path, capsys):
    X, y = table
    around = nested("pipeline", regressor).fit(X, y)
    model = wrap(around, X, y)
    model.rho = 0.1
    again = pickle.loads(pickle.dumps(model))  # noqa: S301
    assert np.array_equal(again.predict_interval(X), model.predict_interval(X))
    model.save(tmp_path / "model.pgbm")
    with pytest.raises(ValueError, match=r"rows pass through 'encode' \(ColumnTransformer\): give load\(path, around="):
        load(tmp_path / "model.pgbm")
    loaded = load(tmp_path / "model.pgbm", around=around)
    assert np.array_equal(loaded.predict_interval(X), model.predict_interval(X))
    inner = load(tmp_path / "model.pgbm", around=False)
    assert np.array_equal(inner.predict(around[:-1].transform(X)), around.predict(X))
    assert "left out that rows pass through 'encode'" in repr(inner)
    with pytest.raises(ValueError, match="another estimator than the one that was wrapped: there rows pass"):
        load(tmp_path / "model.pgbm", around=around[-1])
    with pytest.raises(ValueError, match="holds another booster"):
        load(tmp_path / "model.pgbm", around=clone(around).fit(X, y + X["a"]))
    shown, _ = run(capsys, "inspect", tmp_path / "model.pgbm")
    assert "left out:     rows pass through 'encode' (ColumnTransformer)" in shown
    inner.save(tmp_path / "again.pgbm")
    with pytest.raises(ValueError, match="the booster's part"):
        load(tmp_path / "again.pgbm")


def test_folds_fit_every_step_anew(regressor, table):
    """Predictions are those of scikit-learn, which clones the whole pipeline: no step has seen the test rows."""
    X, y = table
    X = X.assign(town=np.where(np.arange(len(X)) < 12, "rare", X["town"]))  # in one fold only: its columns differ
    for pipeline in (
        make_pipeline(encoder(), regressor),
        make_pipeline(encoder(sparse_output=False).set_output(transform="pandas"), regressor),
        make_pipeline(encoder(sparse_output=False), SimpleImputer(), SelectKBest(f_regression, k=2), clone(regressor)),
    ):
        cv = KFold(3)
        expected = cross_val_predict(pipeline, X, y, cv=cv)
        pipeline.fit(X, y)
        assert np.array_equal(out_of_fold(pipeline, X, y, cv=cv), expected)
        model, by_hand = wrap(pipeline, X, y, cv=cv), wrap(pipeline, X, y)
        by_hand.tune(X, y, out_of_fold=expected)
        assert np.array_equal(model.predict_interval(X), by_hand.predict_interval(X))


def test_folds_with_weights_and_categories(regressor, table):
    X, y = table
    codes = ColumnTransformer([("town", OrdinalEncoder(dtype=int), ["town"])], remainder="passthrough")
    codes.set_output(transform="pandas")

    def as_categories(frame):
        return frame.astype({"town__town": "category"})

    if isinstance(regressor, xgb.XGBRegressor):
        regressor.set_params(enable_categorical=True)
    pipeline, weight = make_pipeline(codes, FunctionTransformer(as_categories), regressor), np.linspace(0.5, 2, len(y))
    name = f"{pipeline.steps[-1][0]}__sample_weight"
    expected = np.full(len(y), np.nan)
    for train, test in KFold(3).split(X):
        fold = clone(pipeline).fit(X.iloc[train], y[train], **{name: weight[train]})
        expected[test] = fold.predict(X.iloc[test])
    pipeline.fit(X, y, **{name: weight})
    assert wrap(pipeline, X, y, sample_weight=weight).certificate.status == "certified"
    found = out_of_fold(pipeline, X, y, cv=KFold(3), sample_weight=weight)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_streams(regressor, table, tmp_path):
    pytest.importorskip("pyarrow")
    X, y = table
    pipeline = nested("pipeline", regressor).fit(X, y)
    model = wrap(pipeline, X, y)
    model.rho = model.default_rho
    expected = model.predict_interval(X)
    rows = X.assign(key=np.arange(len(y)), y=y)[["y", "key", "b", "town", "a"]]
    rows.to_parquet(tmp_path / "rows.parquet")
    parts = [slice(0, 100), slice(100, 101), slice(101, 300)]
    moments = [partial_moments(pipeline, X[part], y[part]) for part in parts]
    for source in (
        ({"X": ((X[part], y[part]) for part in parts)}),
        ({"X": (rows[part] for part in parts), "label": "y"}),
        ({"X": str(tmp_path / "rows.parquet"), "label": "y"}),
        ({"X": moments[0].merge(moments[1]).merge(moments[2])}),
    ):
        streamed = wrap(pipeline, **source)
        assert streamed.certificate.status == "certified"
        streamed.rho = streamed.default_rho
        np.testing.assert_allclose(streamed.predict_interval(X), expected, rtol=1e-6)
    new = str(tmp_path / "rows.parquet")
    for source in (new, iter([X[part] for part in parts]), iter([rows[part] for part in parts])):
        found = np.concatenate([batch.interval(0.9) for batch in model.predict_dist(source)], axis=1)
        assert np.array_equal(found.T, expected)
    model.predict_parquet(new, tmp_path / "out.parquet", intervals=[0.9], keep=["key"])
    out = pd.read_parquet(tmp_path / "out.parquet")
    assert np.array_equal(out[["lower90", "upper90"]], expected)
    assert np.array_equal(out["mean"], pipeline.predict(X).astype(float))
    before = model.moments.rows
    assert model.update((X[part], y[part]) for part in parts).moments.rows == 2 * before


def test_report_takes_the_users_rows(table):
    X, y = table
    pipeline = nested("pipeline", lgb.LGBMRegressor(n_estimators=4, verbose=-1)).fit(X, y)
    model = wrap(pipeline, X, y, cv=3)
    assert "<html" in report(model, X, y + 0.01)


def test_frozen(regressor, table):
    X, y = table
    pipeline = nested("pipeline", regressor).fit(X, y)
    model = wrap(FrozenEstimator(pipeline), X, y)
    assert np.array_equal(model.predict(X), pipeline.predict(X))


class Dropping(TransformerMixin, BaseEstimator):
    """Drops rows with missing values, as a step must not."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X.dropna() if hasattr(X, "dropna") else X


class Resampling(BaseEstimator):
    def fit_resample(self, X, y):
        return X[:10], y[:10]


@pytest.mark.parametrize(
    ("case", "error", "match"),
    [
        ("unfitted", ValueError, "this LGBMRegressor is not fitted; call fit first"),
        ("unfitted search", ValueError, "this GridSearchCV has no best_estimator_: fit with refit=True"),
        ("not a booster", TypeError, "the last step 'rf' of the Pipeline is not a booster: cannot wrap a RandomForest"),
        ("no estimator", TypeError, "the last step 'last' of the Pipeline is not a booster: cannot wrap a str"),
        ("resampling", TypeError, r"step 'smote' \(Resampling\) changes the rows of training.*wrap\(pipeline\[-1\]"),
        ("dropping", ValueError, r"step 'dropping' \(Dropping\) makes 257 rows of 300"),
        ("missing column", ValueError, r"step 'columntransformer' \(ColumnTransformer\) cannot transform X .*town"),
        ("data set", TypeError, "a Dataset cannot pass through the steps of a pipeline"),
    ],
)
def test_misuse(case, error, match, table):
    X, y = table
    booster = lgb.LGBMRegressor(n_estimators=2, verbose=-1)
    around = make_pipeline(encoder(), booster)
    if case.startswith("unfitted"):
        around = around if case == "unfitted" else GridSearchCV(around, {})
    elif case == "not a booster":
        around = Pipeline([("encode", encoder()), ("rf", RandomForestRegressor(2))]).fit(X, y)
    elif case == "no estimator":
        around = Pipeline([("encode", encoder()), ("last", "passthrough")])
    elif case in ("resampling", "dropping"):
        name, step = ("smote", Resampling()) if case == "resampling" else ("dropping", Dropping())
        around = Pipeline([(name, step), ("booster", booster.fit(X[["a"]], y))])
    else:
        around.fit(X, y)
        X = X.drop(columns="town") if case == "missing column" else lgb.Dataset(np.ones((3, 3)), np.ones(3))
    with pytest.raises(error, match=match):
        wrap(around, X, y)


def test_dask_is_refused(table):
    dd = pytest.importorskip("dask.dataframe")
    X, y = table
    pipeline = make_pipeline(encoder(), lgb.LGBMRegressor(n_estimators=2, verbose=-1)).fit(X, y)
    frame = dd.from_pandas(X, npartitions=2)
    with pytest.raises(TypeError, match="a Dask collection cannot pass through the layers around a booster"):
        wrap(pipeline, frame, dd.from_pandas(pd.Series(y), npartitions=2))


def test_numbers_out_of_selected_columns(regressor, table):
    """A step that drops columns by itself: further columns of new rows do not matter, as in the pipeline."""
    X, y = table
    numbers = ColumnTransformer([("numbers", "passthrough", make_column_selector(dtype_include="number"))])
    pipeline = make_pipeline(numbers, regressor).fit(X, y)
    assert np.array_equal(wrap(pipeline, X, y).predict(X), pipeline.predict(X))
