"""Comparison of the leaves that training stored with those that rows reproduce: values, sizes, and what they prove."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..trees.forest import Forest
from ..trees.objectives import LOG, SQUAREDLOG
from ..trees.training_spec import TrainingSpec
from .moments import LeafMoments
from .newton import newton_weights

# The leaves from which the learning rate of a single tree is solved, so that they still prove something: at the mean
# label, the gradients of a tree's leaves sum to zero, and one more equation is spent on the rate.
_ENOUGH_LEAVES = 4


def leaf_errors(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> Array:
    """Return the (L,) errors of recomputed leaf values, relative to the value if all gradients had the same sign."""
    tree = forest.tree_of_leaf()
    n = np.where(moments.mass > 0, moments.mass, 1)
    newton, denominator, usable = newton_weights(spec, moments)
    usable &= ~spec.constant[tree]
    alpha, step = spec.alpha[tree], spec.step(forest.leaf_value, tree).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        newton = np.clip(newton, -spec.max_step, spec.max_step)
        rms = np.sqrt(moments.gg / n + moments.g_mean**2)
        scale = alpha * n * (rms + _gradient_noise(forest, spec, moments) / spec.tolerance) / denominator
        # a constant tree's value is part of the base score; the error of an empty leaf is its whole value
        difference = np.abs(np.where(spec.constant[tree], 0.0, -alpha * newton) - step)
        # a stored value was rounded together with the base score that is folded into it
        rounding = 2.0 * float(np.finfo(np.float64).eps) * np.abs(forest.leaf_value)
        difference -= np.where(spec.folded[tree], rounding, 0.0)
        largest = max(float(np.abs(forest.leaf_value).max()), float(np.finfo(float).tiny))
        error = np.maximum(difference, 0.0) / np.where(usable & (scale > 0), scale, largest)
    return np.where(np.isfinite(error), error, np.inf)


def _gradient_noise(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> Array:
    """Return the (L,) absolute rounding errors of a single gradient, even where the gradient is small.

    Under a log link, g is a difference with exp(margin), which the booster computes in its own precision. Under other
    links, g is a difference with a margin that is known exactly, except for a base score folded into the first tree.
    """
    largest = float(np.abs(forest.leaf_value).max())
    if forest.link == LOG or (spec.objective is not None and spec.objective.code == SQUAREDLOG):
        eps = float(np.finfo(forest.leaf_value.dtype).eps)
        return eps * (1.0 + abs(spec.start)) * np.abs(moments.h_mean)
    return float(np.finfo(np.float64).eps) * (abs(spec.start) + largest) * np.abs(moments.h_mean)


def same_size(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> NDArray[np.bool_]:
    """Return the (L,) leaves that hold as much as in training: as many rows, and as large a sum of hessians.

    Wrong weights, or all rows twice, may change nothing but this. If there are weights, only the sum counts: a row of
    weight 0 may be left out.
    """
    constant = spec.constant[forest.tree_of_leaf()]
    same_cover = _same_cover(spec, moments) | constant
    if spec.leaf_count is None or moments.weight is not None or had_weights(spec):
        return same_cover
    same_count = moments.count == spec.leaf_count
    return same_cover if np.all(same_cover) and _counts_are_estimates(spec, moments) else same_cover & same_count


def _same_cover(spec: TrainingSpec, moments: LeafMoments) -> NDArray[np.bool_]:
    """Return the (L,) leaves whose sum of hessians is that of training, up to rounding; all if none is stored."""
    if not spec.leaf_cover.any():
        return np.ones(len(spec.leaf_cover), bool)
    with np.errstate(over="ignore", invalid="ignore"):
        n = np.where(moments.mass > 0, moments.mass, 1)
        # single hessians may have opposite signs
        slack = 10.0 * spec.tolerance * n * np.sqrt(moments.hh / n + moments.h_mean**2)
        if covers_count_rows(spec) and not covers_are_fractions(spec):
            slack = np.minimum(slack, np.maximum(0.5, 1e-6 * spec.leaf_cover))
        return np.abs(moments.h_sum - spec.leaf_cover) <= slack


def _counts_are_estimates(spec: TrainingSpec, moments: LeafMoments) -> bool:
    """Tell whether some leaves hold more rows than is stored, and others fewer: no row was just added or left out.

    On several machines, LightGBM counts no rows, but divides their number among leaves in proportion to the hessians.
    """
    return bool(np.any(moments.count > spec.leaf_count) and np.any(moments.count < spec.leaf_count))


def share_of_matching_leaves(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> float:
    """Return the share of leaves that hold as many rows, or as large a sum of hessians, as in training."""
    matching = same_size(forest, spec, moments)
    return float(np.mean(matching if spec.leaf_count is None else matching | (moments.count == spec.leaf_count)))


def contains_training_rows(spec: TrainingSpec, moments: LeafMoments) -> bool:
    """Tell whether every leaf holds at least as much as in training, so that training may have used a sample."""
    if spec.leaf_count is not None and np.all(spec.leaf_count <= moments.count):
        return True
    return bool(spec.leaf_cover.any() and np.all(spec.leaf_cover <= moments.h_sum * (1 + 1e-4)))


def proven_leaves(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> NDArray[np.bool_]:
    """Return the (L,) leaves whose values would show wrong labels.

    The others would have the same value with other labels: clipped by `max_step`, set to 0 by L1 regularisation, or in
    a tree whose learning rate was solved from two or three leaves. A tree without splits proves the mean label, unless
    the base score is another number.
    """
    tree = forest.tree_of_leaf()
    newton, _, defined = newton_weights(spec, moments)
    n = np.where(moments.mass > 0, moments.mass, 1)
    rounding = float(np.finfo(forest.leaf_value.dtype).eps) * abs(spec.start) * np.abs(moments.h_mean)
    at_mean = np.abs(moments.g_mean) <= spec.tolerance * np.sqrt(moments.gg / n + moments.g_mean**2) + rounding
    clipped = np.abs(newton) >= spec.max_step * (1.0 - 1e-6)
    unknown = np.isinf(spec.alpha_error)
    solved = unknown & (np.diff(forest.leaf_start) < _ENOUGH_LEAVES) & ~spec.constant & ~unknown.all()
    says_mean = (spec.constant & ~spec.folded)[tree] & at_mean
    silent = (spec.constant & ~spec.folded) | solved
    zeroed = (newton == 0.0) & (spec.l1 > 0.0)
    return defined & (says_mean | ~(clipped | zeroed | silent[tree]))


def covers_count_rows(spec: TrainingSpec) -> bool:
    """Tell whether stored sums of hessians are counts of rows, unless there were weights."""
    return spec.objective is not None and spec.objective.unit_hessian and bool(spec.leaf_cover.any())


def had_weights(spec: TrainingSpec) -> bool:
    """Tell whether the model shows that training had weights: its sums of hessians are not counts of rows."""
    if not covers_count_rows(spec):
        return False
    if spec.leaf_count is None:
        return covers_are_fractions(spec)
    return bool(np.any((np.abs(spec.leaf_cover - spec.leaf_count) > 0.5) & (spec.leaf_cover > 0.0)))


def covers_are_fractions(spec: TrainingSpec) -> bool:
    """Tell whether sums of hessians are not whole numbers: there were weights or a custom objective."""
    return bool(np.any(spec.leaf_cover != np.round(spec.leaf_cover)))
