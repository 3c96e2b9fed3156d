"""LookedUp: columns that a model adds to a row, numbers that it looks up under combinations of the row's categories."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

# What a part of a combination is: the hash of a category; or 1 for yes and 0 for no to one of the questions, is a
# number above a value (and a missing number counts as above, or not), is a category's hash this value.
HASH, ABOVE, ABOVE_OR_MISSING, EQUAL = range(4)


@dataclass(frozen=True, eq=False)
class LookedUp:
    """C columns behind those of a table, for K combinations with P parts and E keys in all.

    The key of a row is the sum of its combination's parts times their factors, modulo 2^64. A row whose key is not
    among those of training has the number `absent`.

    Attributes
    ----------
    part_start : (K + 1,) int64 array
        Where the parts of each combination begin.
    part_column : (P,) int32 array
        The column of the table that each part is read from.
    part_kind : (P,) uint8 array
        What a part is: HASH, ABOVE, ABOVE_OR_MISSING or EQUAL.
    part_value : (P,) float array
        The value that a question compares with; 0 for HASH.
    part_factor : (P,) int64 array
        Factors, and below keys, are signed: they stand for the same numbers modulo 2^64.
    key_start : (K + 1,) int64 array
        Where the keys of each combination begin.
    key : (E,) int64 array
        Keys of training, which rise within a combination.
    combination : (C,) int32 array
        The combination that each column is looked up under.
    absent : (C,) float array
        The number of rows without a key.
    value_start : (C + 1,) int64 array
        Where the numbers of each column begin: one for each key of its combination.
    value : float array
        The numbers.
    """

    part_start: NDArray[np.int64]
    part_column: NDArray[np.int32]
    part_kind: NDArray[np.uint8]
    part_value: NDArray[np.float64]
    part_factor: NDArray[np.int64]
    key_start: NDArray[np.int64]
    key: NDArray[np.int64]
    combination: NDArray[np.int32]
    absent: NDArray[np.float32]
    value_start: NDArray[np.int64]
    value: NDArray[np.float32]

    def __post_init__(self) -> None:
        combinations, columns = len(self.part_start) - 1, len(self.combination)
        for name, starts, count, end in (
            ("parts", self.part_start, combinations, len(self.part_column)),
            ("keys", self.key_start, combinations, len(self.key)),
            ("numbers", self.value_start, columns, len(self.value)),
        ):
            # compared in pairs: a difference may overflow
            if len(starts) != count + 1 or starts[0] != 0 or starts[-1] != end or np.any(starts[1:] < starts[:-1]):
                raise ValueError(f"the {name} of looked up columns are out of order")
        parts = self.part_kind, self.part_value, self.part_factor
        if any(len(part) != len(self.part_column) for part in parts) or len(self.absent) != columns:
            raise ValueError("the arrays of looked up columns differ in length")
        if np.any(self.part_start[1:] == self.part_start[:-1]) or np.any(self.part_kind > EQUAL):
            raise ValueError("a combination has no parts, or unknown ones")
        if np.any((self.combination < 0) | (self.combination >= combinations)):
            raise ValueError("a column is looked up under a combination that does not exist")
        if np.any(np.diff(self.value_start) != np.diff(self.key_start)[self.combination]):
            raise ValueError("a looked up column does not have one number for each key")
        first = np.zeros(len(self.key) + 1, bool)
        first[self.key_start] = True
        if not np.all((self.key[1:] > self.key[:-1]) | first[1:-1]):
            raise ValueError("the keys of a combination do not rise")
        if not np.all(np.isfinite(self.part_value)):
            raise ValueError("a part of a combination compares with a value that is not finite")

    def __len__(self) -> int:
        return len(self.combination)

    def sources(self, column: int) -> NDArray[np.int32]:
        """Return the columns of the table that a looked up column is made of."""
        k = self.combination[column]
        return self.part_column[self.part_start[k] : self.part_start[k + 1]]

    def numbers(self, column: int) -> NDArray[np.float32]:
        """Return the numbers of a looked up column, one for each key of its combination."""
        return self.value[self.value_start[column] : self.value_start[column + 1]]

    def digest(self) -> int:
        """Return a checksum of all arrays."""
        out = 0
        for field in fields(self):
            out = zlib.crc32(np.ascontiguousarray(getattr(self, field.name)).data, out)
        return out
