"""Replay kernels: a block of rows is coded, then every tree is applied to all of it (see `pgbm_plugin.program`).

The walk of `cpu.py` and the replay give the same bits: both add in tree order and compare alike.
"""

from __future__ import annotations

from typing import Any

from .coding import BLOCK, code_block
from .cpu import accumulate, accumulate_unit, gradients, has_unit_hessian
from .jit import kernel, scalar
from .scalar import add_tree


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
    for r in range(BLOCK):
        at[r] = 0
    for g in range(group_start[t], group_start[t + 1]):
        i = g * 4
        a0 = where[column[i]]
        c0 = codes[a0 : a0 + BLOCK]
        k0, n0 = region[i], new[i]
        if table_start[g] >= 0:
            table = tables[table_start[g] :]
            for r in range(BLOCK):
                here = at[r]
                at[r] = n0 if (here == k0) & (table[c0[r]] != 0) else here
            continue
        a1, a2, a3 = where[column[i + 1]], where[column[i + 2]], where[column[i + 3]]
        c1, c2, c3 = codes[a1 : a1 + BLOCK], codes[a2 : a2 + BLOCK], codes[a3 : a3 + BLOCK]
        t0, t1, t2, t3 = code[i], code[i + 1], code[i + 2], code[i + 3]
        k1, k2, k3 = region[i + 1], region[i + 2], region[i + 3]
        n1, n2, n3 = new[i + 1], new[i + 2], new[i + 3]
        for r in range(BLOCK):
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
    codes, where, at, x, total = work[:5]
    for lo in range(0, n, BLOCK):
        m = min(BLOCK, n - lo)
        code_block(X, lo, m, position, *coding, x, codes, where)
        for r in range(m):
            total[r] = margin[lo + r]
        for t in range(leaf_start.shape[0] - 1):
            _replay(codes, where, t, *splits, at)
            of_tree = value[leaf_start[t] : leaf_start[t + 1]]
            for r in range(BLOCK):
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
    value: Any,
    sd: Any,
    rho: Any,
    work: Any,
    margin: Any,
    variance: Any,
) -> None:
    """`cpu.add_margin_variance` by replay."""
    n = X.shape[0]
    codes, where, at, x, total, spread, step = work[:7]
    for lo in range(0, n, BLOCK):
        m = min(BLOCK, n - lo)
        code_block(X, lo, m, position, *coding, x, codes, where)
        for r in range(m):
            total[r], spread[r] = margin[lo + r], variance[lo + r]
        for t in range(leaf_start.shape[0] - 1):
            _replay(codes, where, t, *splits, at)
            of_tree, sd_of_tree = value[leaf_start[t] : leaf_start[t + 1]], sd[leaf_start[t] : leaf_start[t + 1]]
            # look-ups and arithmetic in loops of their own: together they do not vectorise
            for r in range(BLOCK):
                here = at[r]
                total[r] += of_tree[here]
                step[r] = sd_of_tree[here]
            for r in range(BLOCK):
                spread[r] = add_tree(spread[r], step[r], rho)
        for r in range(m):
            margin[lo + r], variance[lo + r] = total[r], spread[r]


@kernel
def add_variances(
    X: Any, position: Any, coding: Any, splits: Any, leaf_start: Any, sd: Any, rho: Any, work: Any, variance: Any
) -> None:
    """`cpu.add_variances` by replay; ``variance`` has a line per correlation."""
    n = X.shape[0]
    codes, where, at, x, _, _, step = work[:7]
    for lo in range(0, n, BLOCK):
        m = min(BLOCK, n - lo)
        code_block(X, lo, m, position, *coding, x, codes, where)
        for t in range(leaf_start.shape[0] - 1):
            _replay(codes, where, t, *splits, at)
            sd_of_tree = sd[leaf_start[t] : leaf_start[t + 1]]
            for r in range(BLOCK):
                step[r] = sd_of_tree[at[r]]
            for k in range(rho.shape[0]):
                line = variance[k, lo : lo + m]
                for r in range(m):
                    line[r] = add_tree(line[r], step[r], rho[k])


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
    codes, where, at, x, _, g, h = work[:7]
    unit = has_unit_hessian(objective, weight)
    for lo in range(0, n, BLOCK):
        m = min(BLOCK, n - lo)
        code_block(X, lo, m, position, *coding, x, codes, where)
        for t in range(leaf_start.shape[0] - 1):
            if new_iteration[t]:
                gradients(y, weight, margin, lo, m, objective, parameter, rounds_first, g, h)
            _replay(codes, where, t, *splits, at)
            of_tree, sums_of_tree = step[leaf_start[t] : leaf_start[t + 1]], sums[leaf_start[t] : leaf_start[t + 1]]
            if unit:
                accumulate_unit(at[:m], g, sums_of_tree)
            else:
                accumulate(at[:m], g, h, sums_of_tree)
            for r in range(m):
                margin[lo + r] += of_tree[at[r]]
