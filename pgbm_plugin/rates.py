"""Learning rate and lambda from the data, where the model has lost them or rounds them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .certificate import leaf_errors
from .forest import Forest
from .moments import LeafMoments
from .propagate import soft_threshold
from .training import TrainingSpec


def solve_rates(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> TrainingSpec:
    """Other learning rates and lambdas, if they make the leaves fit: the same for all trees, else per tree.

    A leaf of value v obeys ``v (H + lambda) / alpha = -soft(G, l1)``: linear in 1/alpha and lambda/alpha. Model text
    rounds both to six digits and keeps only the last value of a schedule; XGBoost's files keep neither.
    """
    tree = forest.tree_of_leaf()
    base = np.minimum.reduceat(spec.lambda_, forest.leaf_start[:-1])
    extra = spec.lambda_ - base[tree]
    value = spec.step(forest.leaf_value, tree).astype(np.float64)
    cover = moments.h_sum + extra
    # every equation relative to its own size
    size = np.abs(value) * cover
    size = np.where(size > 0, size, np.inf)
    vh, v, target = value * cover / size, value / size, -soft_threshold(moments.g_sum, spec.l1) / size

    def solve(trees: NDArray[np.int64], spec: TrainingSpec) -> TrainingSpec:
        use = np.isin(tree, trees)
        fitted = _fit_rates(vh[use], v[use], target[use], float(base[trees[0]]))
        if fitted is None:
            return spec
        alpha, lambda_ = spec.alpha.copy(), spec.lambda_.copy()
        alpha[trees], lambda_[use] = fitted[0], fitted[1] + extra[use]
        return replace(spec, alpha=alpha, lambda_=lambda_)

    solved = solve(np.arange(forest.n_trees), spec)
    if leaf_errors(forest, solved, moments).max() > spec.tolerance:
        solved = spec
        for t in np.unique(tree[leaf_errors(forest, spec, moments) > spec.tolerance]):
            solved = solve(np.array([t]), solved)
    return solved if leaf_errors(forest, solved, moments).max() <= spec.tolerance else spec


def _fit_rates(
    vh: NDArray[np.float64], v: NDArray[np.float64], target: NDArray[np.float64], lambda_: float
) -> tuple[float, float] | None:
    """(alpha, lambda) of ``(vh + lambda v) / alpha = target``; alpha alone where leaves are too alike to tell both."""
    scale = np.array([np.abs(vh).max(initial=0.0), np.abs(v).max(initial=0.0)])
    if not np.all(scale > 0):
        return None
    solution, _, rank, _ = np.linalg.lstsq(np.stack([vh, v], axis=1) / scale, target, rcond=1e-12)
    a, b = solution / scale
    if rank == 2 and a > 0:
        return float(1.0 / a), float(b / a)
    both = vh + lambda_ * v
    slope = float(both @ target)
    return (float(both @ both) / slope, lambda_) if slope > 0 else None
