"""Levels of a hierarchy, for losses of sums: each level sums rows into weighted groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray, Array


@dataclass(frozen=True)
class Level:
    """One level of a hierarchy: how n rows are summed into groups."""

    group: NDArray[np.int64] | None  # (n,) the group of each row; None if every row is a group of its own
    size: int  # number of groups
    weight: Array  # () or (size,) weight of every group

    def sums(self, values: AnyArray) -> AnyArray:
        """Return the sum of the rows' values in each group."""
        return values if self.group is None else np.bincount(self.group, values, self.size).astype(np.float64)


def read_levels(levels: Any) -> list[Level]:
    """Return the levels from `torch_objective`'s list of pairs (groups, weight)."""
    out = []
    for pair in levels:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError("levels must be a list of pairs (groups, weight)")
        groups, weight = pair
        position = size = None
        if groups is not None:
            names, position = _group(np.asarray(groups))
            size = len(names)
            if hasattr(weight, "reindex"):  # a pandas Series with groups as its index
                weight = weight.reindex(names)
        weight = np.asarray(weight, np.float64)
        if weight.ndim > 1 or (weight.ndim == 1 and size is not None and len(weight) != size):
            raise ValueError(f"a level has {size} groups but {weight.size} weights; give one number, or one per group")
        if not (np.all(np.isfinite(weight)) and np.all(weight >= 0)):
            raise ValueError("weights of levels must be finite and not negative")
        out.append(Level(position, size or 0, weight))
    if not out:
        raise ValueError("levels is empty; leave it out for a loss of single rows")
    return out


def _group(groups: AnyArray) -> tuple[AnyArray, NDArray[np.int64]]:
    """Return the sorted names of groups, and the (n,) number of each row's group; refuse rows without a group."""
    if groups.ndim != 1:
        raise ValueError(f"groups of a level must have one dimension, not shape {groups.shape}")
    missing = np.array([name is None or name != name for name in groups.tolist()], bool)
    if missing.any():
        raise ValueError(f"{missing.sum()} rows of a level have no group (first: row {int(np.argmax(missing))})")
    names, position = np.unique(groups, return_inverse=True)
    return names, position.reshape(-1).astype(np.int64)
