"""The fit of a power map to residuals of held-out rows."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from ..arrays import Array
from ..predict.power_map import FLOOR, MAX_B, Calibration

_LOG_FLOOR = 2.0 * math.log(FLOOR)


def fit_map(
    residual: Array,
    slope: Array,
    variance: Array,
    typical: float,
    weight: Array,
    metric: Literal["crps", "nll"],
    *,
    flat: bool = False,
    bounds: tuple[float, float] = (0.0, MAX_B),
) -> Calibration:
    """Return the power map with the best score of a normal distribution, with the floor of a typical row.

    Newton's method is used in (log c, b), and a step is halved until the score improves.

    Parameters
    ----------
    residual : (n,) float array
        Outcome less prediction.
    slope : (n,) float array
        Derivative of the response by the margin: the response's standard deviation is slope times the margin's.
    variance : (n,) float array
        Variance of the margin.
    typical : float
        Variance of a typical row.
    weight : (n,) float array
        Weights that sum to 1.
    metric : {"crps", "nll"}
        The score.
    flat : bool
        Whether all rows get one variance, b = 0.
    bounds : (float, float)
        Bounds of b.
    """
    if not typical > 0.0 or not np.any(residual):
        return Calibration().with_floor(typical)
    centre = math.log(typical)
    # a row below the floor counts as one on the floor
    x = np.zeros_like(variance) if flat else np.log(np.maximum(variance, np.finfo(float).tiny)) - centre
    z2_unit = (residual / slope) ** 2
    start = float(weight @ (z2_unit * np.exp(-np.maximum(x, _LOG_FLOOR))))
    data = x, z2_unit, slope, weight, metric
    starts = [(start, 0.0 if flat else _clipped(1.0, bounds))]
    if not flat and np.any(x < _LOG_FLOOR):  # rows on the floor do not pull b towards 0, where it may be better
        starts.append((float(weight @ z2_unit), bounds[0]))
    ends = (_descend(np.array([math.log(max(scale, 1e-300)), b]), bounds, data) for scale, b in starts)
    p, _ = min(ends, key=lambda end: end[1])
    b = 0.0 if flat else float(p[1])
    return Calibration(b, float(np.exp(p[0] - b * centre))).with_floor(typical)


def _descend(p: Array, bounds: tuple[float, float], data: tuple[Any, ...]) -> tuple[Array, float]:
    """Return the (log c, b) of a local optimum, and its score, by Newton's method from `p`; b stays in its bounds."""
    value, gradient, hessian = _score(p, *data)
    for _ in range(30):
        # if the score is not convex, a ridge makes the step go downhill
        ridge = max(1e-6 * np.trace(np.abs(hessian)) - np.linalg.eigvalsh(hessian)[0], 0.0) + 1e-300
        convex = hessian + ridge * np.eye(2)
        step = np.clip(np.linalg.solve(convex, gradient), -2.0, 2.0)
        b = _clipped(p[1] - step[1], bounds)
        if b != p[1] - step[1]:  # on a bound, log c has a step of its own
            step[1] = p[1] - b
            step[0] = np.clip((gradient[0] - convex[0, 1] * step[1]) / convex[0, 0], -2.0, 2.0)
        for _ in range(20):
            candidate = p - step
            candidate[1] = _clipped(candidate[1], bounds)  # not outside by rounding
            new = _score(candidate, *data)
            if new[0] <= value:
                break
            step /= 2.0
        else:
            break
        moved, gain = float(np.abs(candidate - p).max()), value - new[0]
        p, (value, gradient, hessian) = candidate, new
        if moved < 1e-6 or gain <= 1e-10 * abs(value):
            break
    return p, value


def _clipped(b: float, bounds: tuple[float, float]) -> float:
    return min(max(b, bounds[0]), bounds[1])


def _score(p: Array, x: Array, z2_unit: Array, slope: Array, weight: Array, metric: str) -> tuple[float, Array, Array]:
    """Return the mean score of a normal with log variance p[0] + p[1] x, and its gradient and hessian in p.

    The log variance is at least p[0] + _LOG_FLOOR, where it does not depend on p[1].
    """
    from scipy.special import ndtr

    steps = p[1] * x
    floored = steps < _LOG_FLOOR
    log_var = p[0] + np.where(floored, _LOG_FLOOR, steps)
    x = np.where(floored, 0.0, x)
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
