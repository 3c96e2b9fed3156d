"""What discrete families share: masses under their own names, and quantiles by search."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .base import Distribution
from .rowwise import Array


class Discrete(Distribution):
    """A distribution on 0, 1, 2, ..."""

    needs_positive_mean = True
    _log_point_mass = 0.0

    def pmf(self, x: ArrayLike) -> Array:
        """Mass: `pdf` by its proper name."""
        return self.pdf(x)

    def logpmf(self, x: ArrayLike) -> Array:
        """Log mass: `logpdf` by its proper name."""
        return self.logpdf(x)

    def pit(self, y: ArrayLike) -> Array:
        """(n,) mid-distribution transform P(Y < y) + P(Y = y) / 2, the discrete stand-in for a uniform."""
        return self.cdf(y) - 0.5 * self.pdf(y)


def search_quantile(
    reached: Callable[[Array], NDArray[np.bool_]], mean: Array, sd: Array, infinite: NDArray[np.bool_]
) -> Array:
    """The smallest k = 0, 1, ... that has `reached` its level; inf where `infinite`.

    Doubles an upper bound from the mean until it is reached everywhere, then bisects on whole numbers.
    """
    shape = np.broadcast_shapes(np.shape(mean), np.shape(infinite))
    low = np.full(shape, -1.0)
    step = np.broadcast_to(np.maximum(sd, 1.0), shape).copy()
    high = np.broadcast_to(np.ceil(mean + step), shape).copy()
    missing = np.isnan(high) | infinite
    for _ in range(64):
        short = ~(reached(high) | missing)
        if not short.any():
            break
        low = np.where(short, high, low)
        step *= 2.0
        high = np.where(short, np.ceil(high + step), high)
    while True:
        middle = np.floor(0.5 * (low + high))
        between = (low < middle) & (middle < high)  # beyond 2^53 there may be nothing between two whole numbers
        if not between.any():
            break
        there = reached(middle) | missing
        high, low = np.where(between & there, middle, high), np.where(between & ~there, middle, low)
    return np.where(np.broadcast_to(infinite, shape), np.inf, np.where(np.isnan(mean), np.nan, high))
