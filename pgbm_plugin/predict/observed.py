"""Observed: what labels that arrived after calibration say about the residuals of new rows."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array

COVERAGES = (0.5, 0.8, 0.9, 0.95)
"""Central intervals whose cover is counted."""
FED_BACK = COVERAGES.index(0.9)
"""The interval whose misses move the factors, each end on its own."""

WINDOW, STEP = 1000, 0.02
SMALLEST_WINDOW, LARGEST_WINDOW = 50, 1_000_000
# Rows of a batch that count in full for the factors. A larger batch says more about the level, but no more about time.
_MOST_STEPS = 25
# The logarithm of a factor stays within these limits: 1/100 to 100.
_LIMIT = math.log(100.0)
# Larger residuals could overflow.
_LARGEST = 1e100
# Levels at which the residuals of calibration are moved to those of the window.
_LEVELS: Array = np.array([0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99])


@dataclass(frozen=True, eq=False)
class Observed:
    """Labels that arrived after calibration, which `observe` adapts intervals to. Read-only; `model.observed` holds it.

    Attributes
    ----------
    rows : int
        Number of rows observed.
    window : int
        Number of latest residuals that the shape is made of.
    step : float
        How much one row moves the factors, times its error.
    lower, upper : float
        Logarithms of the factors on the residuals of the window, below and above their median.
    covered : tuple of int
        How many rows lay inside the 50, 80, 90 and 95 % interval that was predicted before their label was known.
    residuals : (w,) float array
        (y - mean) / std of the latest rows, the oldest batch first; at the start those of calibration.
    inside : (k,) uint8 array
        For each of the last k residuals, which are those of observed rows: bit i is 1 if the row lay inside interval i.
    batch : bytes or None
        Hash of the rows of the last call, to recognise them; None if they were too few.
    """

    rows: int
    window: int
    step: float
    lower: float
    upper: float
    covered: tuple[int, ...]
    residuals: Array
    inside: NDArray[np.uint8]
    batch: bytes | None = None

    def __post_init__(self) -> None:
        check_window(self.window)
        check_step(self.step)
        if not max(abs(self.lower), abs(self.upper)) <= _LIMIT:
            raise ValueError(f"factors of observed residuals must lie within {math.exp(_LIMIT):g}, and these do not")
        if not len(self.inside) <= min(len(self.residuals), self.rows) or len(self.residuals) > self.window:
            raise ValueError("a window of observed residuals has more entries than rows")
        if not len(self.residuals) >= 2 or not np.all(np.abs(self.residuals) <= _LARGEST):
            raise ValueError(f"a window needs at least two residuals, none of them beyond {_LARGEST:g}")
        if len(self.covered) != len(COVERAGES) or np.any(np.diff((0, *self.covered, self.rows)) < 0):
            raise ValueError("the cover of observed rows must rise with the interval, up to the number of rows")
        if (len(self.inside) > 0) != (self.rows > 0) or np.any(self.inside >> len(COVERAGES)):
            raise ValueError("observed rows have no cover, or that of an interval that is not counted")
        self.residuals.flags.writeable = self.inside.flags.writeable = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # pickle makes arrays writable

    @property
    def cover(self) -> dict[float, float]:
        """Return, for each coverage, the share of all observed rows that lay inside, as predicted before their call."""
        rows = self.rows or math.nan  # a file may hold a record without rows
        return {level: count / rows for level, count in zip(COVERAGES, self.covered, strict=True)}

    @property
    def recent_cover(self) -> dict[float, float]:
        """Return the same share of the latest rows, at most `window` of them."""
        rows = len(self.inside) or math.nan
        return {level: float(np.sum(self.inside >> bit & 1) / rows) for bit, level in enumerate(COVERAGES)}

    def after(self, residuals: Array, inside: NDArray[np.bool_], missed: tuple[float, float], batch: bytes) -> Observed:
        """Return the record after a batch of rows that arrive together, in an order that does not matter.

        `inside` tells for each of the n rows and 4 intervals whether it lay there. `missed` are the shares of the rows
        below and above the interval whose misses count, less the shares that should be there; `batch` is a hash.
        """
        n = len(residuals)
        bits = (inside << np.arange(len(COVERAGES))).sum(1).astype(np.uint8)
        # no order of the batch, so that rows leave the window without regard to their size
        order = np.random.default_rng(self.rows).permutation(np.lexsort((bits, residuals)))[: self.window]
        move = self.step * min(n, _MOST_STEPS)
        lower, upper = (
            float(np.clip(own + move * share, -_LIMIT, _LIMIT))
            for own, share in zip((self.lower, self.upper), missed, strict=True)
        )
        latest = np.concatenate([self.residuals, np.clip(residuals[order], -_LARGEST, _LARGEST)])
        return replace(
            self,
            rows=self.rows + n,
            lower=lower,
            upper=upper,
            covered=tuple(int(count) for count in inside.sum(0) + self.covered),
            residuals=latest[-self.window :],
            inside=np.concatenate([self.inside, bits[order]])[-self.window :],
            batch=batch,
        )

    def with_settings(self, window: int | None, step: float | None) -> Observed:
        """Return the record with another window or step; None for the same."""
        window = self.window if window is None else check_window(window)
        step = self.step if step is None else check_step(step)
        return replace(self, window=window, step=step, residuals=self.residuals[-window:], inside=self.inside[-window:])

    def rescaled(self, ratio: float) -> Observed:
        """Return the record after all variances became `ratio` times larger."""
        return replace(self, residuals=np.clip(self.residuals / math.sqrt(ratio), -_LARGEST, _LARGEST))

    def adapted(self, residuals: Array, calibration: Array, weight: Array | None) -> Array:
        """Return residuals, each moved from its level among those of calibration to this level of the window.

        Between the levels, and beyond the outermost ones, they move along straight lines. So their order stays: all
        quantiles remain in order, and bins or groups of residuals keep their differences. `calibration` and `weight`
        are the residuals of all calibration rows, and their weights.
        """
        before, after = _quantiles(calibration, weight), self._quantiles()
        first = np.concatenate([[True], np.diff(before) > 0.0])
        before, after = before[first], after[first]
        moved: Array = np.interp(residuals, before, after)
        slope = 1.0 if len(before) == 1 else (after[-1] - after[0]) / (before[-1] - before[0])
        low, high = np.minimum(residuals - before[0], 0.0), np.maximum(residuals - before[-1], 0.0)
        return moved + slope * (low + high)

    def _quantiles(self) -> Array:
        """Return the quantiles of the window, with the factors."""
        window, middle = _quantiles(self.residuals, None), float(np.median(self.residuals))
        factor = np.exp(np.where(window < middle, self.lower, self.upper))
        return middle + factor * (window - middle)

    def __repr__(self) -> str:
        def percents(cover: dict[float, float]) -> str:
            return ", ".join(f"{level:.0%}: {share:.1%}" for level, share in cover.items())

        return (
            f"{self.rows:,} rows observed; share inside the interval that was predicted before\n"
            f"  all rows:        {percents(self.cover)}\n"
            f"  latest {len(self.inside):,}: {percents(self.recent_cover)}\n"
            f"  window {self.window:,}, step {self.step:g}; factors {math.exp(self.lower):.3g} below and "
            f"{math.exp(self.upper):.3g} above the median"
        )


def _quantiles(residuals: Array, weight: Array | None) -> Array:
    """Return the quantiles at `_LEVELS`, rounded outwards as those of `Conformal`, but never beyond the residuals."""
    order = np.argsort(residuals, kind="stable")
    up_to = np.arange(1.0, len(order) + 1.0) if weight is None else np.cumsum(weight[order])
    exact = (up_to[-1] + 1.0) * _LEVELS
    below, above = np.searchsorted(up_to, exact - 1.0 + 1e-9, side="right"), np.searchsorted(up_to, exact - 1e-9)
    place = np.clip(np.where(_LEVELS < 0.5, below, above), 0, len(order) - 1)
    return residuals[order[place]]


def check_window(window: int) -> int:
    """Return a number of rows; refuse one that is too small or too large for a window."""
    if isinstance(window, bool) or not isinstance(window, (int, np.integer)):
        raise TypeError(f"window must be a whole number of rows, not {window!r:.60}")
    if not SMALLEST_WINDOW <= window <= LARGEST_WINDOW:
        raise ValueError(f"window must lie between {SMALLEST_WINDOW} and {LARGEST_WINDOW:,} rows, not {window}")
    return int(window)


def check_step(step: float) -> float:
    """Return a step of the factors; refuse it outside (0, 1]."""
    if isinstance(step, bool) or not isinstance(step, (int, float, np.number)):
        raise TypeError(f"step must be a number, not {step!r:.60}")
    if not 0.0 < step <= 1.0:
        raise ValueError(f"step must lie above 0, and at 1 at most, not {step:g}")
    return float(step)


def hash_rows(*columns: Array) -> bytes:
    """Hash rows of numbers regardless of their order, to recognise a batch."""
    table = np.stack([column.astype(np.float64) for column in columns])
    return hashlib.sha256(table[:, np.lexsort(table)].tobytes()).digest()
