"""Groups of calibration rows that get conformal quantiles of their own, so that the coverage holds in each."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import Array
from ..errors import warn
from ..predict.conformal_groups import By, ConformalGroups, Key, group_keys, tell_few
from ..tables.keys import read_groups
from .held_out import HeldOut

# Rows of a group with quantiles of its own. A 90 % interval is finite from 19 rows on. But which rows these are by
# chance moves the coverage: it has a Beta distribution, whose standard deviation is 7 points with 19 rows and 3 points
# with 100. Below that, the quantiles of all rows are usually nearer to those of the group.
FEWEST = 100
# More bins of the prediction would leave each with quantiles that are less exact, and the spread varies little in them.
_MOST_BINS = 10


def divide(groups: Any, held_out: HeldOut, std: Array) -> ConformalGroups:
    """Return the groups of calibration rows: those of a column of keys, or bins of the mean or spread.

    `std` holds the calibrated standard deviations of the rows.
    """
    if isinstance(groups, str):
        values = held_out.margins.prediction.astype(np.float64) if groups == "mean" else std
        return _bins(groups, values, held_out.weight)  # type: ignore[arg-type]
    found = read_groups("groups", groups, len(held_out.used)).take(np.flatnonzero(held_out.used))
    number: dict[Key, int] = {}  # keys of several types may have one text
    code = np.array([number.setdefault(key, len(number)) for key in group_keys("groups", found)])[found.code]
    keys = tuple(number)
    own = _effective_rows(code, len(keys), held_out.weight) >= FEWEST
    few = [key for key, enough in zip(keys, own.tolist(), strict=True) if not enough]
    if few:
        tell_few(few, len(keys), FEWEST)
    return ConformalGroups("key", code.astype(np.int32), own, keys)


def check_groups(groups: Any) -> None:
    """Refuse a word other than those for bins, before anything is computed."""
    if isinstance(groups, str) and groups not in ("mean", "spread"):
        raise ValueError(
            f"groups must be a column with the group of each row, 'mean' or 'spread', not {groups!r:.60}: give the "
            f"column itself, such as X[{groups!r:.60}]"
        )


def _bins(by: By, values: Array, weight: Array | None) -> ConformalGroups:
    """Return bins of about equally many rows.

    Their edges are values of calibration rows, which are then in no bin. Given the edges, the other rows of a bin and a
    new row of it are exchangeable. They would not be if an edge, which no new row can be, was among them.
    """
    order = np.argsort(values, kind="stable")
    count = 1
    for count in range(min(_MOST_BINS, len(values) // FEWEST), 1, -1):
        places = np.arange(1, count) * len(values) // count
        edges = values[order[places]]
        code = np.searchsorted(edges, values, side="left").astype(np.int32)
        code[order[places]] = -1
        inside = code >= 0
        rows = _effective_rows(code[inside], count, None if weight is None else weight[inside])
        if np.all(np.diff(edges) > 0.0) and rows.min() >= FEWEST - 1:
            return ConformalGroups(by, code, np.ones(count, bool), edges=edges)
    warn(
        f"the {len(values)} calibration rows are one bin of the predicted {by}: bins need {2 * FEWEST} rows or more, "
        f"whose predictions differ; intervals are those without groups"
    )
    return ConformalGroups(by, np.zeros(len(values), np.int32), np.ones(1, bool), edges=np.empty(0))


def _effective_rows(code: Any, count: int, weight: Array | None) -> Array:
    """Return the (count,) numbers of rows of groups; with weights, of equal rows that say as much."""
    if weight is None:
        return np.bincount(code, minlength=count).astype(np.float64)
    sums, squares = (np.bincount(code, values, minlength=count) for values in (weight, weight**2))
    return sums**2 / np.where(squares > 0.0, squares, 1.0)
