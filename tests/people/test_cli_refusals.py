"""The command line, when something is wrong: one line that says what, an exit code, and no file touched."""

from __future__ import annotations

import io
import re
import shlex
import sys

import pandas as pd
import pytest

from pgbm_plugin.cli import main
from tests.people.commands import run, write


def failing(capsys, *words):
    """The one line of an error."""
    out, err = run(capsys, *words, code=1)
    assert out == ""
    assert re.fullmatch(r"pgbm-plugin: error: [^\n]+\n", err)
    return err


def test_warnings_are_one_line(cli_folder, tmp_path, capsys):
    rows = pd.read_parquet(cli_folder / "rows.parquet")
    path = write(rows.iloc[:50], tmp_path / "held_out.parquet")
    _, err = run(capsys, "wrap", cli_folder / "model.txt", "--data", path, "--label", "y", "-o", tmp_path / "m.pgbm")
    assert re.fullmatch(r"pgbm-plugin: warning: not certified: held-out [^\n]+\n", err)
    out, again = run(
        capsys, "wrap", cli_folder / "model.txt", "--data", path, "--label", "y", "-o", tmp_path / "m.pgbm", "--quiet"
    )
    assert (out, again) == ("", err)


@pytest.mark.parametrize(
    ("words", "match"),
    [
        # models
        (
            "predict {d}/model.txt {d}/new.parquet -o {t}/o.csv",
            "LightGBM model without moments: first run pgbm-",
        ),
        ("tune {d}/model.txt --data {d}/rows.csv --label y", "LightGBM model without moments: first run pgbm-"),
        ("report {d}/model.txt {d}/rows.csv --label y -o {t}/r.html", "LightGBM model without moments"),
        (
            "wrap {d}/model.pgbm --data {d}/rows.csv --label y -o {t}/m.pgbm",
            "wrapped already: pgbm-plugin tune",
        ),
        ("inspect {d}/rows.csv", "rows.csv' is no model"),
        ("inspect {d}/gone.pgbm", "no model file at '.*gone.pgbm'"),
        ("inspect {d}", "is a directory"),
        ("inspect {t}/cut.pgbm", "cannot load '.*cut.pgbm': it is cut off"),
        ("wrap {t}/custom.txt --data {d}/rows.csv --label y -o {t}/m.pgbm", "custom objective.*wrap it in Python"),
        ("wrap {t}/linear.txt --data {d}/rows.csv --label y -o {t}/m.pgbm", "linear_tree"),
        # columns
        (
            "wrap {d}/model.txt --data {d}/rows.csv --label Y -o {t}/m.pgbm",
            "rows.csv': it has no column 'Y', only a",
        ),
        ("wrap {d}/model.txt --data {d}/rows.csv --label Y -o {t}/m.pgbm", r"did you mean 'y'\?"),
        ("wrap {d}/model.txt --data {d}/rows.csv --label y --weight w -o {t}/m.pgbm", "no column 'w'"),
        ("tune {d}/model.pgbm --data {d}/rows.csv --label target", "no column 'target', only a, b, c, d, y"),
        ("predict {d}/model.pgbm {d}/rows.csv -o {t}/o.csv", "5 columns, the model was trained on 4"),
        ("predict {d}/model.pgbm {d}/new.parquet -o {t}/o.csv --keep id", "no column 'id'"),
        ("predict {d}/model.pgbm {d}/new.parquet -o {t}/o.csv --keep std", "column to keep is called 'std'"),
        ("predict {d}/model.pgbm {t}/text.csv -o {t}/o.csv", "text.csv': column 'c' holds 'x' in row 2"),
        ("predict {d}/model.pgbm {t}/list.parquet -o {t}/o.csv --keep l", "column to keep cannot be written as CSV"),
        ("tune {d}/model.pgbm --data {t}/few.csv --label y", "few.csv': tune needs at least 6 rows, it got 2"),
        ("tune {d}/model.pgbm --data {t}/none.csv --label y", "none.csv' has no rows"),
        ("tune {d}/model.pgbm --data {d}/rows.csv --label y --distributions normal,norm", "norm"),
        ("tune {d}/model.pgbm --data {d}/rows.csv --label y --categorical a", "categorical"),
        # places
        ("predict {d}/model.pgbm {d}/gone*.parquet -o {t}/o.csv", "no Parquet or CSV file at '.*gone"),
        ("predict {d}/model.pgbm /dev/null -o {t}/o.csv", "'/dev/null' is a pipe or a device"),
        ("predict {d}/model.pgbm {d}/new.parquet -o {t}/none/o.csv", "no directory '.*none'"),
        ("wrap {d}/model.txt --data {d}/rows.csv --label y -o {t}/none/m.pgbm", "no directory '.*none'"),
        ("predict {d}/model.pgbm {d}/new.parquet -o {t}", "end in .parquet or .csv"),
        ("predict {d}/model.pgbm {d}/new.parquet -o {t}/folder.csv", "is a directory"),
        ("predict {d}/model.pgbm {d}/new.parquet -o {t}/o.xlsx", "o.xlsx' must end in .parquet or .csv"),
        ("predict {d}/model.pgbm {d}/new.parquet -o {d}/new.parquet", "also an input, and would be lost"),
        ("wrap {d}/model.txt --data {d}/rows.csv --label y -o {d}/model.txt", "also an input"),
        ("wrap {d}/model.txt --data {d}/rows.csv --label y -o {d}/../{n}/rows.csv", "also an input"),
        ("tune {d}/model.pgbm --data {d}/rows.csv --label y -o {d}/rows.csv", "also an input"),
        ("wrap {d}/model.txt --data {t}/bad.parquet --label y -o {t}/m.pgbm", "bad.parquet': Parquet magic bytes"),
        ("wrap {d}/model.txt --data {d}/rows.csv {d}/rows.parquet --label y -o {t}/m.pgbm", "files of one kind"),
    ],
)
def test_errors(words, match, cli_folder, tmp_path, capsys):
    (tmp_path / "cut.pgbm").write_bytes((cli_folder / "model.pgbm").read_bytes()[:-9])
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "bad.parquet").write_text("a,b,c,d,y\n")
    (tmp_path / "text.csv").write_text("a,b,c,d\n1,2,x,4\n")
    (tmp_path / "few.csv").write_text("a,b,c,d,y\n1,2,3,4,5\n1,2,3,4,5\n")
    (tmp_path / "none.csv").write_text("a,b,c,d,y\n")
    pd.read_parquet(cli_folder / "new.parquet").assign(l=[[1]] * 200).to_parquet(tmp_path / "list.parquet")
    text = (cli_folder / "model.txt").read_text()
    (tmp_path / "custom.txt").write_text(text.replace("objective=regression\n", ""))
    linear = re.sub("^tree_sizes=.*\n", "", text, flags=re.M).replace("is_linear=0", "is_linear=1")
    (tmp_path / "linear.txt").write_text(linear)
    before = {
        path: path.read_bytes() for folder in (cli_folder, tmp_path) for path in folder.iterdir() if path.is_file()
    }
    words = words.format(d=cli_folder, n=cli_folder.name, t=tmp_path)
    assert re.search(match, failing(capsys, *shlex.split(words)))
    after = {
        path: path.read_bytes() for folder in (cli_folder, tmp_path) for path in folder.iterdir() if path.is_file()
    }
    assert after == before


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ("", "required: COMMAND"),
        ("predictt", "invalid choice: 'predictt'"),
        ("predict m.pgbm new.csv", "required: -o"),
        (
            "predict m.pgbm new.csv -o o.csv --quantiles .5,1",
            "--quantiles: quantiles must lie strictly between",
        ),
        ("predict m.pgbm new.csv -o o.csv --quantiles .5,.5", "holds a level twice"),
        ("predict m.pgbm new.csv -o o.csv --quantiles half", "levels must be numbers separated by commas, not 'half'"),
        ("predict m.pgbm new.csv -o o.csv --interval 90", "--coverage: intervals must lie strictly between 0 and 1"),
        ("predict m.pgbm new.csv -o o.csv --keep a,,b", "separated by single commas"),
        ("predict m.pgbm new.csv -o o.csv --n-jobs 0", "a number of threads"),
        ("predict m.pgbm new.csv -o o.csv --device gpu", "device must be 'auto', 'cpu', 'cuda'"),
        ("tune m.pgbm --data v.csv --label y --score mse", "invalid choice: 'mse'"),
        ("tune m.pgbm --data v.csv --label y --cv 5", "which a wrapped model cannot: pgbm-plugin wrap BOOSTER --cv N"),
        ("wrap {d}/model.txt --data {d}/rows.csv -o m.pgbm", "--data needs the name of the label's column"),
        ("wrap {d}/model.txt --label y -o m.pgbm", "give --data FILE as well"),
    ],
)
def test_usage(words, match, cli_folder, capsys):
    out, err = run(capsys, *shlex.split(words.format(d=cli_folder)), code=2)
    assert out == ""
    assert match in err


@pytest.fixture
def predict(cli_folder, tmp_path):
    return "predict", cli_folder / "model.pgbm", cli_folder / "new.parquet", "-o", tmp_path / "out.parquet"


def test_pyarrow_is_an_extra(predict, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)
    assert "pip install 'pgbm-plugin[parquet]'" in failing(capsys, *predict)


def test_a_gpu_that_is_not_there(predict, capsys):
    assert "cuda:9" in failing(capsys, *predict, "--device", "cuda:9")


def test_interrupted(predict, capsys, monkeypatch, tmp_path):
    def interrupt(*given, **besides):
        raise KeyboardInterrupt

    monkeypatch.setattr("pgbm_plugin.model.summary_of", interrupt)
    assert run(capsys, *predict, code=130) == ("", "pgbm-plugin: interrupted\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_closed_stream(name, cli_folder, tmp_path, capsys, monkeypatch):
    """A shell closes it with >&-; commands that do not need it still work."""
    given = "predict", cli_folder / "model.pgbm", cli_folder / "new.parquet"
    monkeypatch.setattr(sys, name, None)
    assert main([*map(str, given), "-o", str(tmp_path / "o.csv")]) == 0
    if name == "stdout":
        assert main([*map(str, given), "-o", "-"]) == 1
        assert "the standard output is closed: give -o a file" in capsys.readouterr().err


def test_letters_that_the_terminal_lacks(cli_folder, tmp_path, monkeypatch):
    """And names from the shell that are no text at all."""
    path = tmp_path / "m\u65e5\udcff.pgbm"
    path.write_bytes((cli_folder / "model.pgbm").read_bytes())
    out = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["inspect", str(path)]) == 0
    assert rb"m\u65e5\udcff.pgbm (" in out.buffer.getvalue()
    data = str(cli_folder / "rows.csv")
    assert main(["report", str(path), data, "--label", "y", "-o", str(tmp_path / "r.html")]) == 0
    assert "<title>m\u65e5?.pgbm</title>" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_bug(predict, capsys, monkeypatch):
    """Is one line as well; --debug shows where."""

    def buggy(*given, **besides):
        raise KeyError("nobody\nknew")

    monkeypatch.setattr("pgbm_plugin.model.summary_of", buggy)
    assert "error: KeyError 'nobody" in failing(capsys, *predict)
    assert main([*map(str, predict), "--debug"]) == 1
    assert "in buggy" in capsys.readouterr().err


def test_progress(predict, capsys, monkeypatch):
    """On a terminal, if it can be drawn and is wanted."""
    assert run(capsys, *predict)[1] == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert "200 rows" in run(capsys, *predict)[1]
    assert run(capsys, *predict, "--quiet") == ("", "")
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert run(capsys, *predict)[1] == ""
