"""One tree's part of a boosted log-variance (`calibration.boosted_scale`): its leaves' steps, and rows after them."""

from __future__ import annotations

import math
from typing import Any

from .jit import kernel


@kernel
def add_steps(
    leaf: Any, fold: Any, weight: Any, rate: Any, prior: Any, found: Any, ratio: Any, step: Any, own: Any
) -> None:
    """Steps of one tree for K models at once, of which model k learns from all rows but those of fold k.

    ``leaf`` is (n,), numbered within the tree, ``weight`` (n,). ``ratio`` is (K, n), a row's squared residual over its
    variance so far; it is advanced. ``step`` is (K, leaves), what is added to the log-variance: the rate times the log
    of the leaf's mean ratio, to which ``prior`` rows of ratio 1 belong. ``own[i]`` sums row i's steps in the model of
    its fold. ``found`` is room for two numbers a leaf.
    """
    leaves = step.shape[1]
    for k in range(step.shape[0]):
        of_model, steps = ratio[k], step[k]
        for j in range(leaves):
            found[2 * j], found[2 * j + 1] = prior, prior
        for i in range(leaf.shape[0]):
            w = 0.0 if fold[i] == k else weight[i]
            found[2 * leaf[i]] += w * of_model[i]
            found[2 * leaf[i] + 1] += w
        for j in range(leaves):
            steps[j] = rate * math.log(found[2 * j] / found[2 * j + 1])
            found[2 * j] = math.exp(-steps[j])
        for i in range(leaf.shape[0]):
            of_model[i] *= found[2 * leaf[i]]
            if fold[i] == k:
                own[i] += steps[leaf[i]]
