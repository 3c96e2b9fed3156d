"""The CUDA kernels as compiled: assembled for every architecture, and their PTX run on the CPU in many orders."""

from __future__ import annotations

from functools import cache

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install -e '.[cuda-test]'")

from numba import from_dtype, types
from ptx.compiling import assemble, compile_ptx, find_ptxas
from ptx.execute import Kernel, find_compiler

from pgbm_plugin import wrap
from pgbm_plugin.leaves.moments import from_sums
from pgbm_plugin.tables.rows import read_rows
from pgbm_plugin.trees.forest import NODE
from pgbm_plugin.trees.objectives import LIGHTGBM, XGBOOST

ARCHITECTURES = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]

# Of a multiprocessor's 64 K registers, 1,024 threads of four blocks can have 64 each.
MOST_REGISTERS, MOST_SHARED = 64, 4096

f4, f8, i4, i8 = types.float32, types.float64, types.int32, types.int64


def array(dtype, ndim=1, layout="C"):
    return types.Array(dtype, ndim, layout)


TREES = (array(i4), array(from_dtype(NODE)), array(i8), array(types.uint32))
SIGNATURES = {
    "read": [(array(f8, 2, "A"), f4, array(f4, 2))],
    "add_margin": [
        (array(f8, 2, "A"), *TREES, array(f8), array(f8)),
        (array(f4, 2), *TREES, array(f4), array(f4)),
    ],
    "add_margin_variance": [
        (array(f8, 2), *TREES, array(f8), array(f8), f8, array(f8), array(f8)),
        (array(f4, 2, "A"), *TREES, array(f4), array(f8), f8, array(f4), array(f8)),
        (array(f4, 2), *TREES, array(f4), array(f4), f4, array(f4), array(f4)),
    ],
    "add_variances": [(array(f8, 2), *TREES, array(f8), array(f8), array(f8, 2))],
    "gradients": [
        (array(f8), array(f8), array(f8), i8, f8, types.boolean, array(f4), array(f4)),
        (array(f8), array(f8), array(f4), i8, f8, types.boolean, array(f4), array(f4)),
    ],
    "add_rows": [
        (array(f8, 2), i4, *TREES[1:], i8, array(f8), array(f4), array(f4), array(f8), array(f8, 3)),
        (array(f4, 2), i4, *TREES[1:], i8, array(f4), array(f4), array(f4), array(f4), array(f8, 3)),
    ],
    "merge": [(array(f8, 3), array(f8, 2))],
}


@cache
def compiled(name, variant=0, cc=(8, 0)):
    from pgbm_plugin.kernels import cuda

    return compile_ptx(getattr(cuda, name).py_func, types.void(*SIGNATURES[name][variant]), cc)


@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas")
@pytest.mark.parametrize("cc", ARCHITECTURES, ids=lambda cc: f"sm_{cc[0]}{cc[1]}")
@pytest.mark.parametrize("name", SIGNATURES)
def test_resources(name, cc):
    """Nothing spills, and enough threads fit on a multiprocessor to hide the latency of its memory."""
    for variant in range(len(SIGNATURES[name])):
        used = assemble(compiled(name, variant, cc), cc)
        assert used.stack == used.spill_stores == used.spill_loads == 0
        assert used.registers <= MOST_REGISTERS
        assert used.shared <= MOST_SHARED


def test_single_precision_computes_in_it():
    """Neither root nor product of the recursion is taken in float64, in which many GPUs are slow."""
    ptx = compiled("add_margin_variance", 2)
    assert "sqrt.rn.f32" in ptx
    assert "sqrt.rn.f64" not in ptx
    assert "fma.rn.f64" not in ptx


def test_there_are_no_atomics():
    for name, variants in SIGNATURES.items():
        for variant in range(len(variants)):
            assert not {"atom", "red"} & {word.partition(".")[0] for word in compiled(name, variant).split()}


needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no gcc")
SEEDS = (0, 1, 2)


@pytest.fixture(scope="module", params=["lightgbm", "xgboost"])
def model(request, make_data):
    """All kinds of split: numbers, missing values, zeros as missing, category sets; trees of one leaf up to 40."""
    n = 700
    X, y = make_data("mixed", np.float32, n=n)
    if request.param == "lightgbm":
        params = {"num_leaves": 40, "min_data_in_leaf": 5, "min_data_per_group": 5, "zero_as_missing": True}
        booster = lgb.train({**params, "verbose": -1}, lgb.Dataset(X, y), 4)
    else:
        booster = xgb.train({"max_depth": 5}, xgb.DMatrix(X, y, enable_categorical=True), 4)
    wrapped = wrap(booster, X, y)
    ((_, _, block),) = read_rows(X, wrapped.forest.features).converted().blocks(0, n)
    return wrapped, np.ascontiguousarray(block), X, y


@cache
def kernel(name, variant=0):
    return Kernel(compiled(name, variant), types.void(*SIGNATURES[name][variant]))


@needs_compiler
def test_predictions(model):
    wrapped, block, X, _ = model
    forest, sd = wrapped.forest, wrapped.weights.sd
    want = wrapped.predict_dist(X, rho=0.3)
    number = forest.leaf_value.dtype.type
    variant = 0 if number is np.float64 else 1
    run, alone = kernel("add_margin_variance", variant), kernel("add_margin", variant)
    for seed in SEEDS:
        margin, variance = np.full(len(X), forest.base_margin, number), np.zeros(len(X))
        run(2, 256, block, *forest.routing, forest.leaf_value, sd, np.float64(0.3), margin, variance, seed=seed)
        assert np.array_equal(margin, wrapped.predict(X))
        np.testing.assert_allclose(variance, want.var(), rtol=1e-13)  # products and sums may be fused
        margin[:] = forest.base_margin
        alone(3, 256, block, *forest.routing, forest.leaf_value, margin, seed=seed)
        assert np.array_equal(margin, wrapped.predict(X))


@needs_compiler
def test_predictions_in_single_precision(model):
    wrapped, block, X, _ = model
    forest = wrapped.forest
    if forest.leaf_value.dtype != np.float32:
        pytest.skip("one booster is enough")
    margin, variance = np.full(len(X), forest.base_margin, np.float32), np.zeros(len(X), np.float32)
    sd = wrapped.weights.sd.astype(np.float32)
    run = kernel("add_margin_variance", 2)
    run(2, 256, block, *forest.routing, forest.leaf_value, sd, np.float32(0.3), margin, variance)
    assert np.array_equal(margin, wrapped.predict(X))
    np.testing.assert_allclose(variance, wrapped.predict_dist(X, rho=0.3).var(), rtol=1e-5)


@needs_compiler
def test_several_correlations(model):
    wrapped, block, X, _ = model
    if block.dtype != np.float64:
        pytest.skip("one booster is enough")
    forest, rho = wrapped.forest, np.linspace(-0.8, 0.8, 8)
    run, variance = kernel("add_variances"), np.zeros((8, len(X)))
    run((2, 2), 256, block, *forest.routing, wrapped.weights.sd, rho, variance, seed=1)
    for k, r in enumerate(rho):
        np.testing.assert_allclose(variance[k], wrapped.predict_dist(X, rho=r).var(), rtol=1e-12)


@needs_compiler
@pytest.mark.parametrize("objective", [*LIGHTGBM.values(), *XGBOOST.values()], ids=lambda o: o.name)
def test_gradients(objective):
    """To the last bit of float32: exp and log may differ in their own."""
    from pgbm_plugin.kernels.scalar import gradient_hessian

    rng = np.random.default_rng(0)
    margin, y, weight = rng.normal(size=300), rng.gamma(2.0, size=300), rng.uniform(0.5, 2.0, 300)
    p = 1.3 if objective.parameter else np.nan
    g, h = np.empty((2, 300), np.float32)
    run = kernel("gradients")
    for w in (weight, np.empty(0)):
        run(1, 256, y, w, margin, np.int64(objective.code), np.float64(p), np.bool_(True), g, h)
        for i in range(300):
            want = gradient_hessian.py_func(objective.code, p, margin[i], y[i])
            want = np.float32(want) * np.float32(1.0 if len(w) == 0 else w[i])
            np.testing.assert_allclose([g[i], h[i]], want, rtol=4e-7, atol=1e-30)


@needs_compiler
def test_moments(model):
    """Equal bits in any order of threads, and those of the CPU to rounding."""
    from pgbm_plugin.kernels import cuda
    from pgbm_plugin.kernels.accumulate import COLUMNS

    wrapped, block, X, y = model
    forest, spec = wrapped.forest, wrapped.spec
    number, n = forest.leaf_value.dtype.type, len(X)
    variant = 0 if number is np.float64 else 1
    add, merge = kernel("add_rows", variant), kernel("merge")
    step = spec.step(forest.leaf_value, forest.tree_of_leaf()).astype(number)
    first_bits = None
    for seed in SEEDS:
        margin, lanes = np.full(n, spec.start, number), np.empty((forest.n_leaves, COLUMNS))
        for t in range(forest.n_trees):
            leaves = slice(*forest.leaf_start[t : t + 2])
            g, h = (margin.astype(np.float64) - y.astype(np.float32)).astype(np.float32), np.ones(n, np.float32)
            blocks = -(-n // cuda.BLOCK_ROWS) + 1  # the last has no rows
            sums = np.full((blocks, (leaves.stop - leaves.start) * cuda.SEGMENTS, COLUMNS), np.nan)
            given = block, forest.root[t], *forest.routing[1:], np.int64(leaves.start), step, g, h, margin
            add(blocks, cuda.THREADS, *given, sums, seed=seed)
            merge(1, 256, sums, lanes[leaves], seed=seed)
        moments = from_sums(lanes[:, None], n)
        assert np.array_equal(moments.count, wrapped.moments.count)
        np.testing.assert_allclose(moments.g_mean, wrapped.moments.g_mean, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(moments.gg, wrapped.moments.gg, rtol=1e-10, atol=1e-13)
        assert np.array_equal(margin, np.asarray(wrapped.predict(X), number)) or spec.folded.any()
        first_bits = lanes if first_bits is None else first_bits
        assert np.array_equal(lanes, first_bits)


@needs_compiler
def test_conversion():
    rng = np.random.default_rng(0)
    X = np.asfortranarray(rng.normal(size=(50, 3)))
    X[::5] = -1.0
    out = np.empty(X.shape, np.float32)
    kernel("read")(1, 32, X, np.float32(-1.0), out)
    want = X.astype(np.float32)
    assert np.array_equal(out, np.where(want == -1.0, np.nan, want), equal_nan=True)
