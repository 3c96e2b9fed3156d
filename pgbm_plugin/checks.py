"""Checks of plain values that users pass: probability levels, correlations, names of columns and files."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Array

Variance = Literal["pgbm", "boosted", "auto"]
"""Source of the variance: the paper's recursion, a boosted scale, or the blend that scores best."""


# What other packages call the scores that rows start from: XGBoost, CatBoost, and those of generalised linear models.
_INIT_SCORES = {"base_margin", "baseline", "offset"}

T = TypeVar("T")


def refuse_other_init_scores(names: Iterable[str]) -> None:
    """Refuse an argument that is called as other packages call `init_score`."""
    for name in sorted(_INIT_SCORES.intersection(names)):
        raise TypeError(f"{name}= is called init_score= here: the margin that each row starts from")


def names_init_score(target: T) -> T:
    """Decorate a function that takes `init_score`, or all such methods of a class: other names for it are hinted at."""
    if isinstance(target, type):
        for name, method in list(vars(target).items()):
            if inspect.isfunction(method) and not name.startswith("_"):
                taken = inspect.signature(method).parameters
                if "init_score" in taken and not any(other.kind is other.VAR_KEYWORD for other in taken.values()):
                    setattr(target, name, names_init_score(method))
        return target
    function: Callable[..., Any] = target  # type: ignore[assignment]

    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        if options:  # single rows are predicted in microseconds
            refuse_other_init_scores(options)
        return function(*args, **options)

    return called  # type: ignore[return-value]


def check_levels(name: str, levels: ArrayLike) -> Array:
    """Return levels as an array; refuse any that does not lie strictly between 0 and 1."""
    try:
        levels = np.asarray(levels, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be numbers between 0 and 1, not {levels!r:.60}") from None
    inside = np.count_nonzero((levels > 0.0) & (levels < 1.0))  # faster than np.all, for single rows
    if levels.size == 0 or inside < levels.size:
        shown = levels.tolist() if levels.size < 10 else f"an array of shape {levels.shape}"
        raise ValueError(f"{name} must lie strictly between 0 and 1, not {shown}")
    return levels


def check_level(name: str, level: float) -> float:
    """Return one level; refuse it unless it lies strictly between 0 and 1."""
    if type(level) is float and 0.0 < level < 1.0:  # fast for single rows
        return level
    levels = check_levels(name, level)
    if levels.ndim:
        raise ValueError(f"{name} must be one number, not {level!r:.60}")
    return float(levels)


def check_rho(value: float) -> float:
    """Return a correlation as a float; refuse it outside [-1, 1]."""
    try:
        value = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"rho must be a number, not {value!r}") from None
    if not -1.0 <= value <= 1.0:
        raise ValueError(f"rho must lie in [-1, 1], not {value}")
    return value


def check_variance(variance: Variance) -> Variance:
    """Return the source of the variance; refuse an unknown one."""
    if variance not in get_args(Variance):
        raise ValueError(f"variance must be 'pgbm', 'boosted' or 'auto', not {variance!r}")
    return variance


def check_model_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a model file; refuse one that does not exist, or is a directory."""
    file = Path(path)
    if file.is_dir():
        raise IsADirectoryError(f"{str(file)!r} is a directory: give the path of a model file")
    if not file.is_file():
        raise FileNotFoundError(f"no model file at {str(file)!r}")
    return file


def level_names(levels: ArrayLike) -> list[str]:
    """Return the names of columns that hold quantiles: q05, q50, q97.5."""
    return _with_percents("quantiles", levels, "q")


def interval_names(coverages: ArrayLike) -> list[str]:
    """Return the names of columns that hold the ends of intervals: lower90, upper90."""
    ends = (_with_percents("intervals", coverages, end) for end in ("lower", "upper"))
    return [name for pair in zip(*ends, strict=True) for name in pair]


def _with_percents(what: str, levels: ArrayLike, prefix: str) -> list[str]:
    levels = np.atleast_1d(check_levels(what, levels)) if np.size(levels) else np.empty(0)
    names = [f"{prefix}{'0' * (level < 0.1)}{100.0 * level:.10g}" for level in levels.tolist()]
    if len(set(names)) < len(names):
        raise ValueError(f"{what} holds a level twice: {', '.join(names)}")
    return names


def missing_column(name: str, columns: Sequence[str]) -> str:
    """Return the error text for a column that a table does not have, with the columns that it has."""
    shown = ", ".join(columns[:10]) + (f" and {len(columns) - 10} more" if len(columns) > 10 else "")
    by_lower = {column.strip().lower(): column for column in columns}
    near = difflib.get_close_matches(name.strip().lower(), by_lower, 1)
    return f"it has no column {name!r}, only {shown}" + (f"; did you mean {by_lower[near[0]]!r}?" if near else "")
