"""Tables without rows: predictions are empty, in the shape and type of others; whatever learns from rows refuses."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import xgboost as xgb

from pgbm_plugin import load, wrap
from pgbm_plugin.cli import main
from pgbm_plugin.distributions import FAMILIES

LGB = {"num_leaves": 8, "min_data_in_leaf": 10, "num_threads": 1, "verbose": -1}
NAMES = list("abcd")


@pytest.fixture(scope="module", params=["regression", "poisson", "xgboost", "boosted", "conformal"])
def model(request, numeric):
    X, y = numeric
    if request.param == "xgboost":
        booster = xgb.train({"max_depth": 3, "nthread": 1}, xgb.DMatrix(X, y, feature_names=NAMES), 5)
    else:
        label = np.abs(y) if request.param == "poisson" else y
        params = {**LGB, "objective": "poisson" if request.param == "poisson" else "regression"}
        booster, y = lgb.train(params, lgb.Dataset(X, label, feature_name=NAMES), 5), label
    wrapped = wrap(booster, X, y, variance="boosted" if request.param == "boosted" else "pgbm")
    if request.param == "conformal":
        wrapped.conformalize(X[:100], y[:100])
    return wrapped


def frame(X):
    return pd.DataFrame(X, columns=NAMES)


TABLES = {
    "numpy": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "integers": lambda X: X.astype(np.int32),
    "object": lambda X: X.astype(object),
    "pandas": frame,
    "polars": lambda X: pl.from_pandas(frame(X)),
    "arrow": lambda X: pa.Table.from_pandas(frame(X), preserve_index=False),
    "sparse": sp.csr_matrix,
}


@pytest.mark.parametrize("form", TABLES)
def test_predictions_are_empty(model, form, numeric):
    some, none = TABLES[form](numeric[0][:3]), TABLES[form](numeric[0][:0])
    for predict in (
        model.predict,
        lambda X: model.predict(X, return_std=True)[1],
        model.predict_var,
        model.predict_interval,
        lambda X: model.predict_quantiles(X, [0.1, 0.5, 0.9]),
    ):
        expected, found = predict(some), predict(none)
        assert found.shape == (0, *expected.shape[1:])
        assert found.dtype == expected.dtype
    assert list(model.predict_columns(none, [0.5], [0.9])) == list(model.predict_columns(some, [0.5], [0.9]))
    if model.chosen.scale is None:
        assert model.explain_variance(none).shape == (0, 5)


def test_every_family(model, numeric):
    for name, family in FAMILIES.items():
        if family.needs_residuals and model.distribution != name:
            continue
        d = model.predict_dist(numeric[0][:0], name)
        assert len(d) == 0
        for values in (d.mean(), d.var(), d.median(), d.rvs(), d.cdf(1.0), d.crps(0.5), *d.interval(0.9)):
            assert values.shape == (0,)
        assert d.ppf([0.1, 0.9]).shape == d.rvs(2).shape == (0, 2)


def test_other_tables_are_still_refused(model):
    with pytest.raises(ValueError, match="X has 3 columns"):
        model.predict(np.empty((0, 3)))
    with pytest.raises(ValueError, match=r"missing \['d'\]"):
        model.predict(pd.DataFrame(np.empty((0, 3)), columns=NAMES[:3]))
    with pytest.raises(ValueError, match="two dimensions"):
        model.predict([])


def test_nothing_is_learned_from_no_rows(model, numeric):
    booster = lgb.train(LGB, lgb.Dataset(*numeric), 2)
    X, y = numeric[0][:0], numeric[1][:0]
    for call, match in (
        (lambda: wrap(booster, X, y), "X has no rows"),
        (lambda: model.tune(X, y), "tune needs at least 6 rows, it got 0"),
        (lambda: model.conformalize(X, y), "conformalize needs at least 2 rows, it got 0"),
    ):
        with pytest.raises(ValueError, match=match):
            call()


def test_streams_and_files(model, numeric, tmp_path, capsys):
    X = frame(numeric[0])
    (empty,) = model.predict_dist(iter([X[:0], X[:0]]))
    assert len(empty) == 0
    assert [len(d) for d in model.predict_dist(iter([X[:0], X[:2], X[:0]]))] == [2]
    X[:0].assign(key="a").to_parquet(tmp_path / "none.parquet")
    X[:0].assign(key="a").to_csv(tmp_path / "none.csv", index=False)
    columns = ["key", "mean", "std", "q50"]
    for source in (X[:0].assign(key="a"), tmp_path / "none.parquet", tmp_path / "none.csv"):
        assert model.predict_parquet(source, tmp_path / "out.parquet", quantiles=[0.5], keep=["key"]) == 0
        table = pq.read_table(tmp_path / "out.parquet")
        assert (table.column_names, len(table)) == (columns, 0)
        assert set(table.schema.types[1:]) == {pa.float64()}
    with pytest.raises(ValueError, match="X has no tables"):
        model.predict_parquet(iter([]), tmp_path / "out.parquet")
    model.save(tmp_path / "m.pgbm")
    load(tmp_path / "m.pgbm")
    words = ["predict", str(tmp_path / "m.pgbm"), str(tmp_path / "none.csv"), "-o", str(tmp_path / "out.csv")]
    assert main([*words, "--quantiles", ".5", "--keep", "key"]) == 0
    assert (tmp_path / "out.csv").read_text() == ",".join(columns) + "\n"
    assert capsys.readouterr().out.startswith("0 rows")
