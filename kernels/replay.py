"""Kernels that apply every tree to a whole block of codes (see `pgbm_plugin.routes.replay_program` and `coding`).

The walk of `cpu.py` and the replay give the same bits, because both add in the order of trees. The first arguments are
the codes of `coding.code_block`, the arrays ``splits`` of a ReplayProgram, the forest's ``leaf_start``, and ``at``, a
buffer for the region of every row. Arrays over leaves are in the order of the program's slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .accumulate import add_rows, gradients
from .jit import kernel, scalar
from .scalar import add_tree
from .vectors import BYTES, DOUBLES, PACKS, fill, load, load_packs, look_up, look_up_pairs, ones, split, store, zeros

_STEP = DOUBLES.lanes


@scalar
def _mark_right(codes: Any, pack: Any, packs: Any, line: Any, table: Any) -> None:
    """Write to the last line of each pack what a table says of its codes on another line."""
    lowest = np.iinfo(codes.dtype).min
    for p in range(pack, pack + packs):
        for r in range(codes.shape[2]):
            codes[p, codes.shape[1] - 1, r] = table[np.int64(codes[p, line, r]) - lowest]


@scalar
def _regions(
    start: Any, packs: Any, codes: Any, pack: Any, where: Any, column: Any, code: Any, region: Any, categories: Any
) -> Any:
    """Return the regions in which one tree leaves the rows of some packs, which stay in registers for all its splits.

    ``start`` are zeros in so many packs. ``categories`` is None for a forest without categorical splits.
    """
    at, one = start, ones(region)
    new = one
    for i in range(column.shape[0]):
        c = np.int64(column[i])
        if categories is not None and c >= where.shape[0]:
            tables, table_start, table_column = categories
            k, line = c - where.shape[0], codes.shape[1] - 1
            _mark_right(codes, pack, packs, where[table_column[k]], tables[table_start[k] :])
        else:
            line = where[column[i]]
        at = split(at, load_packs(at, codes, pack, line), region[i], code[i], new)
        new = new + one
    return at


@scalar
def _replay(
    codes: Any,
    where: Any,
    column: Any,
    code: Any,
    region: Any,
    categories: Any,
    leaf_start: Any,
    t: Any,
    rows: Any,
    at: Any,
) -> None:
    """Apply tree t to a block of codes: ``at[r]`` becomes the region of row r."""
    first, end = leaf_start[t] - t, leaf_start[t + 1] - t - 1
    column, code, region = column[first:end], code[first:end], region[first:end]
    lanes = 8 * BYTES // np.iinfo(codes.dtype).bits
    for r in range(0, rows, PACKS * lanes):
        pack = r // lanes
        if rows - r > lanes:  # the packs after the last row hold codes of no row
            found = _regions(zeros(at, PACKS), PACKS, codes, pack, where, column, code, region, categories)
            store(found, at, r)
        else:
            store(_regions(zeros(at, 1), 1, codes, pack, where, column, code, region, categories), at, r)


@scalar
def _add(per_leaf: Any, at: Any, out: Any) -> None:
    """Add to every row the number of its leaf."""
    whole = out.shape[0] // _STEP * _STEP
    for r in range(0, whole, _STEP):
        store(load(out, r) + look_up(per_leaf, at, r), out, r)
    for r in range(whole, out.shape[0]):
        out[r] += per_leaf[at[r]]


@kernel
def leaves(codes: Any, where: Any, splits: Any, leaf_start: Any, t: Any, at: Any, out: Any) -> None:
    """Write the leaf of every row in tree t, numbered within the tree, to ``out``."""
    _replay(codes, where, *splits, leaf_start, t, out.shape[0], at)
    for r in range(out.shape[0]):
        out[r] = at[r]


@kernel
def add_margin(codes: Any, where: Any, splits: Any, leaf_start: Any, at: Any, value: Any, margin: Any) -> None:
    """Do what `cpu.add_margin` does, by replay."""
    for t in range(leaf_start.shape[0] - 1):
        _replay(codes, where, *splits, leaf_start, t, margin.shape[0], at)
        _add(value[leaf_start[t] : leaf_start[t + 1]], at, margin)


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
    margin: Any,
    variance: Any,
    log_scale: Any,
) -> None:
    """Do what `cpu.add_margin_variance` does, by replay; ``value_sd`` interleaves value and sd of each leaf."""
    whole, rhos = margin.shape[0] // _STEP * _STEP, fill(rho)
    for t in range(leaf_start.shape[0] - 1):
        _replay(codes, where, *splits, leaf_start, t, margin.shape[0], at)
        tree_values = value_sd[2 * leaf_start[t] : 2 * leaf_start[t + 1]]
        for r in range(0, whole, _STEP):
            value, sd = look_up_pairs(tree_values, at, r)
            store(load(margin, r) + value, margin, r)
            store(add_tree(load(variance, r), sd, rhos), variance, r)
        for r in range(whole, margin.shape[0]):
            here = 2 * np.int64(at[r])
            margin[r] += tree_values[here]
            variance[r] = add_tree(variance[r], tree_values[here + 1], rho)
        if step is not None:
            _add(step[leaf_start[t] : leaf_start[t + 1]], at, log_scale)


@kernel
def add_variances(
    codes: Any, where: Any, splits: Any, leaf_start: Any, at: Any, sd: Any, rho: Any, begin: Any, end: Any, out: Any
) -> None:
    """Do what `cpu.add_variances` does, by replay, for the rows ``begin`` to ``end`` of ``out``."""
    rows = end - begin
    whole = rows // _STEP * _STEP
    for t in range(leaf_start.shape[0] - 1):
        _replay(codes, where, *splits, leaf_start, t, rows, at)
        tree_values = sd[leaf_start[t] : leaf_start[t + 1]]
        for k in range(rho.shape[0]):
            variance, rhos = out[k, begin:end], fill(rho[k])
            for r in range(0, whole, _STEP):
                store(add_tree(load(variance, r), look_up(tree_values, at, r), rhos), variance, r)
            for r in range(whole, rows):
                variance[r] = add_tree(variance[r], tree_values[at[r]], rho[k])


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
        _replay(codes, where, *splits, leaf_start, t, margin.shape[0], at)
        first, end = leaf_start[t], leaf_start[t + 1]
        add_rows(at[: margin.shape[0]], g, h, weight, step[first:end], margin, sums[first:end])
