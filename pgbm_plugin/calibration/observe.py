"""observe(): labels as they arrive adapt the residuals that intervals are made of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..distributions import Distribution, Empirical
from ..predict.chosen import Chosen, ConformalScores
from ..predict.observed import COVERAGES, FED_BACK, STEP, WINDOW, Observed, check_step, check_window, hash_rows
from ..predict.predictions import check_variance_known, chosen_distributions
from ..predict.state import ModelState
from ..tables.labelled import RawRows
from .held_out import read_held_out

# Fewer rows may be equal to those of the last call by chance.
_RECOGNISABLE = 10

_TAIL = (1.0 - np.array(COVERAGES)) / 2.0


def observe(
    state: ModelState,
    raw: RawRows,
    groups: Any,
    window: int | None,
    step: float | None,
    device: str,
    n_jobs: int | None,
    told: dict[str, Any],
) -> Chosen:
    """Return the settings after these rows were observed, see `ProbabilisticModel.observe`.

    `told` is what `ConformalGroups.bins_of_keys` wants.
    """
    check_variance_known(state)
    chosen = _started(state, window, step)
    keyed = chosen.checked_groups(None, groups)
    held_out = read_held_out(state, "observe", raw, "y", 1, device, n_jobs, bounds=chosen.bounds, may_drift=True)
    y, margins, observed, calibrated_on = held_out.y, held_out.margins, chosen.observed, chosen.residuals
    assert observed is not None
    assert calibrated_on is not None
    bins = None if keyed is None else keyed.bins_of_keys(groups, len(y), told)
    residuals, std = margins.standardised_residuals(y, chosen.calibration)
    batch = hash_rows(y, margins.margin, std)
    if len(y) >= _RECOGNISABLE:
        if batch == observed.batch:
            raise ValueError(
                f"these {len(y)} rows were observed in the last call already, and would count twice: give only rows "
                f"whose labels are new"
            )
        if observed.rows == 0 and np.array_equal(np.sort(residuals), np.sort(calibrated_on)):
            raise ValueError(
                f"the model was calibrated on these {len(y)} rows, which would count twice: give only rows whose "
                f"labels are new"
            )
    inside, missed = _compare(chosen_distributions(chosen, margins, state.support, bins), y)
    return replace(chosen, observed=observed.after(residuals, inside, missed, batch))


def _started(state: ModelState, window: int | None, step: float | None) -> Chosen:
    """Return settings with a record of observed rows: the one there is, or an empty one."""
    chosen = state.chosen
    if chosen.residuals is None:
        raise ValueError(
            "observe adapts residuals of held-out rows, and this model has none: first call "
            "model.conformalize(X_cal, y_cal), or model.tune"
        )
    if chosen.observed is not None and chosen.conformal is not None:
        return replace(chosen, distribution="conformal", observed=chosen.observed.with_settings(window, step))
    window = check_window(WINDOW if window is None else window)
    step = check_step(STEP if step is None else step)
    nothing: Observed = Observed(
        0, window, step, 0.0, 0.0, (0,) * len(COVERAGES), chosen.residuals[-window:].copy(), np.empty(0, np.uint8)
    )
    if chosen.conformal is not None:
        return replace(chosen, distribution="conformal", observed=nothing)
    if not chosen.tuned or chosen.by_user:
        raise ValueError(
            "observe needs residuals in the unit of the present spread, and update, rho or calibration has changed it "
            "since: call model.conformalize(X_cal, y_cal) first"
        )
    calibration = state.floored_calibration()
    return replace(
        chosen,
        distribution="conformal",
        calibration=calibration,
        conformal=ConformalScores(len(chosen.residuals), chosen.rho, calibration),
        observed=nothing,
        support=None,  # what `tune` found may not hold for new labels
    )


def _compare(distributions: Distribution, y: Array) -> tuple[NDArray[np.bool_], tuple[float, float]]:
    """Return whether outcomes lie inside intervals, and the misses on either side of one, less those expected.

    An interval that has infinite ends for want of calibration rows holds every outcome, and says nothing.
    """
    inside = np.ones((len(y), len(COVERAGES)), bool)
    assert isinstance(distributions, Empirical)
    fewest = np.min(distributions.bin_weight(distributions.params.get("bin")))
    finite = _TAIL * (fewest + 1.0) >= 1.0 - 1e-9
    missed = 0.0, 0.0
    if finite.any():
        lower, upper = distributions.ppf(_TAIL[finite]), distributions.ppf(1.0 - _TAIL[finite])
        inside[:, finite] = (lower <= y[:, None]) & (y[:, None] <= upper)
        if finite[FED_BACK]:
            at = FED_BACK
            missed = float(np.mean(y < lower[:, at]) - _TAIL[at]), float(np.mean(y > upper[:, at]) - _TAIL[at])
    return inside, missed
