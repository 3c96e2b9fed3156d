"""From margins to responses: the link, the calibrated variance and the distribution."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..tables.columns import interval_names, level_names
from ..trees.forest import Forest
from ..trees.objectives import IDENTITY, LOG
from .power_map import Calibration

if TYPE_CHECKING:
    from ..distributions import Distribution


@dataclass(frozen=True, eq=False)
class Margins:
    """What the trees say of n rows.

    Attributes
    ----------
    forest : for the link.
    margin : (n,) in the booster's precision.
    prediction : (n,) its response, with the booster's bits.
    variance : (n,) of the margin, from the recursion.
    """

    forest: Forest
    margin: NDArray[Any]
    prediction: NDArray[Any]
    variance: NDArray[np.float64]

    def take(self, index: NDArray[np.int64]) -> Margins:
        """Those of some rows."""
        return replace(
            self, margin=self.margin[index], prediction=self.prediction[index], variance=self.variance[index]
        )

    def response_variance(self, calibration: Calibration, lognormal: bool = False) -> NDArray[np.float64]:
        """(n,) calibrated variance of the response.

        Log link: m^2 sigma^2 by the delta method, or m^2 (exp(sigma^2) - 1), exact for a `lognormal` response. Signed
        square: 4 s^2 sigma^2 + 2 sigma^4, whose last term keeps it positive at s = 0.
        """
        variance = calibration(self.variance)
        if self.forest.link == IDENTITY:
            return variance
        if self.forest.link == LOG:
            return self.prediction.astype(np.float64) ** 2 * (np.expm1(variance) if lognormal else variance)
        return 4.0 * self.margin.astype(np.float64) ** 2 * variance + 2.0 * variance**2

    def link_slope(self) -> NDArray[np.float64]:
        """(n,) |d response / d margin|, bounded away from 0."""
        if self.forest.link == IDENTITY:
            return np.ones(len(self.margin))
        if self.forest.link == LOG:
            return self.prediction.astype(np.float64)
        slope = 2.0 * np.abs(self.margin.astype(np.float64))
        return np.maximum(slope, 1e-3 * slope.max())

    def distribution(self, family: type[Distribution], calibration: Calibration, **options: Any) -> Distribution:
        """The members of a family with these means and calibrated variances."""
        variance = self.response_variance(calibration, lognormal=family.is_lognormal)
        return family.from_moments(self.prediction.astype(np.float64, copy=False), variance, **options)


def summary(
    prediction: NDArray[Any], distribution: Distribution, quantiles: ArrayLike, intervals: ArrayLike
) -> dict[str, NDArray[np.float64]]:
    """Predictions and their distributions as columns: mean, std, quantiles such as q05, ends such as lower90, upper90.

    mean is the prediction itself: that of empirical residuals, which conformal ones are, lies beside it.
    """
    columns = {"mean": prediction.astype(np.float64, copy=False), "std": distribution.std()}
    names = level_names(quantiles)
    if names:
        columns |= zip(names, distribution.ppf(np.atleast_1d(quantiles)).T, strict=True)
    for coverage in np.atleast_1d(intervals).tolist():
        columns |= zip(interval_names(coverage), distribution.interval(coverage), strict=True)
    return columns


def to_response(forest: Forest, margin: NDArray[Any]) -> NDArray[Any]:
    """Predictions for margins, with the booster's bits."""
    if forest.link == IDENTITY:
        return margin
    from ..kernels import cpu

    out = margin.copy()
    cpu.to_response(forest.link, out)
    return out
