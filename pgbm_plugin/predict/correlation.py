"""Correlation: how much rows of one group err together, level by level."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..tables.keys import Groups, read_groups
from .power_map import Calibration

# Subsets of levels are looked at one by one.
MAX_LEVELS = 6


@dataclass(frozen=True)
class Correlation:
    """How much rows err together, which `correlate` measured. Read-only; `model.chosen.correlation` holds it.

    Rows are joined by a Gaussian copula with a factor for every group of every level. The normal score of a row is

        z = sum over levels of sqrt(r) f(group of the row) + sqrt(1 - sum of r) e,

    with f and e independent standard normals. So two rows have the correlation that is the sum of r over the levels
    whose group they share.

    Attributes
    ----------
    levels : tuple of str
        Names of the levels.
    r : tuple of float
        Correlation that a shared group of each level adds; not negative, and less than 1 in total.
    standard_error : tuple of float
        Standard error of each r, if the model of factors is right.
    measured : tuple of float
        What `r` would be without its limits. A negative one means that rows of a group differ more than independent
        rows do.
    groups : tuple of int
        Number of groups of each level.
    rows : int
        Number of held-out rows.
    rho, calibration, distribution : float, Calibration, str
        Settings of the model that it was measured with, and the only ones it is valid for.
    """

    levels: tuple[str, ...]
    r: tuple[float, ...]
    standard_error: tuple[float, ...]
    measured: tuple[float, ...]
    groups: tuple[int, ...]
    rows: int
    rho: float
    calibration: Calibration
    distribution: str

    def __post_init__(self) -> None:
        check_names(self.levels)
        if not len(self.levels) == len(self.r) == len(self.standard_error) == len(self.measured) == len(self.groups):
            raise ValueError("a correlation needs an r, its error and a number of groups for each level")
        if not all(r >= 0.0 for r in self.r) or not math.fsum(self.r) < 1.0:
            raise ValueError(f"the r of a correlation must not be negative, and add up to less than 1, not {self.r}")

    def read_levels(self, levels: Any, n: int) -> list[Groups]:
        """Return the groups of n rows to predict, in the order of the levels; refuse other names than those."""
        self.check_levels(levels)
        return [read_groups(f"levels[{name!r}]", levels[name], n) for name in self.levels]

    def check_levels(self, levels: Any) -> None:
        """Refuse levels that do not have exactly the names that were measured."""
        if not isinstance(levels, Mapping):
            raise TypeError(f"levels must be a dict such as {self._example}, not {type(levels).__name__}")
        for name in levels:
            if name not in self.levels:
                raise ValueError(
                    f"levels has {name!r}, and correlate measured {', '.join(self.levels)}: leave it out, or call "
                    f"model.correlate with it"
                )
        missing = [name for name in self.levels if name not in levels]
        if missing:
            raise ValueError(
                f"levels lacks {', '.join(missing)}, which correlate measured: give the group of every row, as in "
                f"levels={self._example}"
            )

    @property
    def _example(self) -> str:
        return "{" + ", ".join(f"{name!r}: column" for name in self.levels) + "}"

    def __repr__(self) -> str:
        width = max(11, *map(len, self.levels))
        lines = [
            f"correlation of {self.rows} rows, as {self.distribution}",
            f"  {'level':{width}} {'groups':>8} {'r':>9}   standard error",
        ]
        for name, groups, r, error, measured in zip(
            self.levels, self.groups, self.r, self.standard_error, self.measured, strict=True
        ):
            note = "" if math.isclose(r, measured, rel_tol=1e-6, abs_tol=1e-9) else f"   (measured {measured:.2g})"
            lines.append(f"  {name:{width}} {groups:8} {r:9.4g} ± {error:.2g}{note}")
        lines.append(f"  {'independent':{width}} {'':8} {1.0 - math.fsum(self.r):9.4g}")
        return "\n".join(lines)


def check_names(levels: Any) -> None:
    """Refuse names of levels that are missing, not text, not different, or too many."""
    names = list(levels)
    if not names:
        raise ValueError("levels is empty: name at least one, such as levels={'day': day}, with a key for each row")
    if len(names) > MAX_LEVELS:
        raise ValueError(f"levels has {len(names)} levels: give at most {MAX_LEVELS}")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"names of levels must be text, not {name!r:.60}")
        if not name:
            raise ValueError("a level has an empty name")
    if len(set(names)) < len(names):
        raise ValueError(f"levels names one twice: {', '.join(names)}")
