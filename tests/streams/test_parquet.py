"""Parquet in, Parquet out: columns by name, only those needed, with what is wrong said before any row is read."""

from __future__ import annotations

import copy

import lightgbm as lgb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import xgboost as xgb

from pgbm_plugin import wrap
from tests.same import assert_same_model
from tests.streams.streamed import LGB, XGB, cut


def write(frame, folder, parts=3, row_group_size=37):
    folder.mkdir(exist_ok=True)
    for i, rows in enumerate(cut(len(frame), parts)):
        frame.iloc[rows].to_parquet(folder / f"part{i}.parquet", row_group_size=row_group_size, index=False)
    return folder


@pytest.fixture(scope="module", params=["lightgbm", "xgboost"])
def trained(request, tmp_path_factory, mixed):
    """A model with categories and weights, its rows, and the same in files with other columns among them."""
    X, y = mixed
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    if request.param == "lightgbm":
        booster = lgb.train(LGB, lgb.Dataset(X, y, weight=weight), 5)
    else:
        booster = xgb.train(XGB, xgb.DMatrix(X, y, weight=weight, enable_categorical=True), 5)
    frame = X.assign(key=np.arange(len(y)), w=weight, target=y, note="none of the model's business")
    folder = write(frame[sorted(frame.columns)], tmp_path_factory.mktemp("files") / "data")
    return wrap(booster, X, y, sample_weight=weight), booster, X, folder


@pytest.mark.parametrize("source", ["pattern", "folder", "list", "path", "dataset", "scanner"])
def test_wrap(source, trained):
    whole, booster, X, folder = trained
    files = sorted(folder.glob("*.parquet"))
    if source == "path":  # one file, as a path
        one = folder.with_name("one.parquet")
        pd.concat(map(pd.read_parquet, files)).astype({"few": X["few"].dtype, "many": X["many"].dtype}).to_parquet(one)
        files = [one]
    given = {
        "pattern": str(folder / "part*.parquet"),
        "folder": folder,
        "list": files,
        "path": files[0],
        "dataset": ds.dataset(folder),
        "scanner": ds.dataset(folder).scanner().to_reader(),
    }[source]
    assert_same_model(wrap(booster, given, label="target", weight="w"), whole, X)


def test_text_is_read_as_categories(trained, tmp_path):
    """Writers other than pandas leave text, whose codes differ from file to file."""
    whole, booster, X, folder = trained
    frame = pd.concat(map(pd.read_parquet, sorted(folder.glob("*.parquet"))))
    text = frame.astype({"few": "object", "many": "object"})
    write(text, tmp_path / "text")
    streamed = wrap(booster, str(tmp_path / "text" / "*.parquet"), label="target", weight="w")
    assert_same_model(streamed, whole, X)


def test_a_model_without_names_takes_all_other_columns(make_data, tmp_path):
    X, y = make_data("nan", n=500)
    booster = lgb.train(LGB, lgb.Dataset(X, y), 3)
    folder = write(pd.DataFrame(X, columns=list("abcd")).assign(y=y), tmp_path / "d")
    whole = wrap(booster, X, y)
    assert_same_model(wrap(booster, folder, label="y"), whole, X)
    extra = write(pd.DataFrame(X, columns=list("abcd")).assign(y=y, e=1), tmp_path / "e")
    with pytest.raises(ValueError, match="X has 5 columns, the model was trained on 4"):
        wrap(booster, extra, label="y")


def test_only_what_is_needed_is_read(trained, monkeypatch):
    whole, booster, X, folder = trained
    from pgbm_plugin.streams import files

    seen = []
    batches = files.Files.batches

    def spying(self, rows):
        for name, batch in batches(self, rows):
            seen.append(batch.schema.names)
            yield name, batch

    monkeypatch.setattr(files.Files, "batches", spying)
    wrap(booster, folder, label="target", weight="w")
    assert {tuple(names) for names in seen} == {(*X.columns, "target", "w")}
    list(whole.predict_dist(str(folder)))
    assert tuple(seen[-1]) == tuple(X.columns)


def test_partitioned_folders(make_data, tmp_path):
    """A feature may be in the path."""
    X, y = make_data("numeric", n=400)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(d=lambda f: (f["d"] > 0).astype(int))
    booster = lgb.train(LGB, lgb.Dataset(frame, y), 4)
    ds.write_dataset(
        pa.Table.from_pandas(frame.assign(y=y)),
        tmp_path / "p",
        format="parquet",
        partitioning=["d"],
        partitioning_flavor="hive",
    )
    order = np.argsort(frame["d"].to_numpy(), kind="stable")
    whole = wrap(booster, frame.iloc[order], y[order])
    assert_same_model(wrap(booster, tmp_path / "p", label="y"), whole, frame)


@pytest.mark.parametrize(
    ("change", "label", "match"),
    [
        (lambda frame: frame.drop(columns="target"), "target", r"part1.parquet': it has no column 'target'"),
        (lambda frame: frame.drop(columns="a"), "target", r"part1.parquet': it lacks columns of the model: 'a'"),
        (lambda frame: frame.assign(target=np.nan), "target", r"part1.parquet': y has .* NaN|part1.parquet': y .*null"),
        (lambda frame: frame, "y", r"the files: it has no column 'y', only .*target"),
    ],
)
def test_a_bad_file_is_named(change, label, match, trained, tmp_path):
    _, booster, _, folder = trained
    for path in folder.glob("*.parquet"):
        frame = pd.read_parquet(path)
        (change(frame) if path.name == "part1.parquet" else frame).to_parquet(tmp_path / path.name)
    with pytest.raises((ValueError, TypeError), match=match):
        wrap(booster, tmp_path, label=label, weight="w")


def test_no_files_no_label(trained, tmp_path):
    _, booster, _, folder = trained
    with pytest.raises(FileNotFoundError, match=r"no Parquet or CSV file at .*\*.parquet"):
        wrap(booster, str(tmp_path / "*.parquet"), label="target")
    with pytest.raises(TypeError, match="name of the label's column: label='y'"):
        wrap(booster, folder)
    with pytest.raises(TypeError, match="y was given, but batches bring their own"):
        wrap(booster, str(folder), np.ones(3))


def test_predictions(trained, tmp_path):
    model, _, X, folder = trained
    whole, target = model.predict_dist(X), tmp_path / "out.parquet"
    rows = model.predict_parquet(str(folder), target, quantiles=[0.05, 0.5, 0.975], keep=["key", "note"])
    assert rows == len(X)
    out = pd.read_parquet(target)
    assert list(out.columns) == ["key", "note", "mean", "std", "q05", "q50", "q97.5"]
    assert np.array_equal(out["key"], np.arange(len(X)))
    assert np.array_equal(out["mean"], whole.mean())
    assert np.array_equal(out["std"], whole.std())
    assert np.array_equal(out[["q05", "q50", "q97.5"]], whole.ppf([0.05, 0.5, 0.975]))
    found = list(model.predict_dist(str(folder / "*.parquet")))
    assert np.array_equal(np.concatenate([d.mean() for d in found]), whole.mean())


def test_predictions_of_tables(trained, tmp_path):
    model, _, X, _ = trained
    target = tmp_path / "out.parquet"
    whole = model.predict_dist(X)
    assert model.predict_parquet(X, target, quantiles=[], keep=["a"]) == len(X)
    assert pq.read_schema(target).names == ["a", "mean", "std"]
    model.predict_parquet((X.iloc[rows] for rows in cut(len(X))), target)
    assert np.array_equal(pd.read_parquet(target)["q50"], whole.ppf(0.5))


def test_a_failing_source_leaves_no_file(trained, tmp_path):
    model, _, X, _ = trained

    def failing():
        yield X
        raise ConnectionError("gone")

    for source, error in ((failing(), ConnectionError), (iter([]), ValueError), (iter([X, X[["a"]]]), ValueError)):
        with pytest.raises(error):
            model.predict_parquet(source, tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"quantiles": [0.5, 1.0]}, "quantiles must lie strictly between 0 and 1"),
        ({"quantiles": [0.5, 0.5]}, "quantiles holds a level twice: q50, q50"),
        ({"keep": ["q05"]}, "a column to keep is called 'q05', as a predicted one is"),
        ({"keep": ["nobody"]}, "no column 'nobody'"),
    ],
)
def test_bad_arguments(given, match, trained, tmp_path):
    model, _, _, folder = trained
    with pytest.raises(ValueError, match=match):
        model.predict_parquet(folder, tmp_path / "out.parquet", **given)
    assert list(tmp_path.iterdir()) == []


def test_a_place_where_no_file_can_be(trained, tmp_path):
    with pytest.raises(ValueError, match=r"writes Parquet, and .*out\.csv is named as CSV"):
        trained[0].predict_parquet(trained[2], tmp_path / "out.csv")
    with pytest.raises(FileNotFoundError, match=r"no directory '.*none' to write 'out\.parquet' to"):
        trained[0].predict_parquet(trained[3], tmp_path / "none" / "out.parquet")
    with pytest.raises(IsADirectoryError, match="is a directory: give the path of a file in it"):
        trained[0].predict_parquet(trained[3], tmp_path)


def test_the_mean_is_the_prediction(trained, mixed, tmp_path):
    """The mean of a conformal distribution, which is made of residuals, differs from the prediction."""
    X, y = mixed
    moved = copy.deepcopy(trained[0]).conformalize(X[::2], y[::2] + 0.1)
    moved.predict_parquet(X, tmp_path / "out.parquet")
    written = pd.read_parquet(tmp_path / "out.parquet")
    assert np.array_equal(written["mean"], moved.predict(X))
    assert not np.allclose(written["mean"], moved.predict_dist(X).mean())


def test_an_input_is_not_lost(trained, tmp_path):
    model, _, X, _ = trained
    path = tmp_path / "rows.parquet"
    X.to_parquet(path)
    for source in (path, [path], tmp_path, f"{tmp_path}/*.parquet", ds.dataset(path)):
        with pytest.raises(ValueError, match=r"rows.parquet' is also an input, and would be lost"):
            model.predict_parquet(source, tmp_path / "rows.parquet")
    assert len(pd.read_parquet(path)) == len(X)
    assert model.predict_parquet(tmp_path, tmp_path / "new.parquet") == len(X)
