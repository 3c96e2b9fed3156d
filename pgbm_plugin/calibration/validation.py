"""Validation: the rows that `tune` scores on, with what the trees say of them."""

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

# Fewer rows cannot tell two parameters from noise.
MIN_ROWS = 6
# The search looks at no more rows than these; what it finds is scored on all, and the best map is fitted to all.
SEARCH_ROWS = 2000
# Beyond this every number is a whole one.
_COUNTABLE = 2.0**53


@dataclass(frozen=True)
class Validation:
    """Validation rows; n of them.

    Attributes
    ----------
    margins : Margins
        What the trees say of the rows. The variance is set for each correlation.
    y, weight : (n,) float array
        Outcomes, and weights that sum to 1.
    metric : {"crps", "nll"}
        The score.
    floor : float
        Variance of a margin below which a residual means nothing.
    variances : callable
        Takes the rows through the trees: (k,) correlations -> (k, n) variances of the margin.
    positive : bool
        Whether families that need a positive mean are tried.
    rows : Rows
        The table.
    index : (n,) int array
        Positions of the rows in the original table, rising.
    """

    margins: Margins
    y: Array
    weight: Array
    metric: Score
    floor: float
    variances: Callable[[Array], Array]
    positive: bool
    rows: Rows
    index: NDArray[np.int64]

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
        """Return at most so many of the rows, drawn by chance, the same every time."""
        return self.at(self.index[some_rows(len(self.index), rows)])

    def score(self, name: str, variance: Array, calibration: Calibration) -> float:
        """Return the mean score of a family for these variances of the margin; ValueError if it does not fit."""
        margins = replace(self.margins, variance=variance)
        cls, options = family(name)
        if cls.needs_positive_mean and not self.positive:
            raise ValueError("the model may predict 0 or less for other rows; to try it all the same, name it")
        if issubclass(cls, Discrete) and (np.any(self.y != np.floor(self.y)) or np.abs(self.y).max() > _COUNTABLE):
            raise ValueError("the labels are not whole numbers, or too large to count with")
        if issubclass(cls, Empirical):
            if self.metric == "nll":
                raise ValueError("it has no density")
            values = _left_out_crps(*self.residuals(variance, calibration))
        else:
            distribution = margins.distribution(cls, calibration, **options)
            values = distribution.crps(self.y) if self.metric == "crps" else distribution.nll(self.y)
        bad = ~np.isfinite(values)
        if cls.needs_positive_mean:  # the CRPS does not mind a label without density, which no interval would hold
            bad |= self.y <= 0.0 if issubclass(cls, Positive) else self.y < 0.0
        if bad.any():
            raise ValueError(
                f"{int(bad.sum())} of {len(bad)} labels are outside its support, or where its density is infinite"
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
    """Return all rows that have a weight, and those of them that the search looks at."""
    rows, y, margins = held_out
    if not np.any(margins.variance > 0):
        raise ValueError(
            "there is no variance to tune: every leaf that these rows reach held one row, or equal labels; train with "
            "more rows a leaf, or wrap held-out rows"
        )
    weight = np.ones(len(rows)) if weight is None else weight
    used = np.flatnonzero(weight)
    if len(used) < MIN_ROWS:
        raise ValueError(f"tune needs at least {MIN_ROWS} rows with a weight, it got {len(used)}")

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
    """Return the CRPS of each row under the residuals of all others: a row must not vouch for itself."""
    r, m = np.sort(residual), len(residual)
    sums = np.concatenate([[0.0], np.cumsum(r)])
    k = np.searchsorted(r, residual, side="right")
    distance = residual * (2.0 * k - m) - 2.0 * sums[k] + sums[m]
    spread = 0.5 * (distance.sum() - 2.0 * distance) / (m - 1) ** 2
    return std * (distance / (m - 1) - spread)
