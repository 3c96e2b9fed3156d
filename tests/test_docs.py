"""The code in the documentation runs as written, given the names that a reader would have."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import distributions
from pgbm_plugin.distributions import FAMILIES

ROOT = Path(__file__).parent.parent


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


PAGES = sorted(filter(blocks, [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pgbm_plugin.distributions.FAMILIES", FAMILIES.copy())  # pages may register their own
    monkeypatch.setattr("pgbm_plugin.tune.FAMILIES", distributions.FAMILIES)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 5))
    y = X[:, 0] + np.exp(0.5 * X[:, 1]) * rng.normal(size=1200)
    names = {
        "params": {"num_leaves": 8, "verbose": -1},
        "xgb": xgb,
        "xgb_params": {"max_depth": 3},
        "dtrain": xgb.DMatrix(X[:400], y[:400]),
        "department": np.arange(400) // 10,
        "X": X[:400],
        "y": y[:400],
        "X_val": X[400:800],
        "y_val": y[400:800],
        "X_cal": X[800:1000],
        "y_cal": y[800:1000],
        "X_new": X[1000:],
        "y_new": y[1000:],
    }
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), names)  # noqa: S102
