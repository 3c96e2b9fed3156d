"""Learning rate and lambda from the data, where the model has lost them or rounds them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .certificate import leaf_errors
from .forest import Forest
from .moments import LeafMoments
from .propagate import soft_threshold
from .training import TrainingSpec

# Leaves that a fit needs: more than the two unknowns, so that wrong rows cannot be fitted.
_MIN_LEAVES = 4


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
    usable = (size > 0) & np.isfinite(size) & ~spec.constant[tree]
    size = np.where(usable, size, np.inf)
    vh, v, target = value * cover / size, value / size, -soft_threshold(moments.g_sum, spec.l1) / size

    def solve(trees: NDArray[np.int64], spec: TrainingSpec) -> TrainingSpec:
        use = np.isin(tree, trees)
        fitted = _fit_rates(vh[use], v[use], target[use], float(base[trees[0]]))
        if fitted is None:
            return spec
        alpha, lambda_ = spec.alpha.copy(), spec.lambda_.copy()
        alpha[trees], lambda_[use] = fitted.alpha, fitted.lambda_ + extra[use]
        if np.any(np.abs(alpha / spec.alpha - 1.0)[trees][~spec.alpha_free[trees]] > 1e-5):
            return spec
        sure = spec.rates_known and (fitted.sure or not spec.alpha_free[trees].all())
        return replace(spec, alpha=alpha, lambda_=lambda_, rates_known=sure)

    def worst(spec: TrainingSpec) -> float:
        return float(leaf_errors(forest, spec, moments).max())

    free = replace(spec, rates_known=True)
    solved = solve(np.flatnonzero(~spec.constant), free)
    if worst(solved) > spec.tolerance:
        solved = free
        for t in np.unique(tree[leaf_errors(forest, spec, moments) > spec.tolerance]):
            solved = solve(np.array([t]), solved)
    return solved if worst(solved) <= spec.tolerance else spec


@dataclass(frozen=True)
class _Fit:
    """alpha and lambda_ of a fit; `sure` if there were leaves enough, and of different size, to tell both."""

    alpha: float
    lambda_: float
    sure: bool


def _fit_rates(
    vh: NDArray[np.float64], v: NDArray[np.float64], target: NDArray[np.float64], lambda_: float
) -> _Fit | None:
    """Solve ``(vh + lambda v) / alpha = target``; for alpha alone where leaves are too alike to tell both."""
    scale = np.array([np.abs(vh).max(initial=0.0), np.abs(v).max(initial=0.0)])
    if not np.all(scale > 0) or not np.all(np.isfinite(target)):
        return None
    enough = np.count_nonzero(v) >= _MIN_LEAVES
    solution, _, _, singular = np.linalg.lstsq(np.stack([vh, v], axis=1) / scale, target, rcond=None)
    a, b = solution / scale
    if enough and singular[-1] > 1e-5 * singular[0] and a > 0 and b / a > -1e-3:
        return _Fit(float(1.0 / a), max(float(b / a), 0.0), True)
    both = vh + lambda_ * v
    slope = float(both @ target)
    return _Fit(float(both @ both) / slope, lambda_, False) if slope > 0 else None
