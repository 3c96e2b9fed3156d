"""Calibration: a power map on the margin's variance, and its fit to residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Exponents beyond this are noise.
MAX_B = 3.0


@dataclass(frozen=True)
class Calibration:
    """sigma^2 -> c * sigma^(2 b). b = c = 1 changes nothing, b = 0 is one variance for all rows."""

    b: float = 1.0
    c: float = 1.0

    def __post_init__(self) -> None:
        if not (self.b >= 0.0 and self.c >= 0.0):
            raise ValueError(f"b and c of a calibration must not be negative, and are {self.b} and {self.c}")

    def __call__(self, variance: Array) -> Array:
        return variance if self.b == self.c == 1.0 else self.c * variance**self.b

    def moved(self, ratio: float) -> Calibration:
        """The same map for variances that are all `ratio` times as large: what it returns is so, too."""
        known = self.b != 1.0 and 0.0 < ratio < math.inf
        return Calibration(self.b, self.c * ratio ** (1.0 - self.b)) if known else self

    def __str__(self) -> str:
        return "variance" if self.b == self.c == 1.0 else f"{self.c:.4g} * variance^{self.b:.3g}"


def fit_map(
    residual: Array, slope: Array, variance: Array, weight: Array, metric: Literal["crps", "nll"], *, flat: bool = False
) -> Calibration:
    """The power map with the best score of a normal; with `flat`, of those with b = 0.

    `residual` and `slope` are (n,): y less the prediction, and the derivative of the response by the margin, so that
    the response's standard deviation is slope times the margin's. Newton's method in (log c, b), with the step halved
    until the score falls.
    """
    positive = variance > 0
    if not positive.any() or not np.any(residual):
        return Calibration()
    log_v = np.log(np.where(positive, variance, variance[positive].min()))
    centre = float(weight @ log_v)
    x = np.zeros_like(log_v) if flat else log_v - centre
    z2_unit = (residual / slope) ** 2
    p = np.array([math.log(max(float(weight @ (z2_unit * np.exp(-x))), 1e-300)), 0.0 if flat else 1.0])
    value, gradient, hessian = _score(p, x, z2_unit, slope, weight, metric)
    for _ in range(30):
        # where the score is not convex, a ridge makes the step a descent
        ridge = max(1e-6 * np.trace(np.abs(hessian)) - np.linalg.eigvalsh(hessian)[0], 0.0) + 1e-300
        step = np.clip(np.linalg.solve(hessian + ridge * np.eye(2), gradient), -2.0, 2.0)
        for _ in range(20):
            candidate = p - step
            candidate[1] = min(max(candidate[1], 0.0), MAX_B)
            new = _score(candidate, x, z2_unit, slope, weight, metric)
            if new[0] <= value:
                break
            step /= 2.0
        else:
            break
        moved, gain = float(np.abs(candidate - p).max()), value - new[0]
        p, (value, gradient, hessian) = candidate, new
        if moved < 1e-6 or gain <= 1e-10 * abs(value):
            break
    b = 0.0 if flat else float(p[1])
    return Calibration(b, float(np.exp(p[0] - b * centre)))


def _score(p: Array, x: Array, z2_unit: Array, slope: Array, weight: Array, metric: str) -> tuple[float, Array, Array]:
    """Mean score of a normal with log variance p[0] + p[1] x, its gradient and hessian in p."""
    from scipy.special import ndtr

    log_var = p[0] + p[1] * x
    z2 = z2_unit * np.exp(-log_var)
    if metric == "nll":
        value, first, second = 0.5 * (log_var + z2), 0.5 * (1.0 - z2), 0.5 * z2
    else:
        z, sd = np.sqrt(z2), np.exp(0.5 * log_var) * slope
        density = np.exp(-0.5 * z2) / math.sqrt(2.0 * math.pi)
        excess = 2.0 * density - 1.0 / math.sqrt(math.pi)
        value = sd * (z * (2.0 * ndtr(z) - 1.0) + excess)
        first, second = 0.5 * sd * excess, sd * (0.25 * excess + 0.5 * z2 * density)
    weighted_first, weighted_second = weight * first, weight * second
    cross = float(weighted_second @ x)
    gradient = np.array([weighted_first.sum(), float(weighted_first @ x)])
    hessian = np.array([[weighted_second.sum(), cross], [cross, float(weighted_second @ (x * x))]])
    return float(weight @ value), gradient, hessian
