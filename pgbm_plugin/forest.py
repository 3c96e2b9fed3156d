"""Forest: the trees of either booster as flat arrays, with one split rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .program import Program

# Bits of a node's ``flags``.
CATEGORICAL = 1
DEFAULT_LEFT = 2
ZERO_IS_MISSING = 4

# What counts as zero: LightGBM writes the literal 1e-35f into a double.
ZERO_BOUND = float(np.float32(1e-35))

NODE = np.dtype(
    [
        ("threshold", np.float64),
        ("feature", np.int32),
        ("left", np.int32),
        ("right", np.int32),
        ("category_set", np.int32),
        ("flags", np.uint8),
    ],
    align=True,
)
"""One split. A child >= 0 is a node, a child < 0 is the leaf ``~child``; both are numbered through the whole forest.

A missing value goes left if DEFAULT_LEFT is set. Missing is NaN, and with ZERO_IS_MISSING also zero. Otherwise

* numeric: left if ``x <= threshold``;
* CATEGORICAL: left if ``threshold < x`` and the integer part of x is in the category set.
"""


@dataclass(frozen=True)
class Features:
    """What the model expects of a row, and how its booster reads one.

    Attributes
    ----------
    count : number of columns.
    names : their names, or None where training had none.
    dtype : precision in which values are compared with thresholds; rows are rounded to it first.
    integers : precision to which the booster rounds an integer matrix.
    absent : value of an entry that a sparse matrix does not store.
    missing : value that stands for "missing" beside NaN, or NaN.
    categories : the values behind the codes 0, 1, ... of each categorical column of the training frame.
    category_columns : their column numbers; None if they belong to a frame's categorical columns in order.
    code_columns : categorical columns without stored values, for which a frame's own codes are used.
    unseen_is_missing : whether a category that training did not see counts as missing; otherwise it is an error.
    """

    count: int
    names: tuple[str, ...] | None
    dtype: np.dtype[Any]
    integers: np.dtype[Any]
    absent: float
    missing: float
    categories: tuple[tuple[Any, ...], ...] = ()
    category_columns: tuple[int, ...] | None = None
    code_columns: tuple[int, ...] = ()
    unseen_is_missing: bool = True


@dataclass(frozen=True)
class Forest:
    """Trees as arrays; T trees, N splits, L leaves.

    Attributes
    ----------
    root : (T,) int32, the root of each tree, coded like a child.
    nodes : (N,) of `NODE`.
    category_start : (sets + 1,) int64, where each category set begins in `category_bits`.
    category_bits : uint32 words of the bit sets.
    leaf_start : (T + 1,) int64, the first leaf of each tree.
    leaf_value : (L,) what a leaf adds to the margin, in the precision in which the booster sums.
    leaf_label : (L,) int32, the booster's own number for the leaf (its ``pred_leaf``).
    base_margin : the margin before the first tree.
    divisor : the summed margin is divided by it (random forests average).
    link : code of the link in `kernels.scalar`.
    features : what a row must look like.
    booster : "LightGBM" or "XGBoost", for people.
    """

    root: NDArray[np.int32]
    nodes: NDArray[Any]
    category_start: NDArray[np.int64]
    category_bits: NDArray[np.uint32]
    leaf_start: NDArray[np.int64]
    leaf_value: NDArray[Any]
    leaf_label: NDArray[np.int32]
    base_margin: float
    divisor: int
    link: int
    features: Features
    booster: str

    def __post_init__(self) -> None:
        _check_structure(self)
        for array in (*self.routing, self.leaf_start, self.leaf_value, self.leaf_label):
            array.flags.writeable = False

    @property
    def n_trees(self) -> int:
        return len(self.root)

    @property
    def n_leaves(self) -> int:
        return len(self.leaf_value)

    @property
    def routing(self) -> tuple[NDArray[Any], ...]:
        """The arrays that kernels route with: (root, nodes, category_start, category_bits)."""
        return self.root, self.nodes, self.category_start, self.category_bits

    @cached_property
    def program(self) -> Program | None:
        """The forest compiled for replay, or None if it is better walked."""
        from .program import compile_forest

        return compile_forest(self)

    def first_trees(self, trees: int) -> Forest:
        """The first trees alone."""
        leaves = int(self.leaf_start[trees])
        return replace(
            self,
            root=self.root[:trees],
            nodes=self.nodes[: leaves - trees],
            leaf_start=self.leaf_start[: trees + 1],
            leaf_value=self.leaf_value[:leaves],
            leaf_label=self.leaf_label[:leaves],
        )

    def tree_of_leaf(self) -> NDArray[np.int64]:
        """(L,) the tree that each leaf belongs to."""
        return np.repeat(np.arange(self.n_trees), np.diff(self.leaf_start))


def _check_structure(forest: Forest) -> None:
    """Refuse trees on which a kernel could read out of bounds or walk forever; everything a kernel indexes."""
    nodes, n, leaves = forest.nodes, len(forest.nodes), forest.n_leaves
    children = np.concatenate([nodes["left"], nodes["right"], forest.root])
    if len(forest.leaf_start) != forest.n_trees + 1 or len(forest.leaf_label) != leaves:
        raise ValueError("the leaf arrays differ in length")
    if np.any(children >= n) or np.any(~children >= leaves):
        raise ValueError("a split points outside the trees")
    # every node and leaf has exactly one parent, and parents come first: so there are no cycles and no orphans
    inner, leaf = children[children >= 0], ~children[children < 0]
    if np.any(np.bincount(inner, minlength=n) != 1) or np.any(np.bincount(leaf, minlength=leaves) != 1):
        raise ValueError("a split or leaf does not have exactly one parent")
    order = np.arange(n)
    for side in ("left", "right"):
        if np.any((nodes[side] >= 0) & (nodes[side] <= order)):
            raise ValueError("a split points back to an earlier one")
    if n and (nodes["feature"].min() < 0 or nodes["feature"].max() >= forest.features.count):
        raise ValueError(f"a split uses a feature outside 0..{forest.features.count - 1}")
    categorical = nodes["category_set"][nodes["flags"] & CATEGORICAL != 0]
    if np.any(categorical < 0) or np.any(categorical >= len(forest.category_start) - 1):
        raise ValueError("a split uses a category set that is not there")
    for name, starts, end in (
        ("leaves", forest.leaf_start, leaves),
        ("category sets", forest.category_start, len(forest.category_bits)),
    ):
        if np.any(np.diff(starts) < 0) or starts[0] != 0 or starts[-1] != end:
            raise ValueError(f"the {name} are out of order")
    if not np.all(np.isfinite(forest.leaf_value)) or not np.isfinite(forest.base_margin):
        raise ValueError("a leaf value is not finite")
