"""One number per row: arrays that nobody writes to, rows that are point masses, outcomes that are not finite."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def unless(point: Array | None, regular: Array, at_point: Callable[[Array], ArrayLike]) -> Array:
    """`regular`, and in the rows that are point masses what `at_point` says of their places."""
    return regular if point is None else np.where(np.isnan(point), regular, at_point(point))


def of_outcomes(x: Array, formula: Callable[[Array], Array], lowest: float, highest: float) -> Array:
    """A formula of outcomes: NaN where they are, `lowest` and `highest` at -inf and inf, which no formula meets."""
    finite = np.isfinite(x)
    if np.all(finite):
        return formula(x)
    values = formula(np.where(finite, x, 1.0))
    return np.where(finite, values, np.where(np.isnan(x), np.nan, np.where(x < 0.0, lowest, highest)))


def per_row(value: Array, n: int) -> Array:
    """A number, or one for each of n rows, as (n,) that nobody can write to."""
    if value.shape != (n,):
        if value.size != 1 or value.ndim > 1:
            raise ValueError(f"parameters must be numbers or have one dimension of {n}, not shape {value.shape}")
        value = np.full(n, value)
    return read_only(value)


def read_only(array: Array) -> Array:
    array = array.view()
    array.setflags(write=False)
    return array
