"""Leverage: how much the label of one training row moves the prediction of this row."""

from __future__ import annotations

import numpy as np

from ..arrays import Array
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec
from .moments import LeafMoments

# A training row's residual is enlarged at most by the factor e^5.
MAX_LEVERAGE = 5.0


def leaf_leverage(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> Array:
    """Return the (L,) logarithms of the factors by which residuals of training rows must be enlarged.

    With fixed splits, a tree reduces a row's residual by the share alpha h / (H + lambda), because the row itself is
    in the leaf. The sum of the logarithms over all trees gives the residual of a row that was left out of training.
    A leaf without rows counts as one with a single row.
    """
    tree, empty = forest.tree_of_leaf(), moments.mass == 0
    typical = moments.h_sum / np.maximum(moments.count, np.finfo(float).tiny)
    if empty.any():
        per_tree = np.bincount(tree, moments.h_sum) / np.maximum(np.bincount(tree, moments.count), 1)
        typical = np.where(empty, per_tree[tree], typical)
    total = np.where(empty, typical, moments.h_sum) + spec.lambda_
    share = spec.alpha[tree] / forest.divisor * typical / np.where(total > 0, total, np.inf)
    return -np.log1p(-np.clip(share, 0.0, 1.0 - np.exp(-MAX_LEVERAGE)))
