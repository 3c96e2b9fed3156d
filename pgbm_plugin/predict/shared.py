"""Sums over pairs of rows that share groups, in time proportional to the number of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arrays import AnyArray, Array
from ..tables.keys import Codes, combined


def sum_by(code: Codes, values: AnyArray) -> Array:
    """Return the (G,) sums of values over the rows of each group."""
    return np.asarray(np.bincount(code, values), np.float64)


def pair_sums_within(group: Codes, codes: Sequence[Codes], values: Array) -> Array:
    """Return, for each group, the sum of v_i v_j over ordered pairs of its rows that share their group in all `codes`.

    With no codes, all pairs of rows of a group count.
    """
    cell = combined([group, *codes])
    sums, group_of_cell = sum_by(cell, values), np.empty(cell.max(initial=-1) + 1, np.intp)
    group_of_cell[cell] = group
    return sum_by(group_of_cell, sums**2) - sum_by(group, values**2)
