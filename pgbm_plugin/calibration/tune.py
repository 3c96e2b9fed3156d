"""tune(): the settings that score best on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from ..checks import Variance, check_variance
from ..predict.chosen import Chosen, hash_labels
from ..predict.state import ModelState
from ..tables.columns import read_weights
from ..tables.labelled import RawRows
from .blend import blended
from .held_out import read_held_out
from .search import families, rho_grid, search
from .tune_result import TuneResult
from .validation import MIN_ROWS, validation_rows


def tune(
    state: ModelState,
    raw: RawRows,
    *,
    score: Literal["crps", "nll"],
    distributions: Sequence[str] | str | None,
    rho: ArrayLike | None,
    calibrate: bool,
    variance: Variance | None,
    device: str,
    n_jobs: int | None,
    progress: bool,
) -> tuple[Chosen, TuneResult]:
    """Return the settings that score best, and all that was tried, see `ProbabilisticModel.tune`."""
    if score not in ("crps", "nll"):
        raise ValueError(f"score must be 'crps' or 'nll', not {score!r}")
    names, grid = families(distributions), rho_grid(rho)
    source = state.variance if variance is None else check_variance(variance)
    if source != "pgbm" and not calibrate:
        raise ValueError(f"variance={source!r} is a calibration itself, so it needs calibrate=True")
    held_out = read_held_out(state, "tune", raw, "y_val", MIN_ROWS, device, n_jobs, recursion=True)
    weight = read_weights("sample_weight", raw.sample_weight, len(held_out.rows))
    positive = distributions is not None or state.predicts_positive()
    everything, sample = validation_rows(
        held_out, weight, score, state.variance_floor, state.weights.sd, positive, n_jobs
    )
    options: dict[str, Any] = {"names": names, "calibrate": calibrate, "progress": progress}
    result, scale = search(everything, sample, state.default_rho, grid=grid, **options), None
    if source != "pgbm":
        scale, result = blended(
            everything,
            sample,
            result,
            state.training_scale,
            recursion=source == "auto",
            families_of=lambda all_, some, rho: search(all_, some, rho, grid=np.array([rho]), **options),
            n_jobs=n_jobs,
        )
    best = result.best
    chosen = Chosen(best.rho, best.distribution, best.calibration, result.residuals, tuned_on=hash_labels(held_out.y))
    return replace(chosen, scale=scale), result
