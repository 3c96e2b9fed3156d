"""Certificate: are these the rows, labels and settings that the trees were grown from?

If they are, the recomputed ``-alpha G / (H + lambda)`` equals every stored leaf value, up to rounding. If one label of
thousands is wrong by one, the error is about 1e-3. The counts, covers and errors of leaves show what differs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ..arrays import Array
from ..trees.forest import Forest
from ..trees.objectives import LOG, SQUAREDLOG
from ..trees.training_spec import TrainingSpec
from .moments import LeafMoments
from .newton import newton_weights

Status = Literal["certified", "held-out", "subsampled", "approximate"]


@dataclass(frozen=True)
class Certificate:
    """How far the moments can be trusted to be those of training.

    Attributes
    ----------
    status : {"certified", "held-out", "subsampled", "approximate"}
        "certified": the stored leaves were reproduced from these rows. "held-out": the rows are not the training rows,
        or not all of them. "subsampled": trees were grown on samples of these rows, and the model does not store which.
        "approximate": the stored leaves are not what the formula gives, for the reason in `sentence`.
    error : float
        The largest error of a recomputed leaf, relative to the leaf's gradients.
    tolerance : float
        The largest error that the booster's rounding can cause.
    sentence : str
        The result in words.
    """

    status: Status
    error: float
    tolerance: float
    sentence: str

    def __str__(self) -> str:
        return f"{self.status} (leaf error {self.error:.1e}, tolerance {self.tolerance:.0e}): {self.sentence}"


def certify(forest: Forest, spec: TrainingSpec, moments: LeafMoments, weighted: bool) -> Certificate:
    """Compare recomputed leaves with stored ones, and counts of rows with those of training."""
    if spec.leaf_count is not None:
        # before 4.6, LightGBM stores a count of 0 for a tree that is one leaf, which holds all rows
        uncounted = (spec.leaf_count == 0) & spec.constant[forest.tree_of_leaf()]
        spec = replace(spec, leaf_count=np.where(uncounted, moments.count, spec.leaf_count))
    errors = leaf_errors(forest, spec, moments)
    error = float(errors.max())
    status, sentence = _diagnose(forest, spec, moments, errors, weighted)
    return Certificate(status, error, spec.tolerance, sentence)


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


def _diagnose(
    forest: Forest, spec: TrainingSpec, moments: LeafMoments, errors: Array, weighted: bool
) -> tuple[Status, str]:
    fits = bool(errors.max() <= spec.tolerance)
    match = _share_of_matching_leaves(spec, moments)
    contained = contains_training_rows(spec, moments)
    if spec.approximate and (match > _MOSTLY or contained):
        return "approximate", (
            f"{'; '.join(spec.approximate)}: the mean is the stored leaf value, its variance comes from the moments"
        )
    if fits and _same_size(spec, moments):
        clipped = _clipped(spec, moments)
        if clipped > 0.5 * forest.n_leaves:
            return "approximate", (
                f"the stored leaves were reproduced, but max_delta_step clipped {clipped} of {forest.n_leaves}, and a "
                f"clipped leaf fits any larger gradient: these may not be the labels of training"
            )
        if spec.rates_known:
            return "certified", f"all {forest.n_leaves} stored leaf values were reproduced from these rows"
        return "approximate", (
            "the stored leaves were reproduced, but with a fitted learning rate and regularisation: the model file "
            "does not store them, and its trees are too few or too alike to determine them; wrap the live model"
        )
    if not weighted and _covers_count_rows(spec) and _covers_are_fractions(spec):
        return "approximate", (
            "training used sample weights or a custom objective, which the model does not store: give sample_weight= "
            "or objective="
        )
    trained_on = _training_rows(forest, spec)
    if trained_on is not None and not spec.subsampled and trained_on != moments.rows:
        counts = f"{moments.rows:.0f} were given, training saw {trained_on}"
        return "held-out", f"{_whose_moments(spec, moments, weighted)} ({counts})"
    if contained and match < 1.0 and _may_be_subsampled(forest, spec):
        sentence = (
            "training grew its trees on samples of these rows (bagging, subsample or GOSS); the model does not store "
            "which rows, so the moments are those of all rows"
        )
        if not spec.subsampled and not weighted:
            sentence += "; if it did not, it had fewer rows, or weights below 1: give those rows, or sample_weight="
        return "subsampled", sentence
    if match > _MOSTLY and not spec.rates_known:
        return "approximate", (
            "the model file does not store its learning rate and regularisation, and its trees do not determine them; "
            "wrap the live model"
        )
    if match > _MOSTLY:
        return "approximate", _why_values_differ(forest, spec, errors)
    return "held-out", _whose_moments(spec, moments, weighted)


def _may_be_subsampled(forest: Forest, spec: TrainingSpec) -> bool:
    """Tell whether trees may have been grown on samples of the rows, whose sizes differ from tree to tree."""
    if spec.subsampled is not None or not _covers_count_rows(spec):
        return spec.subsampled is not False
    sizes = np.add.reduceat(spec.leaf_cover, forest.leaf_start[:-1])[spec.new_iteration()]
    return len(sizes) < 2 or bool(np.any(sizes != sizes[0]))


def _whose_moments(spec: TrainingSpec, moments: LeafMoments, weighted: bool) -> str:
    """Return the sentence for rows that are not those of training: others, or perhaps a part of them."""
    weights = (
        ""
        if weighted or spec.leaf_count is not None
        else ", or not with their weights or base margins (then give sample_weight=, init_score=)"
    )
    saw, holds = (
        (spec.leaf_cover * (1 + 1e-4), moments.h_sum) if spec.leaf_count is None else (spec.leaf_count, moments.count)
    )
    if np.any(holds > saw):  # impossible for a part of the training rows
        return f"these are not the training rows{weights}: the moments are out of sample"
    return (
        f"these are not all of the training rows{weights}: if they are some of them, give all; if they are others, the "
        f"moments are out of sample"
    )


# With some objectives, wrong labels change the hessians of some leaves; wrong rows change those of nearly all leaves.
_MOSTLY = 0.9


def _share_of_matching_leaves(spec: TrainingSpec, moments: LeafMoments) -> float:
    """Return the share of leaves that hold as many rows, or as much hessian, as in training."""
    if spec.leaf_count is not None:
        return float(np.mean(moments.count == spec.leaf_count))
    with np.errstate(invalid="ignore"):
        return float(np.mean(np.abs(moments.h_sum - spec.leaf_cover) <= 1e-4 * np.abs(spec.leaf_cover)))


def _same_size(spec: TrainingSpec, moments: LeafMoments) -> bool:
    """Tell whether leaves hold as much as in training; if all rows come twice, only this and not the values differ."""
    if spec.leaf_count is not None:
        return bool(np.all(moments.count == spec.leaf_count))
    if _covers_count_rows(spec):  # whole numbers, unless there are weights
        slack = 1e-4 * spec.leaf_cover if _covers_are_fractions(spec) else np.maximum(0.5, 1e-6 * spec.leaf_cover)
        return bool(np.all(np.abs(moments.h_sum - spec.leaf_cover) <= slack))
    # hessians of other objectives may cancel, so single leaves may differ
    return bool(abs(moments.h_sum.sum() - spec.leaf_cover.sum()) <= 0.01 * spec.leaf_cover.sum())


def _clipped(spec: TrainingSpec, moments: LeafMoments) -> int:
    """Return the number of leaves that `max_step` clipped."""
    newton, _, usable = newton_weights(spec, moments)
    return int(np.count_nonzero(usable & (np.abs(newton) >= spec.max_step * (1.0 - 1e-6))))


def contains_training_rows(spec: TrainingSpec, moments: LeafMoments) -> bool:
    """Tell whether every leaf holds at least as much as in training, so that training may have used a sample."""
    if spec.leaf_count is not None:
        return bool(np.all(spec.leaf_count <= moments.count))
    return bool(np.all(spec.leaf_cover <= moments.h_sum * (1 + 1e-4)))


def _training_rows(forest: Forest, spec: TrainingSpec) -> int | None:
    """Return the number of rows that the first tree was grown on; None if the model does not store it."""
    return None if spec.leaf_count is None else int(spec.leaf_count[: forest.leaf_start[1]].sum())


def _covers_count_rows(spec: TrainingSpec) -> bool:
    """Tell whether the model stores covers alone, which are counts of rows unless there were weights."""
    return spec.leaf_count is None and spec.objective is not None and spec.objective.unit_hessian


def _covers_are_fractions(spec: TrainingSpec) -> bool:
    """Tell whether sums of hessians are not whole numbers: there were weights or a custom objective."""
    return bool(np.any(spec.leaf_cover != np.round(spec.leaf_cover)))


def _why_values_differ(forest: Forest, spec: TrainingSpec, errors: Array) -> str:
    first = errors[: forest.leaf_start[1]] > spec.tolerance
    if 0 < first.sum() < 0.5 * len(first):
        return (
            f"the rows match, but {first.sum()} of {len(first)} leaves of the first tree do not: some labels or "
            f"weights are not those of training"
        )
    if not first.any():
        later = int(forest.tree_of_leaf()[np.argmax(errors > spec.tolerance)])
        return (
            f"the rows match, and so do the leaf values before tree {later}, but not the later ones: those trees were "
            f"trained with other data or settings, or changed afterwards"
        )
    return (
        "the rows match, but the leaf values do not: the labels, weights, init_score or objective are not those of "
        "training, or the model was refitted; give sample_weight=, init_score= or objective= if training had them"
    )
