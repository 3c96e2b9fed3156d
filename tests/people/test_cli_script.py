"""The command as a process: the installed script, pipes, what --help imports."""

from __future__ import annotations

import io
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.csv
import pytest

import pgbm_plugin
from pgbm_plugin import load
from pgbm_plugin.cli import parser
from tests.people.commands import run, run_python, write

SCRIPT = Path(sys.executable).with_name("pgbm-plugin")


COMMAND = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "pgbm_plugin"]


def test_the_installed_script(cli_folder, tmp_path):
    """And, as its output goes to a pipe, CSV that pandas reads."""
    words = [
        "wrap",
        cli_folder / "model.txt",
        "--data",
        cli_folder / "rows.csv",
        "--label",
        "y",
        "-o",
        tmp_path / "m.pgbm",
    ]
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "certified" in done.stdout
    words = ["predict", tmp_path / "m.pgbm", cli_folder / "new.parquet", "-o", "-", "--interval", "0.8"]
    done = subprocess.run([*COMMAND, *words], capture_output=True)
    assert done.returncode == 0
    assert done.stderr.startswith(b"pgbm-plugin: warning: this model is untuned")
    assert done.stderr.count(b"\n") == 1
    table = pyarrow.csv.read_csv(io.BytesIO(done.stdout)).to_pandas()
    distribution = load(cli_folder / "model.pgbm").predict_dist(pd.read_parquet(cli_folder / "new.parquet"))
    assert list(table) == ["mean", "std", "lower80", "upper80"]
    expected = [distribution.mean(), distribution.std(), *distribution.interval(0.8)]
    assert np.array_equal(table.to_numpy().T, expected)


def test_a_reader_who_has_seen_enough(cli_folder, tmp_path):
    rows = pd.concat([pd.read_parquet(cli_folder / "new.parquet")] * 30)
    words = [*COMMAND, "predict", cli_folder / "model.pgbm", write(rows, tmp_path / "many.parquet"), "-o", "-"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"mean,std,q05,q50,q95\n"
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait() == 0


def test_help_imports_nothing_heavy(tmp_path):
    code = (
        "import sys\nfrom pgbm_plugin.cli import main\n"
        "for words in (['--help'], ['predict', '--help']):\n"
        "    try:\n        main(words)\n    except SystemExit as done:\n        assert done.code == 0\n"
        "heavy = ('numba', 'scipy', 'pyarrow', 'pandas', 'tqdm', 'lightgbm', 'xgboost', 'torch')\n"
        "print('heavy:', *[name for name in heavy if name in sys.modules])"
    )
    assert run_python(code, tmp_path).endswith("\nheavy:")


def test_as_a_module(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "pgbm_plugin", "--version"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout == f"pgbm-plugin {pgbm_plugin.__version__}\n"


@pytest.mark.parametrize("command", ["wrap", "tune", "predict", "inspect", "report"])
def test_every_command_helps(command, capsys):
    out, _ = run(capsys, command, "--help")
    description, _, examples = out.partition("examples:\n")
    assert len(description.split("\n\n")[1]) > 40
    for line in examples.splitlines():
        if line.startswith("  pgbm-plugin"):  # what help shows can be said
            words = shlex.split(line.partition("|")[0], comments=True)
            assert parser().parse_args(words[1:]).run.__module__ == f"pgbm_plugin.cli.{command}"


# Stands in for NumPy, one of the first packages that are imported: Ctrl-C comes while it is.
INTERRUPTED = """
import os, signal
os.kill(os.getpid(), signal.SIGINT)
print("went on", flush=True)
os._exit(0)
"""


def interrupted_import(folder, *words, **options):
    (folder / "numpy.py").write_text(INTERRUPTED)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, **options)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_interrupt_while_packages_are_imported(tmp_path):
    assert interrupted_import(tmp_path, "-m", "pgbm_plugin", "--version") == (130, "", "pgbm-plugin: interrupted\n")
    script = tmp_path / "pgbm-plugin"
    script.write_text("from pgbm_plugin.cli import main\nmain()\n")
    assert interrupted_import(tmp_path, str(script)) == (130, "", "pgbm-plugin: interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_interrupts_of_other_programs_stay_their_own(tmp_path):
    """And a shell starts a command in the background with SIGINT ignored."""

    def ignore():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    code, _, error = interrupted_import(tmp_path, "-c", "import pgbm_plugin")
    assert code != 130
    assert "KeyboardInterrupt" in error
    command = "-m", "pgbm_plugin", "--version"
    assert interrupted_import(tmp_path, *command, preexec_fn=ignore) == (0, "went on\n", "")
