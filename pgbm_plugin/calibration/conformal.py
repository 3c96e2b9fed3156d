"""Split-conformal calibration: residuals of unseen rows, divided by the predicted standard deviation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import warn
from ..predict.chosen import Chosen, ConformalScores, hash_labels
from ..predict.state import ModelState
from ..tables.labelled import RawRows
from .held_out import read_held_out


def conformalize(state: ModelState, raw: RawRows, out_of_fold: Any, device: str, n_jobs: int | None) -> Chosen:
    """Return the settings with conformal scores of these rows, see `ProbabilisticModel.conformalize`."""
    held_out = read_held_out(state, "conformalize", raw, "y_cal", 2, device, n_jobs, out_of_fold=out_of_fold)
    chosen, calibration = state.chosen, state.floored_calibration()
    scores, seen = ConformalScores(len(held_out.y), chosen.rho, calibration), hash_labels(held_out.y) == chosen.tuned_on
    if seen and out_of_fold is None:
        warn("tune has seen these rows, so coverage is not guaranteed: give conformalize rows of its own")
    residuals = chosen.residuals
    # a scale that has seen the rows makes their residuals look small; `tune` kept those of scales that had not
    if residuals is None or out_of_fold is None or not seen or chosen.cross_fitted != scores:
        residuals, _ = held_out.margins.standardised_residuals(held_out.y, calibration)
    return replace(
        chosen,
        distribution="conformal",
        calibration=calibration,
        residuals=residuals,
        residual_weight=held_out.weight,
        conformal=scores,
        around=chosen.around if chosen.distribution == "conformal" else chosen.distribution,
    )
