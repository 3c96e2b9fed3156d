"""Calibration: the power map on the margin's variance that `tune` chooses."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..arrays import Array

# Upper bound of the exponent; larger ones would be fitted to noise.
MAX_B = 3.0


@dataclass(frozen=True)
class Calibration:
    """The power map sigma^2 -> c * sigma^(2 b) on variances.

    Attributes
    ----------
    b : float
        Exponent. 1 leaves the proportions between rows as they are, 0 gives all rows one variance.
    c : float
        Factor. The map with b = c = 1 changes nothing.
    """

    b: float = 1.0
    c: float = 1.0

    def __post_init__(self) -> None:
        if not (self.b >= 0.0 and self.c >= 0.0):
            raise ValueError(f"b and c of a calibration must not be negative, not {self.b} and {self.c}")

    def __call__(self, variance: Array) -> Array:
        """Return the calibrated variances."""
        return variance if self.b == self.c == 1.0 else self.c * variance**self.b

    def rescaled(self, ratio: float) -> Calibration:
        """Rescale the map so that inputs `ratio` times larger give outputs `ratio` times larger."""
        changes = self.b != 1.0 and 0.0 < ratio < math.inf
        return Calibration(self.b, self.c * ratio ** (1.0 - self.b)) if changes else self

    def __str__(self) -> str:
        return "variance" if self.b == self.c == 1.0 else f"{self.c:.4g} * variance^{self.b:.3g}"
