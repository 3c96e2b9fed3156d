"""Reader of format version 1, which has no floor of the calibrated variance and names the tuned family elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..leaves.weights import typical_variance
from ..predict.state import ModelState


def complete_version_1(header: dict[str, Any]) -> None:
    """Add the entries that version 1 did not have, and move those that it had in another place."""
    settings, calibration, conformal = (header.get(name) for name in ("settings", "calibration", "conformal"))
    if isinstance(settings, dict):
        settings["around"] = conformal.pop("family", None) if isinstance(conformal, dict) else "normal"
    if isinstance(conformal, dict):
        conformal.pop("lower", None)  # it follows from the link
    for section in (calibration, conformal):
        if isinstance(section, dict):
            section["floor"] = 0.0


def with_floor_of_version_1(state: ModelState) -> ModelState:
    """Return the state with the floor that version 1 had, so that it predicts as it did.

    Families made from residuals had a floor of a millionth of the typical variance, before calibration.
    """
    chosen = state.chosen
    if chosen.distribution not in ("empirical", "conformal"):
        return state
    floor = max(1e-6 * typical_variance(state.forest, state.moments, state.weights), np.finfo(float).tiny)
    calibration = replace(chosen.calibration, floor=float(chosen.calibration(np.array([floor]))[0]))
    scores = chosen.conformal
    if scores is not None and scores.calibration == chosen.calibration:
        scores = replace(scores, calibration=calibration)
    return replace(state, chosen=replace(chosen, calibration=calibration, conformal=scores))
