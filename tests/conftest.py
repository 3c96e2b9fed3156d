"""Small seeded data sets, and the route that all rows take."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, settings
from pgbm_plugin.kernels import cpu

from pgbm_plugin.tables.rows import read_rows

# Helpers that assert show the values of an assert that fails, as tests do.
pytest.register_assert_rewrite("tests.same", "tests.core", "tests.training", "tests.people")

# The first example compiles kernels, so no deadline; derandomised, so that a run can be repeated.
settings.register_profile(
    "suite", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")


def pytest_addoption(parser):
    parser.addoption("--route", choices=["walk", "replay"], help="send all rows one way through the trees")


def pytest_configure(config):
    if config.getoption("--route"):
        os.environ["PGBM_PLUGIN_ROUTE"] = config.getoption("--route")


def _make_data(kind: str, dtype: type = np.float64, n: int = 400, seed: int = 0):
    """X (a matrix, or a frame where there are categories) and positive, skewed labels."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(n, 4)).astype(dtype)
    effect = matrix[:, 0] + 0.5 * np.sin(3 * matrix[:, 1])
    if kind in ("nan", "mixed"):
        matrix[rng.random((n, 4)) < 0.2] = np.nan
    X = matrix
    if kind in ("categorical", "mixed"):
        few, many = rng.integers(0, 3, n), rng.integers(0, 12, n)
        effect = effect + 0.5 * (few == 1) + 0.1 * (many % 5)
        # neither list of categories is sorted: codes are positions in it
        few_names, many_names = np.array(["red", "blue", "green"]), np.array([f"k{7 * i % 12}" for i in range(12)])
        X = pd.DataFrame(matrix, columns=list("abcd"))
        X.insert(1, "few", pd.Categorical(few_names[few], categories=few_names))
        X.insert(4, "many", pd.Categorical(many_names[many], categories=many_names))
        if kind == "mixed":
            X.loc[rng.random(n) < 0.1, "many"] = np.nan
    y = np.exp(0.4 * effect + 0.2 * rng.normal(size=n)) + 0.1
    return X, y


def _leaf_labels(model, X):
    """(n, T) the leaf that each row reaches in each tree, in the booster's own numbering."""
    forest = model.forest
    rows = read_rows(X, forest.features)
    out = np.empty((len(rows), forest.n_trees), np.int64)
    ((_, _, block),) = rows.blocks(0, len(rows))
    for t in range(forest.n_trees):
        leaf = np.empty(len(rows), np.int64)
        cpu.route(block, forest.root[t], *forest.routing[1:], leaf)
        out[:, t] = forest.leaf_label[leaf]
    return out


@pytest.fixture(scope="session")
def leaf_labels():
    return _leaf_labels


@pytest.fixture(scope="session")
def make_data():
    return _make_data


@pytest.fixture(scope="session")
def numeric():
    return _make_data("numeric")


@pytest.fixture(scope="session")
def mixed():
    return _make_data("mixed")
