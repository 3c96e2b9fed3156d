"""The scalar functions that every kernel compiles, on the CPU, for many numbers: what a GPU computes is this source."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numba import njit
from pgbm_plugin.kernels import scalar

from pgbm_plugin.trees.forest import CATEGORICAL, DEFAULT_LEFT, NODE, ZERO_BOUND, ZERO_IS_MISSING
from pgbm_plugin.trees.objectives import (
    CUT_HUBER,
    FAIR,
    GAMMA,
    GRADIENT_STEP,
    HUBER,
    LOGCOSH,
    LQ,
    POISSON,
    PSEUDOHUBER,
    SQUARED,
    SQUAREDLOG,
    TWEEDIE,
)
from tests import naive

N = 200_000
DERIVATIVES = {
    SQUARED: naive.squared,
    HUBER: naive.huber,
    FAIR: naive.fair,
    POISSON: naive.poisson,
    GAMMA: naive.gamma,
    TWEEDIE: naive.tweedie,
    PSEUDOHUBER: naive.pseudohuber,
    SQUAREDLOG: naive.squaredlog,
    CUT_HUBER: naive.cut_huber,
    LQ: naive.lq,
    LOGCOSH: naive.logcosh,
    POISSON + GRADIENT_STEP: lambda s, y, p: (naive.poisson(s, y, p)[0], 1.0),
}


@njit
def rounded_gradients(objective, p, rounds_first, s, y, w, g, h):
    for i in range(len(s)):
        g[i], h[i] = scalar.rounded_gradient(objective, p, rounds_first, s[i], y[i], w[i])


@njit
def recursions(variance, sd, rho, out):
    for i in range(len(sd)):
        out[i] = scalar.add_tree(variance[i], sd[i], rho)


@njit
def ways(x, nodes, category_start, category_bits, out):
    for i in range(len(x)):
        out[i] = scalar.goes_left(x[i], nodes[i], category_start, category_bits)


@pytest.mark.parametrize("rounds_first", [False, True])
@pytest.mark.parametrize("objective", DERIVATIVES)
def test_gradients(objective, rounds_first):
    rng = np.random.default_rng(objective)
    s, y, w = 2.0 * rng.normal(size=N), rng.gamma(1.0, 2.0, N), rng.uniform(0.1, 3.0, N)
    g, h = np.empty((2, N), np.float32)
    rounded_gradients(objective, 1.3, rounds_first, s, y, w, g, h)
    for i in rng.choice(N, 2000, replace=False):
        want = np.array(DERIVATIVES[objective](s[i], y[i], 1.3))
        if rounds_first:
            want = want.astype(np.float32).astype(np.float64)
        # another order of operations, which may end on the other side of a rounding
        np.testing.assert_allclose([g[i], h[i]], want * w[i], rtol=2e-7, atol=1e-30)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rho", [-1.0, -0.3, 0.0, 0.05, 0.999, 1.0])
def test_recursion(dtype, rho):
    """Paper eq. 12, never below zero, in the precision of its arguments."""
    rng = np.random.default_rng(0)
    variance, sd = (10.0 ** rng.uniform(-12, 6, (2, N))).astype(dtype)
    variance[::10], sd[5::10] = 0.0, 0.0
    sd[::7] = np.sqrt(variance[::7])  # what cancels
    out = np.empty(N, dtype)
    recursions(variance, sd, dtype(rho), out)
    assert np.all(out >= 0.0)
    v, s, r = (np.asarray(a, np.longdouble) for a in (variance, sd, dtype(rho)))
    want = v + s * s - 2 * r * np.sqrt(v) * s
    # relative to what it is a difference of
    assert np.all(np.abs(out - want) <= 8 * np.finfo(dtype).eps * (v + s * s))


def test_ways():
    """Every combination of flags with values at, around and far from thresholds, zero, NaN and category bounds."""
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 1 << 32, 6, dtype=np.uint32)
    start = np.array([0, 1, 2, 3, 6], np.int64)
    special = [
        np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        ZERO_BOUND,
        -ZERO_BOUND,
        1e-34,
        -0.5,
        -1.0,
        2.7,
        31.0,
        32.0,
        95.9,
        96.0,
    ]
    special += [2.0**31, 2.0**63, -(2.0**63), 1e300]
    x = np.where(rng.random(N) < 0.5, rng.choice(special, N), rng.normal(size=N) * 40.0)
    nodes = np.zeros(N, NODE)
    nodes["flags"] = rng.integers(0, 8, N)
    categorical = (nodes["flags"] & CATEGORICAL) != 0
    nodes["threshold"] = np.where(categorical, rng.choice([-1.0, -0.5], N), rng.choice([*special[1:], *x[:100]], N))
    nodes["threshold"] = np.nan_to_num(nodes["threshold"], nan=0.25)
    nodes["category_set"] = rng.integers(0, 4, N)
    out = np.empty(N, bool)
    ways(x, nodes, start, bits, out)
    for i in rng.choice(N, 20_000, replace=False):
        assert out[i] == goes_left(float(x[i]), nodes[i], start, bits), (x[i], nodes[i])


def goes_left(x, node, start, bits):
    """Tell whether a value goes left by the rule of `forest.NODE`, in plain Python."""
    if math.isnan(x) or (node["flags"] & ZERO_IS_MISSING and abs(x) <= ZERO_BOUND):
        return bool(node["flags"] & DEFAULT_LEFT)
    if not node["flags"] & CATEGORICAL:
        return x <= node["threshold"]
    words = bits[start[node["category_set"]] : start[node["category_set"] + 1]].tolist()
    members = {32 * w + b for w, word in enumerate(words) for b in range(32) if word >> b & 1}
    return node["threshold"] < x < 2.0**40 and int(x) in members
