"""Certificate: are these the rows, labels and settings that the trees were grown from?

If they are, the recomputed ``-alpha G / (H + lambda)`` equals every stored leaf value, to rounding. One label of
thousands that is off by one shows as an error of 1e-3. Counts, covers and errors then tell what else may be wrong.
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
        The error up to which the booster's rounding explains it.
    sentence : str
        The finding in words.
    """

    status: Status
    error: float
    tolerance: float
    sentence: str

    def __str__(self) -> str:
        return f"{self.status} (leaf error {self.error:.1e}, tolerance {self.tolerance:.0e}): {self.sentence}"


def certify(forest: Forest, spec: TrainingSpec, moments: LeafMoments, weighted: bool) -> Certificate:
    """Compare recomputed leaves with stored ones, and rows with what training saw."""
    if spec.leaf_count is not None:
        # before 4.6 LightGBM does not count the rows of a tree that is one leaf: it had all of them
        uncounted = (spec.leaf_count == 0) & spec.constant[forest.tree_of_leaf()]
        spec = replace(spec, leaf_count=np.where(uncounted, moments.count, spec.leaf_count))
    errors = leaf_errors(forest, spec, moments)
    error = float(errors.max())
    status, sentence = _diagnose(forest, spec, moments, errors, weighted)
    return Certificate(status, error, spec.tolerance, sentence)


def leaf_errors(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> Array:
    """Return for each of the L leaves the error of its recomputed value, relative to that of aligned gradients."""
    tree = forest.tree_of_leaf()
    n = np.maximum(moments.count, 1)
    newton, denominator, usable = newton_weights(spec, moments)
    usable &= ~spec.constant[tree]
    alpha, step = spec.alpha[tree], spec.step(forest.leaf_value, tree).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        newton = np.clip(newton, -spec.max_step, spec.max_step)
        rms = np.sqrt(moments.gg / n + moments.g_mean**2)
        scale = alpha * n * (rms + _gradient_noise(forest, spec, moments) / spec.tolerance) / denominator
        # a constant tree's value is part of the base score; an empty leaf is wrong by all of its value
        difference = np.abs(np.where(spec.constant[tree], 0.0, -alpha * newton) - step)
        # a stored value was rounded together with the base score that is folded into it
        rounding = 2.0 * float(np.finfo(np.float64).eps) * np.abs(forest.leaf_value)
        difference -= np.where(spec.folded[tree], rounding, 0.0)
        largest = max(float(np.abs(forest.leaf_value).max()), float(np.finfo(float).tiny))
        error = np.maximum(difference, 0.0) / np.where(usable & (scale > 0), scale, largest)
    return np.where(np.isfinite(error), error, np.inf)


def _gradient_noise(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> Array:
    """Return for each of the L leaves the rounding error of a single gradient that does not shrink with the gradient.

    Under a log link, g is a difference with exp(margin), which the booster computes in its own precision. Elsewhere it
    is a difference with a margin that is followed bit for bit, apart from a base score folded into the first tree.
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
            f"{'; '.join(spec.approximate)}: the mean is the stored leaf, its variance comes from the moments"
        )
    if fits and _same_size(spec, moments):
        clipped = _clipped(spec, moments)
        if clipped > 0.5 * forest.n_leaves:
            return "approximate", (
                f"the stored leaves were reproduced, but max_delta_step clipped {clipped} of {forest.n_leaves}, and a "
                f"clipped leaf fits any larger gradient: whether these are the labels of training is not known"
            )
        if spec.rates_known:
            return "certified", f"all {forest.n_leaves} stored leaf values were reproduced from these rows"
        return "approximate", (
            "the stored leaves were reproduced, but with a learning rate and regularisation that had to be fitted: the "
            "model file does not store them and its trees are too few or too alike to tell; wrap the live model"
        )
    if not weighted and _has_unit_hessian(spec) and _covers_are_fractions(spec):
        return "approximate", (
            "training used sample weights or a custom objective, which the model does not store: give sample_weight= "
            "or objective="
        )
    trained_on = _training_rows(forest, spec)
    if trained_on is not None and not spec.subsampled and trained_on != moments.rows:
        given = f"{moments.rows:.0f} were given, training saw {trained_on}"
        return "held-out", f"{_whose_moments(spec, moments, weighted)} ({given})"
    if contained and match < 1.0 and _may_be_subsampled(forest, spec):
        sentence = (
            "training grew its trees on samples of these rows (bagging, subsample or GOSS); which rows is not stored, "
            "so the moments are those of all rows"
        )
        if not spec.subsampled and not weighted:
            sentence += "; if it did not, it had fewer rows, or weights below 1: give those rows, or sample_weight="
        return "subsampled", sentence
    if match > _MOSTLY and not spec.rates_known:
        return "approximate", (
            "the model file does not store its learning rate and regularisation, and its trees do not tell; wrap the "
            "live model"
        )
    if match > _MOSTLY:
        return "approximate", _why_values_differ(forest, spec, errors)
    return "held-out", _whose_moments(spec, moments, weighted)


def _may_be_subsampled(forest: Forest, spec: TrainingSpec) -> bool:
    """Tell whether trees may have been grown on samples: each tree draws its own, and their sizes differ."""
    if spec.subsampled is not None or not _has_unit_hessian(spec):
        return spec.subsampled is not False
    sizes = np.add.reduceat(spec.leaf_cover, forest.leaf_start[:-1])[spec.new_iteration()]
    return len(sizes) < 2 or bool(np.any(sizes != sizes[0]))


def _whose_moments(spec: TrainingSpec, moments: LeafMoments, weighted: bool) -> str:
    """Say whether rows that are not those of training are others, or may be a part: no leaf then holds more rows."""
    weights = (
        ""
        if weighted or spec.leaf_count is not None
        else ", or not with their weights or base margins (then give sample_weight=, init_score=)"
    )
    saw, holds = (
        (spec.leaf_cover * (1 + 1e-4), moments.h_sum) if spec.leaf_count is None else (spec.leaf_count, moments.count)
    )
    if np.any(holds > saw):
        return f"these are not the training rows{weights}: the moments are out of sample"
    return (
        f"these are not all of the training rows{weights}: if they are some of them, give all; if they are others, the "
        f"moments are out of sample"
    )


# A wrong label changes the hessians of some leaves under some objectives; wrong rows change those of nearly all.
_MOSTLY = 0.9


def _share_of_matching_leaves(spec: TrainingSpec, moments: LeafMoments) -> float:
    """Return the share of leaves that hold as many rows, or as much hessian, as in training."""
    if spec.leaf_count is not None:
        return float(np.mean(moments.count == spec.leaf_count))
    with np.errstate(invalid="ignore"):
        return float(np.mean(np.abs(moments.h_sum - spec.leaf_cover) <= 1e-4 * np.abs(spec.leaf_cover)))


def _same_size(spec: TrainingSpec, moments: LeafMoments) -> bool:
    """Tell whether leaves hold as much as in training: the same rows given twice fit the values, too."""
    if spec.leaf_count is not None:
        return bool(np.all(moments.count == spec.leaf_count))
    if _has_unit_hessian(spec):  # whole numbers, unless there are weights
        slack = 1e-4 * spec.leaf_cover if _covers_are_fractions(spec) else np.maximum(0.5, 1e-6 * spec.leaf_cover)
        return bool(np.all(np.abs(moments.h_sum - spec.leaf_cover) <= slack))
    # hessians of other objectives may cancel, so that single leaves are off
    return bool(abs(moments.h_sum.sum() - spec.leaf_cover.sum()) <= 0.01 * spec.leaf_cover.sum())


def _clipped(spec: TrainingSpec, moments: LeafMoments) -> int:
    """Return how many leaves are at the bound on a step."""
    newton, _, usable = newton_weights(spec, moments)
    return int(np.count_nonzero(usable & (np.abs(newton) >= spec.max_step * (1.0 - 1e-6))))


def contains_training_rows(spec: TrainingSpec, moments: LeafMoments) -> bool:
    """Tell whether no leaf saw more in training than it holds of these rows, as for any sample of them."""
    if spec.leaf_count is not None:
        return bool(np.all(spec.leaf_count <= moments.count))
    return bool(np.all(spec.leaf_cover <= moments.h_sum * (1 + 1e-4)))


def _training_rows(forest: Forest, spec: TrainingSpec) -> int | None:
    """Return how many rows the first tree was grown on; None if the model does not store it."""
    return None if spec.leaf_count is None else int(spec.leaf_count[: forest.leaf_start[1]].sum())


def _has_unit_hessian(spec: TrainingSpec) -> bool:
    return spec.leaf_count is None and spec.objective is not None and spec.objective.unit_hessian


def _covers_are_fractions(spec: TrainingSpec) -> bool:
    """Tell whether sums of hessians are not whole, where hessians are 1: there were weights or another objective."""
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
            f"the rows match, and the trees before number {later}; the later ones do not: they were trained with "
            f"other data or settings, or changed afterwards"
        )
    return (
        "the rows match and the leaf values do not: the labels, weights, init_score or objective are not those of "
        "training, or the model was refitted; give sample_weight=, init_score= or objective= if training had them"
    )
