"""Arrays with one number per row: kept read-only, and corrected in rows that are point masses."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import Array


def with_point_masses(point: Array | None, regular: Array, at_point: ArrayLike | None = None) -> Array:
    """Replace `regular` by `at_point` (default: `point`) in rows that are point masses, where `point` is not NaN."""
    if point is None:
        return regular
    return np.where(np.isnan(point), regular, point if at_point is None else at_point)


def fill_rows(value: Array, n: int) -> Array:
    """Return n numbers, or one number repeated n times, as a read-only (n,) array."""
    if value.shape != (n,):
        if value.size != 1 or value.ndim > 1:
            raise ValueError(f"a parameter must be a number or an array of shape ({n},), not of shape {value.shape}")
        value = np.full(n, value)
    return read_only(value)


def read_only(array: Array) -> Array:
    """Return a view that cannot be written to."""
    array = array.view()
    array.setflags(write=False)
    return array
