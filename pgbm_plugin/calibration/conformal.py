"""Split-conformal calibration: residuals of rows that nothing else has seen, in units of the predicted spread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..predict.power_map import Calibration
from ..predict.response import Margins


@dataclass(frozen=True)
class ConformalScores:
    """What conformal quantiles are made of.

    Attributes
    ----------
    residuals : (m,) (y - mean) / std of the calibration rows.
    lower : bound below which no outcome can lie.
    rho, calibration : the settings of the std; with other ones the residuals mean nothing.
    family : the family that was set before.
    """

    residuals: NDArray[np.float64]
    lower: float
    rho: float
    calibration: Calibration
    family: str


def conformal_scores(
    margins: Margins, y: NDArray[np.float64], lower: float, rho: float, calibration: Calibration, family: str
) -> ConformalScores:
    """Scores of calibration rows; `margins` with the floor of `variance_floor` under their variance."""
    std = np.sqrt(margins.response_variance(calibration))
    return ConformalScores((y - margins.prediction) / std, lower, rho, calibration, family)


def variance_floor(typical: float) -> float:
    """A millionth of a typical row's variance: a row that only met leaves of one row has none, and still a residual.

    It depends on the wrapped rows alone, so that calibration rows and new rows stay exchangeable.
    """
    return float(max(1e-6 * typical, np.finfo(float).tiny))
