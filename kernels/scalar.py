"""Scalar functions of one row, one node or one leaf, for the kernels of all devices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..trees.forest import CATEGORICAL, DEFAULT_LEFT, ZERO_BOUND, ZERO_IS_MISSING
from ..trees.objectives import (
    CUT_HUBER,
    FAIR,
    GAMMA,
    GRADIENT_STEP,
    HUBER,
    LOG,
    LQ,
    POISSON,
    PSEUDOHUBER,
    ROUND_NEVER,
    ROUND_TWICE,
    SIGNED_SQRT,
    SQUARED,
    SQUAREDLOG,
    TWEEDIE,
)
from .jit import scalar

# XGBoost's squaredlogerror keeps margins above -1, in float32, where 1 + s is 1 % more than in float64.
_ABOVE_MINUS_ONE = float(np.float32(-1.0 + 1e-6))


@scalar
def goes_left(x: Any, node: Any, category_start: Any, category_bits: Any) -> Any:
    """Tell whether value ``x`` takes the left branch of ``node``, by the split rule of `forest.NODE`."""
    flags = node["flags"]  # not node.flags: in the CUDA simulator, nodes are NumPy arrays with such an attribute
    if math.isnan(x) or (flags & ZERO_IS_MISSING and abs(x) <= ZERO_BOUND):
        return (flags & DEFAULT_LEFT) != 0
    if flags & CATEGORICAL:
        begin = category_start[node.category_set]
        words = category_start[node.category_set + 1] - begin
        # compared as floats, because a large value would overflow in the cast to an integer
        # `Forest` refuses empty sets, from which -0.5, for LightGBM category 0, would read
        if not (node.threshold < x < 32.0 * words):
            return False
        category = np.int64(x)
        return ((category_bits[begin + (category >> 5)] >> np.uint32(category & 31)) & np.uint32(1)) != 0
    return x <= node.threshold


@scalar
def leaf_of(X: Any, i: Any, root: Any, nodes: Any, category_start: Any, category_bits: Any) -> Any:
    """Return the leaf that row ``i`` reaches from ``root``, numbered through the whole forest."""
    k = root
    while k >= 0:
        node = nodes[k]
        x = np.float64(X[i, node.feature])
        k = node.left if goes_left(x, node, category_start, category_bits) else node.right
    return ~k


@scalar
def derivatives(objective: Any, p: Any, s: Any, y: Any) -> Any:
    """Return both derivatives of a loss at margin ``s`` and label ``y``; ``p`` is the objective's parameter."""
    if objective == SQUARED:
        return s - y, 1.0
    if objective == HUBER:
        return min(max(s - y, -p), p), 1.0
    if objective == FAIR:
        residual = s - y
        scale = abs(residual) + p
        return p * residual / scale, p * p / (scale * scale)
    if objective == POISSON:
        return math.exp(s) - y, math.exp(s + p)
    if objective == GAMMA:
        ratio = y * math.exp(-s)
        return 1.0 - ratio, ratio
    if objective == TWEEDIE:
        a = y * math.exp((1.0 - p) * s)
        b = math.exp((2.0 - p) * s)
        return b - a, (2.0 - p) * b - (1.0 - p) * a
    if objective == PSEUDOHUBER:
        residual = s - y
        slope2 = p * p
        root = math.sqrt(1.0 + residual * residual / slope2)
        return residual / root, slope2 / ((slope2 + residual * residual) * root)
    if objective == SQUAREDLOG:
        s = max(s, _ABOVE_MINUS_ONE)
        difference = math.log1p(s) - math.log1p(y)
        return difference / (s + 1.0), max((1.0 - difference) / ((s + 1.0) * (s + 1.0)), 1e-6)
    residual = s - y
    if objective == CUT_HUBER:  # the second derivative of Huber's loss, which is 0 beyond p
        return min(max(residual, -p), p), 1.0 if abs(residual) < p else 0.0
    if objective == LQ:
        size = abs(residual)
        return p * math.copysign(size ** (p - 1.0), residual), p * (p - 1.0) * size ** (p - 2.0)
    # LOGCOSH
    tail = math.exp(-2.0 * abs(residual))  # 1 / cosh^2 would overflow
    return math.tanh(residual), 4.0 * tail / ((1.0 + tail) * (1.0 + tail))


@scalar
def gradient_hessian(objective: Any, p: Any, s: Any, y: Any) -> Any:
    """Return both derivatives of a loss, or the first and 1 if leaves step along the mean gradient."""
    if objective >= GRADIENT_STEP:
        g, _ = derivatives(objective - GRADIENT_STEP, p, s, y)
        return g, 1.0
    return derivatives(objective, p, s, y)


@scalar
def rounded_gradient(objective: Any, p: Any, rounding: Any, s: Any, y: Any, w: Any) -> Any:
    """Return g and h of a row with weight ``w``, rounded to float32 as its booster rounds them (``ROUND_...``)."""
    g, h = gradient_hessian(objective, p, s, y)
    if rounding == ROUND_TWICE:
        g, h = np.float64(np.float32(g)), np.float64(np.float32(h))
    g, h = g * w, h * w
    if rounding == ROUND_NEVER:
        return g, h
    return np.float64(np.float32(g)), np.float64(np.float32(h))


@scalar
def add_tree(variance: Any, sd: Any, rho: Any) -> Any:
    """Return the variance after one more tree: paper eq. 12, with ``sd`` = alpha * sqrt(V) of the leaf.

    The formula sigma^2 + sd^2 - 2 rho sigma sd is written as (sigma - p)^2 + (sd - p) (sd + p) with p = rho sd, so that
    rounding makes neither term negative. It has no constant, so the result has the precision of the arguments.
    """
    p = rho * sd
    rest = math.sqrt(variance) - p
    return rest * rest + (sd - p) * (sd + p)


@scalar
def response(link: Any, margin: Any) -> Any:
    """Return the prediction for a margin, in the margin's own precision, as the boosters compute it."""
    if link == LOG:
        return math.exp(margin)
    if link == SIGNED_SQRT:
        return margin * abs(margin)
    return margin


@scalar
def margin_of(link: Any, value: Any) -> Any:
    """Return the margin for a response, in the value's own precision: the inverse of `response`."""
    if link == LOG:
        return math.log(value)
    if link == SIGNED_SQRT:
        return math.copysign(math.sqrt(abs(value)), value)
    return value
