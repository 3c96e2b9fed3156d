"""Calibration: the power map on the margin's variance that `tune` fits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Calibration:
    """sigma^2 -> c * sigma^(2 b). b = c = 1 changes nothing, b = 0 is one variance for all rows."""

    b: float = 1.0
    c: float = 1.0

    def __call__(self, variance: NDArray[np.float64]) -> NDArray[np.float64]:
        return variance if self.b == self.c == 1.0 else self.c * variance**self.b
