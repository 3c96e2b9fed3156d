"""tune(): the settings that score best on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..checks import Variance, check_variance
from ..predict.chosen import Chosen, ConformalScores, CrossFitted, hash_labels, hash_outcomes
from ..predict.state import ModelState, check_recursion
from ..predict.support import Support
from ..tables.labelled import RawRows
from .blend import blended
from .boosted_scale import HELD_OUT_RATE, TRAINING_RATE
from .held_out import read_held_out
from .metric import Score, check_score, choose_metric
from .search import families, rho_grid, search
from .tune_result import TuneResult
from .validation import MIN_ROWS, Validation


def tune(
    state: ModelState,
    raw: RawRows,
    *,
    out_of_fold: Any = None,
    score: Score,
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
    check_score(score)
    names, grid = families(distributions, state.spec.objective), rho_grid(rho)
    source = _default_variance(state, calibrate) if variance is None else check_variance(variance)
    check_recursion(state.spec, "booster", source)
    if source != "pgbm" and not calibrate:
        raise ValueError(f"variance={source!r} is a calibration itself, so it needs calibrate=True")
    held_out = read_held_out(
        state, "tune", raw, "y_val", MIN_ROWS, device, n_jobs, out_of_fold=out_of_fold, bounds=bounds, recursion=True
    )
    no_spread = not np.any(held_out.margins.variance > 0)
    if no_spread and source == "pgbm":
        raise ValueError(
            "there is no variance to tune: every leaf that these rows reach held one row, or equal labels; train with "
            "more rows per leaf, wrap held-out rows, or take the spread from residuals, variance='auto'"
        )
    weight = np.ones(len(held_out.y)) if held_out.weight is None else held_out.weight
    positive = distributions is not None or state.predicts_positive()
    weight = weight / weight.sum()
    metric, unit = choose_metric(score, held_out.y, held_out.margins, weight)
    validation = Validation(
        *held_out[:3],
        weight,
        metric,
        positive,
        state.weights.sd,
        n_jobs,
        unit=unit,
        bounds=bounds,
        named=distributions is not None,
        trained_on=out_of_fold is not None,
    )
    if no_spread:
        validation = validation.with_variance(np.ones(len(held_out.y)))
    options: dict[str, Any] = {"names": names, "calibrate": calibrate, "progress": progress}
    result, scale = search(validation, state.default_rho, grid=grid, **options), None
    if no_spread:
        result = replace(result, before=result.constant)
    if source != "pgbm":
        scale, result = blended(
            validation,
            result,
            state.training_scale if out_of_fold is None else None,  # it has seen these rows
            recursion=source == "auto" and not no_spread,
            rate=HELD_OUT_RATE if out_of_fold is None else TRAINING_RATE,
            families_of=lambda rows, rho: search(rows, rho, grid=np.array([rho]), **options),
        )
    cross_fitted = None
    if out_of_fold is not None:
        scores = ConformalScores(len(result.residuals), result.best.rho, result.best.calibration)
        cross_fitted = CrossFitted(scores, hash_outcomes(held_out.y, held_out.margins.prediction))
    chosen = Chosen(
        result.best.rho,
        result.best.distribution,
        result.best.calibration,
        result.residuals,
        tuned_on=hash_labels(held_out.y),
        scale=scale,
        cross_fitted=cross_fitted,
        residual_weight=None if held_out.weight is None else validation.some(result.rows).weight,
        around=result.best.distribution,
        residual_bin=result.residual_bin,
        bin_edges=result.bin_edges,
        bounds=bounds,
        support=result.support,
    )
    return chosen, result


def _default_variance(state: ModelState, calibrate: bool) -> Variance:
    """Return the source of the variance if the user names none: what `wrap` was told, without a map the recursion."""
    return "pgbm" if state.variance == "auto" and state.spec.sequential and not calibrate else state.variance
