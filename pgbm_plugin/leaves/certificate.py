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
from ..trees.objectives import LOG
from ..trees.training_spec import TrainingSpec
from .comparison import (
    contains_training_rows,
    covers_are_fractions,
    covers_count_rows,
    had_weights,
    leaf_errors,
    proven_leaves,
    same_size,
    share_of_matching_leaves,
)
from .moments import LeafMoments

Status = Literal["certified", "held-out", "subsampled", "approximate"]

# With some objectives, wrong labels change the hessians of some leaves; wrong rows change those of nearly all leaves.
_MOSTLY = 0.9

# The share of rows about which no leaf may prove anything in a certified model.
_UNPROVEN = 0.1


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


def certify(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> Certificate:
    """Compare recomputed leaves with stored ones, and their sizes with those of training."""
    if spec.leaf_count is not None:
        # before 4.6, LightGBM stores a count of 0 for a tree that is one leaf, which holds all rows
        uncounted = (spec.leaf_count == 0) & spec.constant[forest.tree_of_leaf()]
        spec = replace(spec, leaf_count=np.where(uncounted, moments.count, spec.leaf_count))
    if not spec.sequential:  # the gradients of training are known for the first trees alone
        trees = spec.first_iteration()
        forest = forest.first_trees(trees)
        spec, moments = spec.first_trees(trees, forest.n_leaves), moments.part(0, forest.n_leaves)
    errors = leaf_errors(forest, spec, moments)
    status, sentence = _diagnose(forest, spec, moments, errors)
    if not spec.sequential:
        own = _without_recursion(spec)
        sentence = own if status == "approximate" else f"{sentence}; {own}"
    return Certificate(status, float(errors.max()), spec.tolerance, sentence)


def _diagnose(forest: Forest, spec: TrainingSpec, moments: LeafMoments, errors: Array) -> tuple[Status, str]:
    match = share_of_matching_leaves(forest, spec, moments)
    contained = contains_training_rows(spec, moments)
    if spec.approximate and (match > _MOSTLY or contained):
        return "approximate", (
            f"{'; '.join(spec.approximate)}: the mean is the stored leaf value, its variance comes from the moments"
        )
    if errors.max() <= spec.tolerance and np.all(same_size(forest, spec, moments)):
        return _proof(forest, spec, moments)
    counts_differ = spec.leaf_count is not None and match <= _MOSTLY  # then it was GOSS, which weights its samples
    if moments.weight is None and had_weights(spec) and not spec.subsampled and not counts_differ:
        return "approximate", (
            "training used sample weights or a custom objective, which the model does not store: give sample_weight= "
            "or objective="
        )
    trained_on = _training_rows(forest, spec)
    given = (moments.mass if spec.leaf_count is None else moments.count)[: forest.leaf_start[1]].sum()
    if trained_on is not None and trained_on != given:
        counts = f"{given:.10g} were given, training saw {trained_on}"
        return "held-out", f"{_whose_moments(spec, moments)} ({counts})"
    if contained and match < 1.0 and _may_be_subsampled(forest, spec):
        sentence = (
            "training grew its trees on samples of these rows (bagging, subsample or GOSS); the model does not store "
            "which rows, so the moments are those of all rows"
        )
        if not spec.subsampled:
            sentence += (
                "; if it did not, it had fewer rows, or other weights, init_score or labels: give those of training, "
                "with sample_weight= and init_score="
            )
        return "subsampled", sentence
    if match > _MOSTLY and not spec.rates_known:
        return "approximate", (
            "the model does not store its learning rate and regularisation, and its trees do not determine them: the "
            "spread may be too small or too large by any factor; wrap the model before it is saved"
        )
    if match > _MOSTLY:
        return "approximate", _why_leaves_differ(forest, spec, moments, errors)
    return "held-out", _whose_moments(spec, moments)


def _proof(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> tuple[Status, str]:
    """Return how much the reproduced leaves prove. The tree that proves the most rows counts."""
    if not spec.rates_known:
        return "approximate", (
            "the stored leaves were reproduced, but with a learning rate and regularisation that were fitted to these "
            "labels: the model does not store its own, and its trees are too few or too alike to determine them; wrap "
            "the model before it is saved"
        )
    proven = proven_leaves(forest, spec, moments)
    leaves = int(np.count_nonzero(~proven & (moments.mass > 0)))
    silent = np.add.reduceat(np.where(proven, 0.0, moments.mass), forest.leaf_start[:-1])
    unproven = moments.rows * silent.min() / moments.mass[: forest.leaf_start[1]].sum()
    sentence = f"all {forest.n_leaves} stored leaf values were reproduced from these rows"
    if leaves:
        sentence += (
            f", but {leaves} of them prove nothing, because other labels would give the same value (clipped by "
            f"max_delta_step, set to 0 by L1 regularisation, or a tree without splits)"
        )
    if unproven:
        sentence += f": {np.ceil(unproven):.0f} of {moments.rows:.0f} rows may be in no other leaf"
    if unproven > _UNPROVEN * moments.rows:
        return "approximate", f"{sentence}, so that their labels may not be those of training"
    return "certified", sentence


def _without_recursion(spec: TrainingSpec) -> str:
    """Return the sentence for trees whose gradients are not known: what the mean and the variance are made of."""
    sentence = (
        f"{'; '.join(spec.approximate)}: the mean is the sum of the stored leaf values, and the variance can only be "
        f"boosted from residuals, because the paper's recursion needs the gradients of training"
    )
    if not spec.rates_known:
        sentence += (
            "; the model does not store its learning rate and regularisation, and its trees do not determine them, so "
            "that residuals of training rows may be corrected too little or too much: tune with held-out rows"
        )
    return sentence


def _may_be_subsampled(forest: Forest, spec: TrainingSpec) -> bool:
    """Tell whether trees may have been grown on samples of the rows, whose sizes differ from tree to tree."""
    if spec.subsampled is not None or spec.leaf_count is not None or not covers_count_rows(spec):
        return spec.subsampled is not False
    sizes = np.add.reduceat(spec.leaf_cover, forest.leaf_start[:-1])[spec.new_iteration()]
    return len(sizes) < 2 or bool(np.any(sizes != sizes[0]))


def _whose_moments(spec: TrainingSpec, moments: LeafMoments) -> str:
    """Return the sentence for rows that are not those of training: others, or perhaps a part of them."""
    hint = ", or not with their weights or base margins (sample_weight=, init_score=)"
    weights = "" if spec.leaf_count is not None else hint
    saw, holds = (
        (spec.leaf_cover * (1 + 1e-4), moments.h_sum) if spec.leaf_count is None else (spec.leaf_count, moments.count)
    )
    if np.any(holds > saw):  # impossible for a part of the training rows
        return f"these are not the training rows{weights}: the moments are out of sample"
    return (
        f"these are not all of the training rows{weights}: if they are some of them, give all; if they are others, the "
        f"moments are out of sample"
    )


def _training_rows(forest: Forest, spec: TrainingSpec) -> int | None:
    """Return the number of rows that all trees were grown on; None if the model does not store it."""
    if spec.leaf_count is None:
        known = covers_count_rows(spec) and not covers_are_fractions(spec) and not _may_be_subsampled(forest, spec)
    else:
        known = not spec.subsampled
    rows = np.add.reduceat(spec.leaf_cover if spec.leaf_count is None else spec.leaf_count, forest.leaf_start[:-1])
    return int(rows[0]) if known and np.all(rows == rows[0]) else None


def _why_leaves_differ(forest: Forest, spec: TrainingSpec, moments: LeafMoments, errors: Array) -> str:
    """Return the sentence for rows that match, with leaves that do not."""
    wrong, leaves = errors > spec.tolerance, int(forest.leaf_start[1])
    first = wrong[:leaves]
    if not wrong.any():
        return (
            f"the leaf values were reproduced, but not the sums of hessians that the model stores (in the first tree "
            f"{moments.h_sum[:leaves].sum():.10g}, in training {spec.leaf_cover[:leaves].sum():.10g}): rows are "
            f"missing or come twice, or weights are not those of training; give sample_weight= if training had them"
        )
    if 0 < first.sum() < 0.5 * len(first):
        return (
            f"the rows match, but {first.sum()} of {len(first)} leaves of the first tree do not: some labels or "
            f"weights are not those of training"
        )
    if not first.any():
        later = int(forest.tree_of_leaf()[np.argmax(wrong)])
        return (
            f"the rows match, and so do the leaf values before tree {later}, but not the later ones: those trees were "
            f"trained with other data or settings, or changed afterwards"
        )
    on_log_scale = spec.own_starts and forest.link == LOG
    return (
        "the rows match, but the leaf values do not: the labels, weights, init_score or objective are not those of "
        "training, a schedule changed the learning rate, or the model was refitted; give sample_weight=, init_score= "
        "or objective= if training had them"
        + ("; this model's init_score is on the log scale: log(exposure), not exposure" if on_log_scale else "")
    )
