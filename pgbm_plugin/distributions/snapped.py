"""Distributions on a lattice: outcomes are the nearest of a few possible values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import Array
from .base import Distribution
from .clipped import Derived
from .empirical import Empirical, without_own
from .per_row import read_only


class Snapped(Derived):
    """Distribution of another family whose outcomes become the nearest of a few values, the lower one if two are.

    Quantiles and samples cost one search more than without values. Mean, variance and CRPS (continuous ranked
    probability score) are exact sums over all values. The density is the probability mass of a value.

    Parameters
    ----------
    inner : Distribution
        Distributions to snap.
    values : array-like of shape (K,)
        At least two possible outcomes, rising.
    """

    def __init__(self, inner: Distribution, values: ArrayLike):
        self.values = read_only(np.array(values, np.float64))
        if self.values.ndim != 1 or len(self.values) < 2 or not np.all(np.isfinite(self.values)):
            raise ValueError("at least two finite values are needed")
        if np.any(np.diff(self.values) <= 0.0):
            raise ValueError("the values must rise strictly")
        self._middle = read_only(self.values[:-1] + 0.5 * np.diff(self.values))
        super().__init__(inner)
        self._log_point_mass = 0.0  # type: ignore[misc]

    def left_out_crps(self, y: Array, weight: Array) -> Array:
        """Return the (n,) CRPS of rows without their own residuals, see `Empirical.left_out_crps`."""
        inner = self._inner
        assert isinstance(inner, Empirical)
        share = weight / inner.bin_weight(self.params.get("bin"))
        distance, half_spread = self._sums(y, **self.params)
        return without_own(distance, half_spread, share)

    def _outcome(self, z: Array) -> Array:
        return np.where(np.isnan(z), np.nan, self.values[np.searchsorted(self._middle, z)])

    def _moments(self, **params: Array) -> tuple[Array, Array]:
        centre = self._outcome(self._inner._moments(**params)[0])
        first = second = np.zeros(np.shape(centre))
        below = np.zeros(())
        for k, value in enumerate(self.values):
            cdf = self._up_to(k, params)
            mass, distance = cdf - below, value - centre
            first, second, below = first + mass * distance, second + mass * distance**2, cdf
        return centre + first, np.maximum(second - first**2, 0.0)

    def _logpdf(self, x: Array, **params: Array) -> Array:
        below = np.nextafter(x, -np.inf)
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(self._cdf(x, **params) - self._cdf(below, **params), 0.0))

    def _cdf(self, x: Array, **params: Array) -> Array:
        k = np.searchsorted(self.values, x, side="right") - 1
        inside = self._inner._cdf(self._middle[np.clip(k, 0, len(self._middle) - 1)], **params)
        return np.where(k < 0, 0.0, np.where(k == len(self._middle), 1.0, inside))

    def _crps(self, y: Array, **params: Array) -> Array:
        distance, half_spread = self._sums(y, **params)
        return distance - half_spread

    def _sums(self, y: Array, **params: Array) -> tuple[Array, Array]:
        """Return E|Y - y| and E|Y - Y'| / 2, the integrals of F below y and 1 - F above, and of F (1 - F)."""
        distance: Any = np.maximum(self.values[0] - y, 0.0) + np.maximum(y - self.values[-1], 0.0)
        half_spread: Any = 0.0
        for k, (low, high) in enumerate(zip(self.values[:-1], self.values[1:], strict=True)):
            cdf = self._up_to(k, params)
            below = np.clip(y, low, high) - low  # the part of the gap that lies below y
            distance = distance + below * cdf + (high - low - below) * (1.0 - cdf)
            half_spread = half_spread + (high - low) * cdf * (1.0 - cdf)
        return distance, half_spread

    def _up_to(self, k: int, params: dict[str, Array]) -> Array:
        """Return the probability of the first k + 1 values."""
        if k == len(self._middle):
            return np.ones(())
        return self._inner._cdf(self._middle[k], **params)
