"""Recording: which leaf took a row from one training score to the next, and sums over rows whose leaves are known."""

from __future__ import annotations

from typing import Any

import numpy as np

from .accumulate import add_rows, gradients
from .cpu import BLOCK
from .jit import kernel, scalar
from .scalar import margin_of


@scalar
def _fits(before: Any, value: Any, after: Any, slack: Any) -> Any:
    return abs(before + value - after) <= slack


@kernel
def find_leaves(
    score: Any, margin: Any, link: Any, times: Any, value: Any, middle: Any, order: Any, slack: Any, leaf: Any
) -> Any:
    """The leaf of every row from its scores before and after a tree; returns for how many rows they do not tell it.

    ``margin`` is the sum of values before the tree, ``score`` the response after it, whose margin times ``times`` is
    the sum of values after it. ``value`` holds the leaf values in rising order, ``middle`` what lies halfway between
    them, ``order`` their leaves. One leaf must lead from sum to sum: with ``slack`` 0 to the bit, in the precision of
    the arrays; otherwise to ``slack * (1 + |sum|)``.
    """
    last = value.shape[0] - 1
    untold = 0
    for i in range(score.shape[0]):
        after = times * margin_of(link, score[i])
        before = margin[i]
        step = np.float64(after) - np.float64(before)
        k, count = 0, last + 1
        while count > 1:
            half = count >> 1
            k += half if middle[k + half - 1] < step else 0
            count -= half
        off = slack * (1.0 + abs(after))
        # rounding is not symmetric next to a power of two: the nearest value may miss where the second fits
        if not _fits(before, value[k], after, off):
            if k > 0 and _fits(before, value[k - 1], after, off):
                k -= 1
            elif k < last and _fits(before, value[k + 1], after, off):
                k += 1
            else:
                untold += 1
        if (k > 0 and _fits(before, value[k - 1], after, off)) or (
            k < last and _fits(before, value[k + 1], after, off)
        ):
            untold += 1
        leaf[i] = order[k]
    return untold


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
