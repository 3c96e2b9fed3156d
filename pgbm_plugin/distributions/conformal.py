"""The distribution that split-conformal calibration gives: quantiles that hold on exchangeable rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .base import Array
from .empirical import Empirical


class Conformal(Empirical):
    """loc + scale R, with R the residuals (y - mean) / std of m calibration rows.

    With the next row, m + 1 exchangeable residuals fall into m + 1 gaps alike. So the level q < 1/2 takes the
    residual of rank floor((m + 1) q), the level q >= 1/2 that of rank ceil((m + 1) q): an interval then holds at least
    its coverage, whatever the model. A rank outside 1..m is an infinite quantile, with a warning.

    `lower` is a bound below which no outcome can lie; quantiles are cut there, which costs no coverage.
    """

    name = "conformal"

    def __init__(self, *, residuals: ArrayLike, lower: float = -np.inf, **params: Any):
        super().__init__(residuals=residuals, **params)
        self.residuals = np.sort(np.asarray(residuals, np.float64))
        self.residuals.flags.writeable = False
        self.lower = lower

    def _moments(self, loc: Array, scale: Array) -> tuple[Array, Array]:
        return loc + scale * self.residuals.mean(), scale**2 * self.residuals.var()

    def _ppf(self, q: Array, loc: Array, scale: Array) -> Array:
        m = len(self.residuals)
        # rounding must not move a rank that is whole
        exact = (m + 1) * q
        rank = np.where(q < 0.5, np.floor(exact + 1e-9), np.ceil(exact - 1e-9)).astype(np.int64)
        if np.any((rank < 1) | (rank > m)):
            warnings.warn(
                f"{m} calibration rows are too few for some of the levels asked for: those quantiles are infinite",
                UserWarning,
                stacklevel=4,
            )
        padded = np.concatenate([[-np.inf], self.residuals, [np.inf]])
        return np.maximum(loc + scale * padded[np.clip(rank, 0, m + 1)], self.lower)

    def _isf(self, q: Array, loc: Array, scale: Array) -> Array:
        return self._ppf(1.0 - q, loc, scale)
