"""tune(): the settings that score best on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from ..checks import Variance, check_variance
from ..predict.chosen import Chosen, hash_labels
from ..predict.state import ModelState
from ..predict.support import Support
from ..tables.labelled import RawRows
from .blend import blended
from .held_out import read_held_out
from .search import families, rho_grid, search
from .tune_result import TuneResult
from .validation import MIN_ROWS, Validation


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
    bounds: Support | None = None,
) -> tuple[Chosen, TuneResult]:
    """Return the settings that score best, and all that was tried, see `ProbabilisticModel.tune`."""
    if score not in ("crps", "nll"):
        raise ValueError(f"score must be 'crps' or 'nll', not {score!r}")
    names, grid = families(distributions, state.spec.objective), rho_grid(rho)
    source = state.variance if variance is None else check_variance(variance)
    if source != "pgbm" and not calibrate:
        raise ValueError(f"variance={source!r} is a calibration itself, so it needs calibrate=True")
    held_out = read_held_out(state, "tune", raw, "y_val", MIN_ROWS, device, n_jobs, recursion=True)
    if not np.any(held_out.margins.variance > 0):
        raise ValueError(
            "there is no variance to tune: every leaf that these rows reach held one row, or equal labels; train with "
            "more rows per leaf, or wrap held-out rows"
        )
    weight = np.ones(len(held_out.y)) if held_out.weight is None else held_out.weight
    positive = distributions is not None or state.predicts_positive()
    if bounds is not None:
        bounds.check_labels("y_val", held_out.y)
    validation = Validation(
        *held_out[:3],
        weight / weight.sum(),
        score,
        positive,
        state.weights.sd,
        n_jobs,
        bounds=bounds,
        named=distributions is not None,
    )
    options: dict[str, Any] = {"names": names, "calibrate": calibrate, "progress": progress}
    result, scale = search(validation, state.default_rho, grid=grid, **options), None
    if source != "pgbm":
        scale, result = blended(
            validation,
            result,
            state.training_scale,
            recursion=source == "auto",
            families_of=lambda rows, rho: search(rows, rho, grid=np.array([rho]), **options),
        )
    chosen = Chosen(
        result.best.rho,
        result.best.distribution,
        result.best.calibration,
        result.residuals,
        tuned_on=hash_labels(held_out.y),
        scale=scale,
        residual_weight=None if held_out.weight is None else validation.some(result.rows).weight,
        around=result.best.distribution,
        residual_bin=result.residual_bin,
        bin_edges=result.bin_edges,
        bounds=bounds,
        support=result.support,
    )
    return chosen, result
