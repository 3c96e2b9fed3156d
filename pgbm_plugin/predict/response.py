"""From margins to responses: the link, the calibrated variance and the distribution."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray, Array
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
    forest : Forest
        The trees, for their link.
    margin : (n,) float array
        Margins, in the booster's precision.
    prediction : (n,) float array
        Responses, with the booster's bits.
    variance : (n,) float array
        Variances of the margins.
    """

    forest: Forest
    margin: AnyArray
    prediction: AnyArray
    variance: Array

    def take(self, index: NDArray[np.int64]) -> Margins:
        """Return some of the rows, by their position."""
        return replace(
            self, margin=self.margin[index], prediction=self.prediction[index], variance=self.variance[index]
        )

    def floored(self, floor: float) -> Margins:
        """Return the margins with no variance below the floor."""
        return replace(self, variance=np.maximum(self.variance, floor))

    def response_variance(self, calibration: Calibration, lognormal: bool = False) -> Array:
        """Return the (n,) calibrated variances of the response.

        Under a log link, it is m^2 sigma^2 by the delta method, or m^2 (exp(sigma^2) - 1), which is exact for a
        `lognormal` response. Under the signed square it is 4 s^2 sigma^2 + 2 sigma^4, positive at s = 0 as well.
        """
        variance = calibration(self.variance)
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
    from ..kernels import cpu

    out = margin.copy()
    cpu.to_response(forest.link, out)
    return out
