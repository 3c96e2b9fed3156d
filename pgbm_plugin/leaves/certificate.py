"""Certificate: are these the rows, labels and settings that the trees were grown from?

With the right ones, the recomputed ``-alpha G / (H + lambda)`` equals every stored leaf value, to rounding; one label
of thousands off by one shows as 1e-3. What else may be wrong is then a diagnosis from counts, covers and errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..trees.forest import Forest
from ..trees.objectives import LOG, SQUAREDLOG
from ..trees.training_spec import TrainingSpec
from .moments import LeafMoments
from .weights import soft_threshold

Status = Literal["certified", "held-out", "subsampled", "approximate"]


@dataclass(frozen=True)
class Certificate:
    """How far the moments can be trusted to be those of training.

    Attributes
    ----------
    status : "certified": the stored leaves were reproduced;
        "held-out": the rows are not the training rows: the moments are out of sample, unless the rows are some of them;
        "subsampled": trees were grown on samples of these rows, and which is not stored;
        "approximate": the stored leaves are not what the formula gives, for the reason in `sentence`.
    error : the largest error of a recomputed leaf, relative to the leaf's gradients.
    tolerance : the error up to which the booster's rounding explains it.
    sentence : what was found, for people.
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


def leaf_errors(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> NDArray[np.float64]:
    """(L,) difference between recomputed and stored leaf, relative to the leaf that aligned gradients would give."""
    tree = forest.tree_of_leaf()
    n = np.maximum(moments.count, 1)
    denominator = moments.h_sum + spec.lambda_
    usable = (moments.count > 0) & (denominator > 0) & ~spec.constant[tree]
    denominator = np.where(usable, denominator, 1.0)
    alpha, step = spec.alpha[tree], spec.step(forest.leaf_value, tree).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        newton = np.clip(soft_threshold(moments.g_sum, spec.l1) / denominator, -spec.max_step, spec.max_step)
        rms = np.sqrt(moments.gg / n + moments.g_mean**2)
        scale = alpha * n * (rms + _gradient_noise(forest, spec, moments) / spec.tolerance) / denominator
        # what a constant stands for is in `start`; an empty leaf is wrong by all of itself
        difference = np.abs(np.where(spec.constant[tree], 0.0, -alpha * newton) - step)
        # a stored value is rounded together with the start that is folded into it
        rounding = 2.0 * float(np.finfo(np.float64).eps) * np.abs(forest.leaf_value)
        difference -= np.where(spec.folded[tree], rounding, 0.0)
        largest = max(float(np.abs(forest.leaf_value).max()), float(np.finfo(float).tiny))
        error = np.maximum(difference, 0.0) / np.where(usable & (scale > 0), scale, largest)
    return np.where(np.isfinite(error), error, np.inf)


def _gradient_noise(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> NDArray[np.float64]:
    """(L,) rounding error of a single gradient that does not shrink with it.

    Under a log link g is a difference with exp(margin), computed in the booster's precision from a margin of that
    precision; elsewhere it is a difference with a margin that we follow bit for bit, but for a start that was folded
    into the first tree.
    """
    largest = float(np.abs(forest.leaf_value).max())
    if forest.link == LOG or (spec.objective is not None and spec.objective.code == SQUAREDLOG):
        eps = float(np.finfo(forest.leaf_value.dtype).eps)
        return eps * (1.0 + abs(spec.start)) * np.abs(moments.h_mean)
    return float(np.finfo(np.float64).eps) * (abs(spec.start) + largest) * np.abs(moments.h_mean)


def _diagnose(
    forest: Forest, spec: TrainingSpec, moments: LeafMoments, errors: NDArray[np.float64], weighted: bool
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
    """Where the model does not say: each tree draws its own sample, and these do not have one size."""
    if spec.subsampled is not None or not _has_unit_hessian(spec):
        return spec.subsampled is not False
    sizes = np.add.reduceat(spec.leaf_cover, forest.leaf_start[:-1])[spec.new_iteration()]
    return len(sizes) < 2 or bool(np.any(sizes != sizes[0]))


def _whose_moments(spec: TrainingSpec, moments: LeafMoments, weighted: bool) -> str:
    """Of rows that are not those of training: they are others where some leaf holds more than training saw."""
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


# A label that is off moves hessians in some leaves under some objectives; other rows move nearly all.
_MOSTLY = 0.9


def _share_of_matching_leaves(spec: TrainingSpec, moments: LeafMoments) -> float:
    """How many leaves hold as many rows, or as much hessian, as in training."""
    if spec.leaf_count is not None:
        return float(np.mean(moments.count == spec.leaf_count))
    with np.errstate(invalid="ignore"):
        return float(np.mean(np.abs(moments.h_sum - spec.leaf_cover) <= 1e-4 * np.abs(spec.leaf_cover)))


def _same_size(spec: TrainingSpec, moments: LeafMoments) -> bool:
    """Whether leaves that fit also hold as much as in training: twice the same rows fit, too."""
    if spec.leaf_count is not None:
        return bool(np.all(moments.count == spec.leaf_count))
    if _has_unit_hessian(spec):  # whole numbers, unless there are weights
        slack = 1e-4 * spec.leaf_cover if _covers_are_fractions(spec) else np.maximum(0.5, 1e-6 * spec.leaf_cover)
        return bool(np.all(np.abs(moments.h_sum - spec.leaf_cover) <= slack))
    # hessians of other objectives may cancel, so that single leaves are off
    return bool(abs(moments.h_sum.sum() - spec.leaf_cover.sum()) <= 0.01 * spec.leaf_cover.sum())


def _clipped(spec: TrainingSpec, moments: LeafMoments) -> int:
    """How many leaves are at the bound on a step."""
    denominator = moments.h_sum + spec.lambda_
    usable = (moments.count > 0) & (denominator > 0)
    with np.errstate(over="ignore"):
        newton = soft_threshold(moments.g_sum, spec.l1) / np.where(usable, denominator, 1.0)
    return int(np.count_nonzero(usable & (np.abs(newton) >= spec.max_step * (1.0 - 1e-6))))


def contains_training_rows(spec: TrainingSpec, moments: LeafMoments) -> bool:
    """Whether no leaf saw more in training than it holds of these rows: so for any sample of them."""
    if spec.leaf_count is not None:
        return bool(np.all(spec.leaf_count <= moments.count))
    return bool(np.all(spec.leaf_cover <= moments.h_sum * (1 + 1e-4)))


def _training_rows(forest: Forest, spec: TrainingSpec) -> int | None:
    """How many rows the first tree was grown on."""
    return None if spec.leaf_count is None else int(spec.leaf_count[: forest.leaf_start[1]].sum())


def _has_unit_hessian(spec: TrainingSpec) -> bool:
    return spec.leaf_count is None and spec.objective is not None and spec.objective.unit_hessian


def _covers_are_fractions(spec: TrainingSpec) -> bool:
    """Hessians of 1 sum to whole numbers; anything else means weights or another objective."""
    return bool(np.any(spec.leaf_cover != np.round(spec.leaf_cover)))


def _why_values_differ(forest: Forest, spec: TrainingSpec, errors: NDArray[np.float64]) -> str:
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
