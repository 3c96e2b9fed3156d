"""Support on the command line: columns of predict, a line of inspect, and models that do not know."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from pgbm_plugin import load, wrap
from pgbm_plugin.leaves.moments import LeafMoments
from tests.people.commands import run


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_predict_support(suffix, cli_folder, tmp_path, capsys):
    model, X = load(cli_folder / "model.pgbm"), pd.read_parquet(cli_folder / "new.parquet")
    X.loc[3, ["a", "c"]] = 50.0
    X.to_parquet(tmp_path / "new.parquet")
    out = tmp_path / f"out{suffix}"
    run(capsys, "predict", cli_folder / "model.pgbm", tmp_path / "new.parquet", "-o", out, "--support")
    found = (
        pd.read_parquet(out)
        if suffix == ".parquet"
        else pd.read_csv(out, keep_default_na=False, converters={"support": float})
    )
    support = model.predict_support(X.to_numpy())
    assert list(found)[-2:] == ["support", "outside"]
    assert np.array_equal(found["support"], support.rows)
    assert found["outside"].tolist() == [", ".join(names) for names in support.outside]
    assert len(support.outside[3]) == 2


def test_inspect_shows_whether_ranges_are_known(cli_folder, tmp_path, capsys):
    model = load(cli_folder / "model.pgbm")
    assert "ranges:       those of training are known" in run(capsys, "inspect", cli_folder / "model.pgbm")[0]
    entries = json.loads(run(capsys, "inspect", cli_folder / "model.pgbm", "--json")[0])["ranges"]
    assert [entry["low"] for entry in entries] == model.moments.ranges.low.tolist()
    assert entries[0]["missing"] is False
    assert entries[0]["categories"] is None

    moments = LeafMoments(**{**vars(model.moments), "ranges": None})
    wrap(cli_folder / "model.txt", moments).save(tmp_path / "moments.pgbm")
    assert "those of training are not known" in run(capsys, "inspect", tmp_path / "moments.pgbm")[0]
    assert json.loads(run(capsys, "inspect", tmp_path / "moments.pgbm", "--json")[0])["ranges"] is None
    words = (
        "predict",
        tmp_path / "moments.pgbm",
        cli_folder / "new.parquet",
        "--support",
        "-o",
        tmp_path / "out.parquet",
    )
    _, err = run(capsys, *words)
    assert "does not know what training saw of each feature, so there is no column outside" in err
    assert list(pd.read_parquet(tmp_path / "out.parquet"))[-1] == "support"


def test_refusals(cli_folder, tmp_path, capsys):
    words = "predict", cli_folder / "model.pgbm", cli_folder / "new.parquet", "-o", tmp_path / "out.csv", "--support"
    _, err = run(capsys, *words, "--total-by", "a", code=2)
    assert "--support is for rows" in err
    _, err = run(capsys, *words, "--keep", "outside", code=1)
    assert "a column to keep is called 'outside'" in err
