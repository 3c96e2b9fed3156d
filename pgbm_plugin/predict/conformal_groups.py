"""ConformalGroups: groups of calibration rows, each with conformal quantiles of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..errors import warn
from ..tables.keys import Codes, Groups, key_text, read_groups

By = Literal["key", "mean", "spread"]
"""What divides rows into groups: a key that the user gives, or bins of the predicted mean or spread."""

Key = str | tuple[str, ...]
"""The text of a group's key; a tuple for a combination of columns."""

# Unseen or small groups that a warning names.
_NAMED = 5


@dataclass(frozen=True, eq=False)
class ConformalGroups:
    """Groups of the m rows of `conformalize`, whose quantiles are those of their own rows (Mondrian groups).

    Attributes
    ----------
    by : {"key", "mean", "spread"}
        What divides rows into groups: keys, or bins of the predicted mean or spread.
    code : (m,) int32 array
        Number of each row's group, 0 to K - 1; -1 for a row that is in no bin, because it is an edge.
    own : (K,) bool array
        Whether the group has enough rows for quantiles of its own. Other groups have those of all rows.
    keys : tuple
        Key of each group, as text, or as a tuple of texts; empty for bins.
    edges : (K - 1,) float array or None
        Upper ends of all bins but the last, in the unit of the predicted mean or spread; None for keys.
    """

    by: By
    code: NDArray[np.int32]
    own: NDArray[np.bool_]
    keys: tuple[Key, ...] = ()
    edges: Array | None = None

    def __post_init__(self) -> None:
        count, keyed = len(self.own), self.by == "key"
        if self.by not in get_args(By) or keyed == (self.edges is not None) or keyed != bool(self.keys):
            raise ValueError("groups of conformal scores have keys, or edges of bins of the mean or spread")
        if np.any((self.code < (0 if keyed else -1)) | (self.code >= count)):
            raise ValueError("conformal scores are in groups that do not exist")
        if not np.all(np.bincount(self.code[self.code >= 0], minlength=count)[self.own] > 1):
            raise ValueError("a group of conformal scores has fewer than two")
        if self.edges is not None and (
            len(self.edges) != count - 1 or not self.own.all() or np.any(np.diff(self.edges) <= 0.0)
        ):
            raise ValueError("groups of conformal scores have other edges than those of their bins")
        if keyed and (len(self.keys) != count or len(set(self.keys)) < count or len(set(map(_width, self.keys))) > 1):
            raise ValueError("groups of conformal scores have other keys than one for each")

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is cached."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _bin(self) -> dict[Key, int]:
        """Return the bin of the residuals for each key: 0, which has all of them, or one of its own."""
        return dict(zip(self.keys, np.where(self.own, np.cumsum(self.own), 0).tolist(), strict=True))

    def rescaled(self, ratio: float) -> ConformalGroups:
        """Return bins of the spread after all variances became `ratio` times larger."""
        assert self.edges is not None
        return replace(self, edges=self.edges * np.sqrt(ratio))

    def bins_of_keys(self, values: Any, n: int, told: dict[str, Any]) -> Codes:
        """Return the bins of n rows to predict, which have these keys; 0 for a key that is new or has few rows.

        The first new keys are told in a warning. `told` remembers that: the attributes of a model.
        """
        groups = read_groups("groups", values, n)
        keys = group_keys("groups", groups)
        if keys and _width(keys[0]) != _width(self.keys[0]):
            here, there = (f"{width} column{'s' * (width > 1)}" for width in (_width(keys[0]), _width(self.keys[0])))
            raise ValueError(f"groups has {here} of keys, and those of conformalize had {there}: give the same columns")
        unseen = [key for key in keys if key not in self._bin]
        if unseen and told.get("told_unseen") is not self:
            seen = f"; it saw {_first(self.keys)}" if len(unseen) == len(keys) else ""  # other keys, or another order
            warn(
                f"conformalize saw no row of {_named(unseen, len(keys))}{seen}: intervals of such rows are those of "
                f"all calibration rows, and hold on average over the groups only"
            )
            told["told_unseen"] = self
        return np.array([self._bin.get(key, 0) for key in keys], np.intp)[groups.code]

    def bins_of_residuals(self) -> tuple[NDArray[np.int64], Codes]:
        """Return the places of the residuals, and the bin of each; those of keys come twice, in bin 0 as well."""
        if self.by != "key":
            inside = np.flatnonzero(self.code >= 0)
            return inside, self.code[inside].astype(np.intp)
        bins = np.where(self.own, np.cumsum(self.own), 0)[self.code]
        owned = np.flatnonzero(bins)
        every = np.arange(len(self.code))
        return np.concatenate([every, owned]), np.concatenate([np.zeros(len(every), np.intp), bins[owned]])

    def __str__(self) -> str:
        if self.by != "key":
            return f"in {len(self.own)} bins of the predicted {self.by}"
        few = len(self.own) - int(self.own.sum())
        return f"in {len(self.own)} groups" + (f", {few} with few rows" if few else "")


def group_keys(name: str, groups: Groups) -> list[Key]:
    """Return the keys of groups as texts."""
    return [key_text(name, key) for key in groups.keys]


def tell_few(keys: Sequence[Key], total: int, fewest: int) -> None:
    """Warn of groups that have too few rows for quantiles of their own."""
    warn(
        f"fewer than {fewest} calibration rows are in {_named(keys, total)}: intervals of such rows are those of all "
        f"calibration rows, and hold on average over the groups only; give more rows, or coarser groups"
    )


def _named(keys: Sequence[Key], total: int) -> str:
    return f"{len(keys)} of {total} groups ({_first(keys)})"


def _first(keys: Sequence[Key]) -> str:
    return ", ".join(f"{key!r:.60}" for key in keys[:_NAMED]) + (", ..." if len(keys) > _NAMED else "")


def _width(key: Key) -> int:
    return len(key) if isinstance(key, tuple) else 1
