"""LogScale: a log-variance with a step per leaf, which may replace the recursion's variance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array


@dataclass(frozen=True, eq=False)
class LogScale:
    """A log-variance: start + power * (log-variance of the recursion) + sum of the steps of the row's leaves."""

    step: Array  # (L,) the step of each leaf
    start: float  # the same for all rows
    power: float = 0.0  # the share of the paper's recursion; 0 for none
    floor: float = 1.0  # smaller variances of the recursion are replaced by this one

    def __post_init__(self) -> None:
        self.step.flags.writeable = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # pickle makes arrays writable

    def __call__(self, variance: NDArray[np.floating], steps: Array) -> Array:
        """Return the (n,) variances from the recursion's variances and the sums of the rows' steps."""
        scale = np.exp(self.start + steps)
        return scale * np.maximum(variance, self.floor) ** self.power if self.power else scale

    def logarithm(self, variance: Any, steps: Any) -> Any:
        """Return the logarithms of these variances."""
        return self.start + steps + self.power * np.log(np.maximum(variance, self.floor))

    def mapped(self, b: float, log_c: float) -> LogScale:
        """Return the scale with the power map sigma^2 -> c sigma^(2 b) on top."""
        return replace(self, step=b * self.step, start=b * self.start + log_c, power=b * self.power)

    def rescaled(self, ratio: float) -> LogScale:
        """Rescale so that recursions with variances `ratio` times larger give variances `ratio` times larger."""
        if not 0.0 < ratio < np.inf:
            return self
        start = self.start + (1.0 - self.power) * float(np.log(ratio))
        return replace(self, start=start, floor=self.floor * ratio)
