"""Ranges: what a table held of every feature, to tell which values of other rows lie outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray, Array
from ..parallel import map_chunks
from ..trees.forest import CATEGORICAL, Forest
from .rows import Rows, SparseRows

# Of a column with more categories than these, none is kept, and only missing values are told apart.
MAX_CATEGORIES = 1 << 16

# Rows per task of the thread pool, and per matrix: few enough for a core's own cache.
_CHUNK, _BLOCK = 1 << 15, 1 << 12


@dataclass(frozen=True, eq=False)
class Ranges:
    """Holds what some rows had of each of F features: the range of its numbers, or its categories.

    Attributes
    ----------
    low, high : (F,) float array
        The smallest and largest number; inf and -inf for a feature that had none.
    missing : (F,) bool array
        Whether a value was missing.
    column : (C,) int32 array
        Categorical features whose categories are known, rising.
    start : (C + 1,) int64 array
        Where the categories of each of them begin in `category`.
    category : float array
        Their categories as the booster knows them, codes or hashes, rising within each feature.
    """

    low: Array
    high: Array
    missing: NDArray[np.bool_]
    column: NDArray[np.int32]
    start: NDArray[np.int64]
    category: Array

    def __post_init__(self) -> None:
        features, column, start = len(self.low), self.column, self.start
        if not len(self.high) == len(self.missing) == features or len(start) != len(column) + 1:
            raise ValueError("the ranges of features differ in length")
        if np.any(column[:1] < 0) or np.any(column[-1:] >= features) or np.any(column[1:] <= column[:-1]):
            raise ValueError("the categories that were seen belong to columns that do not exist")
        if start[0] != 0 or start[-1] != len(self.category) or np.any(start[1:] < start[:-1]):
            raise ValueError("the categories that were seen are out of order")
        if np.isnan(self.low).any() or np.isnan(self.high).any() or np.isnan(self.category).any():
            raise ValueError("an end of a range, or a category, is not a number")

    def categories(self, feature: int) -> Array | None:
        """Return the categories that a feature had, rising; None if it is a number, or they are not known."""
        at = int(np.searchsorted(self.column, feature))
        if at == len(self.column) or self.column[at] != feature:
            return None
        return self.category[self.start[at] : self.start[at + 1]]

    def merge(self, other: Ranges) -> Ranges:
        """Return the ranges of the rows of both."""
        if len(self.low) != len(other.low):
            raise ValueError(f"ranges of {len(self.low)} features do not merge with ranges of {len(other.low)}")
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        both = np.intersect1d(self.column, other.column).tolist()
        sets = {j: np.union1d(self.categories(j), other.categories(j)) for j in both}  # type: ignore[arg-type]
        return _of(low, high, self.missing | other.missing, sets)


def _of(low: Array, high: Array, missing: NDArray[np.bool_], sets: dict[int, Array]) -> Ranges:
    """Return ranges with the categories of columns; a column with too many of them holds any number."""
    for j in [j for j, values in sets.items() if len(values) > MAX_CATEGORIES]:
        low[j], high[j] = -np.inf, np.inf
        del sets[j]
    columns = sorted(sets)
    start = np.cumsum([0, *(len(sets[j]) for j in columns)])
    category = np.concatenate([np.empty(0), *(sets[j] for j in columns)])
    return Ranges(low, high, missing, np.array(columns, np.int32), start, category)


def ranges_of(rows: Rows, forest: Forest, weight: Array | None = None, n_jobs: int | None = None) -> Ranges:
    """Return what rows held of every feature of a model. Rows of weight 0 do not count."""
    rows, count = rows.on_host(), forest.features.count
    if weight is not None and not weight.all():
        rows = rows.sample(np.flatnonzero(weight > 0.0))
    categorical, rows = _categorical(rows, forest), rows.marked()

    def of_chunk(lo: int, hi: int) -> Ranges:
        low, high, missing = np.full(count, np.inf), np.full(count, -np.inf), np.zeros(count, bool)
        sets = {int(j): np.empty(0) for j in categorical}
        whole = not isinstance(rows, SparseRows)
        if isinstance(rows, SparseRows):
            _add_stored(rows, lo, hi, low, high, missing)
        for X in _blocks(rows, lo, hi, forest, None if whole else categorical):
            if whole:
                least, most, gaps = _ends(X)
                low, high, missing = np.minimum(low, least), np.maximum(high, most), missing | gaps
            for i, j in enumerate(categorical.tolist()):
                values = np.unique(np.trunc(X[:, j if whole else i].astype(np.float64)))
                sets[j] = np.union1d(sets[j], values[~np.isnan(values) & (values != -np.inf)])
                missing[j] |= bool(np.isnan(values).any())
        for j, values in sets.items():
            low[j], high[j] = values.min(initial=np.inf), values.max(initial=-np.inf)
        return _of(low, high, missing, sets)

    if len(rows) == 0:
        none = np.zeros(count, bool)
        return _of(np.full(count, np.inf), np.full(count, -np.inf), none, {int(j): np.empty(0) for j in categorical})
    return reduce(Ranges.merge, map_chunks(of_chunk, len(rows), _CHUNK, 1 if rows.on_gpu else n_jobs))


def outside(
    ranges: Ranges, rows: Rows, forest: Forest, n_jobs: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the (row, feature) pairs of values that lie outside of the ranges, in rising order.

    A number lies outside if it is smaller or larger than all those of the ranges; a category, if it is none of theirs;
    and a missing value, if none was missing there.
    """
    rows = rows.on_host().marked()

    def of_chunk(lo: int, hi: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if isinstance(rows, SparseRows):
            return _outside_sparse(ranges, rows, lo, hi, forest)
        pairs, at = [], lo
        for X in _blocks(rows, lo, hi, forest, None):
            least, most, gaps = _ends(X)
            with np.errstate(over="ignore"):
                beyond = (least < ranges.low.astype(X.dtype)) | (most > ranges.high.astype(X.dtype))
            beyond |= gaps & ~ranges.missing
            beyond[ranges.column] = True
            columns = np.flatnonzero(beyond)
            row, place = np.nonzero(_is_outside(ranges, X[:, columns], columns))
            pairs.append((row + at, columns[place]))
            at += len(X)
        return _joined(pairs)

    if len(rows) == 0:
        return _joined([])
    return _joined(list(map_chunks(of_chunk, len(rows), _CHUNK, 1 if rows.on_gpu else n_jobs)))


def _joined(pairs: Sequence[tuple[AnyArray, AnyArray]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    none = np.empty(0, np.int64)
    row, feature = (np.concatenate([none, *parts]) for parts in (zip(*pairs, strict=True) if pairs else ((), ())))
    return row, feature


def _categorical(rows: Rows, forest: Forest) -> NDArray[np.int64]:
    """Return the categorical columns, as far as the model or the table tells them."""
    features, nodes = forest.features, forest.nodes
    split = nodes["feature"][(nodes["flags"] & CATEGORICAL) != 0]
    known = [*(features.category_columns or ()), *features.code_columns, *getattr(rows, "codes", ())]
    found = np.unique(np.concatenate([split, np.array(known, np.int64)])).astype(np.int64)
    return found[found < features.count]


def _blocks(rows: Rows, lo: int, hi: int, forest: Forest, columns: NDArray[np.int64] | None) -> Iterator[AnyArray]:
    """Yield the rows lo..hi as matrices of the columns of a table, or of the given ones."""
    features = forest.features
    width = features.count if columns is None else len(columns)
    hashed = np.zeros(features.count, bool)
    if features.hashed:
        hashed[list(features.category_columns or ())] = True
    for _, _, X in rows.blocks(lo, hi, columns):
        X = X[:, :width] if columns is None else X[:, rows.place(columns)]
        if hashed.any() and X.dtype != features.dtype:  # hashes need all their digits, and numbers are compared rounded
            with np.errstate(over="ignore"):
                X = np.where(hashed, X, X.astype(features.dtype))
        for at in range(0, len(X), _BLOCK):
            yield X[at : at + _BLOCK]


def _ends(X: AnyArray) -> tuple[AnyArray, AnyArray, NDArray[np.bool_]]:
    """Return the smallest and largest number of each column of a matrix, and whether it has missing values."""
    from ..kernels.ranges import widen

    width = X.shape[1]
    low, high, missing = np.full(width, np.inf, X.dtype), np.full(width, -np.inf, X.dtype), np.zeros(width, bool)
    widen(X, low, high, missing)
    return low, high, missing


def _stored(rows: SparseRows, lo: int, hi: int) -> tuple[NDArray[np.int64], AnyArray, AnyArray]:
    """Return row, column and number of the entries that a sparse matrix stores in rows lo..hi."""
    X = rows.X
    begin, end = X.indptr[lo], X.indptr[hi]
    row = np.repeat(np.arange(lo, hi), np.diff(X.indptr[lo : hi + 1]))
    data = X.data[begin:end]
    return row, X.indices[begin:end], rows.rounded(data if data.dtype.kind == "f" else data.astype(np.float64))


def _absent(rows: SparseRows) -> float:
    """Return the number that stands for the entries that a sparse matrix does not store."""
    return float(rows.rounded(np.array([rows.features.absent]))[0])


def _add_stored(rows: SparseRows, lo: int, hi: int, low: Array, high: Array, missing: NDArray[np.bool_]) -> None:
    """Widen ranges by the numbers of a sparse matrix, of which the entries that it does not store are one."""
    _, column, number = _stored(rows, lo, hi)
    np.fmin.at(low, column, number)
    np.fmax.at(high, column, number)
    missing[column[np.isnan(number)]] = True
    gaps, absent = np.bincount(column, minlength=len(low)) < hi - lo, _absent(rows)
    if np.isnan(absent):
        missing |= gaps
    else:
        low[gaps], high[gaps] = np.minimum(low[gaps], absent), np.maximum(high[gaps], absent)


def _is_outside(ranges: Ranges, X: AnyArray, columns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which values of a matrix of these columns lie outside; all whose categories are known are among them."""
    kind, missing = X.dtype.type, ranges.missing[columns]
    with np.errstate(over="ignore"):
        low, high = ranges.low[columns].astype(kind), ranges.high[columns].astype(kind)
    out = ~((low <= X) & (high >= X))  # true for missing values
    if missing.any():
        out[:, missing] &= ~np.isnan(X[:, missing])
    for k, i in enumerate(np.searchsorted(columns, ranges.column).tolist()):
        x, known = np.trunc(X[:, i].astype(np.float64)), ranges.category[ranges.start[k] : ranges.start[k + 1]]
        out[:, i] = ~np.isin(x, known) & ~(np.isnan(x) & missing[i])
    return out


def _outside_sparse(
    ranges: Ranges, rows: SparseRows, lo: int, hi: int, forest: Forest
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs that lie outside, without a dense matrix of all columns."""
    row, column, number = _stored(rows, lo, hi)
    absent = np.full((1, forest.features.count), _absent(rows))
    dense = _is_outside(ranges, absent, np.arange(absent.shape[1]))[0]
    dense[ranges.column] = True
    beyond = ~((number >= ranges.low[column]) & (number <= ranges.high[column]))
    beyond &= ~(np.isnan(number) & ranges.missing[column]) & ~dense[column]
    pairs, at, columns = [(row[beyond], column[beyond])], lo, np.flatnonzero(dense)
    if len(columns):
        for X in _blocks(rows, lo, hi, forest, columns):
            r, i = np.nonzero(_is_outside(ranges, X, columns))
            pairs.append((r + at, columns[i]))
            at += len(X)
    row, column = _joined(pairs)
    order = np.lexsort((column, row))
    return row[order], column[order]
