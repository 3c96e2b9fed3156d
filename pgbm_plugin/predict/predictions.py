"""Predictions of a wrapped model for rows in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import AnyArray, Array
from ..boosters import read_dataset
from ..checks import interval_names, level_names
from ..errors import UntunedWarning, warn
from ..tables.columns import read_column
from ..tables.cuda_rows import read_rows_for
from ..tables.in_memory import check_in_memory
from ..tables.keys import Codes
from ..tables.rows import Rows
from .chosen import Chosen
from .log_scale import LogScale
from .recursion import margins, margins_and_variances
from .response import Margins, to_response
from .state import ModelState

if TYPE_CHECKING:
    from ..distributions import Distribution


def read_unlabelled(state: ModelState, X: Any, init_score: Any, device: str) -> tuple[Rows, Array | None]:
    """Check a table, or a booster's data set, and return its rows and their init_score.

    Here the rows pass through the steps around the booster.
    """
    surroundings = state.surroundings
    if surroundings or type(X) is not np.ndarray:  # a matrix is none of these, and single rows should be fast
        check_in_memory(X)
        X = surroundings.table(X)
        own = read_dataset(X)
        if own is not None:
            X, init_score = own.X, own.init_score if init_score is None else init_score
    rows = read_rows_for(X, state.forest, device)
    return rows, None if init_score is None else read_column("init_score", init_score, rows.n)


def predict_mean(state: ModelState, rows: Rows, init_score: Array | None, n_jobs: int | None) -> AnyArray:
    """Return the (n,) predictions, with the booster's bits."""
    prediction = to_response(state.forest, margins(state.forest, rows, state.leaf_value, init_score, n_jobs))
    return state.surroundings.outcome(prediction)


def predict_margins(
    state: ModelState,
    rows: Rows,
    init_score: Array | None,
    rho: float,
    scale: LogScale | None,
    n_jobs: int | None,
    dtype: Any = np.float64,
) -> Margins:
    """Return margins, predictions and variances of rows; the variances are the recursion's or those of `scale`."""
    check_init_score(state, init_score)
    steps = None if scale is None else scale.step
    leaves = state.leaf_value, state.weights.sd, rho, steps
    margin, variance, log_scale = margins_and_variances(state.forest, rows, *leaves, init_score, n_jobs, dtype)
    if scale is not None:
        assert log_scale is not None
        variance = scale(variance, log_scale)
    return Margins(state.forest, margin, to_response(state.forest, margin), variance)


def predict_distributions(
    state: ModelState,
    rows: Rows,
    init_score: Array | None,
    sample_weight: Any,
    n_jobs: int | None,
    distribution: str | None = None,
    rho: float | None = None,
    dtype: Any = np.float64,
    bins: Codes | None = None,
) -> tuple[AnyArray, Distribution]:
    """Return the (n,) predictions with the booster's bits, and the distributions around them.

    `sample_weight` is None, or a column that the calibrated variances are divided by. `bins` are those of
    `ConformalGroups.bins_of_keys`.
    """
    chosen: Chosen = state.chosen
    rho, family, options = chosen.checked_family(distribution, rho, state.support)
    if bins is not None:
        options = {**options, "bin": bins}
    precision = None if sample_weight is None else _read_precision(sample_weight, len(rows))
    if precision is not None and family.name == "conformal":
        warn("conformalize assumed rows of precision 1: with sample_weight, the coverage is not guaranteed")
    predicted = predict_margins(state, rows, init_score, rho, chosen.scale, n_jobs, dtype)
    if precision is not None:
        predicted = replace(predicted, precision=precision)
    distributions, limits = predicted.distribution(family, chosen.calibration, **options), chosen.limits(distribution)
    distributions = distributions if limits is None else limits.limit(distributions)
    surroundings = state.surroundings
    if not surroundings:
        return predicted.prediction, distributions
    return surroundings.outcome(predicted.prediction), surroundings.distribution(distributions)


def chosen_distributions(chosen: Chosen, margins: Margins, support: float, bins: Codes | None = None) -> Distribution:
    """Return the distributions of the chosen family with these margins; outcomes cannot lie below `support`.

    `bins` are those of `ConformalGroups.bins_of_keys`.
    """
    _, family, options = chosen.checked_family(None, None, support)
    if bins is not None:
        options = {**options, "bin": bins}
    distributions, limits = margins.distribution(family, chosen.calibration, **options), chosen.limits(None)
    return distributions if limits is None else limits.limit(distributions)


def _read_precision(values: Any, n: int) -> Array | None:
    """Return the n weights that variances are divided by, or None for None; refuse any that is not positive."""
    weights = read_column("sample_weight", values, n)
    if weights is not None and np.any(weights <= 0.0):
        raise ValueError("sample_weight of a prediction must be positive: the variance is divided by it")
    return weights


def check_init_score(state: ModelState, init_score: Any) -> None:
    """Warn if training had an init_score and the rows have none. `predict` does not warn, like the boosters."""
    if init_score is None and state.spec.own_starts:
        warn(
            "training had an init_score (base_margin), but these rows have none: their distributions hold only what "
            "the trees add to it; give init_score="
        )


def check_variance_known(state: ModelState) -> None:
    """Refuse distributions of a model that has neither a recursion nor a boosted scale."""
    if state.chosen.scale is None and not state.spec.sequential:
        raise ValueError(
            f"this model has no variance yet: {'; '.join(state.spec.approximate)}, so that it needs a boosted scale. "
            f"wrap boosts one if its rows are one table; otherwise call model.tune(X_val, y_val)"
        )


def check_calibrated(chosen: Chosen, untold: dict[str, Any]) -> None:
    """Warn if nothing has calibrated the spread, but only while `untold` has the key "untold".

    A thread that takes the key out is the only one that warns. The key is put back if a filter turns the warning into
    an error, so that the next call fails, too.
    """
    if chosen.calibrated or not untold.pop("untold", False):
        return
    try:
        warn(
            "this model is untuned: its spread is that of the rows that wrap saw, and intervals are usually far too "
            "narrow; calibrate it with wrap(booster, X, y, cv=5), model.tune(X_val, y_val) or "
            "model.conformalize(X_cal, y_cal), or set model.rho to keep the spread as it is",
            UntunedWarning,
        )
    except UntunedWarning:
        untold["untold"] = True
        raise


@dataclass(frozen=True, eq=False)
class Summary:
    """Columns that summarise distributions: mean, std, quantiles (q05), ends of intervals (lower90, upper90)."""

    quantiles: dict[str, float]  # name -> level
    intervals: dict[tuple[str, str], float]  # names of the ends -> coverage

    @property
    def names(self) -> list[str]:
        """Return the names of the columns."""
        return ["mean", "std", *self.quantiles, *(name for ends in self.intervals for name in ends)]

    def __call__(self, prediction: AnyArray, distribution: Distribution) -> dict[str, Array]:
        """Return the columns, each (n,).

        The column mean is the prediction itself; the mean of an empirical or conformal distribution may differ from it.
        """
        columns = {"mean": prediction.astype(np.float64, copy=False), "std": distribution.std()}
        if self.quantiles:
            columns |= zip(self.quantiles, distribution.ppf(list(self.quantiles.values())).T, strict=True)
        for names, coverage in self.intervals.items():
            columns |= zip(names, distribution.interval(coverage), strict=True)
        return columns


def summary_of(quantiles: ArrayLike, intervals: ArrayLike) -> Summary:
    """Return the summary with these levels of quantiles and coverages of intervals; refuse bad or repeated ones."""
    ends = interval_names(intervals)
    return Summary(
        dict(zip(level_names(quantiles), np.ravel(quantiles).tolist(), strict=True)),
        dict(zip(zip(ends[::2], ends[1::2], strict=True), np.ravel(intervals).tolist(), strict=True)),
    )
