"""Kernels that arrange a forest's splits for replay, and turn blocks of rows into codes (see `ReplayProgram`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..trees.forest import DEFAULT_LEFT, ZERO_BOUND, ZERO_IS_MISSING
from .jit import kernel, scalar
from .vectors import BYTES, PACKS


def lanes(code: Any) -> int:
    """Return the rows of a pack of codes of this type."""
    return BYTES // np.dtype(code).itemsize


def aligned(size: int, dtype: Any) -> Any:
    """Return a buffer that begins where a line of the cache does, which is as long as a pack."""
    out = np.empty(size + lanes(dtype), dtype)
    start = -out.ctypes.data % BYTES // out.itemsize
    return out[start : start + size]


def workspace(rows: int, features: int, columns: int, code: Any) -> tuple[Any, ...]:
    """Return the arrays that `code_block` writes to: codes, lines of columns, values, counts.

    Codes are (packs, lines, rows of a pack).
    """
    packs = -(-rows // lanes(code))
    if packs > 1:
        packs = -(-packs // PACKS) * PACKS
    padded, shape = packs * lanes(code), (packs, features + columns + 1, lanes(code))
    codes = aligned(math.prod(shape), code).reshape(shape)
    codes[:] = np.iinfo(code).min
    return codes, np.empty(columns, np.int64), np.zeros(padded), np.empty(padded, np.uint64)


def regions(codes: Any) -> Any:
    """Return a buffer for the regions of the rows of some codes."""
    packs, _, rows = codes.shape
    return aligned(packs * rows, f"u{codes.itemsize}")


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
    out_column: Any,
    out_code: Any,
    out_region: Any,
    slot: Any,
    queue: Any,
    region_of: Any,
) -> None:
    """Arrange the splits of every tree, parents first.

    ``queue`` and ``region_of`` are buffers of a number per split; allocating them here would cost compile time.
    """
    for t in range(root.shape[0]):
        first = leaf_start[t] - t
        if root[t] < 0:
            slot[leaf_start[t]] = ~root[t]
            continue
        queue[0], region_of[root[t]] = root[t], 0
        done, waiting = 0, 1
        while done < waiting:
            node = queue[done]
            region, at = region_of[node], first + done
            done += 1
            out_column[at], out_code[at], out_region[at] = column[node], code[node], region
            for is_right in range(2):
                child, its_region = (right[node], done) if is_right else (left[node], region)
                if child >= 0:
                    queue[waiting], region_of[child] = child, its_region
                    waiting += 1
                else:
                    slot[leaf_start[t] + its_region] = ~child


@scalar
def _count_below(x: Any, cuts: Any, count: Any) -> None:
    """Count in ``count[r]`` the cuts below ``x[r]``; the number of cuts is a power of two, at least 16.

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


@scalar
def _number_categories(x: Any, lower: Any, limit: Any, count: Any) -> None:
    """Write to ``count[r]`` the number of the category: 0 for no category, 1 for NaN, 2 for category 0, and so on."""
    for r in range(x.shape[0]):
        if math.isnan(x[r]):
            count[r] = 1
        elif lower < x[r] < limit - 2:
            count[r] = 2 + np.int64(x[r])
        else:
            count[r] = 0


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
    """Write rows as codes: a line of a pack per feature, and one more per column with missing values.

    ``where[c]`` becomes the line of column c. The columns of a feature are consecutive. ``position`` holds the place of
    each feature in X. The last pack is filled up with codes of no row.
    """
    m, lanes = X.shape[0], codes.shape[2]
    packs = (m + lanes - 1) // lanes
    c, x, count = 0, x[: packs * lanes], count[: packs * lanes]
    lowest, highest = np.iinfo(codes.dtype).min, np.iinfo(codes.dtype).max
    for f in range(position.shape[0]):
        for r in range(m):
            x[r] = X[r, position[f]]
        if math.isnan(lower[f]):
            _count_below(x, cuts[cut_start[f] : cut_start[f + 1]], count)
        else:
            _number_categories(x, lower[f], limit[f], count)
        for p in range(packs):
            line, of_pack = codes[p, f], count[p * lanes : (p + 1) * lanes]
            for r in range(lanes):
                line[r] = np.int64(of_pack[r]) + lowest
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
                for p in range(packs):
                    line, marked, of_pack = codes[p, f], codes[p, where[c]], x[p * lanes : (p + 1) * lanes]
                    for r in range(lanes):
                        gone = math.isnan(of_pack[r]) or (by_zero and abs(of_pack[r]) <= ZERO_BOUND)
                        marked[r] = to if gone else line[r]
            c += 1
