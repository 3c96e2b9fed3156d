"""Replay kernels: a block of rows is coded, then every tree is applied to all of it (see `pgbm_plugin.program`).

The walk of `cpu.py` and the replay give the same bits: both add in tree order and compare alike.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..forest import DEFAULT_LEFT, ZERO_BOUND, ZERO_IS_MISSING
from .cpu import accumulate, gradients
from .jit import kernel, scalar
from .scalar import add_tree

BLOCK = 512


def workspace(features: int, columns: int, code: Any, margin: Any) -> tuple[Any, ...]:
    """Buffers for a block: codes, their columns, regions, values, margins, and two of numbers.

    They are arguments because NumPy allocates them at once, while numba would compile that first.
    """
    return (
        np.zeros((features + columns) * BLOCK, code),
        np.zeros(columns, np.int64),
        np.zeros(BLOCK, code),
        np.zeros(BLOCK),
        np.zeros(BLOCK, margin),
        np.zeros(BLOCK),
        np.zeros(BLOCK),
    )


@kernel
def fill_tables(nodes: Any, category_start: Any, category_bits: Any, limit: Any, tables: Any) -> None:
    """Per categorical node and code (0: none, 1: NaN, c + 2: category c), whether a row goes right."""
    at = 0
    for i in range(nodes.shape[0]):
        begin = category_start[nodes[i].category_set]
        words = category_start[nodes[i].category_set + 1] - begin
        tables[at] = 1
        tables[at + 1] = 0 if nodes[i].flags & DEFAULT_LEFT else 1
        for c in range(limit[i] - 2):
            member = c < 32 * words and (category_bits[begin + (c >> 5)] >> np.uint32(c & 31)) & np.uint32(1)
            tables[at + 2 + c] = 0 if member else 1
        at += limit[i]


@kernel
def arrange(
    root: Any,
    left: Any,
    right: Any,
    leaf_start: Any,
    column: Any,
    code: Any,
    table_of: Any,
    group_start: Any,
    table_start: Any,
    out_column: Any,
    out_code: Any,
    out_region: Any,
    out_new: Any,
    slot: Any,
) -> Any:
    """Put the splits of every tree in order, parents first, in groups; returns the number of groups."""
    group = 0
    queue = np.empty(left.shape[0], np.int64)
    region_of = np.empty(left.shape[0], np.int64)
    for t in range(root.shape[0]):
        group_start[t] = group
        if root[t] < 0:
            slot[leaf_start[t]] = ~root[t]
            continue
        queue[0], region_of[root[t]] = root[t], 0
        done, waiting, regions, filled = 0, 1, 1, 4
        while done < waiting:
            node = queue[done]
            done += 1
            region, new = region_of[node], regions
            regions += 1
            if filled == 4 or table_of[node] >= 0:
                if done > 1:
                    group += 1
                filled = 0
            at = group * 4 + filled
            out_column[at], out_code[at], out_region[at], out_new[at] = column[node], code[node], region, new
            filled += 1
            if table_of[node] >= 0:
                table_start[group] = table_of[node]
                filled = 4
            for child, its_region in ((left[node], region), (right[node], new)):
                if child >= 0:
                    queue[waiting], region_of[child] = child, its_region
                    waiting += 1
                else:
                    slot[leaf_start[t] + its_region] = ~child
        group += 1
    group_start[root.shape[0]] = group
    return group


@scalar
def _count_below(x: Any, cuts: Any, begin: Any, size: Any, codes: Any) -> None:
    """``codes[r]`` = how many of the `size` cuts from `begin` are below ``x[r]``; `size` is a power of two, from 16.

    A binary search in arithmetic, not branches: LLVM would make jumps of them, five times slower.
    """
    u = np.uint64
    first = u(begin)
    if size <= 256:
        for r in range(BLOCK):
            v, p = x[r], first
            if size >= 256:
                p += u(128) * u(v > cuts[p + u(127)])
            if size >= 128:
                p += u(64) * u(v > cuts[p + u(63)])
            if size >= 64:
                p += u(32) * u(v > cuts[p + u(31)])
            if size >= 32:
                p += u(16) * u(v > cuts[p + u(15)])
            p += u(8) * u(v > cuts[p + u(7)])
            p += u(4) * u(v > cuts[p + u(3)])
            p += u(2) * u(v > cuts[p + u(1)])
            codes[r] = p + u(v > cuts[p]) - first
    else:
        for r in range(BLOCK):
            v, p, step = x[r], first, u(size >> 1)
            while step > u(0):
                p += step * u(v > cuts[p + step - u(1)])
                step >>= u(1)
            codes[r] = p - first


@scalar
def _category_codes(x: Any, lower: Any, limit: Any, codes: Any) -> None:
    """0 for no category, 1 for NaN, c + 2 for category c."""
    for r in range(BLOCK):
        if math.isnan(x[r]):
            codes[r] = 1
        elif lower < x[r] < limit - 2:
            codes[r] = np.int64(x[r]) + 2
        else:
            codes[r] = 0


@scalar
def _code_block(
    X: Any,
    lo: Any,
    m: Any,
    position: Any,
    cut_start: Any,
    cuts: Any,
    lower: Any,
    limit: Any,
    column_feature: Any,
    column_kind: Any,
    x: Any,
    codes: Any,
    where: Any,
) -> None:
    """Rows lo..lo+m as codes: one line of `codes` per feature, and one more per column with missing values.

    ``where[c]`` is where column c begins in `codes`. Columns of a feature follow each other.
    """
    c = 0
    highest = np.iinfo(codes.dtype).max
    for f in range(position.shape[0]):
        for r in range(m):
            x[r] = X[lo + r, position[f]]
        line = codes[f * BLOCK : (f + 1) * BLOCK]
        if math.isnan(lower[f]):
            _count_below(x, cuts, cut_start[f], cut_start[f + 1] - cut_start[f], line)
        else:
            _category_codes(x, lower[f], limit[f], line)
        nan = zero = 0
        for r in range(m):
            nan += x[r] != x[r]
            zero += abs(x[r]) <= ZERO_BOUND
        while c < column_feature.shape[0] and column_feature[c] == f:
            by_zero = (column_kind[c] & ZERO_IS_MISSING) != 0
            where[c] = f * BLOCK
            if math.isnan(lower[f]) and (nan > 0 or (by_zero and zero > 0)):
                to = 0 if column_kind[c] & DEFAULT_LEFT else highest
                where[c] = (position.shape[0] + c) * BLOCK
                for r in range(m):
                    gone = math.isnan(x[r]) or (by_zero and abs(x[r]) <= ZERO_BOUND)
                    codes[where[c] + r] = to if gone else line[r]
            c += 1


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
        _code_block(X, lo, m, position, *coding, x, codes, where)
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
        _code_block(X, lo, m, position, *coding, x, codes, where)
        for r in range(m):
            total[r], spread[r] = margin[lo + r], variance[lo + r]
        for t in range(leaf_start.shape[0] - 1):
            _replay(codes, where, t, *splits, at)
            of_tree, sd_of_tree = value[leaf_start[t] : leaf_start[t + 1]], sd[leaf_start[t] : leaf_start[t + 1]]
            # look-ups and arithmetic in loops of their own: together they do not vectorise
            for r in range(BLOCK):
                total[r] += of_tree[at[r]]
            for r in range(BLOCK):
                step[r] = sd_of_tree[at[r]]
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
        _code_block(X, lo, m, position, *coding, x, codes, where)
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
    for lo in range(0, n, BLOCK):
        m = min(BLOCK, n - lo)
        _code_block(X, lo, m, position, *coding, x, codes, where)
        for t in range(leaf_start.shape[0] - 1):
            if new_iteration[t]:
                gradients(y, weight, margin, lo, m, objective, parameter, rounds_first, g, h)
            _replay(codes, where, t, *splits, at)
            accumulate(at[:m], g, h, sums[leaf_start[t] : leaf_start[t + 1]])
            of_tree = step[leaf_start[t] : leaf_start[t + 1]]
            for r in range(m):
                margin[lo + r] += of_tree[at[r]]
