"""The metric that `tune` chooses by: CRPS, log score, or a CRPS in units of each row's spread."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..arrays import Array
from ..predict.power_map import NO_SPREAD
from ..predict.response import Margins
from ..trees.objectives import LOG
from .fit_map import fit_map

Score = Literal["auto", "crps", "nll"]
"""What users may ask for."""
Metric = Literal["crps", "nll", "relative crps"]
"""What rows are scored by."""

# Counts are scored in relative units if nine of ten predictions span this factor.
_WIDE = 100.0


def check_score(score: Score) -> Score:
    """Return the score; refuse an unknown one."""
    if score not in ("auto", "crps", "nll"):
        raise ValueError(f"score must be 'auto', 'crps' or 'nll', not {score!r}")
    return score


def choose_metric(score: Score, y: Array, margins: Margins, weight: Array) -> tuple[Metric, Array | None]:
    """Return the metric of a score, and the (n,) units of the rows' CRPS; None for the unit of y.

    "auto" is the CRPS in relative units where the largest rows would decide alone: under a log link, and for counts
    whose means span orders of magnitude.
    """
    if score != "auto":
        return score, None
    if margins.forest.link != LOG and not _wide_counts(y, margins.prediction.astype(np.float64), weight):
        return "crps", None
    unit = _units(y, margins.prediction.astype(np.float64), weight)
    return ("crps", None) if unit is None else ("relative crps", unit)


def _wide_counts(y: Array, prediction: Array, weight: Array) -> bool:
    """Tell whether labels are whole numbers from 0 on, and predictions span orders of magnitude."""
    if np.any(y < 0.0) or np.any(y != np.floor(y)):
        return False
    order = np.argsort(prediction)
    low, high = np.interp([0.05, 0.95], np.cumsum(weight[order]), prediction[order])
    return bool(high > _WIDE * max(low, 0.0)) and bool(high > _WIDE)


def _units(y: Array, prediction: Array, weight: Array) -> Array | None:
    """Return typical spreads of rows with these predictions: the power of the mean with the best likelihood.

    They are the same for all candidates, because a unit of a candidate's own spread would reward large spreads.
    """
    square = np.maximum(prediction, 0.0) ** 2
    spread = square > NO_SPREAD**2 * float(weight @ square)
    if not spread.any():
        return None
    typical = float(np.exp(weight[spread] @ np.log(square[spread]) / weight[spread].sum()))
    power = fit_map(y - prediction, np.ones(len(y)), square, typical, weight, "nll")
    return np.sqrt(power(square))
