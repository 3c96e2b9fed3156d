"""CatBoost's trees, symmetric or not, end to end in flat arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UnsupportedModelError
from .numbers import finite_single, whole
from .target_statistics import Statistic, statistic_splits

# CatBoost's own limit on the depth of symmetric trees; a tree has 2^depth leaves.
_DEEPEST = 16

# Kinds of splits, by the names that models store.
FLOAT, CATEGORY, STATISTIC = "FloatFeature", "OneHotFeature", "OnlineCtr"


@dataclass(frozen=True)
class Split:
    """A question to a row: is a feature above a border, or is it a category?"""

    kind: str  # FLOAT, CATEGORY or STATISTIC
    feature: int  # number among the features of the kind
    border: float = 0.0
    category: int = 0  # the category's hash
    knows_labels: bool = False  # whether it is on a statistic of labels


@dataclass(frozen=True)
class FlatTrees:
    """All trees; T trees, N splits, L leaves.

    Attributes
    ----------
    split : (N,) int array
        The number of each node's split in `splits`.
    splits : list of Split
        The distinct splits.
    no, yes : (N,) int array
        The children for both answers; below 0 for leaf ``~child``, both numbered through the forest.
    root : (T,) int array
        The root of each tree, coded like a child.
    leaf_start : (T + 1,) int array
        The first leaf of each tree.
    value, weight : (L,) float array
        Value of each leaf, and the sum of weights that training saw there; 0 where the model does not store it.
    """

    split: NDArray[np.int64]
    splits: list[Split]
    no: NDArray[np.int64]
    yes: NDArray[np.int64]
    root: NDArray[np.int64]
    leaf_start: NDArray[np.int64]
    value: NDArray[np.float64]
    weight: NDArray[np.float64]


@dataclass(frozen=True)
class _Tree:
    """One tree, with children numbered within it."""

    split: NDArray[np.int64]
    no: NDArray[np.int64]
    yes: NDArray[np.int64]
    value: NDArray[np.float64]
    weight: NDArray[np.float64]


@dataclass(frozen=True)
class _Splits:
    """The distinct splits so far, and those on statistics by their numbers in the document."""

    numbers: dict[Split, int]
    statistics: Mapping[int, Statistic]


def flatten(document: Mapping[str, Any]) -> FlatTrees:
    """Flatten the trees of a model document."""
    seen = _Splits({}, statistic_splits(document["features_info"]))
    trees = list(_trees(document, seen))
    if not trees:
        raise UnsupportedModelError("the CatBoost model has no trees; train it first")
    leaf_start = np.cumsum([0, *(len(tree.value) for tree in trees)])
    node_start = leaf_start[:-1] - np.arange(len(trees))

    def children(side: str) -> NDArray[np.int64]:
        parts = (getattr(tree, side) for tree in trees)
        moved = (
            np.where(child < 0, child - leaf, child + node)
            for child, leaf, node in zip(parts, leaf_start[:-1], node_start, strict=True)
        )
        return np.concatenate([*moved])

    single = np.array([len(tree.value) == 1 for tree in trees])
    return FlatTrees(
        split=np.concatenate([tree.split for tree in trees]),
        splits=list(seen.numbers),
        no=children("no"),
        yes=children("yes"),
        root=np.where(single, ~leaf_start[:-1], node_start),
        leaf_start=leaf_start,
        value=np.concatenate([tree.value for tree in trees]),
        weight=np.concatenate([tree.weight for tree in trees]),
    )


def _trees(document: Mapping[str, Any], seen: _Splits) -> Iterator[_Tree]:
    shapes: dict[int, tuple[NDArray[np.int64], ...]] = {}
    for tree in document.get("oblivious_trees", ()):
        yield _symmetric(tree, seen, shapes)
    for tree in document.get("trees", ()):
        yield _nested(tree, seen)


def _symmetric(tree: Mapping[str, Any], seen: _Splits, shapes: dict[int, tuple[NDArray[np.int64], ...]]) -> _Tree:
    """Read a tree that asks the same question at all nodes of a level; bit d of a leaf's number answers question d."""
    splits = [_number(split, seen) for split in tree.get("splits") or ()]
    depth = len(splits)
    if depth > _DEEPEST:
        raise ValueError(f"a symmetric tree has depth {depth}")
    if depth not in shapes:
        shapes[depth] = _levels(depth)
    level, no, yes = shapes[depth]
    value = _floats(tree["leaf_values"])
    if len(value) != 1 << depth:
        raise ValueError(f"a symmetric tree of depth {depth} has {len(value)} leaves")
    weight = _floats(tree.get("leaf_weights") or np.zeros(len(value)))
    if len(weight) != len(value):
        raise ValueError(f"a symmetric tree of {len(value)} leaves has {len(weight)} leaf weights")
    return _Tree(np.array(splits, np.int64)[level], no, yes, value, weight)


def _levels(depth: int) -> tuple[NDArray[np.int64], ...]:
    """Return the levels and children of the nodes of a full tree, level by level, by the answers so far as bits."""
    level = np.repeat(np.arange(depth), 1 << np.arange(depth))
    start = (1 << level) - 1
    answers = np.arange(len(level)) - start
    below = [np.where(level == depth - 1, ~code, code + 2 * start + 1) for code in (answers, answers + (1 << level))]
    return level, below[0], below[1]


def _nested(tree: Mapping[str, Any], seen: _Splits) -> _Tree:
    """Read a tree of nested nodes. CatBoost numbers leaves depth first, a leaf beside a split before those below it."""
    split: list[int] = []
    children: tuple[list[int], list[int]] = ([], [])
    value: list[Any] = []
    weight: list[Any] = []
    waiting: list[tuple[Any, int, int]] = [(tree, -1, 0)]  # a node, and its place: parent and side
    while waiting:
        node, parent, side = waiting.pop()
        if "split" in node:
            code = len(split)
            split.append(_number(node["split"], seen))
            for child in children:
                child.append(0)
            below = [(node["right"], code, 1), (node["left"], code, 0)]  # the last is read first
            waiting += sorted(below, key=lambda place: "split" not in place[0])
        else:
            code = ~len(value)
            value.append(node["value"])
            weight.append(node.get("weight", 0.0))
        if parent >= 0:
            children[side][parent] = code
    no, yes = (np.array(child, np.int64) for child in children)
    return _Tree(np.array(split, np.int64), no, yes, _floats(value), _floats(weight))


def _number(split: Mapping[str, Any], seen: _Splits) -> int:
    """Return the number of a split among the distinct ones."""
    kind = split["split_type"]
    if kind == FLOAT:
        read = Split(FLOAT, whole(split["float_feature_index"]), finite_single(split["border"]))
    elif kind == CATEGORY:
        read = Split(CATEGORY, whole(split["cat_feature_index"]), category=whole(split["value"]))
    elif kind == STATISTIC:
        statistic = seen.statistics[whole(split["split_index"])]
        if (finite_single(split["border"]), split["ctr_target_border_idx"]) != (
            statistic.border,
            statistic.target_border,
        ):
            raise ValueError("a split has another border than the statistic that it is on")
        read = Split(STATISTIC, statistic.column, statistic.border, knows_labels=statistic.knows_labels)
    else:
        raise ValueError(f"a split has the unknown type {kind!r:.40}")
    return seen.numbers.setdefault(read, len(seen.numbers))


def _floats(numbers: Sequence[Any] | NDArray[np.float64]) -> NDArray[np.float64]:
    out = np.asarray(numbers, np.float64)
    if out.ndim != 1:
        raise UnsupportedModelError("leaves with several values: train one regressor per target")
    return out
