"""Kernels that arrange a forest's splits for replay, and turn blocks of rows into codes (see `ReplayProgram`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..trees.forest import DEFAULT_LEFT, ZERO_BOUND, ZERO_IS_MISSING
from .jit import kernel, scalar

# Splits that one pass over a block applies. The code of `replay._replay` is written for this number.
GROUP = 4


def workspace(rows: int, features: int, columns: int, code: Any) -> tuple[Any, ...]:
    """Return the arrays that `code_block` writes to: codes, lines of columns, values, counts."""
    return (
        np.empty((features + columns, rows), code),
        np.empty(columns, np.int64),
        np.empty(rows),
        np.empty(rows, np.uint64),
    )


@kernel
def fill_tables(nodes: Any, category_start: Any, category_bits: Any, limit: Any, tables: Any) -> None:
    """Write for each categorical node and code (none, NaN, category 0, 1...) 1 if a row goes right, else 0."""
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
    queue: Any,
    region_of: Any,
) -> Any:
    """Arrange the splits of every tree in groups, parents first, and return the number of groups.

    ``queue`` and ``region_of`` are buffers of a number per split; allocating them here would cost compile time.
    """
    group = 0
    for t in range(root.shape[0]):
        group_start[t] = group
        if root[t] < 0:
            slot[leaf_start[t]] = ~root[t]
            continue
        queue[0], region_of[root[t]] = root[t], 0
        done, waiting, regions, filled = 0, 1, 1, GROUP
        while done < waiting:
            node = queue[done]
            done += 1
            region, new = region_of[node], regions
            regions += 1
            if filled == GROUP or table_of[node] >= 0:
                if done > 1:
                    group += 1
                filled = 0
            at = group * GROUP + filled
            out_column[at], out_code[at], out_region[at], out_new[at] = column[node], code[node], region, new
            filled += 1
            if table_of[node] >= 0:
                table_start[group] = table_of[node]
                filled = GROUP
            for is_right in range(2):
                child, its_region = (right[node], new) if is_right else (left[node], region)
                if child >= 0:
                    queue[waiting], region_of[child] = child, its_region
                    waiting += 1
                else:
                    slot[leaf_start[t] + its_region] = ~child
        group += 1
    group_start[root.shape[0]] = group
    return group


@scalar
def _count_below(x: Any, cuts: Any, count: Any, codes: Any) -> None:
    """Count in ``codes[r]`` the cuts below ``x[r]``; the number of cuts is a power of two, at least 16.

    First, 15 cuts at equal distances are compared with all rows, which vectorises. A binary search between them
    follows, level by level. It uses arithmetic, because LLVM would turn branches into jumps, five times slower.
    """
    u = np.uint64
    step = cuts.shape[0] >> 4
    for r in range(x.shape[0]):
        count[r] = 0
    for j in range(step - 1, 15 * step, 3 * step):
        c0, c1, c2 = cuts[j], cuts[j + step], cuts[j + 2 * step]
        for r in range(x.shape[0]):
            count[r] += u(x[r] > c0) + u(x[r] > c1) + u(x[r] > c2)
    for r in range(x.shape[0]):
        count[r] *= u(step)
    step >>= 1
    while step > 0:
        for r in range(x.shape[0]):
            count[r] += u(step) * u(x[r] > cuts[count[r] + u(step - 1)])
        step >>= 1
    lowest = np.iinfo(codes.dtype).min
    for r in range(x.shape[0]):
        codes[r] = np.int64(count[r]) + lowest


@scalar
def _category_codes(x: Any, lower: Any, limit: Any, codes: Any) -> None:
    """Write codes of categories, from the lowest code on: no category, NaN, category 0, category 1..."""
    lowest = np.iinfo(codes.dtype).min
    for r in range(x.shape[0]):
        if math.isnan(x[r]):
            codes[r] = lowest + 1
        elif lower < x[r] < limit - 2:
            codes[r] = lowest + 2 + np.int64(x[r])
        else:
            codes[r] = lowest


@kernel
def code_block(
    X: Any,
    position: Any,
    cut_start: Any,
    cuts: Any,
    lower: Any,
    limit: Any,
    column_feature: Any,
    column_kind: Any,
    codes: Any,
    where: Any,
    x: Any,
    count: Any,
) -> None:
    """Write rows as codes: one line of ``codes`` per feature, and one more per column with missing values.

    ``where[c]`` becomes the line of column c. The columns of a feature are consecutive. ``position`` holds the place of
    each feature in X.
    """
    m = X.shape[0]
    c, x = 0, x[:m]
    lowest, highest = np.iinfo(codes.dtype).min, np.iinfo(codes.dtype).max
    for f in range(position.shape[0]):
        for r in range(m):
            x[r] = X[r, position[f]]
        line = codes[f]
        if math.isnan(lower[f]):
            _count_below(x, cuts[cut_start[f] : cut_start[f + 1]], count, line)
        else:
            _category_codes(x, lower[f], limit[f], line)
        nan = zero = 0
        for r in range(m):
            nan += x[r] != x[r]
            zero += abs(x[r]) <= ZERO_BOUND
        while c < column_feature.shape[0] and column_feature[c] == f:
            by_zero = (column_kind[c] & ZERO_IS_MISSING) != 0
            where[c] = f
            if math.isnan(lower[f]) and (nan > 0 or (by_zero and zero > 0)):
                to = lowest if column_kind[c] & DEFAULT_LEFT else highest
                where[c] = position.shape[0] + c
                marked = codes[where[c]]
                for r in range(m):
                    gone = math.isnan(x[r]) or (by_zero and abs(x[r]) <= ZERO_BOUND)
                    marked[r] = to if gone else line[r]
            c += 1
