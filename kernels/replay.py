"""Kernels that apply every tree to a whole block of codes (see `pgbm_plugin.routes.replay_program` and `coding`).

The walk of `cpu.py` and the replay give the same bits, because both add in the order of trees. The first arguments are
the codes of `coding.code_block`, the arrays ``splits`` of a ReplayProgram, the forest's ``leaf_start``, and ``at``, a
buffer for the region of every row. Arrays over leaves are in the order of the program's slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .accumulate import add_rows, gradients
from .coding import GROUP
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
    """Apply tree t to a block of codes: ``at[r]`` becomes the region of row r. GROUP splits are applied per pass."""
    for r in range(at.shape[0]):
        at[r] = 0
    for g in range(group_start[t], group_start[t + 1]):
        i = g * GROUP
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
def leaves(codes: Any, where: Any, splits: Any, t: Any, at: Any, out: Any) -> None:
    """Write the leaf of every row in tree t, numbered within the tree, to ``out``."""
    _replay(codes, where, t, *splits, at)
    for r in range(at.shape[0]):
        out[r] = at[r]


@kernel
def add_margin(codes: Any, where: Any, splits: Any, leaf_start: Any, at: Any, value: Any, margin: Any) -> None:
    """Do what `cpu.add_margin` does, by replay."""
    for t in range(leaf_start.shape[0] - 1):
        _replay(codes, where, t, *splits, at)
        tree_values = value[leaf_start[t] : leaf_start[t + 1]]
        for r in range(at.shape[0]):
            margin[r] += tree_values[at[r]]


@kernel
def add_margin_variance(
    codes: Any,
    where: Any,
    splits: Any,
    leaf_start: Any,
    at: Any,
    value_sd: Any,
    step: Any,
    rho: Any,
    looked_up: Any,
    margin: Any,
    variance: Any,
    log_scale: Any,
) -> None:
    """Do what `cpu.add_margin_variance` does, by replay.

    ``value_sd`` interleaves value and sd of each leaf; ``looked_up`` is a buffer for both of each row.
    """
    for t in range(leaf_start.shape[0] - 1):
        _replay(codes, where, t, *splits, at)
        tree_values = value_sd[2 * leaf_start[t] : 2 * leaf_start[t + 1]]
        # look-ups and arithmetic are in separate loops, because one loop would not vectorise
        for r in range(at.shape[0]):
            here = 2 * np.uint64(at[r])
            looked_up[2 * r], looked_up[2 * r + 1] = tree_values[here], tree_values[here + np.uint64(1)]
        for r in range(at.shape[0]):
            margin[r] += looked_up[2 * r]
            variance[r] = add_tree(variance[r], looked_up[2 * r + 1], rho)
        if step is not None:
            steps = step[leaf_start[t] : leaf_start[t + 1]]
            for r in range(at.shape[0]):
                log_scale[r] += steps[at[r]]


@kernel
def add_variances(
    codes: Any, where: Any, splits: Any, leaf_start: Any, at: Any, sd: Any, rho: Any, looked_up: Any, variance: Any
) -> None:
    """Do what `cpu.add_variances` does, by replay; ``looked_up`` is a buffer for the sd of each row."""
    for t in range(leaf_start.shape[0] - 1):
        _replay(codes, where, t, *splits, at)
        tree_values = sd[leaf_start[t] : leaf_start[t + 1]]
        for r in range(at.shape[0]):
            looked_up[r] = tree_values[at[r]]
        for k in range(rho.shape[0]):
            line = variance[k]
            for r in range(at.shape[0]):
                line[r] = add_tree(line[r], looked_up[r], rho[k])


@kernel
def gather_moments(
    codes: Any,
    where: Any,
    splits: Any,
    leaf_start: Any,
    at: Any,
    y: Any,
    weight: Any,
    step: Any,
    new_iteration: Any,
    objective: Any,
    parameter: Any,
    rounding: Any,
    restarts: Any,
    g: Any,
    h: Any,
    margin: Any,
    sums: Any,
) -> None:
    """Do what `cpu.gather_moments` does, by replay."""
    for t in range(leaf_start.shape[0] - 1):
        if new_iteration[t]:
            gradients(y, weight, margin, objective, parameter, rounding, g, h)
        if restarts and t == 0:
            margin[:] = 0.0
        _replay(codes, where, t, *splits, at)
        first, end = leaf_start[t], leaf_start[t + 1]
        add_rows(at, g, h, weight, step[first:end], margin, sums[first:end])
