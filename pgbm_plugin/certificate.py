"""Certificate: are these the rows, labels and settings that the trees were grown from?

With the right ones, the recomputed ``-alpha G / (H + lambda)`` equals every stored leaf value, to rounding. One label
of thousands off by one shows as 1e-3, so the answer is never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .forest import Forest
from .moments import LeafMoments
from .objectives import LOG
from .propagate import soft_threshold
from .training import TrainingSpec

Status = Literal["certified", "held-out", "subsampled", "approximate"]


@dataclass(frozen=True)
class Certificate:
    """How far the moments can be trusted to be those of training.

    Attributes
    ----------
    status : "certified": the stored leaves were reproduced;
        "held-out": the rows are not the training rows, so the moments are out of sample;
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
    errors = leaf_errors(forest, spec, moments)
    error = float(errors.max())
    if error <= spec.tolerance:
        status: Status = "certified"
        sentence = f"all {forest.n_leaves} stored leaf values were reproduced from these rows"
    else:
        status, sentence = _diagnose(forest, spec, moments, errors, weighted)
    return Certificate(status, error, spec.tolerance, sentence)


def leaf_errors(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> NDArray[np.float64]:
    """(L,) difference between recomputed and stored leaf, relative to the leaf that aligned gradients would give."""
    tree = forest.tree_of_leaf()
    n = np.maximum(moments.count, 1)
    denominator = moments.h_sum + spec.lambda_
    usable = (moments.count > 0) & (denominator > 0)
    denominator = np.where(usable, denominator, 1.0)
    newton = np.clip(soft_threshold(moments.g_sum, spec.l1) / denominator, -spec.max_step, spec.max_step)
    step = spec.step(forest.leaf_value, tree).astype(np.float64)
    difference = np.abs(-spec.alpha[tree] * newton - step)

    rms = np.sqrt(moments.gg / n + moments.g_mean**2)
    scale = spec.alpha[tree] * n * (rms + _gradient_noise(forest, spec, moments) / spec.tolerance) / denominator
    largest = np.abs(step).max()
    # an empty leaf is wrong by all of itself
    scale = np.where(usable & (scale > 0), scale, np.maximum(largest, np.finfo(float).tiny))
    return np.where(difference > 0, difference / scale, 0.0)


def _gradient_noise(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> NDArray[np.float64]:
    """(L,) rounding error of a single gradient that does not shrink with it.

    Under a log link g is a difference with exp(margin), computed in the booster's precision; elsewhere it is a
    difference with a margin that we follow bit for bit, except for the start folded into a first tree.
    """
    if forest.link == LOG:
        return float(np.finfo(forest.leaf_value.dtype).eps) * np.abs(moments.h_mean)
    size = abs(spec.start) + float(np.abs(forest.leaf_value).max())
    return float(np.finfo(np.float64).eps) * size * np.abs(moments.h_mean)


def _diagnose(
    forest: Forest, spec: TrainingSpec, moments: LeafMoments, errors: NDArray[np.float64], weighted: bool
) -> tuple[Status, str]:
    same, contained = _same_rows(spec, moments), contains_training_rows(spec, moments)
    if spec.approximate and (same or contained):
        return "approximate", (
            f"{'; '.join(spec.approximate)}: the mean is the stored leaf, its variance comes from the moments"
        )
    if contained and not same and spec.subsampled is not False:
        return "subsampled", (
            "training grew its trees on samples of these rows (bagging, subsample or GOSS); which rows is not stored, "
            "so the moments are those of all rows"
        )
    if same:
        return "approximate", _why_values_differ(forest, spec, moments, errors)
    hint = ""
    if not weighted and spec.leaf_count is None and _covers_are_fractions(spec):
        hint = (
            "; if they are, training used sample weights or a custom objective, which the model does not store: give "
            "sample_weight= or objective="
        )
    return "held-out", f"these are not the training rows: the moments are out of sample{hint}"


def _same_rows(spec: TrainingSpec, moments: LeafMoments) -> bool:
    """Whether (nearly) every leaf holds as many rows, or as much hessian, as in training."""
    if spec.leaf_count is not None:
        matches = moments.count == spec.leaf_count
    else:
        matches = np.abs(moments.h_sum - spec.leaf_cover) <= 1e-4 * np.abs(spec.leaf_cover)
    return bool(np.mean(matches) > 0.9)


def contains_training_rows(spec: TrainingSpec, moments: LeafMoments, leaves: slice = slice(None)) -> bool:
    """Whether no leaf saw more in training than it holds of these rows: so for any sample of them."""
    if spec.leaf_count is not None:
        return bool(np.all(spec.leaf_count[leaves] <= moments.count[leaves]))
    return bool(np.all(spec.leaf_cover[leaves] <= moments.h_sum[leaves] * (1 + 1e-4)))


def _covers_are_fractions(spec: TrainingSpec) -> bool:
    """Hessians of 1 sum to whole numbers; anything else means weights or another objective."""
    return bool(np.any(spec.leaf_cover != np.round(spec.leaf_cover)))


def _why_values_differ(forest: Forest, spec: TrainingSpec, moments: LeafMoments, errors: NDArray[np.float64]) -> str:
    first = errors[forest.leaf_start[0] : forest.leaf_start[1]] > spec.tolerance
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
