"""The package as installed: what importing it costs, its names, its version."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

import pgbm_plugin
from tests.people.commands import run_python

HEAVY = ("numba", "lightgbm", "xgboost", "torch", "pandas", "polars", "pyarrow", "dask", "sklearn", "tqdm")
HEAVY += ("matplotlib", "skpro", "mlflow")


@pytest.mark.parametrize("module", ["pgbm_plugin", "pgbm_plugin.plot", "pgbm_plugin.report"])
def test_import_is_light(module, tmp_path):
    loaded = run_python(f"import sys, {module}; print(*[m for m in {HEAVY} if m in sys.modules])", tmp_path)
    assert loaded == ""


@pytest.mark.parametrize(("mine", "other"), [("lightgbm", "xgboost"), ("xgboost", "lightgbm")])
def test_one_booster_never_imports_the_other(mine, other, tmp_path):
    code = f"""
import sys, numpy as np, {mine} as booster
sys.modules["{other}"] = None
from pgbm_plugin import wrap
X = np.random.default_rng(0).normal(size=(200, 2))
if "{mine}" == "lightgbm":
    fit = booster.LGBMRegressor(n_estimators=3, verbose=-1)
else:
    fit = booster.XGBRegressor(n_estimators=3)
print(wrap(fit.fit(X, X[:, 0]), X, X[:, 0]).certificate.status)
"""
    assert run_python(code, tmp_path) == "certified"


def test_public_names():
    assert set(pgbm_plugin.__all__) >= {"ProbabilisticModel", "UnsupportedModelError", "wrap"}
    assert all(hasattr(pgbm_plugin, name) for name in pgbm_plugin.__all__)
    assert issubclass(pgbm_plugin.UnsupportedModelError, ValueError)


def test_version():
    assert pgbm_plugin.__version__ == importlib.metadata.version("pgbm-plugin")


def test_kernels_live_inside_the_package(tmp_path):
    """`kernels` as a top-level name belongs to another package; from outside the repository there is none."""
    code = "import importlib.util as u; print(u.find_spec('kernels'), u.find_spec('pgbm_plugin.kernels') is not None)"
    assert run_python(code, tmp_path) == "None True"


def test_typed():
    assert Path(pgbm_plugin.__file__).with_name("py.typed").is_file()
