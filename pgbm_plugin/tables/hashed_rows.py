"""Rows for a model that knows categories by their hashes, with the columns that it looks up under these."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray
from ..trees.forest import Features
from ..trees.looked_up import ABOVE_OR_MISSING, EQUAL, HASH, LookedUp
from .number_codes import hash_codes
from .rows import Rows, matrix


class HashedRows(Rows):
    """A table whose categories are hashes, read as codes. Behind its columns are the looked up ones."""

    def __init__(self, table: Rows, features: Features):
        super().__init__(features)
        self.table, self.n = table, len(table)
        self.codes, self.hashed = hash_codes(features), frozenset(features.category_columns or ())

    def sample(self, index: NDArray[np.int64]) -> Rows:
        return HashedRows(self.table.sample(index), self.features)  # not its codes: `training_table` needs hashes

    def marked(self) -> Rows:
        return self.table  # hashes are known for all categories

    def joined(self, others: Sequence[Rows] = ()) -> Rows:
        return self._of(np.concatenate([part.training_table() for part in (self, *others)]), self.features)

    def training_table(self) -> AnyArray:
        return self.table.block(0, self.n)

    def for_trained_on_table(self, features: Features) -> Rows:
        table, hash_ = np.array(self.training_table(), np.float64), features.category_hash
        assert hash_ is not None
        for j in features.category_columns or ():
            own, index = np.unique(table[:, j], return_inverse=True)
            table[:, j] = hash_(own.astype(np.int64).tolist())[index]
        return self._of(table, features)

    @classmethod
    def _of(cls, table: AnyArray, features: Features) -> Rows:
        """Return the rows of a matrix that holds hashes."""
        return cls(matrix(table, features.as_hashes()), features)

    def block(self, lo: int, hi: int, columns: NDArray[np.int64] | None = None) -> AnyArray:
        features = self.features
        wanted = np.arange(features.width) if columns is None else columns
        held = _needed(features, wanted)
        raw = self.table.block(lo, hi, held)
        at = {j: i for i, j in enumerate(held.tolist())}

        def numbers(j: int) -> AnyArray:
            with np.errstate(over="ignore"):
                return raw[:, at[j]].astype(features.dtype)

        out = np.empty((hi - lo, len(wanted)), features.dtype, order="F")
        further = []
        for i, j in enumerate(wanted.tolist()):
            if j >= features.count:
                further.append((j - features.count, out[:, i]))
            elif j in self.codes:
                out[:, i] = self.codes[j].encode(raw[:, at[j]])
            else:
                out[:, i] = np.nan if j in self.hashed else numbers(j)
        if features.looked_up is not None:
            look_up(features.looked_up, lambda j: raw[:, at[j]], numbers, further)
        return out


def _needed(features: Features, columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the columns of a table that these columns are read from, in rising order."""
    own = columns[columns < features.count]
    if features.looked_up is None:
        return np.unique(own)
    sources = [features.looked_up.sources(j - features.count) for j in columns if j >= features.count]
    return np.unique(np.concatenate([own, *sources])).astype(np.int64)


def look_up(
    tables: LookedUp,
    hashes: Callable[[int], AnyArray],
    numbers: Callable[[int], AnyArray],
    out: Sequence[tuple[int, AnyArray]],
) -> None:
    """Write looked up columns into arrays, which `out` holds with the numbers of the columns.

    `hashes` and `numbers` return a column of the table.
    """
    for k in {int(tables.combination[column]): None for column, _ in out}:
        lo, hi = tables.key_start[k], tables.key_start[k + 1]
        keys, key = tables.key[lo:hi], _keys(tables, k, hashes, numbers)
        at = np.searchsorted(keys, key)
        at[np.append(keys, 0)[at] != key] = len(keys)  # where `absent` is
        for column, target in out:
            if tables.combination[column] == k:
                np.take(np.append(tables.numbers(column), tables.absent[column]), at, out=target, mode="clip")


def _keys(
    tables: LookedUp, k: int, hashes: Callable[[int], AnyArray], numbers: Callable[[int], AnyArray]
) -> NDArray[np.int64]:
    """Return the (n,) keys of rows under a combination."""
    key: NDArray[np.int64] | None = None
    for p in range(tables.part_start[k], tables.part_start[k + 1]):
        j, kind, value = int(tables.part_column[p]), tables.part_kind[p], tables.part_value[p]
        if kind == HASH:
            part = hashes(j)
        elif kind == EQUAL:
            part = hashes(j) == value
        else:
            part = ~(numbers(j) <= value) if kind == ABOVE_OR_MISSING else numbers(j) > value
        term = part.astype(np.int64) * tables.part_factor[p]  # overflows, as it should
        key = term if key is None else key + term
    assert key is not None
    return key
