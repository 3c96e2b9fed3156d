"""Kernel of the boosted log-variance (`calibration.boosted_scale`): the steps of one tree's leaves."""

from __future__ import annotations

import math
from typing import Any

from .jit import kernel


@kernel
def add_steps(
    leaf: Any, fold: Any, weight: Any, rate: Any, prior: Any, sums: Any, ratio: Any, step: Any, own: Any
) -> None:
    """Write the steps of one tree for K models at once; model k learns from all rows except those of fold k.

    ``leaf`` (n,) is numbered within the tree. ``ratio`` (K, n) is each row's squared residual divided by its variance,
    and is updated by the steps. ``step`` (K, leaves) is added to the log-variance: the rate times the logarithm of the
    leaf's mean ratio, after ``prior`` rows with ratio 1 were added. ``own[i]`` sums row i's steps in the model of its
    fold. ``sums`` is a buffer of two numbers per leaf.
    """
    leaves = step.shape[1]
    for k in range(step.shape[0]):
        ratios, steps = ratio[k], step[k]
        for j in range(leaves):
            sums[2 * j], sums[2 * j + 1] = prior, prior
        for i in range(leaf.shape[0]):
            w = 0.0 if fold[i] == k else weight[i]
            sums[2 * leaf[i]] += w * ratios[i]
            sums[2 * leaf[i] + 1] += w
        for j in range(leaves):
            steps[j] = rate * math.log(sums[2 * j] / sums[2 * j + 1])
            sums[2 * j] = math.exp(-steps[j])
        for i in range(leaf.shape[0]):
            ratios[i] *= sums[2 * leaf[i]]
            if fold[i] == k:
                own[i] += steps[leaf[i]]
