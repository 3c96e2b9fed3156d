"""Gradients of a block of rows, and their sums per leaf, for all routes of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import kernel, scalar
from .scalar import rounded_gradient

# Columns of an accumulator. The first four are enough if every hessian is 1, the first eight if rows have no weights.
# PAIRS is the sum of w_i w_j over all pairs of rows, from which the degrees of freedom follow without cancellation.
COUNT, SHIFT_G, G, GG, SHIFT_H, H, HH, GH, WEIGHT, PAIRS = range(10)
UNIT_COLUMNS, COLUMNS, WEIGHTED_COLUMNS = 4, 8, 10

# Accumulators per leaf: row i uses number i % LANES. Successive rows are often in the same leaf, and with a single
# accumulator each addition would wait for the one before. `add_rows` needs a power of two.
LANES = 2


def accumulators(leaves: int, unit_hessian: bool, weighted: bool) -> Any:
    """Return empty accumulators, (leaves, LANES, columns); weighted rows have columns for any hessian."""
    columns = WEIGHTED_COLUMNS if weighted else UNIT_COLUMNS if unit_hessian else COLUMNS
    return np.zeros((leaves, LANES, columns))


def gradient_buffers(rows: int, sums: Any) -> tuple[Any, Any]:
    """Return buffers for g and h of `rows` rows; None for h if every hessian is 1."""
    return np.empty(rows), None if sums.shape[2] == UNIT_COLUMNS else np.empty(rows)


@scalar
def gradients(y: Any, weight: Any, margin: Any, objective: Any, parameter: Any, rounding: Any, g: Any, h: Any) -> None:
    """Compute g and h of a block of rows; ``weight`` may be empty.

    The booster holds w g and w h, rounded. They are divided by w here, so that their weighted sums have its bits.
    ``objective`` is None for unweighted squared error in float32, the most common case, and ``h`` is None if every
    hessian is 1. Numba then compiles no code for the other cases.
    """
    if objective is None:
        for r in range(margin.shape[0]):
            g[r] = np.float32(np.float64(margin[r]) - y[r])
        return
    for r in range(margin.shape[0]):
        w = weight[r] if weight.shape[0] else 1.0
        gi, hi = rounded_gradient(objective, parameter, rounding, np.float64(margin[r]), y[r], w)
        g[r] = gi / w if w > 0.0 else 0.0
        if h is not None:
            h[r] = hi / w if w > 0.0 else 0.0


@scalar
def add_row(s: Any, g: Any, h: Any) -> None:
    """Add a row without a weight to an accumulator."""
    if s[COUNT] == 0.0:
        s[SHIFT_G], s[SHIFT_H] = g, h
    dg, dh = g - s[SHIFT_G], h - s[SHIFT_H]
    s[COUNT] += 1.0
    s[G] += dg
    s[H] += dh
    s[GG] += dg * dg
    s[HH] += dh * dh
    s[GH] += dg * dh


@scalar
def add_weighted_row(s: Any, g: Any, h: Any, w: Any) -> None:
    """Add a row with weight ``w`` to an accumulator; a row of weight 0 is only counted."""
    s[COUNT] += 1.0
    if w == 0.0:
        return
    if s[WEIGHT] == 0.0:
        s[SHIFT_G], s[SHIFT_H] = g, h
    dg, dh = g - s[SHIFT_G], h - s[SHIFT_H]
    s[PAIRS] += s[WEIGHT] * w
    s[WEIGHT] += w
    s[G] += w * dg
    s[H] += w * dh
    s[GG] += w * dg * dg
    s[HH] += w * dh * dh
    s[GH] += w * dg * dh


@kernel
def add_rows(leaf: Any, g: Any, h: Any, weight: Any, step: Any, margin: Any, sums: Any) -> None:
    """Add rows to the accumulators of their leaves, and the leaves' steps to the rows' margins.

    ``weight`` may be empty, and ``h`` may be None if every hessian is 1 and there are no weights. The sums are those of
    differences from the accumulator's first row, so that a common offset of all labels costs no digits: the first row
    is about as far from the mean as the other rows.
    """
    if h is None:
        for i in range(leaf.shape[0]):
            s = sums[leaf[i], i & (LANES - 1)]
            if s[COUNT] == 0.0:
                s[SHIFT_G] = g[i]
            dg = g[i] - s[SHIFT_G]
            s[COUNT] += 1.0
            s[G] += dg
            s[GG] += dg * dg
            margin[i] += step[leaf[i]]
        return
    for i in range(leaf.shape[0]):
        if weight.shape[0]:
            add_weighted_row(sums[leaf[i], i & (LANES - 1)], g[i], h[i], weight[i])
        else:
            add_row(sums[leaf[i], i & (LANES - 1)], g[i], h[i])
        margin[i] += step[leaf[i]]
