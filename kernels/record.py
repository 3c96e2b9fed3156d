"""Kernels of recording: find the leaves that took a row from one training score to the next, and sum over such rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from .accumulate import add_rows, gradients
from .cpu import BLOCK
from .jit import kernel, scalar
from .scalar import margin_of


@scalar
def _is_only_fit(before: Any, after: Any, off: Any, grain: Any, step: Any, gap: Any, k: Any) -> Any:
    """Tell whether step k leads from one score to the other, and no other step can."""
    return (abs(before + step[k] - after) <= off) & (gap[k] > 2 * (off + grain * abs(after)))


@scalar
def _only_fit(before: Any, after: Any, off: Any, grain: Any, step: Any) -> Any:
    """Return the only step that leads from one score to the other; the number of steps if none or several do."""
    took, hidden, only = np.float64(after) - np.float64(before), off + grain * abs(after), step.shape[0]
    for k in range(np.searchsorted(step, took - hidden), step.shape[0]):
        if step[k] > took + hidden:
            break
        if abs(before + step[k] - after) <= off:
            if only < step.shape[0]:
                return step.shape[0]
            only = k
    return only


@kernel
def find_steps(
    score: Any,
    margin: Any,
    step: Any,
    gap: Any,
    guess: Any,
    scale: Any,
    grain: Any,
    link: Any,
    times: Any,
    slack: Any,
    after: Any,
    part: Any,
    taken: Any,
) -> Any:
    """Find the step that took every row from one score to the next; return False if the scores leave one open.

    ``margin`` is the sum of leaf values before the step, and ``score`` the sum after it, if ``slack`` is None: one step
    must then lead from one to the other to the bit. Otherwise the sum after it is the margin of ``score`` under
    ``link``, times ``times``, and may be off by ``slack * (1 + |sum|)``. ``grain`` times a sum is what its rounding may
    hide. Numbers are of the arrays' precision.

    ``step`` holds the steps in rising order, ``gap`` how far the nearest other one is, and ``guess`` the one to try
    first for each ``1 / scale`` of their range. ``after`` and ``part`` are buffers for a block: guesses are made and
    checked for all of it in loops without branches, and corrected where one is wrong.
    """
    low, top = np.float64(step[0]), np.float64(guess.shape[0] - 1)
    none = step.dtype.type(0)
    for lo in range(0, score.shape[0], BLOCK):
        hi = min(lo + BLOCK, score.shape[0])
        before, took = margin[lo:hi], taken[lo:hi]
        for r in range(hi - lo):
            after[r] = score[lo + r] if slack is None else times * margin_of(link, score[lo + r])
        for r in range(hi - lo):
            x = (np.float64(after[r]) - np.float64(before[r]) - low) * scale + 0.5
            x = x if x > 0.0 else 0.0  # NaN is not
            part[r] = x if x < top else top
        for r in range(hi - lo):
            took[r] = guess[np.uint32(part[r])]
        wrong = 0
        for r in range(hi - lo):
            off = none if slack is None else slack * (1.0 + abs(after[r]))
            wrong += not _is_only_fit(before[r], after[r], off, grain, step, gap, took[r])
        for r in range(hi - lo if wrong else 0):
            off = none if slack is None else slack * (1.0 + abs(after[r]))
            if not _is_only_fit(before[r], after[r], off, grain, step, gap, took[r]):
                k = _only_fit(before[r], after[r], off, grain, step)
                if k == step.shape[0]:
                    return False
                took[r] = k
    return True


@kernel
def add_trees(
    leaves: Any,
    taken: Any,
    y: Any,
    weight: Any,
    at: Any,
    new_iteration: Any,
    objective: Any,
    parameter: Any,
    rounding: Any,
    leaf: Any,
    g: Any,
    h: Any,
    step: Any,
    margin: Any,
    sums: Any,
) -> None:
    """Per tree, take g and h at the margins ``at``, sum them per leaf, then add its step; ``at`` may be ``margin``.

    Row i reaches leaf ``leaves[t, taken[i]]`` of tree t. The other arguments are those of `cpu.gather_moments`.
    """
    n = y.shape[0]
    for lo in range(0, n, BLOCK):
        hi = min(lo + BLOCK, n)
        for t in range(leaves.shape[0]):
            if new_iteration[t]:
                gradients(y[lo:hi], weight[lo:hi], at[lo:hi], objective, parameter, rounding, g, h)
            leaf_of_path = leaves[t]
            for i in range(lo, hi):
                leaf[i - lo] = leaf_of_path[taken[i]]
            add_rows(leaf[: hi - lo], g, h, step, margin[lo:hi], sums)
