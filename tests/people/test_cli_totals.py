"""Totals on the command line: what `tune --levels` and `predict --total-by` write is what the Python API gives."""

from __future__ import annotations

import re
import shlex

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest

from pgbm_plugin import load, wrap
from tests.people.commands import LGB, run, write


def rows(days, seed):
    """Four items of two shops on every day, which share what the day and the shop bring; keys are dates and text."""
    rng = np.random.default_rng(seed)
    day, shop = np.repeat(np.arange(days), 8), np.tile([0, 0, 0, 0, 1, 1, 1, 1], days)
    X = rng.normal(size=(len(day), 2))
    y = X[:, 0] + rng.normal(size=days)[day] + rng.normal(size=2 * days)[2 * day + shop] + rng.normal(size=len(day))
    dates = pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D")
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "day": dates, "shop": np.array(["x", "y"])[shop], "y": y})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("totals")
    train = rows(60, 0)
    model = wrap(lgb.train(LGB, lgb.Dataset(train[["a", "b"]], train["y"]), 20), train[["a", "b"]], train["y"])
    model.save(folder / "bare.pgbm")
    val, new = rows(40, 1), rows(5, 2)
    model.tune(val[["a", "b"]], val["y"], distributions="normal")
    model.correlate(val[["a", "b"]], val["y"], {"day": val["day"], "shop": (val["day"], val["shop"])})
    model.save(folder / "model.pgbm")
    for suffix in (".csv", ".parquet"):
        write(val, folder / f"val{suffix}")
        write(new.iloc[:17], folder / f"new1{suffix}")  # a day and a shop go on in the next file
        write(new.iloc[17:], folder / f"new2{suffix}")
    return folder


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tune_measures_levels(suffix, folder, tmp_path, capsys):
    levels = ("--levels", "day,shop=day+shop")
    words = ("tune", folder / "bare.pgbm", "--data", folder / f"val{suffix}", "--label", "y")
    out, _ = run(capsys, *words, "--distributions", "normal", *levels, "-o", tmp_path / "m.pgbm")
    found, want = load(tmp_path / "m.pgbm").chosen.correlation, load(folder / "model.pgbm").chosen.correlation
    assert found == want
    assert out.endswith(f"{want}\n")
    assert min(found.r) > 0.0


NUMBERS = ["mean", "std", "q25", "lower80", "upper80"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("by", [["day"], ["shop"], ["shop", "day"]])
def test_predict_writes_totals(by, suffix, folder, tmp_path, capsys):
    target = tmp_path / f"out{suffix}"
    given = ("--total-by", ",".join(by), "--levels", "shop=shop+day,day", "--interval", ".8", "--quantiles", ".25")
    words = ("predict", folder / "model.pgbm", f"{folder}/new*{suffix}", "-o", target)
    out, err = run(capsys, *words, *given)
    new, model = rows(5, 2), load(folder / "model.pgbm")
    groups = new.groupby(by, sort=False).ngroup()
    totals = model.predict_total(new[["a", "b"]], groups, {"day": new["day"], "shop": (new["day"], new["shop"])})
    assert (out, err) == (f"{len(totals)} totals -> {target}\n", "")
    found = (
        pd.read_parquet(target)
        if suffix == ".parquet"
        else pd.read_csv(target, parse_dates=sorted({"day"} & {*by}), converters=dict.fromkeys(NUMBERS, float))
    )
    assert list(found) == [*by, *NUMBERS]
    keys = new.drop_duplicates(by)[by]
    assert found[by].to_numpy().tolist() == keys.to_numpy().tolist()
    numbers = [totals.mean(), totals.std(), totals.ppf(0.25), *totals.interval(0.8)]
    np.testing.assert_array_equal(found.iloc[:, len(by) :].to_numpy().T, numbers)


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ("{d}/bare.pgbm --levels day", r"does not know how much: first run pgbm-plugin tune .*bare.pgbm --data ROWS"),
        ("{d}/model.pgbm", "err together by the levels day, shop: .* as in --levels day=COLUMN,shop=COLUMN"),
        ("{d}/model.pgbm --levels day", "levels lacks shop, which correlate measured"),
        ("{d}/model.pgbm --levels day,shop,week", "levels has 'week', and correlate measured day, shop"),
        ("{d}/model.pgbm --levels day,shop=day+town", "new1.csv': it has no column 'town'"),
        ("{d}/model.pgbm --levels day,shop=day+shop {t}/gap.csv", r"gap.csv': levels\['day'\] has 1 missing keys"),
    ],
)
def test_totals_are_refused(words, match, folder, tmp_path, capsys):
    gap = rows(1, 3).astype({"day": str})
    gap.loc[2, "day"] = ""
    write(gap, tmp_path / "gap.csv")
    model, *rest = words.format(d=folder, t=tmp_path).split()
    data = [] if rest and rest[-1].endswith(".csv") else [f"{folder}/new1.csv"]
    if not data:
        data = [rest.pop()]
    words = ("predict", model, *data, "-o", tmp_path / "o.csv", "--total-by", "shop", *rest)
    assert re.search(match, run(capsys, *words, code=1)[1])
    assert not (tmp_path / "o.csv").exists()


@pytest.mark.parametrize(
    ("levels", "match"),
    [
        ("shop,y", "val.csv': every row is a group of its own in the level 'y'"),
        ("year=one", "val.csv': it has no column 'one'"),
    ],
)
def test_bad_levels_are_refused_before_tuning(levels, match, folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("pgbm_plugin.model.ProbabilisticModel.tune", None)  # would be a bug
    words = ("tune", folder / "bare.pgbm", "--data", folder / "val.csv", "--label", "y", "--levels", levels)
    assert re.search(match, run(capsys, *words, "-o", tmp_path / "m.pgbm", code=1)[1])


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ("--total-by day --keep shop", "--keep copies columns of rows, and a total has many rows"),
        ("--levels day", "--levels is for totals: give --total-by COLUMN as well"),
        ("--total-by day,", "separated by single commas"),
        ("--total-by day --levels day+", "levels must look like day,shop=day+shop, not 'day+'"),
        ("--total-by day --levels =day", "levels must look like"),
        ("--total-by day --levels day,day", "the level 'day' comes twice"),
        ("--total-by day --levels a,b,c,d,e,f,g", "give at most 6"),
    ],
)
def test_usage(words, match, capsys):
    out, err = run(capsys, "predict", "m.pgbm", "new.csv", "-o", "o.csv", *shlex.split(words), code=2)
    assert out == ""
    assert match in err
