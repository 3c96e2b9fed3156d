"""Columns of numbers that belong to rows: labels, weights and initial scores, from any kind of array."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import NOT_REAL, AnyArray, Array
from ..device import to_host
from .in_memory import in_memory


def read_column(name: str, values: Any, n: int, *, may_miss: bool = False) -> Array | None:
    """Return a column as n finite numbers, or None for None; `name` is the argument's name, for errors.

    NaN is a missing value if the column `may_miss` some.
    """
    if values is None:
        return None
    try:
        column = _as_array(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be a column of numbers, not {type(values).__name__}: {error}") from error
    column = flat(name, column, n)
    bad = np.isinf(column) if may_miss else ~np.isfinite(column)
    if bad.any():
        wrong = "infinite" if may_miss else "NaN or infinite"
        raise ValueError(f"{name} has {bad.sum()} {wrong} values (first at row {int(np.argmax(bad))})")
    bad = np.abs(column) > np.finfo(np.float32).max
    if bad.any():
        raise ValueError(
            f"{name} has {bad.sum()} values that are too large for float32, which boosters use (first at row "
            f"{int(np.argmax(bad))})"
        )
    return column


def read_labels(name: str, values: Any, n: int) -> Array:
    """Return the labels as n finite numbers; refuse None."""
    labels = read_column(name, values, n)
    if labels is None:
        raise TypeError(f"{name} is None; give the labels")
    return labels


def read_weights(name: str, values: Any, n: int, *, part: bool = False) -> Array | None:
    """Return n weights, or None for None; all may be 0 only if the rows are a `part` of a larger table."""
    weights = read_column(name, values, n)
    if weights is None:
        return None
    if np.any(weights < 0.0):
        raise ValueError(f"{name} must not be negative")
    if not part and not np.any(weights.astype(np.float32)):
        raise ValueError(f"{name} must not be zero for every row, in float32, which boosters use")
    return weights


def flat(name: str, column: AnyArray, n: int, values: str = "values", hint: str = "") -> AnyArray:
    """Return a column of n values with one dimension; refuse another shape.

    `values` is the word for them in errors, which end with the hint.
    """
    if column.ndim == 2 and 1 in column.shape:
        column = column.reshape(-1)
    if column.ndim != 1:
        raise ValueError(f"{name} must have one dimension, it has shape {column.shape}{hint}")
    if len(column) != n:
        raise ValueError(f"{name} has {len(column)} {values}, X has {n} rows{hint}")
    return column


def to_numpy(values: Any) -> Any:
    """Return a column of any library as a NumPy array; a list and the like as it is."""
    values = to_host(values)
    if hasattr(values, "detach"):  # a torch tensor, perhaps one that keeps gradients
        values = values.detach().numpy()
    if hasattr(values, "to_numpy"):
        # PyArrow converts text, booleans and decimals only if a copy is allowed
        values = values.to_numpy(**{"zero_copy_only": False} if type(values).__module__ == "pyarrow.lib" else {})
    return values


def _as_array(values: Any) -> Array:
    values = to_numpy(in_memory(values))
    array = np.asarray(values)
    if np.ma.isMaskedArray(values) or array.dtype.kind not in "fiubO":
        raise TypeError(f"its type is {'masked' if np.ma.isMaskedArray(values) else array.dtype}")
    wrong = [value for value in array.flat if isinstance(value, NOT_REAL)] if array.dtype.kind == "O" else []
    if wrong:
        raise TypeError(f"it holds {wrong[0]!r}: give real numbers")
    return array.astype(np.float64)
