"""CUDA kernels: one thread walks a row through the trees, and sums per leaf need no atomics.

The scalar functions are those of the CPU's kernels, compiled for the GPU. Arguments are as in `cpu`. Trees come in the
same order as on the CPU, so margins have the same bits. The order of summation per leaf depends on the rows alone, so
sums are the same in every run and on every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

from numba import config, cuda, float64, int32

from . import scalar
from .accumulate import COUNT, GG, GH, HH, PAIRS, SHIFT_G, SHIFT_H, WEIGHT, G, H, add_weighted_row

SIMULATED = bool(config.ENABLE_CUDASIM)  # type: ignore[attr-defined]

# Threads of a block; the simulator starts a real one for each.
THREADS = 32 if SIMULATED else 256

# Rows whose moments a block gathers, in tiles of one row per thread.
BLOCK_ROWS = 4 * THREADS if SIMULATED else 16 * THREADS

# Accumulators of a block for each leaf; one thread fills an accumulator from its part of every tile.
SEGMENTS = 8
_SEGMENT_ROWS = THREADS // SEGMENTS

# Correlations that one thread computes at once: as many as fit into registers.
CORRELATIONS = 4


def _on_device(function: Any, **called: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a scalar function of the CPU's kernels for the GPU; `called` are GPU functions that it calls."""
    source = function.py_func
    bound = FunctionType(source.__code__, {**source.__globals__, **called}, source.__name__)
    compiled: Callable[..., Any] = cuda.jit(device=True, inline="always")(bound)
    return compiled


_goes_left = _on_device(scalar.goes_left)
_leaf_of = _on_device(scalar.leaf_of, goes_left=_goes_left)
_add_tree = _on_device(scalar.add_tree)
_derivatives = _on_device(scalar.derivatives)
_gradient_hessian = _on_device(scalar.gradient_hessian, derivatives=_derivatives)
_add_row = _on_device(add_weighted_row)
_rounded_gradient = _on_device(scalar.rounded_gradient, gradient_hessian=_gradient_hessian)


@cuda.jit
def read(X: Any, missing: Any, out: Any) -> None:
    """Copy a matrix into the precision that the booster compares in, with its own missing value as NaN."""
    row, stride = cuda.grid(1), cuda.gridsize(1)
    while row < X.shape[0]:
        j = 0
        while j < X.shape[1]:
            out[row, j] = X[row, j]  # rounded, and only then compared
            if out[row, j] == missing:
                out[row, j] = math.nan
            j += 1
        row += stride


@cuda.jit
def leaves(X: Any, root: Any, nodes: Any, category_start: Any, category_bits: Any, out: Any) -> None:
    """Do what `cpu.route` does."""
    i, stride = cuda.grid(1), cuda.gridsize(1)
    while i < X.shape[0]:
        out[i] = _leaf_of(X, i, root, nodes, category_start, category_bits)
        i += stride


@cuda.jit
def add_margin(X: Any, root: Any, nodes: Any, category_start: Any, category_bits: Any, value: Any, margin: Any) -> None:
    """Do what `cpu.add_margin` does."""
    i, stride = cuda.grid(1), cuda.gridsize(1)
    while i < X.shape[0]:
        m, t = margin[i], 0
        while t < root.shape[0]:
            m += value[_leaf_of(X, i, root[t], nodes, category_start, category_bits)]
            t += 1
        margin[i] = m
        i += stride


@cuda.jit
def add_margin_variance(
    X: Any,
    root: Any,
    nodes: Any,
    category_start: Any,
    category_bits: Any,
    value: Any,
    sd: Any,
    rho: Any,
    margin: Any,
    variance: Any,
) -> None:
    """Do what `cpu.add_margin_variance` does, in the precision of ``sd``, ``rho`` and ``variance``."""
    i, stride = cuda.grid(1), cuda.gridsize(1)
    while i < X.shape[0]:
        m, v, t = margin[i], variance[i], 0
        while t < root.shape[0]:
            leaf = _leaf_of(X, i, root[t], nodes, category_start, category_bits)
            m += value[leaf]
            v = _add_tree(v, sd[leaf], rho)
            t += 1
        margin[i], variance[i] = m, v
        i += stride


@cuda.jit
def add_variances(
    X: Any, root: Any, nodes: Any, category_start: Any, category_bits: Any, sd: Any, rho: Any, variance: Any
) -> None:
    """Do what `cpu.add_variances` does; each line of blocks computes CORRELATIONS of the correlations."""
    i, stride, k = cuda.grid(1), cuda.gridsize(1), cuda.blockIdx.y * CORRELATIONS
    r0, r1, r2, r3 = rho[k], rho[k + 1], rho[k + 2], rho[k + 3]
    while i < X.shape[0]:
        v0, v1, v2, v3 = variance[k, i], variance[k + 1, i], variance[k + 2, i], variance[k + 3, i]
        t = 0
        while t < root.shape[0]:
            s = sd[_leaf_of(X, i, root[t], nodes, category_start, category_bits)]
            v0, v1, v2, v3 = _add_tree(v0, s, r0), _add_tree(v1, s, r1), _add_tree(v2, s, r2), _add_tree(v3, s, r3)
            t += 1
        variance[k, i], variance[k + 1, i], variance[k + 2, i], variance[k + 3, i] = v0, v1, v2, v3
        i += stride


@cuda.jit
def gradients(y: Any, weight: Any, margin: Any, objective: Any, parameter: Any, rounding: Any, g: Any, h: Any) -> None:
    """Do what `accumulate.gradients` does for all rows."""
    i, stride = cuda.grid(1), cuda.gridsize(1)
    while i < margin.shape[0]:
        w = weight[i] if weight.shape[0] else 1.0
        gi, hi = _rounded_gradient(objective, parameter, rounding, float64(margin[i]), y[i], w)
        g[i], h[i] = gi / w if w > 0.0 else 0.0, hi / w if w > 0.0 else 0.0
        i += stride


@cuda.jit
def add_rows(
    X: Any,
    root: Any,
    nodes: Any,
    category_start: Any,
    category_bits: Any,
    first: Any,
    step: Any,
    g: Any,
    h: Any,
    weight: Any,
    margin: Any,
    sums: Any,
) -> None:
    """Add rows to the accumulators of their leaves in one tree, and the leaves' steps to the rows' margins.

    ``sums`` is (blocks, leaves of the tree * SEGMENTS, WEIGHTED_COLUMNS) and may hold anything; ``first`` is the
    tree's first leaf; ``weight`` may be empty. A tile of rows is in shared memory, and one thread adds the rows of each
    accumulator in their order.
    """
    tile_leaf = cuda.shared.array(THREADS, int32)
    tile_g = cuda.shared.array(THREADS, float64)
    tile_h = cuda.shared.array(THREADS, float64)
    tile_w = cuda.shared.array(THREADS, float64)
    thread, block_sums = cuda.threadIdx.x, sums[cuda.blockIdx.x]
    a = thread
    while a < block_sums.shape[0]:
        column = 0
        while column < block_sums.shape[1]:
            block_sums[a, column] = 0.0
            column += 1
        a += THREADS
    base = cuda.blockIdx.x * BLOCK_ROWS
    end = min(base + BLOCK_ROWS, X.shape[0])
    while base < end:
        i = base + thread
        tile_leaf[thread] = -1
        if i < end:
            leaf = _leaf_of(X, i, root, nodes, category_start, category_bits)
            tile_leaf[thread], tile_g[thread], tile_h[thread] = leaf - first, g[i], h[i]
            tile_w[thread] = weight[i] if weight.shape[0] else 1.0
            margin[i] += step[leaf]
        cuda.syncthreads()
        a = thread
        while a < block_sums.shape[0]:
            leaf, r = a // SEGMENTS, a % SEGMENTS * _SEGMENT_ROWS
            stop = r + _SEGMENT_ROWS
            while r < stop:
                if tile_leaf[r] == leaf:
                    _add_row(block_sums[a], tile_g[r], tile_h[r], tile_w[r])
                r += 1
            a += THREADS
        cuda.syncthreads()
        base += THREADS


@cuda.jit
def merge(sums: Any, out: Any) -> None:
    """Merge the accumulators of all blocks and segments in order, into one per leaf (see `LeafMoments.merge`).

    ``out`` is (leaves of the tree, WEIGHTED_COLUMNS). Its shifts are the means, so its sums of differences are 0.
    """
    leaf, stride = cuda.grid(1), cuda.gridsize(1)
    while leaf < out.shape[0]:
        count = n = g = h = gg = hh = gh = pairs = 0.0
        a = 0
        while a < sums.shape[0] * SEGMENTS:
            s = sums[a // SEGMENTS, leaf * SEGMENTS + a % SEGMENTS]
            count += s[COUNT]
            more = s[WEIGHT]
            if more > 0.0:
                to_g, to_h = s[G] / more, s[H] / more
                dg, dh = s[SHIFT_G] + to_g - g, s[SHIFT_H] + to_h - h
                pairs += s[PAIRS] + n * more
                n += more
                share = more / n
                between = (n - more) * share
                g += dg * share
                h += dh * share
                gg += s[GG] - s[G] * to_g + dg * dg * between
                hh += s[HH] - s[H] * to_h + dh * dh * between
                gh += s[GH] - s[G] * to_h + dg * dh * between
            a += 1
        o = out[leaf]
        o[COUNT], o[SHIFT_G], o[G], o[GG] = count, g, 0.0, max(gg, 0.0)
        o[SHIFT_H], o[H], o[HH], o[GH], o[WEIGHT], o[PAIRS] = h, 0.0, max(hh, 0.0), gh, n, pairs
        leaf += stride
