"""Split-conformal calibration: residuals of unseen rows, divided by the predicted standard deviation."""

from __future__ import annotations

from dataclasses import replace

from ..errors import warn
from ..predict.chosen import Chosen, ConformalScores, hash_labels
from ..predict.state import ModelState
from .held_out import HeldOut


def conformalize(state: ModelState, held_out: HeldOut) -> Chosen:
    """Return the settings with conformal scores of these rows, see `ProbabilisticModel.conformalize`."""
    chosen = state.chosen
    if hash_labels(held_out.y) == chosen.tuned_on:
        warn("tune has seen these rows, so coverage is not guaranteed: give conformalize rows of its own")
    before = chosen.conformal
    family = chosen.distribution if before is None or chosen.distribution != "conformal" else before.family
    margins = held_out.margins.floored(state.variance_floor)
    residuals, _ = margins.standardised_residuals(held_out.y, chosen.calibration)
    scores = ConformalScores(residuals, state.support, chosen.rho, chosen.calibration, family)
    return replace(chosen, distribution="conformal", residuals=residuals, conformal=scores)
