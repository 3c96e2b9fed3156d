"""device="cuda" against device="cpu" through the public API: on a GPU where there is one, and in numba's simulator.

`test_simulator.py` runs this file, and `test_cuda_arrays.py`, once more in a process that simulates a GPU.
"""

from __future__ import annotations

from importlib.util import find_spec

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import torch_objective, wrap
from pgbm_plugin.leaves.moments import LeafMoments
from pgbm_plugin.predict.recursion import variances
from pgbm_plugin.tables.rows import read_rows
from tests.gpu.simulated import LGB, ROWS, SIMULATED, TREES, XGB


def gpu_is_here():
    if SIMULATED or find_spec("numba_cuda") is None:
        return SIMULATED
    from numba import cuda

    return cuda.is_available()


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_is_here(), reason="no GPU"),
    pytest.mark.usefixtures("uncertified_is_fine"),
]


def assert_close(got: LeafMoments, want: LeafMoments, rtol: float):
    """On the scale of the numbers that each is made of; sums are taken in another order than the CPU's."""
    assert np.array_equal(got.count, want.count)
    g2, h2 = (s / np.maximum(want.count, 1) + m**2 for s, m in ((want.gg, want.g_mean), (want.hh, want.h_mean)))
    scale = {"g_mean": np.sqrt(g2), "h_mean": np.sqrt(h2), "gg": want.count * g2, "hh": want.count * h2}
    scale["gh"] = np.sqrt(scale["gg"] * scale["hh"])
    for name, size in scale.items():
        assert np.all(np.abs(getattr(got, name) - getattr(want, name)) <= rtol * np.maximum(size, 1e-300)), name


def check(booster, X, y, rtol=1e-12, **given):
    """Equal means, variances and moments to rounding; `rtol` is that of the moments."""
    cpu, gpu = (wrap(booster, X, y, device=device, **given) for device in ("cpu", "cuda"))
    assert gpu.certificate.status == cpu.certificate.status
    assert_close(gpu.moments, cpu.moments, rtol)
    assert np.array_equal(gpu.predict(X), cpu.predict(X))
    want, got = cpu.predict_dist(X), cpu.predict_dist(X, device="cuda")
    assert np.array_equal(got.mean(), want.mean())
    np.testing.assert_allclose(got.var(), want.var(), rtol=1e-12)  # multiplications and additions may be fused
    return cpu, gpu


@pytest.mark.parametrize("kind", ["numeric", "nan", "categorical", "mixed"])
@pytest.mark.parametrize("zero_as_missing", [False, True])
def test_lightgbm_splits(kind, zero_as_missing, make_data):
    X, y = make_data(kind, n=ROWS)
    if isinstance(X, np.ndarray):
        X[::7] = 0.0
    check(lgb.train({**LGB, "zero_as_missing": zero_as_missing}, lgb.Dataset(X, y), TREES), X, y)


@pytest.mark.parametrize("kind", ["numeric", "nan", "categorical", "mixed"])
def test_xgboost_splits(kind, make_data):
    X, y = make_data(kind, np.float32, n=ROWS)
    check(xgb.train(XGB, xgb.DMatrix(X, y, enable_categorical=True), TREES), X, y)


# exp and log of a GPU may differ from the CPU's in the last bit, which float32 gradients turn into 6e-8 at most
ELEMENTARY = 1e-6


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("objective", ["regression", "huber", "fair", "poisson", "gamma", "tweedie", "regression_l1"])
def test_lightgbm_objectives(objective, weighted, make_data):
    X, y = make_data("nan", n=ROWS)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y)) if weighted else None
    booster = lgb.train({**LGB, "objective": objective}, lgb.Dataset(X, y, weight=weight), TREES)
    check(booster, X, y, ELEMENTARY, sample_weight=weight)


@pytest.mark.parametrize("objective", ["reg:pseudohubererror", "reg:squaredlogerror", "count:poisson", "reg:gamma"])
def test_xgboost_objectives(objective, make_data):
    X, y = make_data("nan", np.float32, n=ROWS)
    booster = xgb.train({**XGB, "objective": objective, "base_score": 1.0}, xgb.DMatrix(X, y), TREES)
    check(booster, X, y, ELEMENTARY)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 128, 129])
def test_sizes_around_tiles_and_blocks(n, make_data):
    """Tiles and blocks have 32 and 128 rows in the simulator, 256 and 4,096 on a GPU."""
    scale = 1 if SIMULATED else 32
    X, y = make_data("nan", n=max(ROWS, n * scale))
    booster = lgb.train({**LGB, "num_leaves": 40}, lgb.Dataset(X, y), TREES)
    check(booster, X[: n * scale], y[: n * scale])


def test_shapes_of_forests(make_data):
    X, y = make_data("numeric", n=ROWS)
    data = lgb.Dataset(X, y)
    check(lgb.train({**LGB, "min_data_in_leaf": ROWS}, data, TREES), X, y)  # trees of one leaf
    check(lgb.train({**LGB, "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}, lgb.Dataset(X, y), 3), X, y)
    params = {**XGB, "num_parallel_tree": 2, "subsample": 0.8}
    check(xgb.train(params, xgb.DMatrix(X.astype(np.float32), y), 2), X.astype(np.float32), y)
    check(lgb.train(LGB, lgb.Dataset(X, y + 1e6), TREES), X, y + 1e6)  # sums of differences, so that nothing cancels


def test_custom_objectives(make_data):
    X, y = make_data("nan", n=ROWS)

    def objective(margin, y):
        t = np.tanh(margin - y)
        return t, np.maximum(1 - t * t, 1e-3)

    train = xgb.DMatrix(X, y)
    booster = xgb.train(XGB, train, TREES, obj=lambda margin, data: objective(margin, data.get_label()))
    check(booster, X, y, objective=objective)
    pytest.importorskip("torch")
    loss = torch_objective(lambda p, t: (p - t) ** 2 + (p - t) ** 4)
    check(lgb.train({**LGB, "objective": loss}, lgb.Dataset(X, y), TREES), X, y, objective=loss)


@pytest.mark.parametrize("k", [1, 3, 4, 9])
def test_several_correlations(k, make_data):
    X, y = make_data("nan", n=ROWS)
    model = wrap(lgb.train(LGB, lgb.Dataset(X, y), TREES), X, y)
    rho, sd = np.linspace(-0.9, 0.9, k), model.weights.sd
    rows, on_gpu = (read(X) for read in (lambda X: read_rows(X, model.forest.features), lambda X: sent(model, X)))
    np.testing.assert_allclose(
        variances(model.forest, on_gpu, sd, rho), variances(model.forest, rows, sd, rho), rtol=1e-12
    )


def sent(model, X):
    from pgbm_plugin.tables.cuda_rows import read_rows_for

    return read_rows_for(X, model.forest, "cuda")


def test_tuning(make_data):
    X, y = make_data("numeric", n=2 * ROWS)
    booster = lgb.train(LGB, lgb.Dataset(X[:ROWS], y[:ROWS]), TREES)
    best = []
    for device in ("cpu", "cuda"):
        model = wrap(booster, X[:ROWS], y[:ROWS], device=device)
        given = {"distributions": ["normal", "gamma"], "rho": [0.0, 0.1]}
        best.append(model.tune(X[ROWS:], y[ROWS:], **given).best)
        model.conformalize(X[ROWS : ROWS + ROWS // 2], y[ROWS : ROWS + ROWS // 2])
    assert best[0].distribution == best[1].distribution
    assert best[0].score == pytest.approx(best[1].score, rel=1e-9)


def test_single_precision_is_asked_for(make_data):
    """Means keep their bits; variances are those of a recursion in float32."""
    X, y = make_data("nan", n=ROWS)
    model = wrap(lgb.train(LGB, lgb.Dataset(X, y), TREES), X, y, device="cuda")
    double, single = model.predict_dist(X), model.predict_dist(X, dtype=np.float32)
    assert np.array_equal(single.mean(), double.mean())
    assert not np.array_equal(single.var(), double.var())
    np.testing.assert_allclose(single.var(), double.var(), rtol=1e-5)
    with pytest.raises(ValueError, match="float64 or float32"):
        model.predict_dist(X, dtype=np.int32)


@pytest.mark.parametrize("order", ["C", "F", "strided", "frame", "sparse", "integers"])
def test_tables_of_the_host(order, make_data):
    import pandas as pd
    import scipy.sparse as sp

    X, y = make_data("numeric", n=ROWS)
    X = np.round(X)
    model = wrap(lgb.train(LGB, lgb.Dataset(X, y), TREES), X, y, device="cpu")
    table = {
        "C": X,
        "F": np.asfortranarray(X),
        "strided": np.repeat(X, 2, axis=0)[::2],
        "frame": pd.DataFrame(X, columns=model.forest.features.names),
        "sparse": sp.csr_matrix(X),
        "integers": X.astype(np.int64),
    }[order]
    assert np.array_equal(model.predict(table, device="cuda"), model.predict(X))


def test_rows_that_do_not_fit_into_memory(make_data, monkeypatch):
    """Tasks of few rows: the same numbers, in several parts."""
    from pgbm_plugin.routes.cuda import Cuda

    X, y = make_data("nan", n=ROWS)
    monkeypatch.setattr(Cuda, "_fitting", lambda self, row_bytes: ROWS // 3 + 1)
    booster = lgb.train(LGB, lgb.Dataset(X, y), TREES)
    model, _ = check(booster, X, y)
    rho = np.array([-0.2, 0.3])
    want = variances(model.forest, read_rows(X, model.forest.features), model.weights.sd, rho)
    np.testing.assert_allclose(variances(model.forest, sent(model, X), model.weights.sd, rho), want, rtol=1e-12)
    pytest.importorskip("torch")
    loss = torch_objective(lambda p, t: (p - t) ** 2 + (p - t) ** 4)
    check(lgb.train({**LGB, "objective": loss}, lgb.Dataset(X, y), TREES), X, y, objective=loss)


def test_batches_and_updates(make_data):
    """Each batch is sent, and the model goes on with its device."""
    X, y = make_data("nan", n=ROWS)
    booster = lgb.train(LGB, lgb.Dataset(X, y), TREES)
    half = ROWS // 2
    parts = [(X[:half], y[:half]), (X[half:], y[half:])]
    cpu, gpu = (wrap(booster, iter(parts), device=device) for device in ("cpu", "cuda"))
    assert gpu.certificate.status == cpu.certificate.status
    assert_close(gpu.moments, cpu.moments, 1e-12)
    assert_close(gpu.update(X, y).moments, cpu.update(X, y).moments, 1e-12)
    for got, want in zip(gpu.predict_dist(iter([X])), cpu.predict_dist(iter([X])), strict=True):
        np.testing.assert_allclose(got.var(), want.var(), rtol=1e-12)


def test_partitions(make_data):
    """Dask's workers send their partitions to the GPU that each of them sees; here there is one for all."""
    da = pytest.importorskip("dask.array")
    import dask

    from pgbm_plugin import dask as pgbm_dask

    X, y = make_data("nan", n=ROWS)
    booster = lgb.train(LGB, lgb.Dataset(X, y), TREES)
    dX, dy = da.from_array(X, chunks=(ROWS // 2, 4)), da.from_array(y, chunks=ROWS // 2)
    with dask.config.set(scheduler="synchronous"):
        lazy = pgbm_dask.wrap(booster, dX, dy, device="cuda")
        want = wrap(booster, X, y, device="cpu")
        assert_close(lazy.model.moments, want.moments, 1e-12)
        np.testing.assert_allclose(lazy.predict_var(dX).compute(), want.predict_var(X), rtol=1e-10)


def test_the_number_of_a_gpu(make_data):
    X, y = make_data("numeric", n=20)
    booster = lgb.train(LGB, lgb.Dataset(X, y), 1)
    wrap(booster, X, y, device="cuda:0").predict(X)
    with pytest.raises(ValueError, match=r"cuda:99.*GPUs"):
        wrap(booster, X, y, device="cuda:99")


def test_a_boosted_scale(make_data):
    """Its steps are summed as margins are."""
    X, y = make_data("numeric", n=ROWS)
    booster = lgb.train(LGB, lgb.Dataset(X, y), TREES)
    model = wrap(booster, X, y, variance="boosted", device="cpu")
    for _ in range(2):
        cpu, gpu = (model.predict_dist(X, "normal", device=device) for device in ("cpu", "cuda"))
        assert np.array_equal(cpu.mean(), gpu.mean())
        np.testing.assert_allclose(gpu.std(), cpu.std(), rtol=1e-9)
        model.tune(*make_data("numeric", n=ROWS, seed=1), variance="auto", distributions="normal", device="cuda")
