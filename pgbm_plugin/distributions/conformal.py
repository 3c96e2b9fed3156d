"""The distribution that split-conformal calibration gives: quantiles that hold on exchangeable rows."""

from __future__ import annotations

import numpy as np

from ..errors import warn
from ..tables.columns import check_level
from .empirical import Empirical
from .rowwise import Array


class Conformal(Empirical):
    """loc + scale R, with R the residuals (y - mean) / std of m calibration rows.

    With the next row, m + 1 exchangeable residuals fall into m + 1 gaps alike. So the level q < 1/2 takes the
    residual of rank floor((m + 1) q), the level q >= 1/2 that of rank ceil((m + 1) q): an interval then holds at least
    its coverage, whatever the model. A rank outside 1..m is an infinite quantile, with a warning.
    """

    name = "conformal"
    tunable = False

    def interval(self, confidence: float) -> tuple[Array, Array]:
        tail = (1.0 - check_level("confidence", confidence)) / 2.0
        ends = self.ppf([tail, 1.0 - tail])
        return ends[:, 0], ends[:, 1]

    def _ppf(self, q: Array, loc: Array, scale: Array) -> Array:
        m = len(self.residuals)
        # rounding must not move a rank that is whole
        exact = (m + 1) * q
        rank = np.where(q < 0.5, np.floor(exact + 1e-9), np.ceil(exact - 1e-9)).astype(np.int64)
        if np.any((rank < 1) | (rank > m)):
            warn(
                f"{m} calibration rows are too few for some of the levels asked for: those quantiles are infinite",
            )
        padded = np.concatenate([[-np.inf], self.residuals, [np.inf]])
        return self._outcome(padded[np.clip(rank, 0, m + 1)], loc, scale)
