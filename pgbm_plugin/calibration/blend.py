"""The choice of the variance on validation rows: the paper's recursion, a boosted scale, or a blend of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..arrays import Array
from ..predict.log_scale import LogScale
from ..predict.power_map import Calibration
from ..predict.recursion import leaf_sums
from .boosted_scale import MAX_ROWS, held_out_scale
from .tune_result import TuneResult
from .validation import Validation

# Shares of the recursion's log-variance. A finer grid is no better, because noise decides between close shares.
_SHARES = (0.0, 0.5, 1.0)

FamiliesOf = Callable[[Validation, Validation, float], TuneResult]
"""A function that scores families on all rows and on those of the search, at one correlation."""


def blended(
    validation: Validation,
    sample: Validation,
    pgbm: TuneResult,
    training: LogScale | None,
    *,
    recursion: bool,
    families_of: FamiliesOf,
    n_jobs: int | None,
) -> tuple[LogScale, TuneResult]:
    """Return a boosted scale, and the families that score best with it.

    The base is the scale of the training rows, or one spread for all rows if there is none. With `recursion`, the
    paper's recursion, or the mean of both in logarithms, becomes the base if it scores better under a power map. Steps
    from the held-out residuals are then added to the base. Rows are scored by models that have not seen them.

    Parameters
    ----------
    validation, sample : Validation
        All held-out rows, and those that the search uses.
    pgbm : TuneResult
        The result of the search with the recursion alone.
    training : LogScale or None
        The scale of the training rows.
    recursion : bool
        Whether the recursion may be the base, or part of it.
    families_of : callable
        Scores families, see `FamiliesOf`.
    """
    if len(validation.y) > MAX_ROWS:
        validation = sample = validation.some(MAX_ROWS)
    rho = pgbm.best.rho
    share, base, log_base = _base(validation, rho, training, _SHARES if recursion else (0.0,), n_jobs)
    squared = ((validation.y - validation.margins.prediction) / validation.margins.link_slope()) ** 2
    rows = validation.margins.forest, validation.rows, squared, validation.weight
    scale, log_variance = held_out_scale(*rows, base, log_base, n_jobs)
    fixed = _with_variance(validation, np.exp(log_variance))
    searched = fixed if sample is validation else fixed.at(sample.index)
    boosted = families_of(fixed, searched, rho)
    shown = {name: getattr(pgbm, name) for name in ("rho", "distributions", "scores", "calibrations")}
    return scale, replace(boosted, **shown, before=pgbm.before, constant=pgbm.constant, variance="boosted", share=share)


def _base(
    validation: Validation, rho: float, training: LogScale | None, shares: tuple[float, ...], n_jobs: int | None
) -> tuple[float, LogScale, Array]:
    """Return the best share of the recursion, the scale with this share, and the rows' log-variances under it."""
    forest, leaves = validation.margins.forest, validation.margins.forest.n_leaves
    recursion = LogScale(np.zeros(leaves), 0.0, 1.0, validation.floor)
    log_recursion = np.log(np.maximum(validation.variances(np.array([rho]))[0], validation.floor))
    boosted, log_boosted = LogScale(np.zeros(leaves), 0.0, 0.0, validation.floor), np.zeros(len(validation.y))
    if training is not None:
        boosted = replace(training, floor=validation.floor)
        log_boosted = training.start + leaf_sums(forest, validation.rows, training.step, n_jobs)
    (boosted, log_boosted), (recursion, log_recursion) = (
        _mapped(scale, log_variance, validation.fit_map(np.exp(log_variance), flat=not np.ptp(log_variance)))
        for scale, log_variance in ((boosted, log_boosted), (recursion, log_recursion))
    )
    candidates = []
    for share in shares:
        log_variance = share * log_recursion + (1.0 - share) * log_boosted
        variance = np.exp(log_variance)
        score = validation.score("normal", variance, validation.fit_map(variance))
        candidates.append((score, share, log_variance))
    _, share, log_variance = min(candidates, key=lambda candidate: candidate[0])
    return share, _between(boosted, recursion, share), log_variance


def _mapped(scale: LogScale, log_variance: Array, calibration: Calibration) -> tuple[LogScale, Array]:
    """Return a scale and its log-variances with a power map on top."""
    b, log_c = calibration.b, float(np.log(calibration.c))
    return scale.mapped(b, log_c), b * log_variance + log_c


def _between(a: LogScale, b: LogScale, share: float) -> LogScale:
    """Return the mean of two scales in logarithms, with this share of `b` and the rest of `a`."""
    return replace(
        a,
        step=(1.0 - share) * a.step + share * b.step,
        start=(1.0 - share) * a.start + share * b.start,
        power=(1.0 - share) * a.power + share * b.power,
    )


def _with_variance(validation: Validation, variance: Array) -> Validation:
    """Return the rows with a variance that does not depend on a correlation."""
    margins = replace(validation.margins, variance=variance)
    return replace(validation, margins=margins, variances=lambda rho: np.repeat(variance[None], len(rho), axis=0))
