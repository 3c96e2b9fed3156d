"""The conformal distribution, whose intervals hold at least their coverage on exchangeable rows."""

from __future__ import annotations

import numpy as np

from ..arrays import Array
from ..checks import check_level
from ..errors import warn
from .empirical import Empirical


class Conformal(Empirical):
    """Split-conformal distribution: loc + scale R, where R are the residuals (y - mean) / std of m calibration rows.

    Its quantiles are quantiles of the residuals, rounded outwards: a level q < 1/2 takes the residual of rank
    floor((m + 1) q), a level q >= 1/2 that of rank ceil((m + 1) q). A rank below 1 or above m gives an infinite
    quantile and a warning.

    An interval then holds at least its coverage, for any model, if the new row is exchangeable with the calibration
    rows: if any order of these m + 1 rows is equally likely, so is each of the m + 1 ranks of the new residual.

    The parameters are those of `Empirical`.
    """

    name = "conformal"
    tunable = False

    def interval(self, confidence: float) -> tuple[Array, Array]:
        # both ends in one call, which warns once
        tail = (1.0 - check_level("confidence", confidence)) / 2.0
        ends = self.ppf([tail, 1.0 - tail])
        return ends[:, 0], ends[:, 1]

    def _ppf(self, q: Array, loc: Array, scale: Array) -> Array:
        m = len(self.residuals)
        exact = (m + 1) * q  # if it is a whole number, rounding must not change the rank
        rank = np.where(q < 0.5, np.floor(exact + 1e-9), np.ceil(exact - 1e-9)).astype(np.int64)
        if np.any((rank < 1) | (rank > m)):
            warn(
                f"{m} calibration rows are too few for some of these levels, whose quantiles are infinite: call "
                f"conformalize with more rows, or ask for levels from 1/{m + 1} to {m}/{m + 1}, which is a coverage of "
                f"at most {m - 1}/{m + 1}"
            )
        padded = np.concatenate([[-np.inf], self.residuals, [np.inf]])
        return self._outcome(padded[np.clip(rank, 0, m + 1)], loc, scale)
