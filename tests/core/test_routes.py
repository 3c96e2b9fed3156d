"""Walk and replay: the same bits for any number of rows, kind of split and threads; their memory; no place to cache."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from dataclasses import fields, replace

import lightgbm as lgb
import numpy as np
import pytest
import scipy.sparse
import xgboost as xgb

from pgbm_plugin import wrap
from pgbm_plugin.predict.recursion import variances
from pgbm_plugin.routes import choose as route
from pgbm_plugin.routes.replay import Replay
from pgbm_plugin.routes.walk import Walk
from pgbm_plugin.tables.rows import read_rows
from pgbm_plugin.trees.forest import CATEGORICAL

# around vectors, packs, groups of packs, blocks and chunks; odd ones, because sums are taken in two lanes
SIZES = (1, 7, 31, 33, 63, 64, 65, 129, 257, 511, 2047, 2048, 2049, 4097, 5001)


def rows(n=5001, seed=0):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 5)), 2)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[rng.random(X.shape) < 0.1] = 0.0
    X[:, 4] = rng.integers(0, 40, n)
    y = np.exp(0.5 * np.nan_to_num(X[:, 0]) + 0.1 * (X[:, 4] % 3) + 0.1 * rng.normal(size=n))
    return X, y


def lightgbm(X, y, trees=8, **params):
    data = lgb.Dataset(X, y, categorical_feature=[4], params={"min_data_per_group": 5})
    return lgb.train({"verbose": -1, "min_data_in_leaf": 5, **params}, data, trees)


def xgboost(X, y, trees=8, **params):
    return xgb.train({"tree_method": "hist", **params}, xgb.DMatrix(X, y), trees)


MODELS = {
    "categories": lambda X, y: lightgbm(X, y),
    "zero is missing": lambda X, y: lightgbm(X, y, zero_as_missing=True),
    "weighted hessians": lambda X, y: lightgbm(X, y, objective="poisson"),
    "two-byte codes": lambda X, y: lightgbm(X, y, max_bin=2000, num_leaves=300),
    "one leaf": lambda X, y: lightgbm(X, y, min_data_in_leaf=5000),
    "float32": lambda X, y: xgboost(X, y),
    "float32, two-byte codes": lambda X, y: xgboost(X, y, tree_method="exact", max_depth=9, min_child_weight=0),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    X, y = rows()
    booster = MODELS[request.param](X, y)
    return booster, X, y


def on_both(monkeypatch, call):
    monkeypatch.setattr(route, "forced", "walk")
    walked = call()
    monkeypatch.setattr(route, "forced", "replay")
    return walked, call()


def test_predictions_have_the_same_bits(model, monkeypatch):
    wrapped = wrap(*model)
    X, rho = model[1], np.array([-0.5, 0.0, 0.05, 1.0])
    for n in SIZES:
        for call in (
            lambda n=n: wrapped.predict(X[:n]),
            lambda n=n: wrapped.predict_dist(X[:n]).var(),
            lambda n=n: variances(wrapped.forest, read_rows(X[:n], wrapped.forest.features), wrapped.weights.sd, rho),
        ):
            walked, replayed = on_both(monkeypatch, call)
            np.testing.assert_array_equal(walked, replayed)


@pytest.mark.filterwarnings("ignore:not certified")
@pytest.mark.parametrize("n", [41, 2049, 5001])
def test_moments_have_the_same_bits(model, n, monkeypatch):
    booster, X, y = model
    weight = np.random.default_rng(1).uniform(0.5, 2.0, n)
    for sample_weight in (None, weight):
        for n_jobs in (1, 2):
            walked, replayed = on_both(
                monkeypatch,
                lambda w=sample_weight, j=n_jobs: wrap(booster, X[:n], y[:n], sample_weight=w, n_jobs=j).moments,
            )
            for one, other in ((walked, replayed), (walked.ranges, replayed.ranges)):
                for field in fields(one):
                    if field.name != "ranges":
                        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


def test_few_rows_walk_and_many_are_replayed(monkeypatch):
    monkeypatch.setattr(route, "forced", "")
    X, y = rows()
    forest = wrap(lightgbm(X, y), X, y).forest
    least = route.replay_program(forest).least_rows
    assert route._FEW_ROWS < least < 100
    for n, kind in ((route._FEW_ROWS - 1, Walk), (least - 1, Walk), (least, Replay)):
        assert isinstance(route.choose_route(forest, read_rows(X[:n], forest.features)), kind)


@pytest.mark.parametrize("booster", [lightgbm, xgboost])
def test_how_rows_lie_in_memory_changes_nothing(booster):
    X, y = rows()
    wrapped = wrap(booster(X, y), X, y)
    expected = wrapped.predict_dist(X)
    wide = np.empty((len(X), 10))
    wide[:, ::2] = X
    for other in (np.asfortranarray(X), wide[:, ::2], X.astype(">f8"), wide[:, ::2][::-1][::-1]):
        got = wrapped.predict_dist(other)
        np.testing.assert_array_equal(got.mean(), expected.mean())
        np.testing.assert_array_equal(got.var(), expected.var())


def test_wide_sparse_rows_code_only_what_the_model_uses():
    X = scipy.sparse.random(3000, 5000, 0.01, "csr", random_state=np.random.default_rng(0))
    y = np.asarray(X[:, 7].todense()).ravel() + np.asarray(X[:, 4000].todense()).ravel()
    wrapped = wrap(lgb.train({"verbose": -1}, lgb.Dataset(X, y), 5), X, y)
    assert len(wrapped.forest.cache["replay"].feature) < 100
    tracemalloc.start()
    got = wrapped.predict_dist(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.2 * 8 * X.shape[0] * X.shape[1]  # the dense rows would be 120 MB
    np.testing.assert_array_equal(got.var(), wrapped.predict_dist(X.toarray()).var())


def test_prediction_holds_little_beyond_its_input_and_outputs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300_000, 28))
    sample = X[:2000]
    wrapped = wrap(lgb.train({"verbose": -1}, lgb.Dataset(sample, sample[:, 0]), 5), sample, sample[:, 0])
    wrapped.predict_dist(sample)
    tracemalloc.start()
    wrapped.predict_dist(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    outputs = 2 * 8 * len(X)
    assert peak < 2 * outputs + 2**23


def test_without_a_directory_to_cache_in(tmp_path):
    """Installed read-only, and no home to write to: numba finds no place for compiled code."""
    code = """
import numba.core.caching as caching
getattr(caching, "CacheImpl", getattr(caching, "_CacheImpl", None))._locator_classes = []
import numpy as np
from pgbm_plugin import wrap
X = np.random.default_rng(0).normal(size=(100, 2))
import lightgbm as lgb
print(wrap(lgb.train({"verbose": -1}, lgb.Dataset(X, X[:, 0]), 3), X, X[:, 0]).predict_dist(X).std().min() >= 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "True"


def test_empty_category_sets():
    """A set without a word, as a damaged or foreign file may have, is refused before a kernel could read past it."""
    X, y = rows(5000)
    full = wrap(lightgbm(X, y), X, y).forest
    assert np.any(full.nodes["flags"] & CATEGORICAL)
    with pytest.raises(ValueError, match="category set"):
        replace(full, category_start=np.zeros_like(full.category_start), category_bits=full.category_bits[:0])


def test_category_sets_that_do_not_exist():
    X, y = rows(5000)
    full = wrap(lightgbm(X, y), X, y).forest
    categorical = np.flatnonzero(full.nodes["flags"] & CATEGORICAL)
    for absent in (-1, len(full.category_start) - 1):
        nodes = full.nodes.copy()
        nodes["category_set"][categorical[0]] = absent
        with pytest.raises(ValueError, match="category set that does not exist"):
            replace(full, nodes=nodes)
