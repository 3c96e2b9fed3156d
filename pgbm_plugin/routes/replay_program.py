"""ReplayProgram: a forest compiled for replay.

A value matters only by the number of thresholds that it exceeds, so a block of rows becomes small integer codes. A tree
is replayed on the whole block, split by split: all rows start in region 0, and split i moves the rows of one region
that go right into region i. This needs comparisons of small integers, but no branches and no pointers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray, Array
from ..trees.forest import CATEGORICAL, DEFAULT_LEFT, ZERO_IS_MISSING, Forest

# Replay computes every split, a walk only those on a row's path: with more leaves per tree than were measured, we walk.
_MAX_MEAN_LEAVES = 1 << 12

# Bytes of the tables of all categorical splits. With more, walking saves memory.
_MAX_TABLES = 1 << 27


@dataclass(frozen=True, eq=False)
class ReplayProgram:
    """C columns of codes, made from F features; S splits, of which Q are categorical; T trees and L leaves.

    Codes are int8 if every feature has at most 255 thresholds and every tree at most 256 leaves, else int16. Regions
    are unsigned integers of the same size. Codes begin at the lowest number of their type, because vector units compare
    signed numbers in one instruction and unsigned ones in two. A numeric code counts the thresholds below the value.
    The codes of a categorical feature are, in order: no category, NaN, category 0, category 1...

    The splits of tree t begin at ``forest.leaf_start[t] - t``, and its i-th split makes region i + 1. A categorical
    split has the number of its table, counted on from C, in place of a column.
    """

    feature: NDArray[np.int64]  # (F,) the features that are coded
    cut_start: NDArray[np.int64]  # (F + 1,) where a feature's thresholds begin in `cuts`
    cuts: Array  # thresholds of numeric features in rising order, padded with inf to a power of two
    lower: Array  # (F,) exclusive lower bound of a category; NaN for a numeric feature
    limit: NDArray[np.int64]  # (F,) number of codes of a categorical feature
    column_feature: NDArray[np.int64]  # (C,) position of each column's feature in `feature`
    column_kind: NDArray[np.int64]  # (C,) flags DEFAULT_LEFT and ZERO_IS_MISSING of the splits that read the column
    column: NDArray[np.uint32]  # (S,) the column that a split reads
    code: AnyArray  # (S,) codes above this go right
    region: AnyArray  # (S,) the region whose rows are split
    tables: NDArray[np.uint8]  # for each categorical split and code, 1 if it goes right
    table_start: NDArray[np.int64]  # (Q,) where the table of a categorical split begins
    table_column: NDArray[np.int64]  # (Q,) the column whose codes are looked up in it
    slot: NDArray[np.int64]  # (L,) the forest's leaf of each region; tree t's regions begin at forest.leaf_start[t]
    least_rows: int  # with fewer rows, walking is faster

    @property
    def coding(self) -> tuple[AnyArray, ...]:
        """Return the arrays with which kernels turn rows into codes."""
        return self.cut_start, self.cuts, self.lower, self.limit, self.column_feature, self.column_kind

    @property
    def splits(self) -> tuple[Any, ...]:
        """Return the arrays with which kernels replay trees; those of categories are None if there are none."""
        categories = (self.tables, self.table_start, self.table_column) if len(self.table_start) else None
        return self.column, self.code, self.region, categories


def replay_program(forest: Forest) -> ReplayProgram | None:
    """Return the program of a forest, which is compiled once; None if walking is faster."""
    if "replay" not in forest.cache:
        forest.cache["replay"] = _compile(forest)
    program: ReplayProgram | None = forest.cache["replay"]
    return program


def _compile(forest: Forest) -> ReplayProgram | None:
    """Return the compiled forest; None if walking is faster, or if codes do not fit into 16 bits."""
    nodes, leaves = forest.nodes, np.diff(forest.leaf_start)
    if len(nodes) == 0 or leaves.mean() > _MAX_MEAN_LEAVES or leaves.max() > 1 << 16:
        return None
    if np.isnan(nodes["threshold"]).any():
        return None
    categorical = (nodes["flags"] & CATEGORICAL) != 0
    feature, position = np.unique(nodes["feature"], return_inverse=True)
    if np.any(np.bincount(position, categorical) * np.bincount(position, ~categorical) > 0):
        return None  # a feature is both numeric and categorical

    from ..kernels import coding

    cut_start, cuts, code = _cuts(len(feature), position, np.where(categorical, np.nan, nodes["threshold"]))
    lower, limit = np.full(len(feature), np.nan), np.zeros(len(feature), np.int64)
    sets = nodes["category_set"][categorical]
    lower[position[categorical]] = nodes["threshold"][categorical]
    words = np.diff(forest.category_start)[sets]
    np.maximum.at(limit, position[categorical], 32 * words + 2)
    largest = max(int(code.max(initial=0)) + 1, int(limit.max()) - 1, int(leaves.max()) - 1)
    limits = limit[position[categorical]]
    if largest > np.iinfo(np.uint16).max or limits.sum() > _MAX_TABLES:
        return None
    dtype, region_dtype = (np.int8, np.uint8) if largest <= np.iinfo(np.uint8).max else (np.int16, np.uint16)
    code += np.iinfo(dtype).min
    code[categorical] = 0  # of what the table says

    kind = nodes["flags"] & (DEFAULT_LEFT | ZERO_IS_MISSING)
    keys, column = np.unique(position * 8 + np.where(categorical, 0, kind), return_inverse=True)
    table_column = column[categorical]
    column[categorical] = len(keys) + np.arange(len(table_column))
    tables = np.zeros(int(limits.sum()), np.uint8)
    if len(tables):
        coding.fill_tables(nodes[categorical], forest.category_start, forest.category_bits, limits, tables)

    out_column, out_code = np.empty(len(nodes), np.uint32), np.empty(len(nodes), dtype)
    region, slot = np.empty(len(nodes), region_dtype), np.empty(forest.n_leaves, np.int64)
    coding.arrange(
        forest.root,
        nodes["left"],
        nodes["right"],
        forest.leaf_start,
        column,
        code,
        out_column,
        out_code,
        region,
        slot,
        np.empty(len(nodes), np.int64),
        np.empty(len(nodes), np.int64),
    )
    return ReplayProgram(
        feature=feature.astype(np.int64),
        cut_start=cut_start,
        cuts=cuts,
        lower=lower,
        limit=limit,
        column_feature=keys // 8,
        column_kind=keys % 8,
        column=out_column,
        code=out_code,
        region=region,
        tables=tables,
        table_start=np.cumsum(limits) - limits,
        table_column=table_column,
        slot=slot,
        # as measured, with new rows at every call: what replay costs for any number of rows is the splits and the codes
        least_rows=3 + (forest.n_leaves // 128 + 10 * len(feature)) // forest.n_trees,
    )


def _cuts(
    features: int, position: NDArray[np.int64], threshold: Array
) -> tuple[NDArray[np.int64], Array, NDArray[np.int64]]:
    """Return (starts, cuts, the code of each node): each feature's distinct thresholds, padded. NaN: categorical."""
    numeric = ~np.isnan(threshold)
    order = np.lexsort((threshold, position))
    order = order[numeric[order]]
    at, cut = position[order], threshold[order]
    first = np.ones(len(order), bool)
    first[1:] = (at[1:] != at[:-1]) | (cut[1:] != cut[:-1])
    count = np.bincount(at[first], minlength=features)
    rank = np.cumsum(first) - 1  # number of the distinct threshold, over all features
    code = np.zeros(len(threshold), np.int64)
    code[order] = rank - (np.cumsum(count) - count)[at]

    # larger than the number of thresholds, so that the search never reads past the end
    size = np.where(count > 0, 1 << np.ceil(np.log2(np.maximum(count + 1, 16))).astype(np.int64), 0)
    start = np.concatenate([[0], np.cumsum(size)])
    cuts = np.full(start[-1], np.inf)
    cuts[start[at[first]] + code[order][first]] = cut[first]
    return start, cuts, code
