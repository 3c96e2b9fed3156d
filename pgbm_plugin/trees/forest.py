"""Forest: the trees of any booster as flat arrays, with one split rule."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray
from .looked_up import EQUAL, HASH, LookedUp

_FLOAT64 = np.dtype(np.float64)

# Bits of a node's ``flags``.
CATEGORICAL = 1
DEFAULT_LEFT = 2
ZERO_IS_MISSING = 4

# Values up to this size count as zero, as in LightGBM, which writes the literal 1e-35f into a double.
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
    """The columns that a model expects, and how its booster reads their values.

    Attributes
    ----------
    count : int
        Number of columns.
    names : tuple of str or None
        Names of the columns; None where training had none.
    dtype : dtype
        Precision in which values are compared with thresholds. Rows are rounded to it first.
    integers : dtype
        Precision to which the booster rounds an integer matrix.
    absent : float
        Value of an entry that a sparse matrix does not store.
    missing : float
        Value that stands for "missing" beside NaN; NaN for none.
    categories : tuple of tuples
        Values behind the codes 0, 1, ... of each categorical column of the training frame.
    category_columns : tuple of int or None
        Column numbers of `categories`; None if they belong to a frame's categorical columns in order.
    code_columns : tuple of int
        Categorical columns without stored values, for which a frame's own codes are used.
    unseen_is_missing : bool
        Whether a category that training did not see counts as missing. Otherwise it is an error.
    category_hash : callable or None
        ``values -> (k,) int array``, the hashes by which the booster knows categories. `categories` are then hashes,
        and all columns of `category_columns` are categorical, whatever their type. A missing category is an error.
    renamed : tuple of (str, str)
        Pairs (old, new): text in the names of columns that the booster replaces when it stores them.
    numbers_are_values : bool
        Whether numbers in a categorical column are categories themselves, to be looked up in `categories`; one that is
        not among them counts as missing. Otherwise they are codes.
    looked_up : LookedUp or None
        Columns that the model adds to those of a table. Splits number them from `count` on.
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
    category_hash: Callable[[Sequence[Any]], AnyArray] | None = None
    renamed: tuple[tuple[str, str], ...] = ()
    numbers_are_values: bool = False
    looked_up: LookedUp | None = None

    @property
    def width(self) -> int:
        """Return the number of columns that splits may use: those of a table, and the looked up ones."""
        return self.count + (0 if self.looked_up is None else len(self.looked_up))

    @property
    def shown_names(self) -> tuple[str, ...]:
        """Return a name of each column for people, "feature 0" and so on if training had none."""
        return self.names or tuple(f"feature {j}" for j in range(self.count))

    @property
    def hashed(self) -> bool:
        """Return whether there are categories, and the booster knows them by their hashes."""
        return self.category_hash is not None and bool(self.category_columns)

    def converted(self) -> Features:
        """Return the features of rows that need no conversion.

        Missing values are NaN, categories are codes, and looked up columns are there.
        """
        if self.looked_up is None:
            return replace(self, missing=np.nan, numbers_are_values=False)
        return replace(self, count=self.width, names=None, missing=np.nan, numbers_are_values=False, looked_up=None)

    def as_hashes(self) -> Features:
        """Return the features of a table of which categories are read as hashes, and numbers without rounding."""
        return replace(self, dtype=_FLOAT64, looked_up=None)

    def stored_names(self, columns: Sequence[str]) -> list[str]:
        """Return the names of columns as the booster stores them."""
        own = frozenset(self.names or ())
        return [column if column in own else self._renamed(column) for column in columns]

    def _renamed(self, column: str) -> str:
        for old, new in self.renamed:
            column = column.replace(old, new)
        return column


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees as arrays; T trees, N splits, L leaves.

    Attributes
    ----------
    root : (T,) int32 array
        The root of each tree, coded like a child.
    nodes : (N,) array of `NODE`
        The splits.
    category_start : (sets + 1,) int64 array
        Where each category set begins in `category_bits`.
    category_bits : uint32 array
        Words of the bit sets.
    leaf_start : (T + 1,) int64 array
        The first leaf of each tree.
    leaf_value : (L,) float array
        What a leaf adds to the margin, in the precision in which the booster sums.
    leaf_label : (L,) int32 array
        The booster's own number for the leaf (its ``pred_leaf``).
    base_margin : float
        The margin before the first tree.
    base_last : bool
        Whether the booster adds the base margin, or a row's init_score, after the last tree instead of before the
        first. Only the last bits of predictions depend on it.
    init_score_dtype : dtype
        Precision to which the booster rounds init scores.
    divisor : int
        Number that the summed margin is divided by: a random forest averages its trees.
    link : int
        How a margin becomes a response, see `objectives`.
    features : Features
        The columns that a row must have.
    booster : str
        The booster's name, such as "LightGBM".
    """

    root: NDArray[np.int32]
    nodes: AnyArray
    category_start: NDArray[np.int64]
    category_bits: NDArray[np.uint32]
    leaf_start: NDArray[np.int64]
    leaf_value: AnyArray
    leaf_label: NDArray[np.int32]
    base_margin: float
    divisor: int
    link: int
    features: Features
    booster: str
    base_last: bool = False
    init_score_dtype: np.dtype[Any] = _FLOAT64

    def __post_init__(self) -> None:
        _check_features(self.features)
        _check_structure(self)
        self._protect()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out `cache`: pickles and copies derive it again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._protect()  # pickle does not keep arrays read-only

    def _protect(self) -> None:
        for array in (*self.routing, self.leaf_start, self.leaf_value, self.leaf_label):
            array.flags.writeable = False

    @property
    def n_trees(self) -> int:
        return len(self.root)

    @property
    def n_leaves(self) -> int:
        return len(self.leaf_value)

    @property
    def routing(self) -> tuple[AnyArray, ...]:
        """Return the arrays that kernels route with: (root, nodes, category_start, category_bits)."""
        return self.root, self.nodes, self.category_start, self.category_bits

    @cached_property
    def cache(self) -> dict[str, Any]:
        """Return the dict in which routes store what they derive from the trees, such as a replay program."""
        return {}

    def with_features(self, features: Features) -> Forest:
        """Return the forest with other features; it keeps its cache."""
        if features is self.features:
            return self
        new = replace(self, features=features)
        vars(new)["cache"] = self.cache
        return new

    def first_trees(self, trees: int) -> Forest:
        """Return the forest of the first `trees` trees."""
        leaves = int(self.leaf_start[trees])
        return replace(
            self,
            root=self.root[:trees],
            nodes=self.nodes[: leaves - trees],
            leaf_start=self.leaf_start[: trees + 1],
            leaf_value=self.leaf_value[:leaves],
            leaf_label=self.leaf_label[:leaves],
        )

    def held_starts(self, init_score: AnyArray) -> AnyArray:
        """Return init scores as the booster holds them."""
        return init_score.astype(self.init_score_dtype)

    def tree_of_leaf(self) -> NDArray[np.int64]:
        """Return the (L,) number of the tree that each leaf belongs to."""
        return np.repeat(np.arange(self.n_trees), np.diff(self.leaf_start))


def tree_digests(forest: Forest) -> NDArray[np.int64]:
    """Return the (T,) checksums of the trees, which tell whether a tree was changed."""
    start = zlib.crc32(forest.category_bits.tobytes() + np.float64(forest.base_margin).tobytes())
    if forest.features.looked_up is not None:
        start ^= forest.features.looked_up.digest()
    leaves, splits = forest.leaf_start, forest.leaf_start - np.arange(forest.n_trees + 1)
    columns = [(np.ascontiguousarray(forest.nodes[name]), splits) for name in NODE.names or ()]
    columns += [(forest.leaf_value, leaves), (forest.leaf_label, leaves)]
    out = np.full(forest.n_trees, start)
    for t in range(forest.n_trees):
        for column, first in columns:
            out[t] = zlib.crc32(column[first[t] : first[t + 1]].data, out[t])
    return out


def _check_features(features: Features) -> None:
    """Refuse names and categories that do not fit the number of features."""
    if not 0 < features.count < 1 << 31:
        raise ValueError(f"the model has {features.count} features")
    if features.names is not None and len(features.names) != features.count:
        raise ValueError(f"the model has {features.count} features, but {len(features.names)} names")
    category_columns = features.category_columns
    if category_columns is not None and len(category_columns) != len(features.categories):
        raise ValueError("the lists of categories and of their columns differ in length")
    for columns in (category_columns or (), features.code_columns):
        if any(not 0 <= j < features.count for j in columns) or len(set(columns)) != len(columns):
            raise ValueError("a list of categories belongs to a column that does not exist, or that has another list")
    if features.hashed and not all(type(v) is int and abs(v) < 1 << 32 for own in features.categories for v in own):
        raise ValueError("a category is not the hash of one")
    if features.looked_up is not None:
        _check_looked_up(features, features.looked_up)


def _check_looked_up(features: Features, looked_up: LookedUp) -> None:
    """Refuse combinations of columns that do not exist, or that hold no category where one is looked up."""
    column = looked_up.part_column
    if np.any((column < 0) | (column >= features.count)) or not features.width < 1 << 31:
        raise ValueError("a looked up column is made of a column that does not exist")
    asks_category = (looked_up.part_kind == HASH) | (looked_up.part_kind == EQUAL)
    holds_category = np.isin(column, (features.category_columns or ()) if features.hashed else ())
    if not np.array_equal(asks_category, holds_category):
        raise ValueError("a looked up column takes a category for a number, or a number for a category")


def _check_structure(forest: Forest) -> None:
    """Refuse trees on which a kernel could read out of bounds or walk forever."""
    nodes, n, leaves = forest.nodes, len(forest.nodes), forest.n_leaves
    children = np.concatenate([nodes["left"], nodes["right"], forest.root])
    if len(forest.leaf_start) != forest.n_trees + 1 or len(forest.leaf_label) != leaves:
        raise ValueError("the leaf arrays differ in length")
    if forest.n_trees == 0:
        raise ValueError("there are no trees")
    for name, starts, end in (
        ("leaves", forest.leaf_start, leaves),
        ("category sets", forest.category_start, len(forest.category_bits)),
    ):
        # compared in pairs: a difference may overflow
        if len(starts) == 0 or np.any(starts[1:] < starts[:-1]) or starts[0] != 0 or starts[-1] != end:
            raise ValueError(f"the {name} are out of order")
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
    _check_trees(forest, children)
    if n and (nodes["feature"].min() < 0 or nodes["feature"].max() >= forest.features.width):
        raise ValueError(f"a split uses a feature outside 0..{forest.features.width - 1}")
    _check_categorical(forest)
    if not np.all(np.isfinite(forest.leaf_value)) or not np.isfinite(forest.base_margin):
        raise ValueError("a leaf value or the base score is not finite; labels that are all 0 under a log link do this")


def _check_trees(forest: Forest, children: NDArray[np.int32]) -> None:
    """Refuse a tree whose splits or leaves are not consecutive, or that has not one leaf more; replay needs both."""
    size = np.diff(forest.leaf_start)
    if np.any(size < 1) or np.sum(size - 1) != len(forest.nodes):
        raise ValueError("a tree does not have one leaf more than splits")
    tree_of_split = np.repeat(np.arange(forest.n_trees), size - 1)
    parent = np.concatenate([tree_of_split, tree_of_split, np.arange(forest.n_trees)])
    is_split = children >= 0
    if np.any(tree_of_split[children[is_split]] != parent[is_split]) or np.any(
        forest.tree_of_leaf()[~children[~is_split]] != parent[~is_split]
    ):
        raise ValueError("a split points into another tree")


def _check_categorical(forest: Forest) -> None:
    nodes = forest.nodes
    if np.any(nodes["flags"] > (CATEGORICAL | DEFAULT_LEFT | ZERO_IS_MISSING)):
        raise ValueError("a split has unknown flags")
    categorical = nodes[(nodes["flags"] & CATEGORICAL) != 0]
    if np.any(categorical["flags"] & ZERO_IS_MISSING):
        raise ValueError("a categorical split counts zero as missing")
    sets = categorical["category_set"]
    if np.any(sets < 0) or np.any(sets >= len(forest.category_start) - 1):
        raise ValueError("a split uses a category set that does not exist")
    if np.any(forest.category_start[sets] == forest.category_start[sets + 1]):
        raise ValueError("a category set is empty")  # a value between its lower bound and 0 would read past it
    # the integer part of a value above the bound must not be negative
    if not np.all((categorical["threshold"] >= -1.0) & (categorical["threshold"] < 0.0)):
        raise ValueError("a category set has a lower bound outside -1..0")
