"""Groups of rows: columns of keys, such as days, shops or departments, as numbers of groups."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray
from .columns import flat, to_numpy
from .in_memory import in_memory

Codes = NDArray[np.intp]
"""(n,) number of each row's group."""

_COMBINATION = "for the combination of several columns, give a tuple of them"


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups that a column of keys divides n rows into, in order of their first rows."""

    code: Codes  # (n,) number of each row's group
    keys: AnyArray  # (G,) key of each group; a tuple for a combination of columns

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, index: NDArray[np.int64]) -> Groups:
        """Return the groups of some of the rows."""
        code, first = _in_order(self.code[index])
        return Groups(code, self.keys[self.code[index][first]])


def read_groups(name: str, values: Any, n: int) -> Groups:
    """Read a column of n keys, or a tuple of columns for their combination; refuse missing keys.

    `name` is the name of the column, for errors.
    """
    if not isinstance(values, tuple):
        return _read_column(name, values, n)
    if not values:
        raise ValueError(f"{name} is an empty tuple: give a column of keys, or a tuple of columns")
    if all(isinstance(part, (str, bytes, int, float)) for part in values):
        raise TypeError(
            f"{name} is a tuple of keys, but a tuple stands for several columns: give the keys of the rows as a list"
        )
    parts = [_read_column(f"{name}[{k}]", part, n) for k, part in enumerate(values)]
    code, first = _in_order(combined([part.code for part in parts]))
    keys = np.fromiter((tuple(part.keys[part.code[row]] for part in parts) for row in first), object, len(first))
    return Groups(code, keys)


def key_text(name: str, key: Any) -> str | tuple[str, ...]:
    """Return the text of a key, by which rows of other tables and files are matched; a tuple for a combination.

    The same key has one text in every form: 3, 3.0 and "3" are "3", and a date is its ISO text, without a time if that
    is midnight. `name` is the name of the column, for errors.
    """
    if isinstance(key, tuple):
        parts = tuple(str(key_text(name, part)) for part in key)
        return parts[0] if len(parts) == 1 else parts
    if isinstance(key, np.datetime64):
        key = key.astype("M8[us]")
    if isinstance(key, np.generic):
        key = key.item()
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    if isinstance(key, bytes):
        return key.decode(errors="backslashreplace")
    if isinstance(key, datetime.date):
        return key.isoformat().removesuffix("T00:00:00")
    kind: Any = type(key)
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        raise TypeError(f"{name} holds objects without a text, {kind.__name__}: give numbers, text or dates")
    return str(key)


def combined(codes: Sequence[Codes]) -> Codes:
    """Return the (n,) numbers of the combinations of groups, from 0 without a gap."""
    both = codes[0]
    for code in codes[1:]:
        # both are below n, so that their product fits
        both = np.unique(both * (code.max(initial=0) + 1) + code, return_inverse=True)[1]
    return both


def _read_column(name: str, values: Any, n: int) -> Groups:
    column = _as_array(name, values)
    first = column[0] if column.ndim and len(column) else ""
    nested = column.ndim == 2 or (hasattr(first, "__len__") and not isinstance(first, (str, bytes, tuple)))
    column = flat(name, column, n, "keys", f": {_COMBINATION}" if nested else "")
    missing = _missing(column)
    if missing.any():
        raise ValueError(
            f"{name} has {missing.sum()} missing keys (first at row {int(np.argmax(missing))}): leave these rows out, "
            f"or give them a group of their own"
        )
    if column.dtype.kind != "O":
        code, first = _in_order(column)
        return Groups(code, column[first])
    number: dict[Any, int] = {}
    try:
        code = np.fromiter((number.setdefault(key, len(number)) for key in column), np.intp, n)
    except TypeError as error:
        raise TypeError(f"{name} holds keys that cannot be told apart: {error}") from None
    return Groups(code, np.fromiter(number, object, len(number)))


def _as_array(name: str, values: Any) -> AnyArray:
    """Return a column as an array; one of objects if it is a list, so that a missing key stays one."""
    values = to_numpy(in_memory(values))
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__len__") or not hasattr(values, "__iter__"):
        raise TypeError(
            f"{name} must be a column with a key for each row, not {type(values).__name__}: give a list or an array; "
            f"{_COMBINATION}"
        )
    if np.ma.isMaskedArray(values):
        raise TypeError(f"{name} is a masked array: give an array without a mask")
    column = values if isinstance(values, np.ndarray) else np.fromiter(values, object, len(values))
    if column.dtype.kind not in "biufMmSUO":
        raise TypeError(f"{name} holds keys of type {column.dtype}: give numbers, text, dates or objects")
    return column


def _missing(column: AnyArray) -> NDArray[np.bool_]:
    """Return (n,) flags of missing keys: NaN, None, NaT and the NA of pandas."""
    if column.dtype.kind == "f":
        return np.isnan(column)
    if column.dtype.kind in "Mm":
        return np.isnat(column)
    if column.dtype.kind != "O":
        return np.zeros(len(column), bool)
    return np.fromiter((is_missing(key) for key in column), bool, len(column))


def is_missing(key: Any) -> bool:
    """Tell whether a value is None, NaN, NaT or the NA of pandas."""
    if key is None or type(key).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(key, (float, np.floating)) and bool(np.isnan(key))


def _in_order(keys: AnyArray) -> tuple[Codes, NDArray[np.intp]]:
    """Return the numbers of the groups in order of their first rows, and these rows."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.intp)
    rank[order] = np.arange(len(order))
    return rank[inverse], first[order]
