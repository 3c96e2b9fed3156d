"""Validation: the rows that `tune` scores on, with their margins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..arrays import Array
from ..distributions import Discrete, Distribution, Empirical, Snapped, Tweedie, family
from ..distributions.base import Positive
from ..predict.power_map import NO_SPREAD, Calibration
from ..predict.recursion import variances
from ..predict.response import Margins
from ..predict.support import Support
from ..tables.rows import Rows, some_rows
from .few_rows import effective_rows, exponent_bounds, scarcity
from .fit_map import fit_map
from .metric import Metric
from .shape import Bins, find_bins, own_residuals

# With fewer rows, two parameters would be fitted to noise.
MIN_ROWS = 6
# All larger floats are whole numbers.
_COUNTABLE = 2.0**53


@dataclass(frozen=True, eq=False)
class Validation:
    """Validation rows; n of them."""

    rows: Rows
    y: Array  # (n,) outcomes
    margins: Margins  # their variance is replaced for each correlation
    weight: Array  # (n,) weights that sum to 1
    metric: Metric
    positive: bool  # whether families that need a positive mean are tried
    leaf_sd: Array | None  # (L,) deviations of the recursion; None if the variance does not depend on a correlation
    n_jobs: int | None
    unit: Array | None = None  # (n,) unit of each row's CRPS; None for the unit of y
    bounds: Support | None = None  # bounds that the user named, for every family
    named: bool = False  # whether the user named the families
    trained_on: bool = False  # whether training saw the rows, whose predictions are then out of fold

    @cached_property
    def scarcity(self) -> float:
        """Return how scarce the rows are, from 0 for enough to 1."""
        return scarcity(effective_rows(self.weight))

    def some(self, most: int) -> Validation:
        """Return at most `most` of the rows, a random sample that is the same every time."""
        if len(self.y) <= most:
            return self
        at = some_rows(len(self.y), most)
        weight = self.weight[at] / self.weight[at].sum()
        unit = None if self.unit is None else self.unit[at]
        rows, margins = self.rows.sample(at), self.margins.take(at)
        return replace(self, rows=rows, y=self.y[at], margins=margins, weight=weight, unit=unit)

    def with_variance(self, variance: Array) -> Validation:
        """Return the rows with a variance that does not depend on a correlation."""
        return replace(self, margins=replace(self.margins, variance=variance), leaf_sd=None)

    def variances(self, rho: Array) -> Array:
        """Return the (k, n) variances of the margins under each of k correlations, in one pass through the trees."""
        if self.leaf_sd is None:
            return np.repeat(self.margins.variance[None], len(rho), axis=0)
        return variances(self.margins.forest, self.rows, self.leaf_sd, rho, self.n_jobs)

    def typical(self, variance: Array) -> float:
        """Return the geometric mean of variances; rows without spread do not count."""
        spread = variance > NO_SPREAD * float(self.weight @ variance)
        weight = self.weight[spread]
        return float(np.exp(weight @ np.log(variance[spread]) / weight.sum())) if spread.any() else 0.0

    def score(self, name: str, variance: Array, calibration: Calibration) -> float:
        """Return the mean score of a family with these variances of the margin; ValueError if it does not fit."""
        return float(self.row_scores(name, variance, calibration) @ self.weight)

    def row_scores(self, name: str, variance: Array, calibration: Calibration, support: Support | None = None) -> Array:
        """Return the (n,) scores of a family with these variances of the margin; ValueError if it does not fit.

        A row's own residual is left out of an empirical distribution. `support` is None for the bounds that were named.
        """
        cls, options = family(name)
        if options.get("by") == "spread" and self.trained_on and not self.named:
            # a row with a large residual raises its own spread, so that it is sorted into a bin of such rows
            raise ValueError("spreads of training rows depend on their own labels; to try it anyway, name it")
        if issubclass(cls, Discrete) and (np.any(self.y != np.floor(self.y)) or np.abs(self.y).max() > _COUNTABLE):
            raise ValueError("the labels are not whole numbers, or are too large for counts")
        if cls.needs_positive_mean and not self.positive:
            raise ValueError("the model may predict 0 or less for other rows; to try it anyway, name it")
        if issubclass(cls, Empirical) and self.metric == "nll":
            raise ValueError("it has no density")
        if issubclass(cls, Tweedie) and not self.named:
            if self.metric == "nll":
                raise ValueError("its probability of 0 cannot be compared with densities; to try it anyway, name it")
            if self.y.min() > 0.0:
                raise ValueError("no label is 0; to try it anyway, name it")
        distribution = self.distribution(name, variance, calibration, support or self.bounds)
        if issubclass(cls, Empirical):
            assert isinstance(distribution, (Empirical, Snapped))
            values = distribution.left_out_crps(self.y, self.weight)
        else:
            values = distribution.nll(self.y) if self.metric == "nll" else distribution.crps(self.y)
        bad = ~np.isfinite(values)
        if cls.needs_positive_mean:  # the CRPS is finite outside the support as well, where no interval reaches
            bad |= self.y <= 0.0 if issubclass(cls, Positive) else self.y < 0.0
        if bad.any():
            raise ValueError(
                f"{int(bad.sum())} of {len(bad)} labels are outside its support, or its density is infinite there"
            )
        return values if self.unit is None else values / self.unit

    def distribution(
        self, name: str, variance: Array, calibration: Calibration, support: Support | None
    ) -> Distribution:
        """Return the distributions of the rows; those made of residuals have the rows' own."""
        margins, (cls, options) = replace(self.margins, variance=variance), family(name)
        if issubclass(cls, Empirical):
            distribution: Distribution = own_residuals(margins, self.y, self.weight, calibration, support, **options)
        else:
            distribution = margins.distribution(cls, calibration, **options)
        return distribution if support is None else support.limit(distribution)

    def bins(self, name: str, variance: Array, calibration: Calibration) -> Bins:
        """Return the bins of the rows' residuals, if the family is made of such; else one bin."""
        cls, options = family(name)
        if not issubclass(cls, Empirical):
            return Bins()
        margins = replace(self.margins, variance=variance)
        std = margins.standardised_residuals(self.y, calibration)[1]
        return find_bins(margins, std, self.weight, **options)

    def residuals(self, variance: Array, calibration: Calibration) -> Array:
        """Return the standardised residuals (y - mean) / std."""
        return replace(self.margins, variance=variance).standardised_residuals(self.y, calibration)[0]

    def fit_map(self, variance: Array, flat: bool = False) -> Calibration:
        """Return the power map with the best score of a normal, and its floor."""
        residual, typical = self.y - self.margins.prediction, self.typical(variance)
        weight, bounds = self.weight, exponent_bounds(self.scarcity)
        if self.unit is not None:
            weight = weight / self.unit / float(weight @ (1.0 / self.unit))
        data = residual, self.margins.link_slope(), variance, typical, weight
        return fit_map(*data, "nll" if self.metric == "nll" else "crps", flat=flat, bounds=bounds)
