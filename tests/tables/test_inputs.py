"""Every kind of table, column and model file gives the same bits for the same numbers."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal

import lightgbm as lgb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import xgboost as xgb

from pgbm_plugin import wrap
from pgbm_plugin.tables.columns import read_column
from tests.tables.whole_numbers import integers, with_gaps

LGB = {"num_leaves": 8, "min_data_in_leaf": 10, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 3, "nthread": 1}
NAMES = list("abcd")


def train(kind, X, y):
    if kind == "lightgbm":
        return lgb.train(LGB, lgb.Dataset(X, y), 5)
    return xgb.train(XGB, xgb.DMatrix(X, y, enable_categorical=True), 5)


both = pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])


def every_other(X):
    wide = np.empty((2 * X.shape[0], 3 * X.shape[1]), X.dtype)
    wide[::2, ::3] = X
    return wide[::2, ::3]


WHOLE_NUMBERS = {
    "float64": lambda X: X.astype(np.float64),
    "float32": lambda X: X.astype(np.float32),
    "float16": lambda X: X.astype(np.float16),
    "int64": lambda X: X.astype(np.int64),
    "int8": lambda X: X.astype(np.int8),
    "big-endian": lambda X: X.astype(">f8"),
    "fortran": lambda X: np.asfortranarray(X, np.float64),
    "strided": lambda X: every_other(X.astype(np.float64)),
    "reversed": lambda X: X.astype(np.float64)[::-1][::-1],
    "read-only": lambda X: np.frombuffer(X.astype(np.float64).tobytes()).reshape(X.shape),
    "list": lambda X: X.tolist(),
    "object": lambda X: X.astype(object),
    "pandas": lambda X: pd.DataFrame(X),
    "pandas-mixed": lambda X: pd.DataFrame(X).astype({0: "int8", 1: "float32", 2: "Int64", 3: "Float32"}),
    "pandas-arrow": lambda X: pd.DataFrame(X).astype("int32[pyarrow]"),
    "polars": lambda X: pl.DataFrame(X, schema=[str(i) for i in range(X.shape[1])], orient="row"),
    "arrow": lambda X: pa.table([*X.T], names=[str(i) for i in range(X.shape[1])]),
    "torch": lambda X: pytest.importorskip("torch").tensor(X),
    "torch-grad": lambda X: pytest.importorskip("torch").tensor(X.astype(float), requires_grad=True),
}


@both
@pytest.mark.parametrize("form", WHOLE_NUMBERS)
def test_whole_numbers(kind, form):
    X, y = integers()
    booster = train(kind, X.astype(float), y)
    expected = wrap(booster, X.astype(float), y)
    table = WHOLE_NUMBERS[form](X)
    model = wrap(booster, table, y)
    assert model.certificate == expected.certificate
    assert np.array_equal(model.predict(table), expected.predict(X))
    assert np.array_equal(model.predict_var(table), expected.predict_var(X))


def nulls(X):
    return [[None if np.isnan(v) else int(v) for v in column] for column in X.T]


def nullable(X):
    return pd.DataFrame({name: pd.array(column, "Int64") for name, column in zip(NAMES, nulls(X), strict=True)})


def chunked(X):
    table = pa.table(nulls(X), names=NAMES)
    return pa.concat_tables([table.slice(0, 1), table.slice(1, 120), table.slice(121)])


GAPS = {
    "numpy": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "pandas": lambda X: pd.DataFrame(X, columns=NAMES),
    "pandas-NA": nullable,
    "pandas-arrow": lambda X: nullable(X).astype("int64[pyarrow]"),
    "polars-null": lambda X: pl.DataFrame(nulls(X), schema=NAMES),
    "polars-NaN": lambda X: pl.DataFrame(list(X.T), schema=NAMES),
    "arrow-null": lambda X: pa.table(nulls(X), names=NAMES),
    "arrow-chunks": chunked,
    "arrow-batch": lambda X: pa.RecordBatch.from_arrays([pa.array(c) for c in nulls(X)], NAMES),
    "torch": lambda X: pytest.importorskip("torch").from_numpy(X),
}


@both
@pytest.mark.parametrize("form", GAPS)
def test_missing_values(kind, form):
    X, y = with_gaps()
    booster = train(kind, pd.DataFrame(X, columns=NAMES), y)
    expected = wrap(booster, X, y)
    table = GAPS[form](X)
    model = wrap(booster, table, y)
    assert model.certificate == expected.certificate
    assert np.array_equal(model.predict(table), expected.predict(X))
    assert np.array_equal(model.predict_var(table), expected.predict_var(X))


@both
def test_booleans(kind):
    X, y = integers()
    X = X > 0
    booster = train(kind, X.astype(float), y)
    expected = wrap(booster, X.astype(float), y).predict_var(X.astype(float))
    columns = [pa.array(c) for c in X.T]
    for table in (X, pd.DataFrame(X), pl.DataFrame(X), pa.table(columns, names=NAMES)):
        assert np.array_equal(wrap(booster, table, y).predict_var(table), expected)
    table = pytest.importorskip("torch").tensor(X)
    assert np.array_equal(wrap(booster, table, y).predict_var(table), expected)


@both
@pytest.mark.parametrize("table", [np.asarray, pd.DataFrame, lambda X: X.astype(float)], ids=["int", "frame", "float"])
def test_integers_that_float32_does_not_hold(kind, table):
    """Around 2^24 the boosters round some inputs and not others: as they predict, so do we."""
    X, y = integers()
    X = table(2**24 + X)
    booster = train(kind, X, y)
    want = booster.predict(X if kind == "lightgbm" else xgb.DMatrix(X))
    assert np.array_equal(wrap(booster, X, y).predict(X), want)


def raw_csr(X):
    """Indices out of order, and explicit zeros."""
    out = sp.csr_matrix(np.where(X == 0, 7, X))
    out.data[out.data == 7] = 0
    for i in range(out.shape[0]):
        part = slice(out.indptr[i], out.indptr[i + 1])
        out.indices[part], out.data[part] = out.indices[part][::-1].copy(), out.data[part][::-1].copy()
    out.has_sorted_indices = out.has_canonical_format = False
    return out


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix, sp.csr_array, sp.coo_array, raw_csr])
def test_sparse(form, dtype):
    """An entry that is not stored is 0 to LightGBM and missing to XGBoost; a stored 0 is 0 to both."""
    X, y = integers()
    sparse = form(X.astype(dtype))
    booster = lgb.train(LGB, lgb.Dataset(X.astype(float), y), 5)
    model = wrap(booster, sparse, y)
    assert np.array_equal(model.predict(sparse), booster.predict(X.astype(float)))
    assert model.certificate.status == "certified"

    booster = xgb.train(XGB, xgb.DMatrix(sp.csr_matrix(sparse, dtype=np.float64), y), 5)
    model = wrap(booster, sparse, y)
    dense = X.astype(float) if form is raw_csr else np.where(X == 0, np.nan, X)
    assert np.array_equal(model.predict(sparse), booster.predict(xgb.DMatrix(dense)))
    assert model.certificate.status == "certified"


def categorical_tables(X):
    """One frame of strings as each library has it."""
    values = X["c"].astype(object).where(X["c"].notna(), None).tolist()
    names = X["c"].cat.categories.tolist()
    x = X["x"].tolist()
    dictionary = pa.array(values, pa.string()).dictionary_encode()
    halves = [pa.table({"x": x[a:b], "c": pa.array(values[a:b]).dictionary_encode()}) for a, b in ((0, 50), (50, None))]
    return {
        "pandas": X,
        "polars-categorical": pl.DataFrame({"x": x, "c": pl.Series(values, dtype=pl.Categorical)}),
        "polars-enum": pl.DataFrame({"x": x, "c": pl.Series(values, dtype=pl.Enum(names[::-1]))}),
        "arrow": pa.table({"x": x, "c": dictionary}),
        "arrow-chunks": pa.concat_tables(halves),  # whose dictionaries differ
    }


@both
@pytest.mark.parametrize("form", ["pandas", "polars-categorical", "polars-enum", "arrow", "arrow-chunks"])
def test_categories(kind, form):
    rng = np.random.default_rng(6)
    names = np.array(["m", "b", "z", "a", "k", "q"])
    code = rng.integers(0, 6, 300)
    X = pd.DataFrame({"x": rng.normal(size=300), "c": pd.Categorical(names[code], categories=names)})
    y = X["x"].to_numpy() + np.sin(7.0 * code)
    X.loc[rng.random(300) < 0.1, "c"] = None
    booster = train(kind, X, y)
    expected = wrap(booster, X, y)
    table = categorical_tables(X)[form]
    model = wrap(booster, table, y)
    assert model.certificate.status == "certified"
    assert np.array_equal(model.predict(table), expected.predict(X))
    assert np.array_equal(model.predict_var(table), expected.predict_var(X))


LABELS = {
    "list": list,
    "series": pd.Series,
    "series-index": lambda y: pd.Series(y, index=np.arange(len(y))[::-1]),
    "frame": lambda y: pd.DataFrame({"y": y}),
    "column": lambda y: y.reshape(-1, 1),
    "polars": pl.Series,
    "arrow": pa.array,
    "arrow-chunks": lambda y: pa.chunked_array([y[:10], y[10:]]),
    "torch": lambda y: pytest.importorskip("torch").tensor(y),
}


@pytest.mark.parametrize("form", LABELS)
def test_labels_weights_and_scores(form):
    X, y = with_gaps()
    weight, score = np.abs(y) + 1, y / 3
    booster = lgb.train(LGB, lgb.Dataset(X, y, weight=weight, init_score=score), 5)
    expected = wrap(booster, X, y, sample_weight=weight, init_score=score)
    as_form = LABELS[form]
    model = wrap(booster, X, as_form(y), sample_weight=as_form(weight), init_score=as_form(score))
    assert model.certificate == expected.certificate
    for ask in ("predict", "predict_var"):
        got, want = getattr(model, ask)(X, init_score=as_form(score)), getattr(expected, ask)(X, init_score=score)
        assert np.array_equal(got, want)


@pytest.mark.parametrize("values", [[True, False], [Decimal("1.25"), Decimal("-3.5")]], ids=["truth", "decimal"])
def test_arrow_labels_that_are_copied(values):
    """Labels in a Parquet file may have this type."""
    assert np.array_equal(read_column("y", pa.array(values), 2), np.array(values, float))


ALONE = """
import sys
from decimal import Decimal
sys.modules["lightgbm"] = sys.modules["xgboost"] = None  # importing either is now an error
import numpy as np
from pgbm_plugin import wrap
from pgbm_plugin.tables.columns import read_column
data = np.load(sys.argv[1])
for path in sys.argv[2:]:
    model = wrap(path, data["X"], data["y"])
    print(model.certificate.status, model.predict_dist(data["X"]).ppf([.1, .9]).sum().hex())
"""


def test_files_without_the_boosters(tmp_path):
    X, y = with_gaps()
    np.savez(tmp_path / "data.npz", X=X, y=y)
    boosters = {"m.txt": train("lightgbm", X, y), "m.json": train("xgboost", X, y), "m.ubj": train("xgboost", X, y)}
    for name, booster in boosters.items():
        booster.save_model(tmp_path / name)
    paths = [tmp_path / name for name in boosters]
    out = subprocess.run(
        [sys.executable, "-c", ALONE, tmp_path / "data.npz", *paths], capture_output=True, text=True, check=True
    )
    want = [wrap(booster, X, y).predict_dist(X).ppf([0.1, 0.9]).sum().hex() for booster in boosters.values()]
    assert out.stdout.split("\n")[:-1] == [f"certified {total}" for total in want]
    for path, total in zip(paths, want, strict=True):  # and as str or Path
        assert wrap(str(path), X, y).predict_dist(X).ppf([0.1, 0.9]).sum().hex() == total
        assert wrap(path, X, y).predict_dist(X).ppf([0.1, 0.9]).sum().hex() == total


def test_windows_line_ends(tmp_path):
    X, y = with_gaps()
    booster = train("lightgbm", X, y)
    (tmp_path / "m.txt").write_bytes(booster.model_to_string().replace("\n", "\r\n").encode())
    assert np.array_equal(wrap(tmp_path / "m.txt", X, y).predict(X), booster.predict(X))


def test_arrays_that_lightgbm_rounds():
    """It reads native float32 and float64 as they are, and everything else through float32."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(1e6, 1e6 + 1, 2000), rng.normal(size=2000)])
    y = X[:, 0] - 1e6 + 0.1 * X[:, 1]
    booster = lgb.train(LGB, lgb.Dataset(X, y), 10)
    model = wrap(booster, X, y)
    for kind in (object, ">f8", np.longdouble, float):
        assert np.array_equal(model.predict(X.astype(kind)), booster.predict(X.astype(kind)))


@pytest.mark.parametrize(
    "inside", [lambda X: X, pl.from_pandas, pa.Table.from_pandas], ids=["pandas", "polars", "arrow"]
)
def test_narwhals(inside, mixed, tmp_path):
    """A frame of narwhals is the frame inside it, with its names and categories."""
    nw = pytest.importorskip("narwhals")
    X, y = mixed
    booster = train("lightgbm", X, y)
    expected, table = wrap(booster, X, y), nw.from_native(inside(X))
    label = nw.new_series("y", y, backend=nw.get_native_namespace(table))
    model = wrap(booster, table, label)
    assert model.certificate == expected.certificate
    assert np.array_equal(model.predict(table), expected.predict(X))
    (part,) = model.predict_dist(iter([table]))
    assert np.array_equal(part.std(), expected.predict_dist(X).std())
    batches = wrap(booster, iter([table.with_columns(label)]), label="y")
    assert np.array_equal(batches.predict_var(table), expected.predict_var(X))
    model.predict_parquet(table.with_columns(label), tmp_path / "out.parquet", keep=["y"])
    assert np.array_equal(pd.read_parquet(tmp_path / "out.parquet")["y"], y)
    with pytest.raises(ValueError, match="columns in another order"):
        model.predict(table.select(table.columns[::-1]))
    lazy = nw.from_native(pl.from_pandas(X).lazy())
    with pytest.raises(TypeError, match=r"LazyFrame, which has no rows yet: give X.collect\(\)"):
        model.predict(lazy)
    assert np.array_equal(model.predict(lazy.collect()), expected.predict(X))


def test_an_array_that_does_not_tell_its_device(numeric):
    """PyArrow before 26 raises for types that DLPack does not know, such as booleans."""
    X, y = numeric

    class Silent:
        def __dlpack__(self):
            raise TypeError("not supported by DLPack")

        def __dlpack_device__(self):
            raise TypeError("not supported by DLPack")

        def __array__(self, dtype=None, copy=None):
            return y

    booster = lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(X, y), 3)
    assert wrap(booster, X, Silent()).certificate.status == "certified"


class Query:
    """Rows that some other library offers to Arrow, by the newer protocol or the older one."""

    def __init__(self, frame, name):
        self.frame = frame
        setattr(self, name, getattr(frame, name))


@pytest.mark.filterwarnings("ignore:The Dataframe Interchange Protocol is deprecated")  # pandas 3.1; others have it
@pytest.mark.parametrize("protocol", ["__arrow_c_stream__", "__dataframe__"])
def test_tables_of_other_libraries(protocol, mixed):
    X, y = mixed
    booster = train("lightgbm", X, y)
    expected, table, label = wrap(booster, X, y), Query(X, protocol), Query(pd.DataFrame({"y": y}), protocol)
    model = wrap(booster, table, label, sample_weight=Query(pd.DataFrame({"w": np.ones(len(y))}), protocol))
    assert model.certificate == expected.certificate
    assert np.array_equal(model.predict(table), expected.predict(X))
    assert isinstance(model.predict_frame(table), pa.Table)


OTHER_TABLES = {
    "duckdb": lambda frame: pytest.importorskip("duckdb").sql("select * from frame"),
    "ibis": lambda frame: pytest.importorskip("ibis").memtable(frame),
    "datasets": lambda frame: pytest.importorskip("datasets").Dataset.from_pandas(frame),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ibis")
@pytest.mark.parametrize("library", OTHER_TABLES)
def test_other_libraries(library, mixed):
    X, y = mixed
    frame = X.select_dtypes("number")
    model = wrap(train("lightgbm", frame, y), frame, y)
    rows, label = (OTHER_TABLES[library](table) for table in (frame, pd.DataFrame({"y": y})))
    assert np.array_equal(model.predict(rows), model.predict(frame))
    assert isinstance(model.predict_frame(rows), pa.Table)
    assert wrap(train("lightgbm", frame, y), rows, label).certificate == model.certificate
