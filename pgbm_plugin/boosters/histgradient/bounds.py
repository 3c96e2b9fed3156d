"""Bounds that monotonic constraints put on leaves, followed through the trees as training did.

Most leaves lie inside their bounds, and have the value that they would have without any constraint.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import AnyArray

# Relative difference of a leaf and its bound that rounding explains: both were multiplied by the learning rate.
_ROUNDING = 1e-9


def leaves_at_bounds(estimator: Any) -> int:
    """Return how many leaves have the value of a bound, so that they may not follow from their gradients."""
    signs = _signs(estimator)
    if not signs.any():
        return 0
    return sum(_at_bounds(tree.nodes, signs, float(estimator.learning_rate)) for (tree,) in estimator._predictors)


def _signs(estimator: Any) -> NDArray[np.int64]:
    """Return the constraint of each feature of the trees: -1, 0 or 1."""
    signs, count = estimator.monotonic_cst, int(estimator.n_features_in_)
    if signs is None:
        return np.zeros(count, np.int64)
    if isinstance(signs, dict):
        signs = [signs.get(name, 0) for name in getattr(estimator, "feature_names_in_", ())]
    signs = np.asarray(signs, np.int64)
    mask = np.zeros(count, bool) if estimator.is_categorical_ is None else np.asarray(estimator.is_categorical_, bool)
    return np.concatenate([signs[mask], signs[~mask]])


def _at_bounds(nodes: AnyArray, signs: NDArray[np.int64], learning_rate: float) -> int:
    """Return how many leaves of one tree have the value of a bound.

    A node has the bounds that its parent has for children, which do not yet divide the two.
    """
    value = np.where(nodes["is_leaf"] != 0, nodes["value"] / learning_rate, nodes["value"])
    lower, upper = np.full(len(nodes), -np.inf), np.full(len(nodes), np.inf)  # for children
    own_lower, own_upper = lower.copy(), upper.copy()
    for k in np.flatnonzero(nodes["is_leaf"] == 0):  # parents come before their children
        left, right, sign = int(nodes["left"][k]), int(nodes["right"][k]), signs[nodes["feature_idx"][k]]
        for child in (left, right):
            own_lower[child] = lower[child] = lower[k]
            own_upper[child] = upper[child] = upper[k]
        if sign:
            low, high = (left, right) if sign > 0 else (right, left)
            upper[low] = lower[high] = (value[left] + value[right]) / 2
    leaf = nodes["is_leaf"] != 0
    slack = _ROUNDING * np.abs(value)
    return int(np.count_nonzero(leaf & ((value <= own_lower + slack) | (value >= own_upper - slack))))
