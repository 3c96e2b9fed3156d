"""Findings: the numbers that a report shows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray, Array
from ..calibration.groups import check_groups
from ..calibration.held_out import are_wrapped_rows, check_centred
from ..distributions import Distribution, Empirical, Normal
from ..distributions.empirical import bin_of
from ..group_coverage import GroupCoverage, coverage_by_group
from ..plot.growth import Growth, variance_growth
from ..plot.uniformity import LEVELS, Pit, Shares, central_coverage, pit_histogram, randomised_pit
from ..predict.chosen import hash_labels
from ..predict.row_support import RowSupport
from ..tables.columns import read_labels
from ..tables.keys import Groups, read_groups
from ..tables.rows import Rows, some_rows

if TYPE_CHECKING:
    from ..model import ProbabilisticModel


# The most rows that are scored. A standard error is then 1/300 of a standard deviation.
MAX_ROWS = 100_000
# Leaves times rows for which variances are explained, which takes a second or two; and limits on the rows.
EXPLAINED, FEWEST_EXPLAINED, MOST_EXPLAINED = 5_000_000, 20, 500

# Levels of the intervals in the table. They are among `LEVELS`.
COVERAGES = (0.5, 0.8, 0.9, 0.95)
_LEVEL_OF_GROUPS = 0.9


@dataclass(frozen=True)
class Mean:
    """A mean over rows and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, values: Array) -> Mean:
        """Return the mean of (n,) values, and its standard error."""
        with np.errstate(invalid="ignore"):  # scores may be infinite
            return cls(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


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
class Findings:
    """Numbers about a model on n rows.

    The baseline is a normal distribution around the same predictions, with one spread for all rows.
    """

    rows_passed: int  # number of rows that the user passed, of which n were drawn
    index: NDArray[np.int64]  # (n,) positions of the n rows among those passed
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
    groups: GroupCoverage | None  # coverage of 90 % intervals by group; None without groups
    support: RowSupport
    seen: str  # "wrap" or "tune" if that step saw these rows, else ""
    off_centre: str  # warning that outcomes and predictions differ as if their units did, else ""


def assess(model: ProbabilisticModel, X: Any, y: Any, init_score: Any, groups: Any = None) -> Findings:
    """Score the model on the rows, or on a random `MAX_ROWS` of them if there are more."""
    check_groups(groups)
    keys = None if isinstance(groups, str) else groups
    if model.chosen.needs_groups:
        model.chosen.checked_groups(None, keys)
    rows, start = model.read_rows(X, init_score, "cpu")
    outcome = read_labels("y", y, len(rows))
    found = None if keys is None else read_groups("groups", keys, len(rows))
    if len(rows) < 2:
        raise ValueError(f"a report needs at least 2 rows, not {len(rows)}")
    rows_passed, seen, index = len(rows), _seen(model, rows, outcome), some_rows(len(rows), MAX_ROWS)
    support = model.predict_support(rows, device="cpu").take(index)
    if len(index) < rows_passed:
        rows, outcome = rows.sample(index), outcome[index]
        start = None if start is None else start[index]
        found = None if found is None else found.take(index)
    keys = found.keys[found.code] if found is not None and model.chosen.needs_groups else None
    prediction = model.predict(rows, init_score=start).astype(np.float64)
    dist = model.predict_dist(rows, init_score=start, groups=keys)
    if isinstance(groups, str):
        found = _tenths(prediction if groups == "mean" else dist.std())
    residual = outcome - prediction
    square = Mean.of(residual**2)
    sd = float(np.sqrt(square.value))
    baseline = Normal.from_moments(prediction, np.full(len(outcome), square.value))
    nll, impossible = _nll(dist, baseline, outcome)
    transforms = randomised_pit(dist, outcome)
    intervals, reliability = _intervals(dist, baseline, outcome, transforms)
    (features, explained), growth = _features(model, rows), None
    if model.chosen.scale is None:
        growth = variance_growth(model.forest, rows, model.weights.sd, model.rho, (0.05, 0.95))
    return Findings(
        rows_passed=rows_passed,
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
        groups=None if found is None else _by_group(dist, outcome, found),
        support=support,
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


def _by_group(dist: Distribution, y: Array, groups: Groups) -> GroupCoverage:
    """Return the coverage of 90 % intervals in each group."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the page shows which intervals are infinite
        low, high = dist.interval(_LEVEL_OF_GROUPS)
    rows = np.bincount(groups.code)

    def mean(values: AnyArray) -> Array:
        return np.asarray(np.bincount(groups.code, values) / rows, np.float64)

    expected = mean(dist.cdf(high) - dist.cdf(np.nextafter(low, -np.inf))) if dist.has_mass else None
    behind = np.rint(mean(dist.sample_size())) if isinstance(dist, Empirical) else None
    return coverage_by_group(groups, (low <= y) & (y <= high), high - low, _LEVEL_OF_GROUPS, behind, expected)


def _tenths(values: Array) -> Groups:
    """Return groups of rows with similar values: tenths, or fewer if many values are equal."""
    edges = np.unique(np.quantile(values, np.arange(1, 10) / 10.0))
    ends = [f"{edge:.4g}" for edge in edges]
    keys = [f"up to {ends[0]}", *(f"{a} to {b}" for a, b in pairwise(ends)), f"above {ends[-1]}"]
    bins = bin_of(edges, values)
    used, code = np.unique(bins, return_inverse=True)
    # edges that differ may look alike
    return Groups(code, np.array([f"{keys[k]} ({k + 1})" if keys.count(keys[k]) > 1 else keys[k] for k in used]))


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
