"""What the residuals of new rows say about a calibrated model: how large its variances should be, and where.

Moments alone cannot say it. Training rows have smaller residuals than new rows, so the moments grow with the first new
rows even if the noise is the same. A tuned model has corrected for that, and must not do so twice.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..arrays import Array
from ..leaves.moments import LeafMoments
from ..predict.chosen import Chosen
from ..predict.log_scale import LogScale
from ..predict.predictions import predict_margins
from ..predict.response import Margins
from ..predict.state import ModelState
from ..tables.labelled import LabelledRows
from .boosted_scale import HELD_OUT_RATE, MAX_ROWS, held_out_scale

# Shares of the steps, chosen by cross-fitted likelihood.
_SHARES = (0.0, 0.5, 1.0)

# With smaller exponents of the power map, `tune` found that rows hardly differ, and steps would have little effect.
_SMALLEST_B = 0.1


def is_comparable(chosen: Chosen) -> bool:
    """Tell whether the size of residuals is known that the model's variances were chosen for."""
    return not chosen.by_user and (chosen.tuned or chosen.scale is not None)


def follow_residuals(
    before: ModelState, after: ModelState, data: LabelledRows, further: LeafMoments, n_jobs: int | None
) -> tuple[Chosen, float] | None:
    """Return settings whose variances follow the residuals of new rows, and how many times larger these variances are.

    The new rows and those seen before count as they do in the moments. Rows seen before are taken to have residuals as
    large as the settings say. If all residuals are 0, or one is not finite, the result is None.

    The models `before` and `after` the moments of the new rows, `further`, are calibrated with settings of their own.
    """
    data, chosen = data.sample(MAX_ROWS), after.chosen
    weight = np.ones(len(data)) if data.weight is None else data.weight / data.weight.mean()
    old, new = (_margins(state, data, n_jobs) for state in (before, after))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # a prediction may be 0 under a log link
        residual, _ = old.standardised_residuals(data.y, before.chosen.calibration)
        size = (float(np.average(np.abs(residual), weights=weight)) / _usual_residual(before.chosen)) ** 2
        log_ratio = np.log(chosen.calibration(new.variance) / before.chosen.calibration(old.variance))
        squared = residual**2 * np.exp(-log_ratio)
        mean_square, shift = (float(np.average(values, weights=weight)) for values in (squared, log_ratio))
    if not (0.0 < size < math.inf and 0.0 < mean_square < math.inf and math.isfinite(shift)):
        return None
    share = further.rows / after.moments.rows
    ratio = 1.0 - share + share * size
    factor, calibration = ratio * math.exp(-shift), chosen.calibration
    calibration = replace(calibration, c=calibration.c * factor, floor=calibration.floor * factor)
    scale = chosen.scale
    if scale is not None and calibration.b >= _SMALLEST_B:
        steps = _steps(after, data, squared / mean_square, weight, n_jobs)
        mass = after.moments.mass
        steps *= further.mass / np.where(mass > 0, mass, 1.0) / calibration.b
        scale = replace(scale, step=scale.step + steps)
    return replace(chosen, calibration=calibration, scale=scale), ratio


def _margins(state: ModelState, data: LabelledRows, n_jobs: int | None) -> Margins:
    return predict_margins(state, data.rows, data.init_score, state.chosen.rho, state.chosen.scale, n_jobs)


def _usual_residual(chosen: Chosen) -> float:
    """Return the mean absolute residual, in standard deviations, that the variances were chosen for."""
    if chosen.residuals is None:
        return math.sqrt(2.0 / math.pi)  # of a normal
    return float(np.average(np.abs(chosen.residuals), weights=chosen.residual_weight))


def _steps(state: ModelState, data: LabelledRows, ratio: Array, weight: Array, n_jobs: int | None) -> Array:
    """Return the (L,) steps that squared residuals call for, given their ratios to the variances, of mean 1."""
    none, zero = LogScale(np.zeros(state.forest.n_leaves), 0.0), np.zeros(len(data))
    stepped, own = held_out_scale(state.forest, data.rows, ratio, weight, none, zero, HELD_OUT_RATE, n_jobs)
    share = min(_SHARES, key=lambda s: float(np.average(s * own + ratio * np.exp(-s * own), weights=weight)))
    return share * stepped.step
