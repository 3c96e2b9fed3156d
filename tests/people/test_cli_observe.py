"""What the command line does about groups, bins, weights and labels that arrive later: the same as Python."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pyarrow")

from pgbm_plugin import load, wrap
from tests.people.commands import run, train, write

FEATURES = ["a", "b"]
TUNE = ("--label", "y", "--distributions", "normal", "--variance", "pgbm", "--quiet")


@pytest.fixture(scope="module")
def parts():
    """Rows to train, tune, calibrate, observe and predict; the last two are noisier."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(1900, 2)), columns=FEATURES)
    noise = np.where(np.arange(1900) < 1300, 1.0, 2.0)
    frame["y"] = frame["a"] + noise * rng.normal(size=1900)
    frame["shop"] = rng.choice(["Zürich", "Oslo"], 1900)
    frame["often"] = np.where(frame["b"] > 0, 3.0, 1.0)
    ends = {"train": (0, 400), "val": (400, 700), "cal": (700, 1300), "new": (1300, 1600), "later": (1600, 1900)}
    return {name: frame[start:stop].reset_index(drop=True) for name, (start, stop) in ends.items()}


@pytest.fixture
def folder(parts, tmp_path):
    for name, part in parts.items():
        write(part, tmp_path / f"{name}.csv")
    X, y = parts["train"][FEATURES], parts["train"]["y"]
    wrap(train("lightgbm", X, y, tmp_path), X, y).save(tmp_path / "m.pgbm")
    return tmp_path


def tuned(folder, parts, **options):
    """The model that Python makes."""
    model = load(folder / "m.pgbm")
    model.tune(parts["val"][FEATURES], parts["val"]["y"], distributions="normal", variance="pgbm")
    return model.conformalize(parts["cal"][FEATURES], parts["cal"]["y"], **options)


@pytest.mark.parametrize("groups", [False, True])
def test_observe(groups, folder, parts, capsys):
    made, words = folder / "made.pgbm", ("--groups", "shop") if groups else ()
    run(
        capsys, "tune", folder / "m.pgbm", "--data", folder / "val.csv", *TUNE,
        "--conformal", folder / "cal.csv", *words, "-o", made,
    )  # fmt: skip
    model = tuned(folder, parts, **({"groups": parts["cal"]["shop"]} if groups else {}))
    assert "observed:     no labels" in run(capsys, "inspect", made)[0]
    settings = ("--window", "500", "--step", "0.05")
    observe = ("observe", made, "--data", folder / "new.csv", "--label", "y")
    if groups:
        assert "--groups COL,COL" in run(capsys, *observe, code=1)[1]
    out, err = run(capsys, *observe, *words, *settings, "-o", folder / "observed.pgbm")
    seen = {"groups": parts["new"]["shop"]} if groups else {}
    model.observe(parts["new"][FEATURES], parts["new"]["y"], window=500, step=0.05, **seen)
    assert (out, err) == (f"{model.observed}\n", "")
    again = load(folder / "observed.pgbm")
    asked = {"groups": parts["later"]["shop"]} if groups else {}
    expected = model.predict_interval(parts["later"][FEATURES], **asked)
    assert np.array_equal(again.predict_interval(parts["later"][FEATURES], **asked), expected)
    assert "300 rows, of which 90 % intervals held" in run(capsys, "inspect", folder / "observed.pgbm")[0]
    facts = json.loads(run(capsys, "inspect", folder / "observed.pgbm", "--json")[0])["observed"]
    assert (facts["rows"], facts["window"], facts["step"]) == (300, 500, 0.05)
    assert facts["cover"]["90%"] == model.observed.cover[0.9]
    run(capsys, *observe, *words, "--quiet")  # in place
    assert load(made).observed.rows == 300
    assert "observed in the last call already" in run(capsys, *observe, *words, code=1)[1]


def test_observe_refuses(folder, capsys):
    observe = ("observe", folder / "m.pgbm", "--data", folder / "new.csv")
    before = (folder / "m.pgbm").read_bytes()
    for words, code, match in (
        (("--label", "y"), 1, "this model has none: first call model.conformalize"),
        (("--label", "z"), 1, "no column 'z'"),
        (("--label", "y", "--window", "3"), 1, "window must lie between"),
        (("--label", "y", "--step", "2"), 1, "step must lie above 0"),
        (("--label", "y", "--window", "x"), 2, "invalid int value"),
        ((), 2, "--label"),
    ):
        assert match in run(capsys, *observe, *words, code=code)[1]
    assert (folder / "m.pgbm").read_bytes() == before


def test_bins_and_weights(folder, parts, capsys):
    words = ("tune", folder / "m.pgbm", "--data", folder / "val.csv", *TUNE, "-o", folder / "made.pgbm")
    further = ("--conformal", folder / "cal.csv", "--bins", "mean", "--conformal-weight", "often")
    run(capsys, *words, *further)
    expected = tuned(folder, parts, groups="mean", sample_weight=parts["cal"]["often"])
    X = parts["later"][FEATURES]
    assert np.array_equal(load(folder / "made.pgbm").predict_interval(X), expected.predict_interval(X))
    assert "bins of the predicted mean" in run(capsys, "inspect", folder / "made.pgbm")[0]
    for wrong in (("--bins", "mean"), ("--conformal-weight", "often"), ("--groups", "shop")):
        assert f"{wrong[0]} needs --conformal" in run(capsys, *words, *wrong, code=2)[1]
    for wrong in (("--bins", "mean"), ("--levels", "shop")):
        told = run(capsys, *words, "--conformal", folder / "cal.csv", "--groups", "shop", *wrong, code=2)[1]
        assert "--groups goes with neither --bins" in told
