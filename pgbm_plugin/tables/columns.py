"""Checked numbers: columns with one finite number per row, and probability levels; and columns that are not there."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..device import to_host


def read_column(name: str, values: Any, n: int) -> NDArray[np.float64] | None:
    """One finite number per row, from whatever holds a column."""
    if values is None:
        return None
    try:
        column = _as_array(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be a column of numbers, not {type(values).__name__}: {error}") from error
    if column.ndim == 2 and 1 in column.shape:
        column = column.reshape(-1)
    if column.ndim != 1:
        raise ValueError(f"{name} must have one dimension, it has shape {column.shape}")
    if len(column) != n:
        raise ValueError(f"{name} has {len(column)} values, X has {n} rows")
    bad = ~np.isfinite(column)
    if bad.any():
        raise ValueError(f"{name} has {bad.sum()} NaN or infinite values (first at row {int(np.argmax(bad))})")
    bad = np.abs(column) > np.finfo(np.float32).max
    if bad.any():
        raise ValueError(
            f"{name} has {bad.sum()} values too large for float32, in which boosters hold them (first at row "
            f"{int(np.argmax(bad))})"
        )
    return column


def read_weights(name: str, values: Any, n: int, *, part: bool = False) -> NDArray[np.float64] | None:
    """A weight per row; of a `part` of the rows all may be 0."""
    weights = read_column(name, values, n)
    if weights is None:
        return None
    if np.any(weights < 0.0):
        raise ValueError(f"{name} must not be negative")
    if not part and not np.any(weights):
        raise ValueError(f"{name} must not be zero for every row")
    return weights


def _as_array(values: Any) -> NDArray[np.float64]:
    values = to_host(values)
    if hasattr(values, "detach"):  # a torch tensor, perhaps one that keeps gradients
        values = values.detach()
    if hasattr(values, "to_numpy"):
        # of a PyArrow array truth values and decimals are not yet numbers of NumPy
        values = values.to_numpy(**{"zero_copy_only": False} if type(values).__module__ == "pyarrow.lib" else {})
    array = np.asarray(values)
    if np.ma.isMaskedArray(values) or array.dtype.kind not in "fiubO":
        raise TypeError(f"its type is {'masked' if np.ma.isMaskedArray(values) else array.dtype}")
    return array.astype(np.float64)


def check_levels(name: str, levels: ArrayLike) -> NDArray[np.float64]:
    """Levels as an array, each strictly between 0 and 1."""
    try:
        levels = np.asarray(levels, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be numbers between 0 and 1, not {levels!r:.60}") from None
    if levels.size == 0 or not np.all((levels > 0.0) & (levels < 1.0)):
        shown = levels.tolist() if levels.size < 10 else f"an array of shape {levels.shape}"
        raise ValueError(f"{name} must lie strictly between 0 and 1, not {shown}")
    return levels


def check_level(name: str, level: float) -> float:
    """One level, strictly between 0 and 1."""
    levels = check_levels(name, level)
    if levels.ndim:
        raise ValueError(f"{name} must be one number, not {level!r:.60}")
    return float(levels)


def level_names(levels: ArrayLike) -> list[str]:
    """Names of columns of quantiles: q05, q50, q97.5."""
    return _with_percents("quantiles", levels, "q")


def interval_names(coverages: ArrayLike) -> list[str]:
    """Names of columns of intervals' ends: lower90, upper90."""
    ends = (_with_percents("intervals", coverages, end) for end in ("lower", "upper"))
    return [name for pair in zip(*ends, strict=True) for name in pair]


def _with_percents(what: str, levels: ArrayLike, prefix: str) -> list[str]:
    levels = np.atleast_1d(check_levels(what, levels)) if np.size(levels) else np.empty(0)
    names = [f"{prefix}{'0' * (level < 0.1)}{100.0 * level:.10g}" for level in levels.tolist()]
    if len(set(names)) < len(names):
        raise ValueError(f"{what} holds a level twice: {', '.join(names)}")
    return names


def no_column(name: str, columns: Sequence[str]) -> str:
    """That a table lacks a column, with those that it has and the one that was perhaps meant."""
    shown = ", ".join(columns[:10]) + (f" and {len(columns) - 10} more" if len(columns) > 10 else "")
    by_lower = {column.strip().lower(): column for column in columns}
    near = difflib.get_close_matches(name.strip().lower(), by_lower, 1)
    return f"it has no column {name!r}, only {shown}" + (f"; did you mean {by_lower[near[0]]!r}?" if near else "")
