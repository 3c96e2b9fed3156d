"""Fitted estimators, read into Forest and TrainingSpec."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import AnyArray
from ...trees.forest import CATEGORICAL, DEFAULT_LEFT, NODE, Features, Forest
from ...trees.objectives import Objective
from ...trees.training_spec import TrainingSpec, without_constants
from ..booster import Reading, finding, unsupported_loss
from .bounds import leaves_at_bounds
from .categories import Categories, read_categories
from .layout import check_layout
from .objectives import OBJECTIVES

# scikit-learn's classes of the losses that can be wrapped.
_LOSSES = {
    "HalfSquaredError": "squared_error",
    "HalfPoissonLoss": "poisson",
    "HalfGammaLoss": "gamma",
    "AbsoluteError": "absolute_error",
}

# What scikit-learn adds to every sum of hessians.
_EPSILON = 1e-15


def read(estimator: Any) -> Reading:
    """Read a fitted HistGradientBoostingRegressor; refuse a classifier, a quantile, and other layouts, by name."""
    objective = _objective(estimator)
    check_layout(estimator)
    with finding(f"damaged {type(estimator).__name__}"):
        forest = _forest(estimator, objective)
        return forest, _training_spec(estimator, objective, forest)


def _objective(estimator: Any) -> Objective:
    loss = type(getattr(estimator, "_loss", None)).__name__
    if not hasattr(estimator, "_loss") or loss in _LOSSES:
        return OBJECTIVES[_LOSSES.get(loss, "squared_error")]
    shown = str(estimator.loss) if isinstance(estimator.loss, str) else loss
    raise unsupported_loss("loss", shown, OBJECTIVES)


def _forest(estimator: Any, objective: Objective) -> Forest:
    categories = read_categories(estimator)
    trees = [tree for (tree,) in estimator._predictors]
    size = np.array([len(tree.nodes) for tree in trees])
    stored, start = np.concatenate([tree.nodes for tree in trees]), np.cumsum(size) - size
    tree = np.repeat(np.arange(len(trees)), size)
    is_leaf = stored["is_leaf"] != 0
    code = np.where(is_leaf, ~(np.cumsum(is_leaf) - 1), np.cumsum(~is_leaf) - 1)  # a node's number as a child

    splits, own = stored[~is_leaf], tree[~is_leaf]
    nodes = np.zeros(len(splits), NODE)
    if np.any(splits["feature_idx"] < 0):
        raise ValueError("a split uses a feature below 0")
    nodes["feature"] = categories.column[splits["feature_idx"]]
    categorical, missing_left = splits["is_categorical"] != 0, splits["missing_go_to_left"] != 0
    for side in ("left", "right"):
        if np.any(splits[side] >= size[own]):
            raise ValueError("a split points outside its tree")
        nodes[side] = code[start[own] + splits[side]]
    # Unknown categories are missing ones. Where these go left, the set is that of the known categories that go right,
    # and the children change places: then whatever is not in the set goes where the missing go.
    swapped = categorical & missing_left
    nodes["left"][swapped], nodes["right"][swapped] = nodes["right"][swapped], nodes["left"][swapped]
    nodes["flags"] = np.where(categorical, CATEGORICAL, 0) + np.where(missing_left & ~categorical, DEFAULT_LEFT, 0)
    nodes["threshold"] = np.where(categorical, -1.0, splits["num_threshold"])
    nodes["category_set"] = -1
    nodes["category_set"][categorical] = np.arange(categorical.sum())
    sets = _category_sets(categories, trees, splits[categorical], nodes["feature"][categorical], own[categorical])

    leaves = stored[is_leaf]
    return Forest(
        root=code[start].astype(np.int32),
        nodes=nodes,
        category_start=np.cumsum([0, *map(len, sets)]).astype(np.int64),
        category_bits=np.concatenate([np.zeros(0, np.uint32), *sets]),
        leaf_start=np.concatenate([[0], np.cumsum(np.bincount(tree[is_leaf], minlength=len(trees)))]),
        leaf_value=leaves["value"].astype(np.float64),
        leaf_label=(np.flatnonzero(is_leaf) - start[tree[is_leaf]]).astype(np.int32),
        base_margin=float(np.ravel(estimator._baseline_prediction)[0]),
        divisor=1,
        link=objective.link,
        features=_features(estimator, categories),
        booster="HistGradientBoosting",
    )


def _category_sets(
    categories: Categories, trees: list[Any], splits: AnyArray, column: NDArray[np.int32], tree: NDArray[np.int64]
) -> list[NDArray[np.uint32]]:
    """Return the category sets of categorical splits."""
    held = np.array([len(one.raw_left_cat_bitsets) for one in trees])
    if np.any(splits["bitset_idx"] >= held[tree]):
        raise ValueError("a split uses a category set that does not exist")
    bitsets = np.concatenate([one.raw_left_cat_bitsets for one in trees])
    left = bitsets[(np.cumsum(held) - held)[tree] + splits["bitset_idx"]]
    sets: list[NDArray[np.uint32]] = [np.zeros(1, np.uint32)] * len(splits)
    for j in np.unique(column).tolist():
        places = np.flatnonzero(column == j)
        own = categories.sets(j, left[places], splits["missing_go_to_left"][places] != 0)
        for place, words in zip(places.tolist(), own, strict=True):
            sets[place] = words
    return sets


def _features(estimator: Any, categories: Categories) -> Features:
    names = getattr(estimator, "feature_names_in_", None)
    return Features(
        count=int(estimator.n_features_in_),
        names=None if names is None else tuple(map(str, names)),
        dtype=np.dtype(np.float64),
        integers=np.dtype(np.float64),
        absent=0.0,
        missing=np.nan,
        categories=tuple(categories.values.values()),
        category_columns=tuple(categories.values),
        unseen_is_missing=True,
        numbers_are_values=True,
    )


def _training_spec(estimator: Any, objective: Objective, forest: Forest) -> TrainingSpec:
    counts = np.concatenate([tree.nodes["count"][tree.nodes["is_leaf"] != 0] for (tree,) in estimator._predictors])
    # a root that cannot be split is a leaf of 0: no step
    constant = (np.diff(forest.leaf_start) == 1) & (forest.leaf_value[forest.leaf_start[:-1]] == 0.0)
    unweighted = objective.unit_hessian and not getattr(estimator, "_fitted_with_sw", False)
    penalty = float(estimator.l2_regularization) + _EPSILON
    return TrainingSpec(
        objective=objective,
        alpha=without_constants(np.full(forest.n_trees, float(estimator.learning_rate)), constant),
        alpha_error=np.zeros(forest.n_trees),
        constant=constant,
        lambda_=np.where(constant[forest.tree_of_leaf()], 0.0, penalty),
        l1=0.0,
        max_step=np.inf,
        iteration=np.arange(forest.n_trees),
        start=forest.base_margin,
        folded=np.zeros(forest.n_trees, bool),
        start_is_mean=False,
        leaf_count=counts.astype(np.int64),
        # sums of hessians are not stored; without weights they count rows, if every hessian is 1
        leaf_cover=counts.astype(np.float64) if unweighted else np.zeros(forest.n_leaves),
        subsampled=False,
        approximate=_why_approximate(estimator, objective),
        tolerance=1e-6,
    )


def _why_approximate(estimator: Any, objective: Objective) -> tuple[str, ...]:
    reasons = []
    if objective.renewed:
        reasons.append(f"loss {objective.name} renews its leaves from residual quantiles")
    bounded = leaves_at_bounds(estimator)
    if bounded:
        reasons.append(f"monotonic_cst bounds {bounded} of the leaves")
    return tuple(reasons)
