"""XGBoost's trees, end to end in flat arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UnsupportedModelError
from .dropout import tree_weights

# What is read of every tree, one number per node.
_FIELDS: dict[str, type] = {
    "left_children": np.int32,
    "right_children": np.int32,
    "split_indices": np.int32,
    "split_conditions": np.float32,
    "default_left": np.int64,
    "split_type": np.int64,
    "sum_hessian": np.float32,
    "base_weights": np.float32,
}


@dataclass(frozen=True)
class FlatTrees:
    """All nodes of all trees: M nodes, T trees.

    Attributes
    ----------
    fields : dict of (M,) arrays
        The arrays of `_FIELDS`.
    tree : (M,) int array
        The tree of each node.
    start : (T + 1,) int array
        The first node of each tree, which is its root.
    left, right : (M,) int array
        Children, numbered through the forest; -1 at a leaf.
    order : int array
        The nodes that can be reached, parents first and tree by tree. XGBoost keeps pruned ones.
    iteration : (T,) int array
        Boosting iteration of each tree.
    weight : (T,) float32 array
        What the leaves of each tree are multiplied by in predictions; 1 without dropout.
    categories : dict
        Node -> the categories in its set.
    """

    fields: dict[str, NDArray[Any]]
    tree: NDArray[np.int64]
    start: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    order: NDArray[np.int64]
    iteration: NDArray[np.int64]
    weight: NDArray[np.float32]
    categories: dict[int, NDArray[np.int64]]

    @property
    def is_leaf(self) -> NDArray[np.bool_]:
        return self.left < 0

    @property
    def leaves(self) -> NDArray[np.int64]:
        """Return the leaves in `order`."""
        return self.order[self.is_leaf[self.order]]

    @property
    def inner(self) -> NDArray[np.int64]:
        """Return the splits in `order`."""
        return self.order[~self.is_leaf[self.order]]

    @property
    def trees_per_iteration(self) -> NDArray[np.int64]:
        return np.bincount(self.iteration)[self.iteration]


def best_iteration(learner: Mapping[str, Any]) -> int | None:
    """Return the iteration at which early stopping would end predictions; None if training had none."""
    return _attribute(learner, "best_iteration")


def _attribute(learner: Mapping[str, Any], name: str) -> int | None:
    """Return a number among the strings that a model carries along."""
    attributes = learner.get("attributes")
    found = attributes.get(name) if isinstance(attributes, Mapping) else None
    return int(found) if isinstance(found, str) else None


def iteration_starts(learner: Mapping[str, Any]) -> NDArray[np.int64]:
    """Return the first tree of each of the I iterations, and the number of trees. XGBoost stores them since 2.0.

    Older models have the same number of trees in each iteration: stored since 1.6, implied by the best iteration since
    1.4, and 1 before.
    """
    model = learner["gradient_booster"]["model"]
    if "iteration_indptr" in model:
        return np.asarray(model["iteration_indptr"], np.int64)
    trees, best = _attribute(learner, "best_ntree_limit"), _attribute(learner, "best_iteration")
    told = 1 if trees is None or best is None else trees // max(1, best + 1)
    parallel = max(1, int(model["gbtree_model_param"].get("num_parallel_tree", told)))
    return np.arange(0, len(model["trees"]) + 1, parallel)


def flatten(learner: Mapping[str, Any], use_best_iteration: bool) -> FlatTrees:
    """Flatten the trees of a model document, up to its best iteration if so asked."""
    model = learner["gradient_booster"]["model"]
    trees = model["trees"]
    weight = tree_weights(learner, len(trees))
    indptr = iteration_starts(learner)
    best = best_iteration(learner) if use_best_iteration else None
    if best is not None:
        indptr = indptr[: best + 2]
        trees, weight = trees[: indptr[-1]], weight[: indptr[-1]]
    if not trees:
        raise UnsupportedModelError("the XGBoost model has no trees; train it first")
    if indptr[0] != 0 or indptr[-1] != len(trees) or np.any(np.diff(indptr) < 0):
        raise ValueError("iteration_indptr does not fit the trees")
    if any(int(t["tree_param"].get("size_leaf_vector", "1")) > 1 for t in trees):
        raise UnsupportedModelError("vector leaves (multi_output_tree): train one regressor per target")

    sizes = np.array([len(t["left_children"]) for t in trees])
    start = np.concatenate([[0], np.cumsum(sizes)])
    fields = {
        key: np.concatenate([np.asarray(t.get(key, np.zeros(n)), dtype) for t, n in zip(trees, sizes, strict=True)])
        for key, dtype in _FIELDS.items()
    }
    if any(len(array) != start[-1] for array in fields.values()):
        raise ValueError("node arrays differ in length")
    tree = np.repeat(np.arange(len(trees)), sizes)
    left, right = (_global_children(fields[key], start, tree) for key in ("left_children", "right_children"))
    if np.any((left < 0) != (right < 0)):
        raise ValueError("a node has one child")
    iteration = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    order = _reachable(left, right, start[:-1], tree)
    flat = FlatTrees(fields, tree, start, left, right, order, iteration, weight, _category_lists(trees, start))
    for key in ("default_left", "split_type"):
        values = fields[key][flat.inner]
        if np.any((values != 0) & (values != 1)):
            raise ValueError(f"{key} of a split is neither 0 nor 1")
    return flat


def _global_children(child: NDArray[np.int32], start: NDArray[np.int64], tree: NDArray[np.int64]) -> NDArray[np.int64]:
    if np.any(child < -1) or np.any(child >= np.diff(start)[tree]):
        raise ValueError("a child lies outside its tree")
    return np.where(child < 0, -1, child + start[tree])


def _reachable(
    left: NDArray[np.int64], right: NDArray[np.int64], roots: NDArray[np.int64], tree: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the nodes under the roots, parents first and tree by tree."""
    levels = []
    frontier, seen = roots, 0
    while len(frontier):
        levels.append(frontier)
        seen += len(frontier)
        if seen > len(left):
            raise ValueError("the nodes do not form trees")
        inner = frontier[left[frontier] >= 0]
        frontier = np.concatenate([left[inner], right[inner]])
    order = np.concatenate(levels)
    return order[np.argsort(tree[order], kind="stable")]


def _category_lists(trees: list[Any], start: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """Return node -> the categories in its set."""
    out = {}
    for t, tree in enumerate(trees):
        categories = np.asarray(tree.get("categories", ()), np.int64)
        for node, begin, size in zip(
            tree.get("categories_nodes", ()),
            tree.get("categories_segments", ()),
            tree.get("categories_sizes", ()),
            strict=True,
        ):
            if not 0 <= begin <= begin + size <= len(categories):
                raise ValueError("a category set lies outside its tree")
            out[int(start[t] + node)] = categories[begin : begin + size]
    if any(len(c) and not 0 <= c.min() <= c.max() < 2**24 for c in out.values()):
        raise ValueError("a category is outside 0..2^24")
    return out
