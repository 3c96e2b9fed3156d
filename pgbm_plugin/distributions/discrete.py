"""Base class of discrete families, with `pmf` and `logpmf`; and their quantiles, by search."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import Array
from .base import Distribution

# Fewer numbers of a row are searched for one by one; so are counts that may exceed this one.
_FEW, _TABLE = 16, 500.0


class Discrete(Distribution):
    """Distributions on 0, 1, 2, ..."""

    needs_positive_mean = True
    has_mass = True
    _log_point_mass = 0.0

    def pmf(self, x: ArrayLike) -> Array:
        """Return the probability mass at `x`; the same as `pdf`."""
        return self.pdf(x)

    def logpmf(self, x: ArrayLike) -> Array:
        """Return the log of the probability mass at `x`; the same as `logpdf`."""
        return self.logpdf(x)

    def _ppf(self, q: Array, **params: Array) -> Array:
        return _search(lambda k: self._cdf(k, **params) >= q, *self._moments(**params), q >= 1.0)

    def _isf(self, q: Array, **params: Array) -> Array:
        return _search(lambda k: self._sf(k, **params) <= q, *self._moments(**params), q <= 0.0)

    def _from_uniform(self, u: Array, **params: Array) -> Array:
        mean, variance = self._moments(**params)
        if u.shape[-1] < _FEW or not np.all(mean + 10.0 * np.sqrt(variance) < _TABLE):
            return self._ppf(u, **params)
        out, value = np.zeros(u.shape), 0.0
        beyond = u > self._cdf(np.zeros(()), **params)
        while beyond.any():  # one cdf for all numbers of a row
            out += beyond
            value += 1.0
            beyond = u > self._cdf(np.full((), value), **params)
        return out


def _search(
    reached: Callable[[Array], NDArray[np.bool_]], mean: Array, variance: Array, infinite: NDArray[np.bool_]
) -> Array:
    """Return the smallest k = 0, 1, ... for which ``reached(k)``, or inf where `infinite`.

    Starts above the mean and doubles the step until `reached` everywhere; then bisects on whole numbers.
    """
    shape = np.broadcast_shapes(np.shape(mean), np.shape(infinite))
    low = np.full(shape, -1.0)
    step = np.broadcast_to(np.maximum(np.sqrt(variance), 1.0), shape).copy()
    high = np.broadcast_to(np.ceil(mean + step), shape).copy()
    skipped = np.isnan(high) | infinite
    for _ in range(64):
        short = ~(reached(high) | skipped)
        if not short.any():
            break
        low = np.where(short, high, low)
        step *= 2.0
        high = np.where(short, np.ceil(high + step), high)
    while True:
        middle = np.floor(0.5 * (low + high))
        between = (low < middle) & (middle < high)  # above 2^53, neighbouring floats may have none between
        if not between.any():
            break
        enough = reached(middle) | skipped
        high, low = np.where(between & enough, middle, high), np.where(between & ~enough, middle, low)
    return np.where(np.broadcast_to(infinite, shape), np.inf, np.where(np.isnan(mean), np.nan, high))
