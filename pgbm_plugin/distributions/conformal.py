"""The conformal distribution, whose intervals hold at least their coverage on exchangeable rows."""

from __future__ import annotations

import numpy as np

from ..arrays import Array
from ..checks import check_level
from ..errors import warn
from .empirical import Empirical
from .per_row import with_point_masses

# arrays, because NumPy needs longer to convert a float than to compute with a row
_EPS, _HALF = np.array(np.finfo(np.float64).eps), np.array(0.5)


class Conformal(Empirical):
    """Split-conformal distribution: loc + scale R, where R are the residuals (y - mean) / std of m calibration rows.

    Its quantiles are quantiles of the residuals, rounded outwards: a level q < 1/2 takes the residual of rank
    floor((m + 1) q), a level q >= 1/2 that of rank ceil((m + 1) q). A rank below 1 or above m gives an infinite
    quantile and a warning. With weights, a residual counts as often as its weight says, and m is their sum.

    An interval then holds at least its coverage, for any model, if the new row is exchangeable with the calibration
    rows: if any order of these m + 1 rows is equally likely, so is each of the m + 1 ranks of the new residual.

    The parameters are those of `Empirical`.
    """

    name = "conformal"
    tunable = False
    variants = ()

    @staticmethod
    def _parameters(mean: Array, variance: Array) -> dict[str, Array]:  # type: ignore[override]
        # bins are those of `tune`, and no options
        return Empirical._parameters(mean, variance)

    def interval(self, confidence: float) -> tuple[Array, Array]:
        # both ends in one call, which warns once
        tail = (1.0 - check_level("confidence", confidence)) / 2.0
        params, point = self._as_columns()
        ends = with_point_masses(point, self._ppf(np.array([tail, 1.0 - tail]), **params))
        return ends[:, 0], ends[:, 1]

    def _quantiles_in(self, bin: int, q: Array) -> Array:
        quantiles = super()._quantiles_in(bin, q)
        if np.count_nonzero(np.isfinite(quantiles)) < quantiles.size:
            self._warn_of_few(*self._residuals.bins[bin])
        return quantiles

    def _warn_of_few(self, residuals: Array, up_to: Array) -> None:
        """Warn that the residuals of a bin are too few for the levels that were asked for."""
        m, total = len(residuals), float(up_to[-1])
        rows = f"{m} calibration rows" + (f" of total weight {total:.6g}" if self.weights is not None else "")
        message = f"{rows} are too few for some of these levels, whose quantiles are infinite: "
        if total > 1.0:
            message += (
                f"call conformalize with more rows, or ask for levels from 1/{total + 1:.10g} to "
                f"{total:.10g}/{total + 1:.10g}, which is a coverage of at most {total - 1:.10g}/{total + 1:.10g}"
            )
        else:
            message += "scale the weights of conformalize to a mean of 1"
        warn(message)

    def _residual_quantiles(self, q: Array, residuals: Array, up_to: Array) -> Array:
        exact = (float(up_to[-1]) + 1.0) * q  # if it is a whole number, rounding must not change the rank
        from_below = np.searchsorted(up_to, exact - 1.0 + 1e-9, side="right")
        rank = np.where(q < 0.5, from_below, np.searchsorted(up_to, exact - 1e-9))
        return np.concatenate([[-np.inf], residuals, [np.inf]])[rank]

    def _ppf(self, q: Array, loc: Array, scale: Array, bin: Array | None = None) -> Array:
        end = super()._ppf(q, loc, scale, bin)
        # an outcome with this very residual lies at the end, but for rounding: it must not be left out
        away = np.abs(end - loc)
        slack = _EPS * (away + away + np.abs(end))
        outwards = end + np.copysign(slack, q - _HALF)
        if self._unbounded:
            return outwards
        inside = (end > self.lower) & (end < self.upper)
        return np.where(inside, np.clip(outwards, self.lower, self.upper), end)
