"""Replay kernels: a block of rows is coded, then every tree is applied to all of it (see `pgbm_plugin.program`).

The walk of `cpu.py` and the replay give the same bits: both add in tree order and compare alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .accumulate import add_rows, gradients
from .coding import code_block, coding_workspace
from .jit import kernel, scalar
from .scalar import add_tree

# Rows of a block, an even number for the moments' lanes.
_MIN_BLOCK, _MAX_BLOCK = 512, 2048
_CODE_BYTES = 1 << 18


def workspace(rows: int, features: int, columns: int, code: Any, region: Any, margin: Any) -> tuple[Any, ...]:
    """Buffers for a block: of coding, regions, margins, and two of numbers.

    A block's codes should stay in the second cache, and its loops be long enough to be worth starting.
    """
    fitting = _CODE_BYTES // (features * np.dtype(code).itemsize)
    block = min(rows, max(_MIN_BLOCK, min(_MAX_BLOCK, fitting & ~1)))
    coded = coding_workspace(block, features, columns, code)
    return coded, np.empty(block, region), np.empty(block, margin), np.empty(block), np.empty(2 * block)


@scalar
def _replay(
    codes: Any,
    where: Any,
    t: Any,
    group_start: Any,
    table_start: Any,
    column: Any,
    code: Any,
    region: Any,
    new: Any,
    tables: Any,
    at: Any,
) -> None:
    """Apply tree t to a block of codes: ``at[r]`` becomes the region of row r."""
    for r in range(at.shape[0]):
        at[r] = 0
    for g in range(group_start[t], group_start[t + 1]):
        i = g * 4
        c0 = codes[where[column[i]]]
        k0, n0 = region[i], new[i]
        if table_start[g] >= 0:
            table, lowest = tables[table_start[g] :], np.iinfo(codes.dtype).min
            for r in range(at.shape[0]):
                here = at[r]
                at[r] = n0 if (here == k0) & (table[np.int64(c0[r]) - lowest] != 0) else here
            continue
        c1, c2, c3 = codes[where[column[i + 1]]], codes[where[column[i + 2]]], codes[where[column[i + 3]]]
        t0, t1, t2, t3 = code[i], code[i + 1], code[i + 2], code[i + 3]
        k1, k2, k3 = region[i + 1], region[i + 2], region[i + 3]
        n1, n2, n3 = new[i + 1], new[i + 2], new[i + 3]
        for r in range(at.shape[0]):
            here = at[r]
            here = n0 if (here == k0) & (c0[r] > t0) else here
            here = n1 if (here == k1) & (c1[r] > t1) else here
            here = n2 if (here == k2) & (c2[r] > t2) else here
            here = n3 if (here == k3) & (c3[r] > t3) else here
            at[r] = here


@kernel
def add_margin(
    X: Any, position: Any, coding: Any, splits: Any, leaf_start: Any, value: Any, work: Any, margin: Any
) -> None:
    """`cpu.add_margin` by replay; ``value`` is in the order of the program's slots, ``work`` from `workspace`."""
    n = X.shape[0]
    coded, at, total = work[0], work[1], work[2]
    for lo in range(0, n, at.shape[0]):
        m = min(at.shape[0], n - lo)
        code_block(X, lo, m, position, *coding, *coded)
        for r in range(m):
            total[r] = margin[lo + r]
        for t in range(leaf_start.shape[0] - 1):
            _replay(*coded[:2], t, *splits, at[:m])
            of_tree = value[leaf_start[t] : leaf_start[t + 1]]
            for r in range(m):
                total[r] += of_tree[at[r]]
        for r in range(m):
            margin[lo + r] = total[r]


@kernel
def add_margin_variance(
    X: Any,
    position: Any,
    coding: Any,
    splits: Any,
    leaf_start: Any,
    value_sd: Any,
    rho: Any,
    work: Any,
    margin: Any,
    variance: Any,
) -> None:
    """`cpu.add_margin_variance` by replay; ``value_sd`` has two numbers a leaf, one after the other."""
    n = X.shape[0]
    coded, at, total, spread, found = work
    for lo in range(0, n, at.shape[0]):
        m = min(at.shape[0], n - lo)
        code_block(X, lo, m, position, *coding, *coded)
        for r in range(m):
            total[r], spread[r] = margin[lo + r], variance[lo + r]
        for t in range(leaf_start.shape[0] - 1):
            _replay(*coded[:2], t, *splits, at[:m])
            of_tree = value_sd[2 * leaf_start[t] : 2 * leaf_start[t + 1]]
            # look-ups and arithmetic in loops of their own: together they do not vectorise
            for r in range(m):
                here = 2 * np.uint64(at[r])
                found[2 * r], found[2 * r + 1] = of_tree[here], of_tree[here + np.uint64(1)]
            for r in range(m):
                total[r] += found[2 * r]
                spread[r] = add_tree(spread[r], found[2 * r + 1], rho)
        for r in range(m):
            margin[lo + r], variance[lo + r] = total[r], spread[r]


@kernel
def add_variances(
    X: Any, position: Any, coding: Any, splits: Any, leaf_start: Any, sd: Any, rho: Any, work: Any, variance: Any
) -> None:
    """`cpu.add_variances` by replay; ``variance`` has a line per correlation."""
    n = X.shape[0]
    coded, at, found = work[0], work[1], work[4]
    for lo in range(0, n, at.shape[0]):
        m = min(at.shape[0], n - lo)
        code_block(X, lo, m, position, *coding, *coded)
        for t in range(leaf_start.shape[0] - 1):
            _replay(*coded[:2], t, *splits, at[:m])
            of_tree = sd[leaf_start[t] : leaf_start[t + 1]]
            for r in range(m):
                found[r] = of_tree[at[r]]
            for k in range(rho.shape[0]):
                line = variance[k, lo : lo + m]
                for r in range(m):
                    line[r] = add_tree(line[r], found[r], rho[k])


@kernel
def gather_moments(
    X: Any,
    y: Any,
    weight: Any,
    position: Any,
    coding: Any,
    splits: Any,
    leaf_start: Any,
    step: Any,
    new_iteration: Any,
    objective: Any,
    parameter: Any,
    rounds_first: Any,
    work: Any,
    margin: Any,
    sums: Any,
) -> None:
    """`cpu.gather_moments` by replay; ``step`` and ``sums`` are in the order of the program's slots."""
    n = X.shape[0]
    coded, at, g, h = work[0], work[1], work[3], work[4]
    for lo in range(0, n, at.shape[0]):
        m = min(at.shape[0], n - lo)
        hi = lo + m
        code_block(X, lo, m, position, *coding, *coded)
        y_, weight_, margin_ = y[lo:hi], weight[lo:hi], margin[lo:hi]
        for t in range(leaf_start.shape[0] - 1):
            if new_iteration[t]:
                gradients(y_, weight_, margin_, objective, parameter, rounds_first, g, h)
            _replay(*coded[:2], t, *splits, at[:m])
            first, end = leaf_start[t], leaf_start[t + 1]
            add_rows(at[:m], g, h, step[first:end], margin_, sums[first:end])
