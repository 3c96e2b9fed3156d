"""LogScale: a log-variance with a step per leaf, which may take the place of the recursion's variance."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array


@dataclass(frozen=True, eq=False)
class LogScale:
    """log sigma^2 = start + power * log sigma^2 of the recursion + the steps of the row's leaves; L leaves.

    Attributes
    ----------
    step : (L,) float array
        What a leaf adds.
    start : float
        What all rows have.
    power : float
        The share of the paper's recursion; 0 leaves it out.
    floor : float
        Variance of the recursion below which its logarithm means nothing.
    """

    step: Array
    start: float
    power: float = 0.0
    floor: float = 1.0

    def __post_init__(self) -> None:
        self.step.flags.writeable = False

    def __call__(self, variance: NDArray[np.floating], steps: Array) -> Array:
        """Return the (n,) variances, from those of the recursion and the sums of the rows' steps."""
        scale = np.exp(self.start + steps)
        return scale * np.maximum(variance, self.floor) ** self.power if self.power else scale

    def mapped(self, b: float, log_c: float) -> LogScale:
        """Return the scale with the power map sigma^2 -> c sigma^(2 b) on top."""
        return replace(self, step=b * self.step, start=b * self.start + log_c, power=b * self.power)
