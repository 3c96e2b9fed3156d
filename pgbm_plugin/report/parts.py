"""Coverage in parts of the rows: by group, by size of the prediction, and by time."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from ..arrays import AnyArray, Array
from ..distributions import Distribution, Empirical
from ..distributions.empirical import bin_of
from ..group_coverage import GroupCoverage, coverage_by_group
from ..tables.keys import Groups, key_text, read_groups
from .numbers import number

# Level of the intervals whose coverage is shown by parts.
_LEVEL = 0.9
# Parts of time, and the fewest rows that a part has.
_PARTS, _FEWEST = 10, 50
# From this many days on, parts are named by dates without hours.
_DATES = 20


def by_group(dist: Distribution, y: Array, groups: Groups) -> GroupCoverage:
    """Return the coverage of 90 % intervals in each group, the worst first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the page shows which intervals are infinite
        low, high = dist.interval(_LEVEL)
    rows = np.bincount(groups.code)

    def mean(values: AnyArray) -> Array:
        return np.asarray(np.bincount(groups.code, values) / rows, np.float64)

    expected = mean(dist.cdf(high) - dist.cdf(np.nextafter(low, -np.inf))) if dist.has_mass else None
    behind = np.rint(mean(dist.sample_size())) if isinstance(dist, Empirical) else None
    return coverage_by_group(groups, (low <= y) & (y <= high), high - low, _LEVEL, behind, expected)


def tenths(values: Array) -> Groups:
    """Return groups of rows with similar values: tenths, or fewer if many values are equal."""
    edges = np.unique(np.quantile(values, np.arange(1, 10) / 10.0))
    ends = [number(float(edge)) for edge in edges]
    keys = [f"up to {ends[0]}", *(f"{a} to {b}" for a, b in pairwise(ends)), f"above {ends[-1]}"]
    bins = bin_of(edges, values)
    used, code = np.unique(bins, return_inverse=True)
    # edges that differ may look alike
    return Groups(code, np.array([f"{keys[k]} ({k + 1})" if keys.count(keys[k]) > 1 else keys[k] for k in used]))


def read_times(values: Any, n: int) -> AnyArray:
    """Return (n,) times that can be sorted: numbers, dates, or texts of dates such as 2024-01-31."""
    found = read_groups("time", values, n)
    keys = found.keys
    if keys.dtype.kind in "US" or (keys.dtype.kind == "O" and all(isinstance(key, str) for key in keys)):
        try:
            keys = keys.astype(str).astype("M8[s]")
        except ValueError:
            raise ValueError(
                f"time holds the text {str(keys[0])!r}: give dates, as pandas.to_datetime makes them, numbers, or "
                f"texts such as 2024-01-31"
            ) from None
    try:
        np.sort(keys)
    except TypeError:
        raise TypeError(
            "time holds values that have no order: give dates, numbers, or texts such as 2024-01-31"
        ) from None
    return keys[found.code]


def by_time(dist: Distribution, y: Array, time: AnyArray) -> GroupCoverage:
    """Return the coverage of 90 % intervals in up to ten parts of time with equally many rows, in order of time."""
    order = np.argsort(time, kind="stable")
    parts = np.array_split(order, int(np.clip(len(y) // _FEWEST, 1, _PARTS)))
    code = np.empty(len(y), np.intp)
    for k, rows in enumerate(parts):
        code[rows] = k
    found = by_group(dist, y, Groups(code, np.arange(len(parts))))
    in_time = np.argsort(found.groups)
    if time.dtype.kind == "M":
        days = (time[order[-1]] - time[order[0]]) / np.timedelta64(1, "D")
        time = time.astype("M8[D]" if days > _DATES else "M8[m]")
    ends = [tuple(str(key_text("time", time[row])) for row in (rows[0], rows[-1])) for rows in parts]
    labels = np.array([first if first == last else f"{first} to {last}" for first, last in ends])
    columns = {name: getattr(found, name)[in_time] for name in ("rows", "cover", "width", "low", "high")}
    return replace(found, groups=labels, **columns)
