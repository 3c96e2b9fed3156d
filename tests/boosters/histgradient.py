"""What a fitted HistGradientBoostingRegressor says of itself, through its own traversal."""

from __future__ import annotations

import copy

import numpy as np


def own_leaves(estimator, X):
    """Return (n, T) the node in which each row ends in each tree: its trees predict, with numbers for values."""
    X = estimator._preprocess_X(X, reset=False)
    known, place = estimator._bin_mapper.make_known_categories_bitsets()
    out = []
    for (tree,) in estimator._predictors:
        numbered = copy.deepcopy(tree)
        numbered.nodes["value"] = np.arange(len(tree.nodes))
        out.append(numbered.predict(X, known, place, 1))
    return np.column_stack(out).astype(np.int64)


def own_values(estimator):
    """Return the values of each tree's leaves, by node."""
    return [
        {int(k): float(tree.nodes["value"][k]) for k in np.flatnonzero(tree.nodes["is_leaf"])}
        for (tree,) in estimator._predictors
    ]
