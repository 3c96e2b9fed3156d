"""Distributions that are known at a few levels only, as those of an ensemble of quantile models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Quantiles:
    """A distribution per row; between its levels the quantile function is a straight line.

    The tails: below the first level the line of the first two levels goes on to level 0, and above the last that of the
    last two to level 1. So the support is bounded, and there is no likelihood to speak of.

    Attributes
    ----------
    levels : (k,) rising, in (0, 1).
    values : (n, k) rising quantiles; made by `of_crossing`, which sorts them.
    """

    levels: Array
    values: Array

    @classmethod
    def of_crossing(cls, levels: Array, values: Array) -> Quantiles:
        """From quantiles of models that do not know of each other: sorted, which never makes a score worse."""
        return cls(levels, np.sort(values, axis=1))

    def knots(self) -> tuple[Array, Array]:
        """(k + 2,) levels from 0 to 1 and (n, k + 2) quantiles there."""
        q, x = self.levels, self.values
        first = x[:, 0] - (x[:, 1] - x[:, 0]) * q[0] / (q[1] - q[0])
        last = x[:, -1] + (x[:, -1] - x[:, -2]) * (1.0 - q[-1]) / (q[-1] - q[-2])
        return np.concatenate([[0.0], q, [1.0]]), np.column_stack([first, x, last])

    def mean(self) -> Array:
        """(n,)"""
        q, x = self.knots()
        return 0.5 * (x[:, 1:] + x[:, :-1]) @ np.diff(q)

    def interval(self, confidence: float) -> tuple[Array, Array]:
        """Ends of a central interval, each (n,)."""
        q, x = self.knots()
        tail = 0.5 * (1.0 - confidence)
        ends = [np.searchsorted(q, level) for level in (tail, 1.0 - tail)]
        return tuple(
            x[:, k - 1] + (x[:, k] - x[:, k - 1]) * (level - q[k - 1]) / (q[k] - q[k - 1])
            for k, level in zip(ends, (tail, 1.0 - tail), strict=True)
        )

    def crps(self, y: Array) -> Array:
        """(n,) twice the quantile loss over all levels, exactly.

        By its other form, the integral of (F(x) - 1{x >= y})^2, as F is a straight line between two knots.
        """
        q, x = self.knots()
        left, right = x[:, :-1], x[:, 1:]
        middle = np.clip(y[:, None], left, right)
        width = right - left
        share = np.divide(middle - left, width, out=np.zeros_like(width), where=width > 0)
        at = q[:-1] + share * np.diff(q)
        below = (middle - left) * (q[:-1] ** 2 + q[:-1] * at + at**2)
        above = (right - middle) * ((1.0 - at) ** 2 + (1.0 - at) * (1.0 - q[1:]) + (1.0 - q[1:]) ** 2)
        outside = np.maximum(x[:, 0] - y, 0.0) + np.maximum(y - x[:, -1], 0.0)
        return (below + above).sum(axis=1) / 3.0 + outside

    def nll(self, y: Array) -> Array:
        raise NotImplementedError("quantiles have no density")
