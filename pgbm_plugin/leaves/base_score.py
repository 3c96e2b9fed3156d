"""The base score of LightGBM: the mean label's margin, which it folds into the first tree and does not store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arrays import Array
from ..trees.forest import Forest
from ..trees.objectives import LOG
from ..trees.training_spec import TrainingSpec
from .comparison import contains_training_rows, leaf_errors
from .moments import LeafMoments, joined
from .newton import newton_weights

# Steps of the secant method towards a base score; losses that are not quadratic need several.
_SECANTS = 8

FirstMoments = Callable[[TrainingSpec], LeafMoments]
"""A function that returns the moments of the spec's trees, which are the first ones, at its base score."""
MomentsOf = Callable[[Forest, TrainingSpec], LeafMoments]
"""A function that returns the moments of some trees over all rows."""


@dataclass(frozen=True)
class LabelSums:
    """Sums of weights and labels over rows, for the mean label; the sums of several parts of the rows can be merged."""

    origin: float  # subtracted from all labels; it is close to their mean, so that a common offset costs no digits
    weight: float = 0.0  # sum of weights
    label: float = 0.0  # weighted sum of labels less `origin`

    @classmethod
    def of_model(cls, spec: TrainingSpec, forest: Forest) -> LabelSums:
        """Return empty sums, whose origin is the base score that the model's leaves imply."""
        with np.errstate(over="ignore"):
            origin = float(np.exp(spec.start)) if forest.link == LOG else spec.start
        return cls(origin if np.isfinite(origin) else 0.0)

    def add(self, y: Array, weight: Array | None) -> LabelSums:
        """Return the sums with more rows, whose labels are on the margin's scale."""
        from_origin = y - self.origin
        if weight is None:
            return self.merge(replace(self, weight=float(len(y)), label=float(from_origin.sum())))
        return self.merge(replace(self, weight=float(weight.sum()), label=float((weight * from_origin).sum())))

    def merge(self, other: LabelSums) -> LabelSums:
        """Return the sums over both sets of rows."""
        return replace(self, weight=self.weight + other.weight, label=self.label + other.label)

    def base_score(self, spec: TrainingSpec, forest: Forest) -> float:
        """Return the margin of the mean label."""
        if not self.weight > 0:
            raise ValueError("there are no rows, or the weights of all rows are zero")
        mean = self.origin + self.label / self.weight
        if forest.link != LOG:
            return mean
        return float(np.log(mean)) if mean > 0 else spec.start


def for_init_score(spec: TrainingSpec, init_score: Any) -> TrainingSpec:
    """Return the spec for rows that start from `init_score`; for None, return it unchanged."""
    if init_score is None:
        if spec.own_starts:
            raise ValueError("training had an init_score (base_margin): give init_score= for these rows, too")
        return spec
    if np.any(spec.folded & ~spec.constant) and not np.all(spec.alpha == 1.0):
        raise ValueError(
            "the model was trained without init_score, because its first tree holds the mean label: leave init_score= "
            "out"
        )
    return spec.with_own_starts()


def moments_from_mean(
    forest: Forest, spec: TrainingSpec, sums: LabelSums, moments_of: MomentsOf
) -> tuple[TrainingSpec, LeafMoments]:
    """Return the spec with its base score, and the moments of all trees."""
    from_labels = replace(spec, start=sums.base_score(spec, forest))
    moments = moments_of(forest, from_labels)

    def first_moments(spec: TrainingSpec) -> LeafMoments:
        first = forest.first_trees(len(spec.alpha))
        return moments.part(0, first.n_leaves) if spec.start == from_labels.start else moments_of(first, spec)

    spec = settle_base_score(forest, spec, sums, first_moments)
    if spec.start != from_labels.start:
        trees = spec.first_iteration()
        at_start = first_moments(spec.first_trees(trees, int(forest.leaf_start[trees])))
        moments = joined([at_start, moments.part(len(at_start.count), forest.n_leaves)])
    return spec, moments


def settle_base_score(forest: Forest, spec: TrainingSpec, sums: LabelSums, moments_of: FirstMoments) -> TrainingSpec:
    """Return the spec with the base score, as exactly as the rows allow.

    It is the mean label's margin if the first tree's leaves follow from that. If the rows are not those of training, it
    is the base score that the model's leaves imply. If they are, it solves the equations of the first tree's leaves:
    on several machines, LightGBM starts from the mean of their mean labels.
    """
    first = forest.first_trees(1)

    def look(start: float) -> tuple[float, LeafMoments]:
        """Return the median error of the first tree's leaves, which one wrong label hardly changes, and the moments."""
        first_spec = replace(spec, start=start).first_trees(1, first.n_leaves)
        moments = moments_of(first_spec)
        # equally many rows in total: on several machines, LightGBM does not count those of single leaves
        as_many = first_spec.leaf_count is not None and first_spec.leaf_count.sum() == moments.count.sum()
        contained = as_many or contains_training_rows(first_spec, moments)
        return float(np.median(leaf_errors(first, first_spec, moments))) if contained else np.inf, moments

    from_labels = sums.base_score(spec, forest)
    error, moments = look(from_labels)
    if error <= spec.tolerance:
        return replace(spec, start=from_labels)
    # a constant tree would fit the base score that its leaf implies, whatever the labels
    if not spec.constant[0] and (np.isinf(error) or look(spec.start)[0] <= spec.tolerance):
        return spec
    # with one tree alone, labels that are all wrong by the same number would solve the equations as well
    if spec.first_iteration() < forest.n_trees and not spec.constant[0]:

        def residual(start: float, moments: LeafMoments) -> float:
            return implied_base_score(first, spec, moments) - start

        solved = _solve(spec, from_labels, moments, look, residual)
        if solved is not None:
            return replace(spec, start=solved)
    return replace(spec, start=from_labels)


def _solve(
    spec: TrainingSpec,
    start: float,
    moments: LeafMoments,
    look: Callable[[float], tuple[float, LeafMoments]],
    residual: Callable[[float, LeafMoments], float],
) -> float | None:
    """Return the base score with which the first tree's leaves fit, by the secant method; None if it finds none."""
    off = residual(start, moments)
    # the gradients change by their hessians times the change of the base score, exactly so for squared error
    share = float(np.median(moments.h_sum / np.maximum(moments.h_sum + spec.lambda_[: len(moments.count)], 1e-300)))
    step = off / max(1.0 - float(spec.alpha[0]) * share, 1e-3)
    for _ in range(_SECANTS):
        start += step
        if not np.isfinite(start):
            return None
        error, moments = look(start)
        if error <= spec.tolerance:
            return start
        before, off = off, residual(start, moments)
        if off == before:
            return None
        step *= off / (before - off)
    return None


def implied_base_score(first: Forest, spec: TrainingSpec, moments: LeafMoments) -> float:
    """Return the base score with which the first tree's stored values follow from its moments."""
    newton, _, _ = newton_weights(spec.first_trees(1, first.n_leaves), moments)
    return float(np.median(first.leaf_value + spec.alpha[0] * np.clip(newton, -spec.max_step, spec.max_step)))


def with_implied_base_score(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> TrainingSpec:
    """Return the spec with the base score that the first tree's moments imply, if its leaves fit better with it."""
    first = forest.first_trees(1)
    first_spec, first_moments = spec.first_trees(1, first.n_leaves), moments.part(0, first.n_leaves)
    implied = implied_base_score(first, spec, first_moments)

    def typical_error(start: float) -> float:
        return float(np.median(leaf_errors(first, replace(first_spec, start=start), first_moments)))

    better = typical_error(implied) <= min(spec.tolerance, typical_error(spec.start))
    return replace(spec, start=implied) if better else spec
