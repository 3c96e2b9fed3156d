"""The command line: what it writes is what the Python API gives, and every failure is one line and an exit code."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
import shlex
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.csv
import pytest
import xgboost as xgb

from pgbm_plugin import embed, load, wrap
from tests import ROOT
from tests.people.commands import XGB, run, train, write

PAGE = ROOT / "docs" / "command-line.md"


@pytest.fixture(scope="module", params=["lightgbm", "xgboost"])
def story(request, tmp_path_factory, make_data):
    """A booster's file, the rows of four tables as frames, and the folder that has them in both formats."""
    X, y = make_data("mixed", n=900)
    folder = tmp_path_factory.mktemp("story")
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    cuts = {"train": slice(0, 400), "val": slice(400, 600), "cal": slice(600, 700), "new": slice(700, 900)}
    frame = X.assign(y=y, w=weight, id=[f"{i:03}" for i in range(len(y))])
    parts = {}
    for name, rows in cuts.items():
        parts[name] = X.iloc[rows], y[rows], weight[rows]
        for suffix in (".csv", ".parquet"):
            # columns in another order, others among them, and a second file
            shuffled = frame.iloc[rows][sorted(frame.columns, reverse=True)]
            write(shuffled.iloc[:90], folder / f"{name}1{suffix}")
            write(shuffled.iloc[90:], folder / f"{name}2{suffix}")
    X_train, y_train, w_train = parts["train"]
    return train(request.param, X_train, y_train, folder, weight=w_train), parts, folder


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_from_booster_to_distributions(suffix, story, tmp_path, capsys):
    """The files are, byte for byte, those that the API writes."""
    booster, parts, folder = story
    files = {name: [f"{folder}/{name}1{suffix}", f"{folder}/{name}2{suffix}"] for name in parts}
    made, expected = tmp_path / "model.pgbm", tmp_path / "expected.pgbm"

    given = ("--data", files["train"][0], "--data", files["train"][1], "--label", "y", "--weight", "w")
    out, err = run(capsys, "wrap", booster, *given, "-o", made)
    model = wrap(booster, files["train"], label="y", weight="w")
    model.save(expected)
    assert made.read_bytes() == expected.read_bytes()
    assert model.certificate.status == "certified"
    assert str(model.certificate) in out
    assert err == ""

    out, err = run(capsys, "tune", made, "--data", f"{folder}/val*{suffix}", "--label", "y", "--weight", "w")
    result = model.tune(*parts["val"][:2], sample_weight=parts["val"][2])
    model.save(expected)
    assert made.read_bytes() == expected.read_bytes()
    assert (out, err) == (f"{result}\n", "")

    target = tmp_path / f"out{suffix}"
    given = ("--quantiles", ".05,.975", "--intervals", ".5,.9", "--keep", "id,w")
    out, err = run(capsys, "predict", made, *files["new"], "-o", target, *given)
    assert (out, err) == (f"200 rows -> {target}\n", "")
    X = parts["new"][0]
    distribution = model.predict_dist(X)
    names = ["id", "w", "mean", "std", "q05", "q97.5", "lower50", "upper50", "lower90", "upper90"]
    numbers = [model.predict(X), distribution.std(), *distribution.ppf([0.05, 0.975]).T]
    numbers += [end for coverage in (0.5, 0.9) for end in distribution.interval(coverage)]
    if suffix == ".parquet":
        table = pd.read_parquet(target)
        assert list(table) == names
        assert np.array_equal(table[names[1:]].to_numpy().T, [parts["new"][2], *numbers])
        assert list(table["id"]) == [f"{i:03}" for i in range(700, 900)]
    else:
        header, *rows = csv.reader(io.StringIO(target.read_text()))
        assert header == names
        assert [row[0] for row in rows] == [f"{i:03}" for i in range(700, 900)]
        assert np.array_equal(np.array([row[1:] for row in rows], float).T, [parts["new"][2], *numbers])


def test_conformal_and_another_file(story, tmp_path, capsys):
    booster, parts, folder = story
    X, y, weight = parts["train"]
    model = wrap(booster, X, y, sample_weight=weight)
    model.save(tmp_path / "m.pgbm")
    before = (tmp_path / "m.pgbm").read_bytes()
    given = ("--score", "nll", "--distributions", "normal,studentt(df=4.5)", "--conformal", f"{folder}/cal*.csv")
    words = ("tune", tmp_path / "m.pgbm", "--data", f"{folder}/val*.csv", "--label", "y", *given)
    out, err = run(capsys, *words, "-o", tmp_path / "tuned.pgbm")
    result = model.tune(*parts["val"][:2], score="nll", distributions=["normal", "studentt(df=4.5)"])
    model.conformalize(*parts["cal"][:2]).save(tmp_path / "expected.pgbm")
    assert (tmp_path / "tuned.pgbm").read_bytes() == (tmp_path / "expected.pgbm").read_bytes()
    assert (tmp_path / "m.pgbm").read_bytes() == before
    assert (out, err) == (f"{result}\nconformal quantiles from 100 rows\n", "")


def test_groups(tmp_path, capsys):
    """Columns that are no features, in all commands; the model is the one that Python makes."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(900, 2)), columns=["a", "b"])
    frame["y"], frame["shop"] = frame["a"] + rng.normal(size=900), rng.integers(0, 2, 900)
    parts = [frame[i : i + 300].reset_index(drop=True) for i in (0, 300, 600)]
    files = [write(part, tmp_path / f"{i}.csv") for i, part in enumerate(parts)]
    X, y = parts[0][["a", "b"]], parts[0]["y"]
    model = wrap(train("lightgbm", X, y, tmp_path), X, y)
    made = tmp_path / "m.pgbm"
    model.save(made)
    words = ("tune", made, "--data", files[0], "--label", "y", "--distributions", "normal", "--groups", "shop")
    assert "--groups needs --conformal" in run(capsys, *words, code=2)[1]
    run(capsys, *words, "--variance", "pgbm", "--conformal", files[1], "--quiet")
    told = run(capsys, "inspect", made)[0]
    assert "300 rows in 2 groups around normal" in told
    found = json.loads(run(capsys, "inspect", made, "--json")[0])["conformal"]["groups"]
    assert (found["by"], sorted(found["keys"])) == ("key", ["0", "1"])
    target = tmp_path / "out.csv"
    words = ("predict", made, files[2], "--coverage", ".9", "-o", target)
    assert "--groups COL,COL" in run(capsys, *words, code=1)[1]
    assert "no column 'store'" in run(capsys, *words, "--groups", "store", code=1)[1]
    run(capsys, *words, "--groups", "shop")
    expected = load(made).predict_interval(parts[2][["a", "b"]], groups=parts[2]["shop"])
    np.testing.assert_allclose(pd.read_csv(target)[["lower90", "upper90"]], expected, rtol=1e-12)
    words = ("report", made, files[2], "--label", "y", "-o", tmp_path / "r.html")
    assert "--groups COL,COL" in run(capsys, *words, code=1)[1]
    run(capsys, *words, "--groups", "shop")
    assert "Do intervals hold in every group?" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_init_scores(kind, suffix, make_data, tmp_path, capsys):
    X, y = make_data("numeric")
    frame = pd.DataFrame(X, columns=list("abcd"))
    start, weight = np.random.default_rng(0).normal(size=(2, len(y))) ** 2 + 0.5
    booster = train(kind, frame, y, tmp_path, init_score=start, weight=weight)
    path = write(frame.assign(y=y, start=start, w=weight), tmp_path / f"d{suffix}")
    given = ("--init-score", "start")
    made, expected = tmp_path / "m.pgbm", tmp_path / "expected.pgbm"
    run(capsys, "wrap", booster, "--data", path, "--label", "y", "--weight", "w", *given, "-o", made)
    model = wrap(booster, frame, y, sample_weight=weight, init_score=start)
    model.save(expected)
    assert made.read_bytes() == expected.read_bytes()
    assert model.certificate.status == "certified"
    run(capsys, "predict", made, path, "-o", tmp_path / "out.parquet", *given)
    mean = pd.read_parquet(tmp_path / "out.parquet")["mean"]
    assert np.array_equal(mean, model.predict(frame, init_score=start).astype(float))
    _, err = run(capsys, "tune", made, "--data", path, "--label", "y", *given)
    assert "warning: wrap has seen these rows" in err
    with pytest.warns(UserWarning, match="wrap has seen these rows"):
        best = model.tune(frame, y, init_score=start).best
    assert load(made).rho == best.rho


def test_categories_that_are_numbers(make_data, tmp_path, capsys):
    """Named once, when the model is wrapped."""
    X, y = make_data("numeric")
    store = np.random.default_rng(0).integers(3, 7, len(y))
    frame = pd.DataFrame(X, columns=list("abcd")).assign(store=pd.Categorical(store, categories=[5, 3, 6, 4]))
    booster = train("lightgbm", frame, y + store % 2, tmp_path)
    path = write(frame.assign(y=y + store % 2), tmp_path / "d.csv")
    words = ("wrap", booster, "--data", path, "--label", "y", "-o", tmp_path / "m.pgbm")
    assert "--categorical on the command line" in run(capsys, *words, code=1)[1]
    out, _ = run(capsys, *words, "--categorical", "store")
    assert "certified" in out
    run(capsys, "predict", tmp_path / "m.pgbm", path, "-o", tmp_path / "out.csv", "--quiet")
    expected = wrap(booster, frame, y + store % 2)
    assert np.array_equal(pyarrow.csv.read_csv(tmp_path / "out.csv")["mean"].to_numpy(), expected.predict(frame))
    expected.save(tmp_path / "unnamed.pgbm")
    run(capsys, "predict", tmp_path / "unnamed.pgbm", path, "-o", tmp_path / "again.csv", "--categorical", "store")
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "out.csv").read_bytes()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_calibration_on_folds(suffix, make_data, tmp_path, capsys):
    """Text categories, missing values and weights reach the trainings on folds."""
    X, y = make_data("mixed")
    weight = np.linspace(1.0, 2.0, len(y))
    booster = train("lightgbm", X, y, tmp_path, weight=weight)
    rows = write(X.assign(y=y, w=weight), tmp_path / f"rows{suffix}")
    columns = ("--data", rows, "--label", "y", "--weight", "w")
    words = ("wrap", booster, *columns, "--cv", 3, "-o", tmp_path / "model.pgbm")
    assert ", tuned" in run(capsys, *words)[0]
    expected = wrap(booster, X, y, sample_weight=weight, cv=3)
    found = load(tmp_path / "model.pgbm")
    assert np.array_equal(found.predict_quantiles(X, [0.1, 0.9]), expected.predict_quantiles(X, [0.1, 0.9]))
    _, error = run(capsys, *words[:-4], "--cv", "1", "-o", tmp_path / "model.pgbm", code=2)
    assert "cv must be at least 2 folds" in error
    booster = train("xgboost", X, y, tmp_path, weight=weight)
    _, error = run(capsys, "wrap", booster, *columns, "--cv", 3, "-o", tmp_path / "model.pgbm", code=1)
    assert "XGBoost does not store in files" in error
    _, error = run(capsys, "wrap", booster, "--cv", 3, "-o", tmp_path / "model.pgbm", code=2)
    assert "--cv need rows" in error


def test_embedded_moments(make_data, tmp_path, capsys):
    X, y = make_data("numeric")
    booster = xgb.train(XGB, xgb.DMatrix(X, y), 4)
    booster.save_model(tmp_path / "bare.ubj")
    model = wrap(booster, X, y)
    embed(booster, model)
    booster.save_model(tmp_path / "embedded.ubj")
    run(capsys, "wrap", tmp_path / "embedded.ubj", "-o", tmp_path / "m.pgbm")
    assert np.array_equal(load(tmp_path / "m.pgbm").predict_var(X), model.predict_var(X))
    _, err = run(capsys, "wrap", tmp_path / "bare.ubj", "-o", tmp_path / "m.pgbm", code=1)
    assert "--data FILE --label COL" in err
    for name, answer in (("embedded", True), ("bare", False)):
        assert json.loads(run(capsys, "inspect", tmp_path / f"{name}.ubj", "--json")[0])["embedded"] is answer


def test_inspect(story, tmp_path, capsys):
    booster, parts, _ = story
    X, y, weight = parts["train"]
    model = wrap(booster, X, y, sample_weight=weight)
    model.tune(*parts["val"][:2])
    model.conformalize(*parts["cal"][:2])
    X_val, y_val = parts["val"][:2]
    joint = model.correlate(X_val, y_val, {"day": np.arange(len(y_val)) // 5})
    model.save(tmp_path / "m.pgbm")
    out, _ = run(capsys, "inspect", tmp_path / "m.pgbm")
    for text in (
        f"{(tmp_path / 'm.pgbm').stat().st_size:,} bytes",
        f"8 with {model.forest.n_leaves} leaves",
        "6: a, few, b, c, many, d",
        "red, blue, green",
        "rows seen:    400",
        "conformal:    100 rows around",
        f"correlation:  day {joint.r[0]:.4g}",
        str(model.certificate),
        str(model.calibration),
    ):
        assert text in out
    found = json.loads(run(capsys, "inspect", tmp_path / "m.pgbm", "--json")[0])
    assert found["booster"] == model.forest.booster
    assert found["feature_names"] == list(X.columns)
    assert [entry["values"] for entry in found["categories"]] == [
        list(X[name].cat.categories) for name in ("few", "many")
    ]
    assert found["correlation"] == {"day": joint.r[0]}
    assert (found["rho"], found["calibration"]) == (model.rho, vars(model.calibration))
    assert found["certificate"] == vars(model.certificate)
    assert (found["rows"], found["tuned"], found["distribution"]) == (400, True, "conformal")
    trees = json.loads(run(capsys, "inspect", booster, "--json")[0])
    assert trees["kind"] == "booster"
    assert {key: trees[key] for key in ("objective", "trees", "leaves")} == {
        key: found[key] for key in ("objective", "trees", "leaves")
    }
    assert "pgbm-plugin wrap adds them" in run(capsys, "inspect", booster)[0]


def test_report(story, tmp_path, capsys):
    pytest.importorskip("pgbm_plugin.report")
    from pgbm_plugin.report import report

    booster, parts, folder = story
    X, y, weight = parts["train"]
    model = wrap(booster, X, y, sample_weight=weight)
    model.save(tmp_path / "m.pgbm")
    words = ("report", tmp_path / "m.pgbm", f"{folder}/val*.csv", "--label", "y", "--title", "March")
    run(capsys, *words, "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "March" in page
    assert page.count("<html") == report(model, *parts["val"][:2], title="March").count("<html") == 1


def test_what_a_report_is_made_of(cli_folder, tmp_path, capsys, monkeypatch):
    given = {}

    def report(model, X, y, *, groups, init_score, unit, title, path):
        given.update(mean=model.predict(X, init_score=init_score), y=y, title=title, start=init_score, path=path)
        assert groups is None

    monkeypatch.setitem(sys.modules, "pgbm_plugin.report", SimpleNamespace(report=report))
    run(capsys, "report", cli_folder / "model.pgbm", cli_folder / "rows.csv", "--label", "y", "-o", tmp_path / "r.html")
    assert given["path"] == str(tmp_path / "r.html")
    rows = pd.read_parquet(cli_folder / "rows.parquet")
    assert np.array_equal(given["y"], rows.pop("y"))
    assert np.array_equal(given["mean"], load(cli_folder / "model.pgbm").predict(rows))
    assert given["title"] == "model.pgbm"
    assert given["start"] is None
    started = write(rows.assign(y=given["y"], start=0.5), tmp_path / "started.parquet")
    words = ("report", cli_folder / "model.pgbm", started, "--label", "y", "--init-score", "start")
    run(capsys, *words, "-o", tmp_path / "r.html")
    assert np.array_equal(
        given["mean"], load(cli_folder / "model.pgbm").predict(rows, init_score=np.full(len(rows), 0.5))
    )


@pytest.mark.parametrize(
    ("note", "line"), [(["x", "007", "é"], "007,1,"), (['a "b"', "c,d\ne", ""], '"a ""b""",1,')], ids=["plain", "odd"]
)
def test_quotes_only_where_needed(note, line, cli_folder, tmp_path, capsys):
    frame = pd.read_parquet(cli_folder / "new.parquet").iloc[:3].assign(note=note, n=1)
    given = ("-o", "-", "--keep", "note,n", "--quantiles", "none")
    out, _ = run(capsys, "predict", cli_folder / "model.pgbm", write(frame, tmp_path / "d.parquet"), *given)
    assert f"\n{line}" in out
    rows = list(csv.DictReader(io.StringIO(out, newline="")))
    assert list(rows[0]) == ["note", "n", "mean", "std"]
    assert [row["note"] for row in rows] == note


def test_the_page(make_data, tmp_path, capsys, monkeypatch):
    """The commands of the documentation run, on the files that a reader would have."""
    monkeypatch.chdir(tmp_path)
    X, y = make_data("mixed", n=700)
    row = np.arange(len(y))
    frame = X.assign(y=y, id=row, date=np.datetime64("2024-01-01") + row // 6, shop=row % 2)
    names = ("train", "val", "cal", "new", "test", "monday")
    for name, rows in zip(names, np.split(np.arange(700), [300, 400, 500, 600, 680]), strict=True):
        for suffix in (".csv", ".parquet"):
            write(frame.iloc[rows], tmp_path / f"{name}{suffix}")
    for kind in ("lightgbm", "xgboost"):
        train(kind, X[:300], y[:300], tmp_path)
    blocks = re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    commands = re.findall(r"^\$ pgbm-plugin (.*?)(?: \|.*)?$", "".join(blocks), re.MULTILINE)
    assert len(commands) > 5
    for command in commands:
        if command.startswith("report") and importlib.util.find_spec("pgbm_plugin.report") is None:
            continue
        run(capsys, *shlex.split(command))
