"""The choice of the variance on validation rows: the paper's recursion, a boosted scale, or a blend of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array
from ..predict.log_scale import LogScale
from ..predict.power_map import Calibration
from ..predict.recursion import leaf_sums
from .boosted_scale import MAX_ROWS, held_out_scale
from .few_rows import simplest
from .tune_result import TuneResult
from .validation import Validation

# Shares of the recursion's log-variance, and of the held-out steps. With few rows, the first one is preferred. A finer
# grid is no better, because noise decides between close shares.
_SHARES = (0.5, 0.0, 1.0)

FamiliesOf = Callable[[Validation, float], TuneResult]
"""A function that scores families at one correlation."""


class _Scaled(NamedTuple):
    """A scale, and the (n,) log-variances of the validation rows under it, which may be cross-fitted."""

    scale: LogScale
    log_variance: Array


def blended(
    validation: Validation,
    pgbm: TuneResult,
    training: LogScale | None,
    *,
    recursion: bool,
    rate: float,
    families_of: FamiliesOf,
) -> tuple[LogScale | None, TuneResult]:
    """Return a boosted scale, and the families that score best with it.

    The base is the scale of the training rows, or one spread for all rows if there is none. With `recursion`, the
    paper's recursion, or the mean of both in logarithms, becomes the base if it scores better under a power map. Steps
    from the held-out residuals are then added to the base, or half of each step, or none: they may be noise, for
    instance if the residuals depend on something that no tree has split on. Rows are scored by models that have not
    seen them. With `recursion`, the result is `pgbm`, that of the search with the recursion alone, and no scale if that
    scores better. `rate` is the learning rate of the steps.
    """
    validation, best = validation.some(MAX_ROWS), pgbm.best
    at_best = validation.variances(np.array([best.rho]))[0]
    share, base = _base(validation, at_best, training, _SHARES if recursion else (0.0,))
    squared = ((validation.y - validation.margins.prediction) / validation.margins.link_slope()) ** 2
    rows = validation.margins.forest, validation.rows, squared, validation.weight
    stepped = _Scaled(*held_out_scale(*rows, *base, rate, validation.n_jobs))
    _, (scale, log_variance) = _best_mean(validation, base, stepped, _SHARES)
    boosted = families_of(validation.with_variance(np.exp(log_variance)), best.rho)
    if recursion:
        scores = [
            validation.row_scores(
                boosted.best.distribution, np.exp(log_variance), boosted.best.calibration, boosted.support
            ),
            validation.row_scores(best.distribution, at_best, best.calibration, pgbm.support),
        ]
        # a Poisson takes no variance, and needs no scale
        if np.array_equal(scores[0], scores[1]) or simplest(scores, validation.weight, validation.scarcity):
            return None, pgbm
    common = np.isin(pgbm.distributions, boosted.distributions)
    return scale, replace(
        pgbm,
        rows=boosted.rows,
        distributions=tuple(np.array(pgbm.distributions)[common].tolist()),
        scores=pgbm.scores[common],
        candidates=boosted.candidates,
        failed=boosted.failed,
        residuals=boosted.residuals,
        residual_bin=boosted.residual_bin,
        bin_edges=boosted.bin_edges,
        support=boosted.support,
        variance="boosted",
        share=share,
    )


def _base(
    validation: Validation, variance: Array, training: LogScale | None, shares: tuple[float, ...]
) -> tuple[float, _Scaled]:
    """Return the best share of the recursion, and the scale with this share."""
    forest, leaves = validation.margins.forest, validation.margins.forest.n_leaves
    floor = Calibration().with_floor(validation.typical(variance)).floor
    recursion = _Scaled(LogScale(np.zeros(leaves), 0.0, 1.0, floor), np.log(np.maximum(variance, floor)))
    boosted = _Scaled(LogScale(np.zeros(leaves), 0.0, 0.0, floor), np.zeros(len(validation.y)))
    if training is not None:
        steps = leaf_sums(forest, validation.rows, training.step, validation.n_jobs)
        boosted = _Scaled(replace(training, floor=floor), training.start + steps)
    return _best_mean(validation, _mapped(validation, boosted), _mapped(validation, recursion), shares)


def _mapped(validation: Validation, scaled: _Scaled) -> _Scaled:
    """Return a scale with its best power map on top."""
    (scale, log_variance), flat = scaled, not np.ptp(scaled.log_variance)
    calibration = validation.fit_map(np.exp(log_variance), flat=flat)
    b, log_c = calibration.b, float(np.log(calibration.c))
    return _Scaled(scale.mapped(b, log_c), b * log_variance + log_c)


def _best_mean(validation: Validation, a: _Scaled, b: _Scaled, shares: tuple[float, ...]) -> tuple[float, _Scaled]:
    """Return the share of `b` that scores best under a power map, and the mean of `a` and `b` with this share."""

    def scores(share: float) -> Array:
        variance = np.exp(_mean(a, b, share).log_variance)
        return validation.row_scores("normal", variance, validation.fit_map(variance))

    share = shares[simplest([scores(share) for share in shares], validation.weight, validation.scarcity)]
    return share, _mean(a, b, share)


def _mean(a: _Scaled, b: _Scaled, share: float) -> _Scaled:
    """Return the mean of two scales in logarithms, with this share of `b` and the rest of `a`."""

    def mean(x: Any, y: Any) -> Any:
        return (1.0 - share) * x + share * y

    names = ("step", "start", "power")
    scale = replace(a.scale, **{name: mean(getattr(a.scale, name), getattr(b.scale, name)) for name in names})
    return _Scaled(scale, mean(a.log_variance, b.log_variance))
