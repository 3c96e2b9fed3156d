"""Split-conformal calibration: residuals of unseen rows, divided by the predicted standard deviation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays import AnyArray
from ..distributions.empirical import bin_of
from ..errors import warn
from ..predict.chosen import Chosen, ConformalScores, CrossFitted, hash_labels, hash_outcomes
from ..predict.predictions import check_variance_known
from ..predict.response import Margins
from ..predict.state import ModelState
from ..predict.support import Support
from ..tables.labelled import RawRows
from .groups import check_groups, divide
from .held_out import read_held_out

# With fewer rows in a bin, quantiles would be too coarse: all rows are then one bin.
_ROWS_PER_BIN = 100


def conformalize(
    state: ModelState,
    raw: RawRows,
    groups: Any,
    out_of_fold: Any,
    device: str,
    n_jobs: int | None,
    bounds: Support | None,
) -> Chosen:
    """Return the settings with conformal scores of these rows, see `ProbabilisticModel.conformalize`."""
    check_variance_known(state)
    check_groups(groups)
    held_out = read_held_out(
        state, "conformalize", raw, "y_cal", 2, device, n_jobs, out_of_fold=out_of_fold, bounds=bounds
    )
    chosen, calibration = state.chosen, state.floored_calibration()
    scores, seen = ConformalScores(len(held_out.y), chosen.rho, calibration), hash_labels(held_out.y) == chosen.tuned_on
    if seen and out_of_fold is None:
        warn("tune has seen these rows, so coverage is not guaranteed: give conformalize rows of its own")
    edges = chosen.bin_edges if chosen.distribution in ("conformal", chosen.around) else None
    residuals, std = held_out.margins.standardised_residuals(held_out.y, calibration)
    if seen and out_of_fold is not None and chosen.scale is not None:
        # a scale that has seen the rows makes their residuals look small; `tune` kept those of scales that had not
        outcomes = hash_outcomes(held_out.y, held_out.margins.prediction)
        if chosen.residuals is not None and chosen.cross_fitted == CrossFitted(scores, outcomes):
            residuals = chosen.residuals
        else:
            warn(
                "tune has boosted the variance from these rows, and intervals may be too narrow: call tune again, and "
                "then conformalize with the same rows and out_of_fold, in the same order"
            )
    if groups is not None:
        scores = replace(scores, groups=divide(groups, held_out, std))
    return replace(
        chosen,
        distribution="conformal",
        calibration=calibration,
        residuals=residuals,
        residual_weight=held_out.weight,
        conformal=scores,
        around=chosen.around if chosen.distribution == "conformal" else chosen.distribution,
        residual_bin=None if edges is None or groups is not None else _bins(chosen, edges, held_out.margins, std),
        bin_edges=edges,
        bounds=bounds,
        correlation=None,  # of the distributions before
        observed=None,
        support=None,  # what `tune` found may not hold for all labels, and the coverage must
    )


def _bins(chosen: Chosen, edges: AnyArray, margins: Margins, std: AnyArray) -> AnyArray | None:
    """Return the bins of calibration rows; None, which is one bin, if some bin has too few of them.

    The edges are those of `tune`, so that the rows of a bin are exchangeable, and quantiles hold bin by bin.
    """
    by = chosen.binned.get("by", "mean")
    place = bin_of(edges, margins.prediction.astype(np.float64) if by == "mean" else std)
    count = np.bincount(place, minlength=len(edges) + 1)
    return place.astype(np.uint8) if count.min() >= _ROWS_PER_BIN else None
