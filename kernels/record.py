"""Recording: which leaf took a row from one training score to the next, and sums over rows whose leaves are known."""

from __future__ import annotations

from typing import Any

import numpy as np

from .accumulate import add_rows, gradients
from .cpu import BLOCK
from .jit import kernel, scalar
from .scalar import margin_of


@scalar
def _fits(before: Any, value: Any, after: Any, off: Any) -> Any:
    return abs(before + value - after) <= off


@scalar
def _only_fit(before: Any, value: Any, after: Any, off: Any) -> Any:
    """The one value that fits; -1 if there is none or several do."""
    step = np.float64(after) - np.float64(before)
    last = value.shape[0] - 1
    k = min(np.searchsorted(value, step), last)
    if k > 0 and step - value[k - 1] < value[k] - step:
        k -= 1
    # rounding is not symmetric next to a power of two: the nearest value may miss where the second fits
    if not _fits(before, value[k], after, off):
        if k > 0 and _fits(before, value[k - 1], after, off):
            k -= 1
        elif k < last and _fits(before, value[k + 1], after, off):
            k += 1
        else:
            return -1
    if (k > 0 and _fits(before, value[k - 1], after, off)) or (k < last and _fits(before, value[k + 1], after, off)):
        return -1
    return k


@kernel
def find_leaves(
    score: Any,
    margin: Any,
    value: Any,
    gap: Any,
    order: Any,
    guess: Any,
    scale: Any,
    grain: Any,
    link: Any,
    times: Any,
    slack: Any,
    leaf: Any,
) -> Any:
    """The leaf of every row from its scores before and after a tree; returns False if they do not tell it for each.

    ``margin`` is the sum of values before the tree, and ``score`` the sum after it, if ``slack`` is None: one leaf must
    then lead from one to the other to the bit. Otherwise the sum after it is the margin of ``score`` under ``link``,
    times ``times``, and may be off by ``slack * (1 + |sum|)``. ``grain`` times a sum is what its rounding may hide.

    ``value`` holds the leaf values in rising order, ``order`` their leaves, ``gap`` how far the nearest other one is;
    ``guess`` has the value to try first for each ``1 / scale`` of their range. Numbers are of the arrays' precision.
    """
    low, half, parts = value[0], value.dtype.type(0.5), guess.shape[0]
    for i in range(score.shape[0]):
        before = margin[i]
        if slack is None:
            after = score[i]
            off = value.dtype.type(0)
        else:
            after = times * margin_of(link, score[i])
            off = slack * (1.0 + abs(after))
        part = (after - before - low) * scale + half
        # unsigned: numba would look for indices from the end
        k = guess[np.uint32(part)] if 0 <= part < parts else np.uint32(0)
        if not (_fits(before, value[k], after, off) and gap[k] > off + off + grain * abs(after)):
            only = _only_fit(before, value, after, off)
            if only < 0:
                return False
            k = np.uint32(only)
        leaf[i] = order[k]
    return True


@kernel
def add_tree(
    leaf: Any,
    y: Any,
    weight: Any,
    at: Any,
    objective: Any,
    parameter: Any,
    rounds_first: Any,
    g: Any,
    h: Any,
    step: Any,
    margin: Any,
    sums: Any,
) -> None:
    """g and h at the margins ``at``, their sums per leaf, then the leaves' steps; ``at`` may be ``margin`` itself.

    The other arguments are those of `cpu.gather_moments`, for one tree whose leaves are known.
    """
    n = leaf.shape[0]
    for lo in range(0, n, BLOCK):
        hi = min(lo + BLOCK, n)
        gradients(y[lo:hi], weight[lo:hi], at[lo:hi], objective, parameter, rounds_first, g, h)
        add_rows(leaf[lo:hi], g, h, step, margin[lo:hi], sums)
