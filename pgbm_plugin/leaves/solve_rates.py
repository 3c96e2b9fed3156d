"""Learning rates and regularisation, solved from the data if the model does not store them exactly."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec
from .comparison import leaf_errors
from .moments import LeafMoments


def solve_rates(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> TrainingSpec:
    """Return the spec with learning rates and regularisation with which the leaves fit, if there are any.

    One rate for all trees is tried first, then rates per tree. A leaf with value v satisfies
    ``v (H + lambda) / alpha + l1 sign(v) = -G``, which is linear in 1/alpha, lambda/alpha and l1. LightGBM's text
    rounds the rates to six digits and stores only the last value of a schedule; XGBoost's files store no rates.
    """
    if spec.constant.all():
        return spec
    tree = forest.tree_of_leaf()
    base = np.minimum.reduceat(spec.lambda_, forest.leaf_start[:-1])
    extra = spec.lambda_ - base[tree]
    value = spec.step(forest.leaf_value, tree).astype(np.float64)
    cover = moments.h_sum + extra
    # every equation is divided by its own size; a clipped leaf does not determine its gradient
    size = np.abs(value) * cover
    usable = (size > 0) & np.isfinite(size) & np.isfinite(moments.g_sum) & ~spec.constant[tree]
    if np.isfinite(spec.max_step):
        usable &= np.abs(value) < np.abs(value).max() * (1 - 1e-6)
    size = np.where(usable, size, np.inf)
    vh, v, sign, minus_g = value * cover / size, value / size, np.sign(value) / size, -moments.g_sum / size

    def solve(trees: NDArray[np.int64], spec: TrainingSpec, l1: bool) -> TrainingSpec:
        use = usable & np.isin(tree, trees)
        target = minus_g[use] - (0.0 if l1 else spec.l1) * sign[use]
        columns = [vh[use], v[use]] + ([sign[use]] if l1 else [])
        fit = _fit_rates(np.stack(columns, axis=1), target, float(base[trees[0]]))
        if fit is None:
            return spec
        alpha, lambda_, leaves = spec.alpha.copy(), spec.lambda_.copy(), np.isin(tree, trees)
        alpha[trees], lambda_[leaves] = fit.alpha, fit.lambda_ + extra[leaves]
        off = np.abs(alpha[trees] / spec.alpha[trees] - 1.0)
        if np.any(off > spec.alpha_error[trees]):
            return spec
        # if lambda is known and other trees confirm the labels, two leaves determine the rate of a tree; if all rates
        # are stated and none is confirmed, or if no tree has seen the step of another, other rates prove nothing:
        # labels in another unit would have such rates
        as_stated = stated and np.all(off <= 1e-5)
        determined = (fit.determined and not any_unit) or (lambda_known and use.sum() > 1) or as_stated
        rates_known = spec.rates_known and bool(determined)
        return replace(spec, alpha=alpha, lambda_=lambda_, l1=fit.l1 if l1 else spec.l1, rates_known=rates_known)

    stated = spec.rates_known
    lambda_known = stated and bool(np.any(np.isfinite(spec.alpha_error)))
    any_unit = not lambda_known and (stated or spec.first_iteration() == forest.n_trees)

    def error(spec: TrainingSpec) -> float:
        return float(leaf_errors(forest, spec, moments).max())

    fresh = replace(spec, rates_known=True)
    for l1 in (False,) if stated else (False, True):
        shared = solve(np.flatnonzero(~spec.constant), fresh, l1)
        if error(shared) <= spec.tolerance:
            return shared
    per_tree = fresh
    for t in np.unique(tree[leaf_errors(forest, spec, moments) > spec.tolerance]):
        per_tree = solve(np.array([t]), per_tree, l1=False)
    if error(per_tree) <= spec.tolerance:
        return per_tree
    # if no rates are known, rates that nearly fit are better than the booster's defaults
    close = not stated and error(shared) < 0.1 * error(spec)
    return replace(shared, rates_known=False) if close else spec


@dataclass(frozen=True)
class _Fit:
    """Rates that fit; `determined` if there were enough different leaves to solve for all of them."""

    alpha: float
    lambda_: float
    l1: float
    determined: bool


def _fit_rates(columns: Array, target: Array, lambda_: float) -> _Fit | None:
    """Solve ``columns @ [1 / alpha, lambda / alpha, l1] = target``; the column of l1 may be missing.

    If leaves are too few or too alike, solve for alpha alone.
    """
    scale = np.abs(columns).max(axis=0, initial=0.0)
    if not np.all(scale > 0):
        return None
    solution, _, _, singular = np.linalg.lstsq(columns / scale, target, rcond=None)
    a, b, l1 = np.append(solution / scale, 0.0)[:3]
    if len(target) >= columns.shape[1] + 2 and singular[-1] > 1e-3 * singular[0] and a > 0 and b / a > -1e-3:
        return _Fit(float(1.0 / a), max(float(b / a), 0.0), max(float(l1), 0.0), True)
    both = columns[:, 0] + lambda_ * columns[:, 1]
    slope = float(both @ target)
    return _Fit(float(both @ both) / slope, lambda_, 0.0, False) if slope > 0 else None
