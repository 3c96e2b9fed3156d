"""Calibration: the power map on the margin's variance that `tune` chooses."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Array

# Upper bound of the exponent; larger ones would be fitted to noise.
MAX_B = 3.0

# The smallest calibrated standard deviation, in units of a typical one. Rows that reach only leaves without spread
# (single rows, equal labels) would have none, and their residuals would be infinite in its unit.
FLOOR = 0.1

# Variances below this share of their mean are no spread, and do not count for what is typical.
NO_SPREAD = 1e-4

# The floor of models without any spread. Residuals divided by its root can still be squared.
_SMALLEST = 1e-200


@dataclass(frozen=True)
class Calibration:
    """The power map sigma^2 -> c * sigma^(2 b) on variances, with a floor.

    Attributes
    ----------
    b : float
        Exponent. 1 leaves the proportions between rows as they are, 0 gives all rows one variance.
    c : float
        Factor. The map with b = c = 1 changes nothing.
    floor : float
        The smallest variance that the map returns; `tune` and `conformalize` set it to a hundredth of a typical one,
        which is a tenth of its standard deviation. 0 for none.
    """

    b: float = 1.0
    c: float = 1.0
    floor: float = 0.0

    def __post_init__(self) -> None:
        if not (self.b >= 0.0 and self.c >= 0.0 and self.floor >= 0.0):
            raise ValueError(
                f"b, c and floor of a calibration must not be negative, not {self.b}, {self.c} and {self.floor}"
            )

    def __call__(self, variance: Array) -> Array:
        """Return the calibrated variances."""
        mapped = variance if self.b == self.c == 1.0 else self.c * variance**self.b
        return np.maximum(mapped, self.floor) if self.floor else mapped

    def with_floor(self, typical: float) -> Calibration:
        """Return the map with the floor of rows whose typical variance, before the map, is this one."""
        return replace(self, floor=max(FLOOR**2 * self.c * typical**self.b, _SMALLEST))

    def rescaled(self, ratio: float) -> Calibration:
        """Rescale the map so that inputs `ratio` times larger give outputs `ratio` times larger."""
        if not 0.0 < ratio < math.inf:
            return self
        return Calibration(self.b, self.c * ratio ** (1.0 - self.b), self.floor * ratio)

    def __str__(self) -> str:
        return "variance" if self.b == self.c == 1.0 else f"{self.c:.4g} * variance^{self.b:.3g}"
