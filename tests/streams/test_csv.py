"""CSV in: types as the model has them, categories in text and in numbers, and what is wrong said in plain words."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import xgboost as xgb

from pgbm_plugin import load, wrap
from tests.same import assert_same_model
from tests.streams.streamed import LGB, XGB, cut


def train(kind, X, y, weight=None, rounds=5):
    if kind == "lightgbm":
        return lgb.train(LGB, lgb.Dataset(X, y, weight=weight), rounds)
    return xgb.train(XGB, xgb.DMatrix(X, y, weight=weight, enable_categorical=True), rounds)


@pytest.fixture(scope="module", params=["lightgbm", "xgboost"])
def trained(request, tmp_path_factory, mixed):
    """A model with categories and weights, its rows, and the same in CSV files with other columns among them."""
    X, y = mixed
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    booster = train(request.param, X, y, weight)
    frame = X.assign(key=[f"{i:03}" for i in range(len(y))], w=weight, target=y, note='of, "nobody"')
    folder = tmp_path_factory.mktemp("csv")
    for i, rows in enumerate(cut(len(frame), 3)):
        frame[sorted(frame.columns)].iloc[rows].to_csv(folder / f"part{i}.csv{'.gz' * (i == 1)}", index=False)
    return wrap(booster, X, y, sample_weight=weight), booster, X, folder


@pytest.mark.parametrize("source", ["pattern", "list", "dataset"])
def test_wrap(source, trained):
    whole, booster, X, folder = trained
    files = sorted(folder.glob("*.csv*"))
    given = {"pattern": str(folder / "*.csv*"), "list": files, "dataset": ds.dataset(files, format="csv")}[source]
    assert_same_model(wrap(booster, given, label="target", weight="w"), whole, X)


def test_predictions(trained, tmp_path):
    """What is kept stays the text that it is."""
    model, _, X, folder = trained
    rows = model.predict_parquet(folder / "*.csv*", tmp_path / "out.parquet", intervals=[0.9], keep=["key", "note"])
    assert rows == len(X)
    out, whole = pd.read_parquet(tmp_path / "out.parquet"), model.predict_dist(X)
    assert list(out) == ["key", "note", "mean", "std", "q05", "q50", "q95", "lower90", "upper90"]
    assert list(out["key"]) == [f"{i:03}" for i in range(len(X))]
    assert set(out["note"]) == {'of, "nobody"'}
    assert np.array_equal(out["mean"], whole.mean())
    assert np.array_equal(out[["q05", "q50", "q95"]], whole.ppf([0.05, 0.5, 0.95]))
    assert np.array_equal(out[["lower90", "upper90"]], model.predict_interval(X, 0.9))


def test_init_scores_of_rows(make_data, tmp_path):
    X, y = make_data("numeric")
    frame = pd.DataFrame(X, columns=list("abcd"))
    start = np.random.default_rng(0).normal(size=len(y))
    booster = lgb.train(LGB, lgb.Dataset(frame, y, init_score=start), 3)
    model = wrap(booster, frame, y, init_score=start)
    frame.assign(start=start).to_csv(tmp_path / "d.csv", index=False)
    model.predict_parquet(tmp_path / "d.csv", tmp_path / "out.parquet", init_score="start")
    assert np.array_equal(pd.read_parquet(tmp_path / "out.parquet")["mean"], model.predict(frame, init_score=start))


def write(frame, path):
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path, index=False)
    return path


@pytest.fixture(scope="module")
def stores():
    """Rows with categories that are whole numbers, in no order, and one of text."""
    rng = np.random.default_rng(1)
    number = rng.integers(1, 6, 500) * 10
    X = pd.DataFrame({"a": rng.normal(size=500), "colour": pd.Categorical(rng.choice(["red", "blue"], 500))})
    X["store"] = pd.Categorical(number, categories=[30, 10, 20, 50, 40])
    X.loc[rng.random(500) < 0.1, "store"] = np.nan
    return X, X["a"] + np.isin(number, [10, 50]) + 0.1 * rng.normal(size=500)


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_categories_that_are_numbers(kind, suffix, stores, tmp_path):
    """XGBoost's models tell which columns these are, for LightGBM's a frame does, or their names; a model keeps it."""
    X, y = stores
    booster = train(kind, X, y)
    path = write(X.assign(y=y), tmp_path / f"d{suffix}")
    whole, named = wrap(booster, X, y), {}
    if kind == "lightgbm":
        with pytest.raises(ValueError, match=r"with 2 categorical columns.* 1 hold text.*\('colour'\).*categ"):
            wrap(booster, path, label="y")
        named = {"categorical": ["store", "colour"]}
    model = wrap(booster, path, label="y", **named)
    assert_same_model(model, whole, X)
    model.save(tmp_path / "m.pgbm")
    for again in (whole, load(tmp_path / "m.pgbm")):
        (found,) = again.predict_dist(path)
        assert np.array_equal(found.mean(), whole.predict(X))


@pytest.mark.parametrize(
    ("values", "spelt"),
    [
        (["01", "1", "1.0"], ["01", "1", "1.0"]),
        (["NA", "x", ""], ["NA", "x", "null"]),  # a category of the model is no missing value, another spelling is
        ([True, False], ["True", "false"]),
        ([0.5, 2.0, -1e9], ["0.5", "2", "-1e9"]),
        ([7, 3], ["7.0", "3"]),
        ([2**53, 2**53 + 1], [str(2**53), str(2**53 + 1)]),  # one float, two categories
    ],
    ids=str,
)
def test_spellings(values, spelt, tmp_path):
    rng = np.random.default_rng(0)
    code, a = rng.integers(0, len(values), 300), rng.normal(size=300)
    X = pd.DataFrame({"c": pd.Categorical.from_codes(code, pd.Index(values, dtype=object)), "a": a})
    if len(set(map(type, values))) == 1:
        X["c"] = X["c"].cat.rename_categories(values)
    booster = lgb.train(LGB, lgb.Dataset(X, a + code), 5)
    assert len(np.unique(booster.predict(X.assign(a=0.0)))) == len(values)
    (tmp_path / "y.csv").write_text(f"c,a,y\n{spelt[0]},1,1\n{spelt[1]},2,2\n")
    with pytest.warns(UserWarning, match="held-out"):
        model = wrap(booster, tmp_path / "y.csv", label="y", categorical=["c"])
    if spelt[-1] == "null":
        X = X.assign(c=X["c"].where(X["c"] != ""))
    lines = [f"{spelt[k]},{float(v)!r}\n" for k, v in zip(code, a, strict=True)]
    (tmp_path / "d.csv").write_text("c,a\n" + "".join(lines))
    (found,) = model.predict_dist(tmp_path / "d.csv")
    assert np.array_equal(found.mean(), booster.predict(X))


def test_unseen_categories(stores, tmp_path):
    X, y = stores
    path = tmp_path / "d.csv"
    path.write_text("a,colour,store\n0,green,10\n0,,10\n")
    model = wrap(train("xgboost", X, y), X, y)
    with pytest.raises(ValueError, match=r"d.csv': column 'colour' holds categories that training did not see: green"):
        list(model.predict_dist(path))
    text = X.drop(columns="store")
    (found,) = wrap(train("lightgbm", text, y), text, y).predict_dist(path)  # as LightGBM does: missing
    assert found.mean()[0] == found.mean()[1]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"store": "ten"}, "column 'store' holds text, but the model's categories are numbers: .*ten"),
        ({"colour": 1}, "column 'colour' holds numbers, but the model's categories are text, such as 'blue'"),
    ],
)
def test_categories_of_another_type(change, match, stores, tmp_path):
    X, y = stores
    model = wrap(train("xgboost", X, y), X, y)
    with pytest.raises(ValueError, match=match):
        list(model.predict_dist(write(X.assign(**change), tmp_path / "d.parquet")))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_text_has_no_codes(suffix, tmp_path):
    """A model that knows codes alone: the order in which text comes would be taken for them."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=300), rng.integers(0, 3, 300)])
    booster = xgb.train(XGB, xgb.DMatrix(X, X[:, 1], feature_types=["q", "c"], feature_names=["a", "c"]), 3)
    frame = pd.DataFrame(X, columns=["a", "c"]).assign(y=X[:, 1])
    model = wrap(booster, write(frame, tmp_path / f"codes{suffix}"), label="y")
    assert np.array_equal(model.predict(X), wrap(booster, X, X[:, 1]).predict(X))
    path = write(frame.assign(c=np.array(["x", "y", "z"])[X[:, 1].astype(int)]), tmp_path / f"text{suffix}")
    with pytest.raises(ValueError, match=r"text\.\w+': column 'c' holds text.*only codes: give the codes"):
        wrap(booster, path, label="y")


def test_categorical_names(stores, tmp_path):
    X, y = stores
    path = write(X.assign(y=y), tmp_path / "d.csv")
    booster = train("lightgbm", X, y)
    for named, error, match in (
        (["store"], ValueError, "has 1 columns, but the model was trained with 2"),
        (["stores", "colour"], ValueError, "no column 'stores', only a, colour, store; did you mean 'store'"),
        ("store", TypeError, "a list of names, not 'store'"),
    ):
        with pytest.raises(error, match=match):
            wrap(booster, path, label="y", categorical=named)
    with pytest.raises(ValueError, match=r"the model already stores its categorical columns \('colour', 'store'\)"):
        wrap(train("xgboost", X, y), path, label="y", categorical=["a"])


def test_types_do_not_hang_on_the_beginning(tmp_path):
    """More whole numbers than Arrow looks at to guess a type, then a fraction."""
    n = 200_000
    X = np.column_stack([np.arange(n) % 7, np.arange(n) % 5]).astype(float)
    X[-1] = [2.5, 1e-3]
    y = X[:, 0]
    booster = lgb.train(LGB, lgb.Dataset(X[::50], y[::50]), 2)
    path = tmp_path / "d.csv"
    frame = pd.DataFrame(X.astype(int), columns=["a", "b"]).assign(y=y.astype(int)).astype(str)
    frame.iloc[-1] = ["2.5", "0.001", "2.5"]
    frame.to_csv(path, index=False)
    assert path.stat().st_size > 1 << 20
    with pytest.warns(UserWarning, match="held-out"):
        model = wrap(booster, path, label="y")
    assert model.moments.rows == n
    frame.iloc[-1] = ["2.5", "many", "2.5"]
    frame.to_csv(path, index=False)
    with pytest.raises(ValueError, match=rf"d.csv': column 'b' holds 'many' in row {n + 1}, which is not a number"):
        wrap(booster, path, label="y")


def test_long_lines_and_line_breaks_in_quotes(tmp_path):
    """Wherever a file of several blocks is cut, also within a value."""
    n = 70_000
    X = np.column_stack([np.arange(n) % 7, np.arange(n) % 5]).astype(float)
    booster = lgb.train(LGB, lgb.Dataset(pd.DataFrame(X[::50], columns=["a", "b"]), X[::50, 0]), 2)
    with pytest.warns(UserWarning, match="held-out"):
        model = wrap(booster, pd.DataFrame(X, columns=["a", "b"]), X[:, 0])
    path = tmp_path / "d.csv"
    path.write_text("a,b,note\n" + "".join(f'{a:.0f},{b:.0f},"1,2\n3,4,5{" " * 60}"\n' for a, b in X))
    assert path.stat().st_size > 1 << 22
    read = list(model.predict_dist(str(path)))
    assert np.array_equal(np.concatenate([part.mean() for part in read]), model.predict(X))
    path.write_text("a,b,note\n1,2," + "x" * (3 << 20) + "\n")
    assert model.predict_parquet(path, tmp_path / "out.parquet") == 1
    for text in ("a,b,note\n1,2," + "x" * (9 << 20) + "\n", "a,b," + "x" * (9 << 20) + "\n1,2,3\n"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"d.csv': .*line of more than 4 MB"):
            model.predict_parquet(path, tmp_path / "out.parquet")


GOOD = "a,b,y\n1,2,3\n4,5,6\n"


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("a,b,y\n1,2,3\n4,x,6\n", "column 'b' holds 'x' in row 3, which is not a number"),
        ("a,b,y\n1,2,3\n4,5,x\n", "column 'y' holds 'x' in row 3, which is not a number"),
        ("a,b,y\n1,2020-01-01,3\n", "column 'b' holds '2020-01-01' in row 2, which is not a number"),
        ("a,b,y\n1,2,3\n4,5\n", "Expected 3 columns, got 2"),
        ("a,b,y\n1,2,3\n4,5,6,7\n", "Expected 3 columns, got 4"),
        ('a,b,y\n1,"2,3\n4,5,6\n', "CSV parse error"),
        ("", "Empty CSV file"),
        ("\n\n", "Empty CSV file"),
        ("a,b,y\n", "no batches, or none of them has rows"),
        ("a,a,y\n1,2,3\n", "multiple columns named a"),
        ("a;b;y\n1;2;3\n", "one column, 'a;b;y': values must be separated by commas"),
        ("a,b,Y\n1,2,3\n", "no column 'y', only a, b, Y; did you mean 'Y'"),
        ("a, b,y\n1,2,3\n", "lacks columns of the model: 'b'"),
        ("a,b,y\n1,2,\n", "y has 1 NaN"),
        ("a,b,y\n1,2,inf\n", "y has 1 NaN or infinite values"),
        ("\xe9,b,y\n1,2,3\n", "names of its columns are not UTF-8"),
        ("a,b,y\n1,\xe9,3\n", "column 'b' holds .* in row 2, which is not a number"),
        ("\x00\x01\xff\xfe", "bad.csv'"),
    ],
)
def test_hostile_files(content, match, tmp_path):
    X = np.random.default_rng(0).normal(size=(100, 2))
    booster = lgb.train(LGB, lgb.Dataset(pd.DataFrame(X, columns=["a", "b"]), X[:, 0]), 2)
    (tmp_path / "bad.csv").write_bytes(content.encode("latin-1"))
    with pytest.raises((ValueError, TypeError), match=match) as caught:
        wrap(booster, tmp_path / "bad.csv", label="y")
    assert "\n" not in str(caught.value)
    if "no batches" not in match:
        assert "bad.csv" in str(caught.value)


def test_odd_but_good_files(tmp_path):
    """A byte order mark, quotes, blanks, missing values, truth values, other line ends."""
    X = np.random.default_rng(0).normal(size=(300, 2))
    X[:, 1] = X[:, 1] > 0
    X[::9, 0] = np.nan
    frame = pd.DataFrame(X, columns=["a", "b"])
    y = np.nan_to_num(X[:, 0]) + X[:, 1]
    booster = lgb.train(LGB, lgb.Dataset(frame, y), 3)
    odd = frame.assign(y=y, b=X[:, 1] > 0).to_csv(index=False, lineterminator="\r\n", quoting=1, na_rep="NA")
    (tmp_path / "odd.csv").write_bytes(b"\xef\xbb\xbf" + odd.encode())
    assert_same_model(wrap(booster, tmp_path / "odd.csv", label="y"), wrap(booster, frame, y), frame)


def test_files_of_two_kinds(trained, tmp_path):
    _, booster, X, folder = trained
    write(X, tmp_path / "d.parquet")
    with pytest.raises(ValueError, match=r"part0.csv' is CSV and '.*d.parquet' is not: give files of one kind"):
        wrap(booster, [folder / "part0.csv", tmp_path / "d.parquet"], label="target")


def test_a_damaged_parquet_file(trained, tmp_path):
    _, booster, _, _ = trained
    (tmp_path / "d.parquet").write_text(GOOD)
    with pytest.raises(ValueError, match=r"^'.*d.parquet': Parquet magic bytes not found"):
        wrap(booster, tmp_path / "d.parquet", label="y")
    two = pa.Table.from_arrays([pa.array([1.0])] * 3, names=["a", "a", "y"])
    pq.write_table(two, tmp_path / "two.parquet")
    with pytest.raises(ValueError, match=r"^'.*two.parquet': .*duplicate field names"):
        wrap(booster, tmp_path / "two.parquet", label="y")
