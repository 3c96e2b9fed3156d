"""Validation: the rows that `tune` scores on, with their margins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..distributions import Discrete, Empirical, family
from ..distributions.base import Positive
from ..predict.power_map import Calibration
from ..predict.recursion import variances
from ..predict.response import Margins
from ..tables.rows import Rows, some_rows
from .fit_map import fit_map
from .held_out import HeldOut

Score = Literal["crps", "nll"]

# With fewer rows, two parameters would be fitted to noise.
MIN_ROWS = 6
# The search uses at most so many rows. Its candidates are scored on all rows, and the best map is fitted to all rows.
SEARCH_ROWS = 2000
# All larger floats are whole numbers.
_COUNTABLE = 2.0**53


@dataclass(frozen=True)
class Validation:
    """Validation rows; n of them."""

    margins: Margins  # their variance is replaced for each correlation
    y: Array  # (n,) outcomes
    weight: Array  # (n,) weights that sum to 1
    metric: Score
    floor: float  # the smallest variance of a margin that residuals are divided by
    variances: Callable[[Array], Array]  # sends the rows through the trees: (k,) correlations -> (k, n) variances
    positive: bool  # whether families that need a positive mean are tried
    rows: Rows
    index: NDArray[np.int64]  # (n,) positions of the rows in the original table, in rising order

    def at(self, index: NDArray[np.int64]) -> Validation:
        """Select rows by their position in the original table."""
        here = np.searchsorted(self.index, index)
        rows = self.rows if len(here) == len(self.index) else self.rows.sample(here)
        weight = self.weight[here]
        return replace(
            self,
            margins=self.margins.take(here),
            y=self.y[here],
            weight=weight / weight.sum(),
            variances=lambda rho: self.variances(rho)[:, here],
            rows=rows,
            index=index,
        )

    def some(self, rows: int) -> Validation:
        """Return at most `rows` of the rows, a random sample that is the same every time."""
        return self.at(self.index[some_rows(len(self.index), rows)])

    def score(self, name: str, variance: Array, calibration: Calibration) -> float:
        """Return the mean score of a family with these variances of the margin; ValueError if it does not fit."""
        margins = replace(self.margins, variance=variance)
        cls, options = family(name)
        if issubclass(cls, Discrete) and (np.any(self.y != np.floor(self.y)) or np.abs(self.y).max() > _COUNTABLE):
            raise ValueError("the labels are not whole numbers, or are too large for counts")
        if cls.needs_positive_mean and not self.positive:
            raise ValueError("the model may predict 0 or less for other rows; to try it anyway, name it")
        if issubclass(cls, Empirical):
            if self.metric == "nll":
                raise ValueError("it has no density")
            values = _left_out_crps(*self.residuals(variance, calibration))
        else:
            distribution = margins.distribution(cls, calibration, **options)
            values = distribution.crps(self.y) if self.metric == "crps" else distribution.nll(self.y)
        bad = ~np.isfinite(values)
        if cls.needs_positive_mean:  # the CRPS is finite outside the support as well, where no interval reaches
            bad |= self.y <= 0.0 if issubclass(cls, Positive) else self.y < 0.0
        if bad.any():
            raise ValueError(
                f"{int(bad.sum())} of {len(bad)} labels are outside its support, or its density is infinite there"
            )
        return float(values @ self.weight)

    def residuals(self, variance: Array, calibration: Calibration) -> tuple[Array, Array]:
        """Return the standardised residuals (y - mean) / std, and the std."""
        margins = replace(self.margins, variance=variance).floored(self.floor)
        return margins.standardised_residuals(self.y, calibration)

    def fit_map(self, variance: Array, flat: bool = False) -> Calibration:
        """Return the power map with the best score of a normal."""
        residual = self.y - self.margins.prediction
        return fit_map(residual, self.margins.link_slope(), variance, self.weight, self.metric, flat=flat)


def validation_rows(
    held_out: HeldOut,
    weight: Array | None,
    metric: Score,
    floor: float,
    leaf_sd: Array,
    positive: bool,
    n_jobs: int | None,
) -> tuple[Validation, Validation]:
    """Return all rows with a positive weight, and those of them that the search uses."""
    rows, y, margins = held_out
    if not np.any(margins.variance > 0):
        raise ValueError(
            "there is no variance to tune: every leaf that these rows reach held one row, or equal labels; train with "
            "more rows per leaf, or wrap held-out rows"
        )
    weight = np.ones(len(rows)) if weight is None else weight
    used = np.flatnonzero(weight)
    if len(used) < MIN_ROWS:
        raise ValueError(f"tune needs at least {MIN_ROWS} rows with a positive weight, it got {len(used)}")

    def validation(index: NDArray[np.int64]) -> Validation:
        part = rows if len(index) == len(rows) else rows.sample(index)
        w = weight[index]
        return Validation(
            margins.take(index),
            y[index],
            w / w.sum(),
            metric,
            floor,
            lambda rho: variances(margins.forest, part, leaf_sd, rho, n_jobs),
            positive,
            part,
            index,
        )

    everything = validation(used)
    if len(used) <= SEARCH_ROWS:
        return everything, everything
    return everything, validation(used[some_rows(len(used), SEARCH_ROWS)])


def _left_out_crps(residual: Array, std: Array) -> Array:
    """Return the (n,) CRPS (continuous ranked probability score) of each row under the residuals of all other rows."""
    r, m = np.sort(residual), len(residual)
    sums = np.concatenate([[0.0], np.cumsum(r)])
    k = np.searchsorted(r, residual, side="right")
    distance = residual * (2.0 * k - m) - 2.0 * sums[k] + sums[m]
    spread = 0.5 * (distance.sum() - 2.0 * distance) / (m - 1) ** 2
    return std * (distance / (m - 1) - spread)
