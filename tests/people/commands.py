"""Files for the command line, and commands run in this process or in one of their own."""

from __future__ import annotations

import subprocess
import sys

import lightgbm as lgb
import xgboost as xgb

from pgbm_plugin.cli import main

LGB = {"num_leaves": 8, "min_data_in_leaf": 5, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 3, "nthread": 1}


def train(kind, X, y, path, **besides):
    """Train a booster, and return the path of its file: .txt or .ubj."""
    if kind == "lightgbm":
        lgb.train(LGB, lgb.Dataset(X, y, **besides), 8).save_model(path / "model.txt")
        return path / "model.txt"
    besides = {{"init_score": "base_margin"}.get(name, name): value for name, value in besides.items()}
    xgb.train(XGB, xgb.DMatrix(X, y, enable_categorical=True, **besides), 8).save_model(path / "model.ubj")
    return path / "model.ubj"


def write(frame, path):
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path, index=False)
    return str(path)


def run(capsys, *words, code=0):
    """Run a command in this process, assert its exit code, and return its output and its errors."""
    capsys.readouterr()
    try:
        found = main([str(word) for word in words])
    except SystemExit as exit_:
        found = exit_.code
    out, err = capsys.readouterr()
    assert found == code, err
    assert "Traceback" not in err
    return out, err


def run_python(code, cwd):
    """Run code in a process of its own, and return what it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=cwd)
    return done.stdout.strip()
