"""From margins to responses: the link, the calibrated variance and the distribution."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray, Array
from ..boosters import booster_named
from ..trees.forest import Forest
from ..trees.objectives import IDENTITY, LOG
from .power_map import Calibration

if TYPE_CHECKING:
    from ..distributions import Distribution


@dataclass(frozen=True, eq=False)
class Margins:
    """Margins, predictions and variances of n rows."""

    forest: Forest  # its link turns margins into predictions
    margin: AnyArray  # (n,) margins, in the booster's precision
    prediction: AnyArray  # (n,) responses, with the booster's bits
    variance: Array  # (n,) variances of the margins
    precision: Array | None = None  # (n,) what the calibrated variances are divided by

    def take(self, index: NDArray[np.int64]) -> Margins:
        """Return the rows at these positions."""
        return replace(
            self, margin=self.margin[index], prediction=self.prediction[index], variance=self.variance[index]
        )

    def around(self, prediction: Array) -> Margins:
        """Return the same variances around other predictions of the same rows."""
        margin = prediction.copy()
        if self.forest.link != IDENTITY:
            from ..kernels import cpu

            cpu.to_margin(self.forest.link, margin)
        return replace(self, margin=margin, prediction=prediction)

    def response_variance(self, calibration: Calibration, lognormal: bool = False) -> Array:
        """Return the (n,) calibrated variances of the response.

        With s the margin and m the response: under a log link, m^2 sigma^2 by the delta method, or
        m^2 (exp(sigma^2) - 1), which is exact for a `lognormal` response; under the signed square root,
        4 s^2 sigma^2 + 2 sigma^4, which is positive even at s = 0.
        """
        variance = calibration(self.variance)
        if self.precision is not None:
            variance = variance / self.precision
        if self.forest.link == IDENTITY:
            return variance
        if self.forest.link == LOG:
            return self.prediction.astype(np.float64) ** 2 * (np.expm1(variance) if lognormal else variance)
        return 4.0 * self.margin.astype(np.float64) ** 2 * variance + 2.0 * variance**2

    def link_slope(self) -> Array:
        """Return the (n,) |d response / d margin|, bounded away from 0."""
        if self.forest.link == IDENTITY:
            return np.ones(len(self.margin))
        if self.forest.link == LOG:
            return self.prediction.astype(np.float64)
        slope = 2.0 * np.abs(self.margin.astype(np.float64))
        return np.maximum(slope, 1e-3 * slope.max())

    def standardised_residuals(self, y: Array, calibration: Calibration) -> tuple[Array, Array]:
        """Return the (n,) residuals (y - mean) / std, and the std."""
        std = np.sqrt(self.response_variance(calibration))
        return (y - self.prediction) / std, std

    def distribution(self, family: type[Distribution], calibration: Calibration, **options: Any) -> Distribution:
        """Return the members of a family with these means and calibrated variances."""
        variance = self.response_variance(calibration, lognormal=family.is_lognormal)
        return family.from_moments(self.prediction.astype(np.float64, copy=False), variance, **options)


def to_response(forest: Forest, margin: AnyArray) -> AnyArray:
    """Return the predictions for margins, with the booster's bits."""
    if forest.link == IDENTITY:
        return margin
    exp = booster_named(forest.booster).exp if forest.link == LOG else None
    if exp is not None:
        return exp(margin)
    from ..kernels import cpu

    out = margin.copy()
    cpu.to_response(forest.link, out)
    return out
