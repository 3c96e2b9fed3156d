"""Findings: the numbers that a report shows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..calibration.groups import check_groups
from ..calibration.held_out import are_wrapped_rows, check_centred
from ..distributions import Distribution, Normal
from ..group_coverage import GroupCoverage, shown_key
from ..plot.growth import Growth, variance_growth
from ..plot.uniformity import LEVELS, Pit, Shares, central_coverage, pit_histogram, randomised_pit
from ..predict.chosen import hash_labels
from ..predict.row_support import RowSupport
from ..tables.columns import read_labels
from ..tables.keys import read_groups
from ..tables.rows import Rows, some_rows
from .numbers import Mean, number
from .parts import by_group, by_time, read_times, tenths

if TYPE_CHECKING:
    from ..model import ProbabilisticModel


# The most rows that are scored. A standard error is then 1/300 of a standard deviation.
MAX_ROWS = 100_000
# Leaves times rows for which variances are explained, which takes a second or two; and limits on the rows.
EXPLAINED, FEWEST_EXPLAINED, MOST_EXPLAINED = 5_000_000, 20, 500

# Levels of the intervals in the table. They are among `LEVELS`.
COVERAGES = (0.5, 0.8, 0.9, 0.95)
# Number of rows in the table of least certain rows.
_LEAST_SURE = 10


@dataclass(frozen=True)
class Score:
    """A score of the model and of the baseline, and the mean difference; None where they cannot be compared."""

    model: Mean
    baseline: Mean | None = None
    difference: Mean | None = None


@dataclass(frozen=True)
class Interval:
    """Coverage and width of the central intervals of one level."""

    level: float  # probability that the intervals promise
    expected: float  # share of outcomes inside if the distributions are right: `level`, or more for counts
    held: float  # share of outcomes inside
    width: Mean
    low: float  # lower end of the band around `expected` that allows for chance
    high: float  # upper end
    baseline_held: float  # share of outcomes inside the intervals of the baseline
    baseline_width: float


@dataclass(frozen=True)
class LeastSure:
    """The k rows with the largest spreads, the largest first."""

    at: NDArray[np.int64]  # (k,) positions among the n rows
    names: tuple[str, ...]  # of the rows: their ids, or their positions among the rows that the user passed
    why: tuple[str, ...]  # the features that add most to the spread of each; "" if that was not computed


@dataclass(frozen=True)
class Findings:
    """Numbers about a model on n rows.

    The baseline is a normal distribution around the same predictions, with one spread for all rows.
    """

    rows_passed: int  # number of rows that the user passed, of which n were drawn
    y: Array  # (n,) outcomes
    prediction: Array  # (n,) point predictions
    dist: Distribution
    sd: float  # root mean square of the residuals, the spread of the baseline
    crps: Score  # continuous ranked probability score
    nll: Score | None  # negative log likelihood; None for a family without a density
    rmse: Score  # root mean squared error
    mae: Score  # mean absolute error
    impossible: int  # number of outcomes whose density is 0
    intervals: tuple[Interval, ...]  # one for each of `COVERAGES`
    pit: Pit
    histogram: Shares  # outcomes in the bins of the PIT histogram
    reliability: Shares  # outcomes inside central intervals
    growth: Growth | None  # None for a boosted scale, which does not grow with the trees
    features: Array | None  # (features,) mean absolute part of each feature in the variance; None if not computed
    explained: int  # number of rows behind `features`
    widths: tuple[float, float, float]  # of 90 % intervals: what 10, 50 and 90 % of rows do not exceed
    least_sure: LeastSure
    support: RowSupport
    least_supported: tuple[str, ...]  # names of the rows of `support.least()`
    groups: GroupCoverage | None  # coverage of 90 % intervals by group; None without groups
    time: GroupCoverage | None  # the same in parts of time, in their order; None without times
    id_name: str  # what the names of rows are
    unit: str  # of the outcomes, such as "$" or "kWh"; "" if unknown
    calibrated: bool  # whether anything has calibrated the model
    seen: str  # "wrap" or "tune" if that step saw these rows, else ""
    off_centre: str  # warning that outcomes and predictions differ as if their units did, else ""


def assess(
    model: ProbabilisticModel,
    X: Any,
    y: Any,
    init_score: Any = None,
    groups: Any = None,
    *,
    time: Any = None,
    id: Any = None,
    unit: str = "",
) -> Findings:
    """Score the model on the rows, or on a random `MAX_ROWS` of them if there are more; see `report`."""
    check_groups(groups)
    keys = None if isinstance(groups, str) else groups
    if model.chosen.needs_groups:
        model.chosen.checked_groups(None, keys)
    rows, start = model.read_rows(X, init_score, "cpu")
    outcome = read_labels("y", y, len(rows))
    found = None if keys is None else read_groups("groups", keys, len(rows))
    times = None if time is None else read_times(time, len(rows))
    ids = None if id is None else read_groups("id", id, len(rows))
    if len(rows) < 2:
        raise ValueError(f"a report needs at least 2 rows, not {len(rows)}")
    rows_passed, seen, index = len(rows), _seen(model, rows, outcome), some_rows(len(rows), MAX_ROWS)
    support = model.predict_support(rows, device="cpu").take(index)
    if len(index) < rows_passed:
        rows, outcome = rows.sample(index), outcome[index]
        start = None if start is None else start[index]
        found = None if found is None else found.take(index)
        times = None if times is None else times[index]
    keys = found.keys[found.code] if found is not None and model.chosen.needs_groups else None
    prediction = model.predict(rows, init_score=start).astype(np.float64)
    dist = model.predict_dist(rows, init_score=start, groups=keys)
    if isinstance(groups, str):
        found = tenths(prediction if groups == "mean" else dist.std())
    residual = outcome - prediction
    square = Mean.of(residual**2)
    sd = float(np.sqrt(square.value))
    baseline = Normal.from_moments(prediction, np.full(len(outcome), square.value))
    nll, impossible = _nll(dist, baseline, outcome)
    transforms = randomised_pit(dist, outcome)
    intervals, reliability = _intervals(dist, baseline, outcome, transforms)
    least = np.argsort(-dist.std(), kind="stable")[:_LEAST_SURE]

    def named(at: NDArray[np.int64]) -> tuple[str, ...]:
        return tuple(f"{k}" if ids is None else shown_key(ids.keys[ids.code[k]]) for k in index[at])

    (features, explained), growth = _features(model, rows), None
    if model.chosen.scale is None:
        growth = variance_growth(model.forest, rows, model.weights.sd, model.rho, (0.05, 0.95))
    return Findings(
        rows_passed=rows_passed,
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
        widths=_widths(dist),
        least_sure=LeastSure(least, named(least), _reasons(model, rows, least)),
        support=support,
        least_supported=named(support.least()),
        groups=None if found is None else by_group(dist, outcome, found),
        time=None if times is None else by_time(dist, outcome, times),
        id_name="row (the first is 0)" if id is None else str(getattr(id, "name", None) or "row"),
        unit=unit,
        calibrated=model.chosen.calibrated,
        seen=seen,
        # otherwise `predict_dist` has warned of a missing init_score
        off_centre="" if start is None and model.spec.own_starts else check_centred("report", outcome, prediction),
    )


def _seen(model: ProbabilisticModel, rows: Rows, y: Array) -> str:
    """Return the step that saw these rows: "tune", "wrap" or ""."""
    if model.chosen.tuned_on == hash_labels(model.state.surroundings.labels(y)):
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
    if dist.has_mass:  # probabilities cannot be compared with densities
        return Score(Mean.of(values)), impossible
    with np.errstate(invalid="ignore"):
        return _compared(values, baseline.nll(y)), impossible


def _intervals(
    dist: Distribution, baseline: Distribution, y: Array, transforms: Pit
) -> tuple[tuple[Interval, ...], Shares]:
    """Return the coverages of the table and of the plot, with one band for both, so that they agree."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the page shows which ends of conformal intervals are infinite
        ends = [dist.interval(level) for level in COVERAGES]
    expected = np.array(COVERAGES)
    if dist.has_mass:
        predicted = [np.mean(dist.cdf(high) - dist.cdf(np.nextafter(low, -np.inf))) for low, high in ends]
        expected = np.minimum(predicted, 1.0 - 1e-12)  # `central_coverage` takes levels below 1
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
            baseline_width=float(ends_of_baseline[k][1][0] - ends_of_baseline[k][0][0]),  # the same for all rows
        )
        for k, level in enumerate(COVERAGES)
    ), shares


def _widths(dist: Distribution) -> tuple[float, float, float]:
    """Return the widths of 90 % intervals that 10, 50 and 90 % of rows do not exceed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the page shows which intervals are infinite
        low, high = dist.interval(0.9)
    few, half, most = np.quantile(high - low, [0.1, 0.5, 0.9], method="inverted_cdf")  # of infinite ones, too
    return float(few), float(half), float(most)


def _held(y: Array, low: Array, high: Array) -> float:
    return float(np.mean((low <= y) & (y <= high)))


def _features(model: ProbabilisticModel, rows: Rows) -> tuple[Array | None, int]:
    """Return the mean absolute part of each feature in the variance, and how many rows were explained."""
    size = int(np.clip(EXPLAINED // model.forest.n_leaves, FEWEST_EXPLAINED, MOST_EXPLAINED))
    try:
        parts = model.explain_variance(rows.sample(some_rows(len(rows), size)))
    except ValueError:  # the trees are too deep
        return None, 0
    return np.abs(parts[:, :-1]).mean(axis=0), len(parts)


def _reasons(model: ProbabilisticModel, rows: Rows, least: NDArray[np.int64]) -> tuple[str, ...]:
    """Return for each of these rows up to two features that add most to its spread, numbers with their value."""
    rising, back = np.unique(least, return_inverse=True)
    try:
        parts = model.explain_variance(rows.sample(rising))
    except ValueError:  # the trees are too deep
        return ("",) * len(least)
    features = model.forest.features
    texts = {*features.code_columns, *(features.category_columns or ())}
    if features.categories and features.category_columns is None:
        texts |= set(range(features.count))  # which columns are categorical is known only with a frame

    def named(row: int, j: int) -> str:
        return parts.names[j] if j in texts else f"{parts.names[j]} = {number(float(parts.data[row, j]))}"

    reasons = []
    for row in back:
        largest = np.argsort(-parts.values[row], kind="stable")[:2]
        reasons.append(", ".join(named(row, j) for j in largest if parts.values[row, j] > 0.0))
    return tuple(reasons)
