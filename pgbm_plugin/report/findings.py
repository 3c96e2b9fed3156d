"""Findings: what a report says, as numbers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..distributions import Discrete, Distribution, Normal
from ..leaves.weights import are_wrapped_rows
from ..plot.growth import Growth, variance_growth
from ..plot.uniformity import LEVELS, Pit, Shares, central_coverage, pit_histogram, randomised_pit
from ..predict.chosen import digest
from ..tables.columns import read_column
from ..tables.rows import Rows, some_rows

if TYPE_CHECKING:
    from ..model import ProbabilisticModel

Array = NDArray[np.float64]

# Rows that are scored, at most: then a standard error is a three-hundredth of a standard deviation.
MAX_ROWS = 100_000
# Leaves times rows that variances are explained for: a second or two; and rows, at least and at most.
EXPLAINED, FEWEST_EXPLAINED, MOST_EXPLAINED = 5_000_000, 20, 500

# Of the intervals in the table; they are among `LEVELS`.
COVERAGES = (0.5, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Mean:
    """A mean over rows and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, values: Array) -> Mean:
        with np.errstate(invalid="ignore"):  # scores may be infinite
            return cls(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


@dataclass(frozen=True)
class Score:
    """A score of the model, of the baseline, and the mean difference between both; None where there is none."""

    model: Mean
    baseline: Mean | None = None
    difference: Mean | None = None


@dataclass(frozen=True)
class Interval:
    """What central intervals of one level hold.

    Attributes
    ----------
    level, expected : the level, and the share of outcomes that they hold if the distributions are right, which for
        whole numbers is more.
    held, width : share of outcomes, and mean width.
    low, high : the band around `expected`, that of `Findings.reliability`.
    baseline_held, baseline_width : those of the baseline.
    """

    level: float
    expected: float
    held: float
    width: Mean
    low: float
    high: float
    baseline_held: float
    baseline_width: float


@dataclass(frozen=True)
class Findings:
    """About n of the rows given.

    Attributes
    ----------
    given : how many rows there were.
    index : (n,) numbers of those that were scored.
    y, prediction : (n,) outcomes and point predictions.
    dist : their distributions.
    sd : root mean square of the residuals, the spread of the baseline.
    crps, nll, rmse, mae : scores; `nll` is None for a family without a density.
    impossible : rows to whose outcome the model gives no density at all.
    intervals : one for each of `COVERAGES`.
    pit, histogram, reliability : transforms, in bins, and within central intervals.
    growth : the variance by trees; None for a boosted scale, which does not grow with them.
    features : (features,) mean absolute part in the variance, over `explained` rows; None if it is not known.
    seen : "wrap" or "tune" if these rows were seen by it, else "".
    """

    given: int
    index: NDArray[np.int64]
    y: Array
    prediction: Array
    dist: Distribution
    sd: float
    crps: Score
    nll: Score | None
    rmse: Score
    mae: Score
    impossible: int
    intervals: tuple[Interval, ...]
    pit: Pit
    histogram: Shares
    reliability: Shares
    growth: Growth | None
    features: Array | None
    explained: int
    seen: str


def assess(model: ProbabilisticModel, X: Any, y: Any, init_score: Any) -> Findings:
    """Score the model on rows, or on some of them drawn by chance if there are more than `MAX_ROWS`."""
    rows, start = model._read(X, init_score, "cpu")
    outcome = read_column("y", y, len(rows))
    if outcome is None:
        raise TypeError("a report needs labels: report(model, X, y)")
    if len(rows) < 2:
        raise ValueError("a report needs at least 2 rows")
    given, seen, index = len(rows), _seen(model, rows, outcome), some_rows(len(rows), MAX_ROWS)
    if len(index) < given:
        rows, outcome = rows.sample(index), outcome[index]
        start = None if start is None else start[index]
    prediction = model.predict(rows, init_score=start).astype(np.float64)
    dist = model.predict_dist(rows, init_score=start)
    residual = outcome - prediction
    square = Mean.of(residual**2)
    sd = float(np.sqrt(square.value))
    baseline = Normal.from_moments(prediction, np.full(len(outcome), square.value))
    nll, impossible = _nll(dist, baseline, outcome)
    transforms = randomised_pit(dist, outcome)
    intervals, reliability = _intervals(dist, baseline, outcome, transforms)
    features, explained, growth = None, 0, None
    if model._settings.scale is None:
        features, explained = _features(model, rows)
        growth = variance_growth(model.forest, rows, model.weights.sd, model.rho, (0.05, 0.95))
    return Findings(
        given=given,
        index=index,
        y=outcome,
        prediction=prediction,
        dist=dist,
        sd=sd,
        crps=_compared(dist.crps(outcome), baseline.crps(outcome)),
        nll=nll,
        rmse=Score(Mean(sd, square.error / (2.0 * sd) if sd > 0.0 else 0.0)),
        mae=Score(Mean.of(np.abs(residual))),
        impossible=impossible,
        intervals=intervals,
        pit=transforms,
        histogram=pit_histogram(transforms),
        reliability=reliability,
        growth=growth,
        features=features,
        explained=explained,
        seen=seen,
    )


def _seen(model: ProbabilisticModel, rows: Rows, y: Array) -> str:
    if model._settings.tuned_on == digest(y):
        return "tune"
    wrapped = are_wrapped_rows(model.forest, model.moments, rows) and model.certificate.status != "held-out"
    return "wrap" if wrapped else ""


def _compared(model: Array, baseline: Array) -> Score:
    return Score(Mean.of(model), Mean.of(baseline), Mean.of(model - baseline))


def _nll(dist: Distribution, baseline: Distribution, y: Array) -> tuple[Score | None, int]:
    try:
        values = dist.nll(y)
    except NotImplementedError:
        return None, 0
    impossible = int(np.sum(np.isposinf(values)))
    if isinstance(dist, Discrete):  # masses, which a density is not compared with
        return Score(Mean.of(values)), impossible
    with np.errstate(invalid="ignore"):
        return _compared(values, baseline.nll(y)), impossible


def _intervals(
    dist: Distribution, baseline: Distribution, y: Array, transforms: Pit
) -> tuple[tuple[Interval, ...], Shares]:
    """Coverages of the table and of the diagram, in one band, so that both say the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # conformal ends that are infinite are shown as such
        ends = [dist.interval(level) for level in COVERAGES]
    expected = np.array(COVERAGES)
    if isinstance(dist, Discrete):
        predicted = [np.mean(dist.cdf(high) - dist.cdf(low - 1.0)) for low, high in ends]
        expected = np.minimum(predicted, 1.0 - 1e-12)  # a level lies below 1
    shares = central_coverage(transforms, np.union1d(LEVELS, expected))
    at = np.searchsorted(shares.expected, expected)
    ends_of_baseline = [baseline.interval(level) for level in COVERAGES]
    return tuple(
        Interval(
            level=level,
            expected=float(expected[k]),
            held=_held(y, *ends[k]),
            width=Mean.of(ends[k][1] - ends[k][0]),
            low=float(shares.low[at[k]]),
            high=float(shares.high[at[k]]),
            baseline_held=_held(y, *ends_of_baseline[k]),
            baseline_width=float(ends_of_baseline[k][1][0] - ends_of_baseline[k][0][0]),  # in all rows the same
        )
        for k, level in enumerate(COVERAGES)
    ), shares


def _held(y: Array, low: Array, high: Array) -> float:
    return float(np.mean((low <= y) & (y <= high)))


def _features(model: ProbabilisticModel, rows: Rows) -> tuple[Array | None, int]:
    size = int(np.clip(EXPLAINED // model.forest.n_leaves, FEWEST_EXPLAINED, MOST_EXPLAINED))
    try:
        parts = model.explain_variance(rows.sample(some_rows(len(rows), size)))
    except ValueError:  # trees that are too deep
        return None, 0
    return np.abs(parts[:, :-1]).mean(axis=0), len(parts)
