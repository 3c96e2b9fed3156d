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
    Of rows with weights, the share is a mean. A leaf without rows counts as one with a single row.
    """
    tree, empty = forest.tree_of_leaf(), moments.mass == 0
    # H is that of one row in an empty leaf
    per_tree = np.bincount(tree, moments.h_sum) / np.maximum(np.bincount(tree, moments.count), 1)
    total = np.where(empty, per_tree[tree], moments.h_sum)
    share = spec.alpha[tree] / forest.divisor * total / np.where(total > 0, total + spec.lambda_, np.inf)
    share = np.fmin(share / np.where(empty, 1.0, moments.kish), 1.0 - np.exp(-MAX_LEVERAGE))  # also if it overflowed
    return -np.log1p(-np.maximum(share, 0.0))
