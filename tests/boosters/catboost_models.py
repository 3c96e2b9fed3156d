"""Small CatBoost models, and what they say of themselves."""

from __future__ import annotations

import catboost as cb
import numpy as np

FIXED = {"iterations": 12, "depth": 3, "learning_rate": 0.2, "verbose": False, "allow_writing_files": False}
FIXED |= {"thread_count": 1}


def train(X, y, weight=None, baseline=None, **params):
    return cb.CatBoostRegressor(**(FIXED | params)).fit(cb.Pool(X, y, weight=weight, baseline=baseline))


def own_values(model):
    """Return the values of each tree's leaves, by the numbers of `calc_leaf_indexes`."""
    values = np.split(model.get_leaf_values(), np.cumsum(model.get_tree_leaf_counts())[:-1])
    return [dict(enumerate(tree.tolist())) for tree in values]


def damage(parent, key, rng):
    """Replace or remove a random value below `parent[key]` of a document."""
    value = parent[key]
    inside = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if inside and rng.random() < 0.9:
        damage(value, inside[rng.integers(len(inside))], rng)
    elif rng.random() < 0.3:
        del parent[key]
    else:
        parent[key] = [None, -1, 10**30, "x", [], {}, float("nan"), 1e308, True][rng.integers(9)]
