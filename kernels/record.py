"""Kernels of `record`: find the leaves that explain the change of each row's training score, and sum over rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from .accumulate import add_rows, gradients
from .cpu import BLOCK
from .jit import kernel, scalar
from .scalar import margin_of


@scalar
def _is_only_fit(before: Any, after: Any, off: Any, grain: Any, step: Any, gap: Any, k: Any) -> Any:
    """Tell whether step k leads from score ``before`` to ``after``, and no other step can."""
    return (abs(before + step[k] - after) <= off) & (gap[k] > 2 * (off + grain * abs(after)))


@scalar
def _only_fit(before: Any, after: Any, off: Any, grain: Any, step: Any) -> Any:
    """Return the only step from score ``before`` to ``after``; the number of steps if there are none or several."""
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
    """Write the number of every row's step to ``taken``; return False if a row has no step or more than one.

    ``margin`` is the sum of leaf values before the step. If ``slack`` is None, ``score`` is the sum after it, and one
    step must lead from one to the other exactly. Otherwise the sum after it is the margin of ``score`` under ``link``,
    times ``times``, with an error of at most ``slack * (1 + |sum|)``. ``grain`` times a sum is its rounding error.
    Numbers have the precision of the arrays.

    ``step`` holds the steps in rising order, ``gap`` the distance of each to the nearest other one, and ``guess`` the
    step to try first for each ``1 / scale`` of their range. ``after`` and ``part`` are buffers for a block. Guesses are
    made and checked for a whole block in loops without branches; then wrong ones are corrected.
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
    """Sum g and h at the margins ``at`` per leaf, tree by tree, and add the trees' steps to ``margin``.

    ``at`` may be the array ``margin`` itself. Row i reaches leaf ``leaves[t, taken[i]]`` of tree t. The other arguments
    are those of `cpu.gather_moments`.
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
            add_rows(leaf[: hi - lo], g, h, weight[lo:hi], step, margin[lo:hi], sums)
