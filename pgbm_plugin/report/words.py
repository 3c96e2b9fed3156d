"""Sentences beside the tables and figures of the report. They claim no more than the rows support."""

from __future__ import annotations

import math

import numpy as np

from ..calibration.tune_result import TuneResult
from ..distributions import Discrete, Poisson, Snapped
from ..group_coverage import GroupCoverage, shown_key
from ..plot.growth import Growth
from ..predict.chosen import ConformalScores
from .findings import Findings
from .numbers import number, percent, quantity

# A difference is called clear if it is more than this many standard errors.
_CLEAR = 3.0
# A deviation of a coverage is called slight if it is less than this.
_SLIGHT = 0.05


def on_rows(f: Findings) -> list[str]:
    """Return warnings about outcomes in another unit, rows that were seen before, and rows that were left out."""
    out = [f"Warning: {f.off_centre}."] if f.off_centre else []
    if f.seen == "wrap":
        out.append(
            "The spreads of the model were computed from these same rows. A model looks better on rows that it has "
            "seen, so everything below is too favourable. Make this report on rows that were held out."
        )
    if f.seen == "tune":
        out.append(
            "The spreads of the model were tuned on these same rows, so everything below is a little too favourable. "
            "Make this report on rows that were held out from tuning, too."
        )
    if f.rows_passed > len(f.y):
        out.append(f"This report is about {len(f.y):,} rows, drawn at random from {f.rows_passed:,}.")
    return out


def on_intervals(f: Findings) -> str:
    """Say whether intervals hold as many outcomes as they promise."""
    shares, outside = f.reliability, f.reliability.outside()
    ninety = next(interval for interval in f.intervals if interval.level == 0.9)
    held = f"90 % intervals held {percent(ninety.held)} of outcomes"
    band = f"a calibrated model would hold {percent(ninety.low)} to {percent(ninety.high)} of this many rows"
    if not outside.any():
        return f"Intervals are as wide as they should be, as far as {len(f.y):,} rows can tell: {held} ({band})."
    difference = np.where(outside, shares.observed - shares.expected, 0.0)
    worst = int(np.argmax(np.abs(difference)))
    off = difference[outside]
    if np.all(off < 0.0):
        fault = "too narrow"
    elif np.all(off > 0.0):
        fault = "too wide"
    elif off[-1] < 0.0:
        fault = "too wide at low levels and too narrow at high levels"
    else:
        fault = "too narrow at low levels and too wide at high levels"
    slightly = "slightly " if abs(difference[worst]) < _SLIGHT else ""
    most = f"{100.0 * shares.expected[worst]:g} % intervals held {percent(shares.observed[worst])}"
    if ninety.low <= ninety.held <= ninety.high:
        return f"Intervals are {slightly}{fault}, but not at every level: {most}, while {held} ({band})."
    return f"Intervals are {slightly}{fault}: {held} ({band}). The largest deviation: {most}."


def on_groups(found: GroupCoverage) -> str:
    """Say in which groups intervals hold fewer or more outcomes than chance allows."""
    outside, level = found.outside(), f"{100.0 * found.level:g} % intervals"
    few, many = np.flatnonzero(outside < 0), int(np.sum(outside > 0))
    if not len(few) and not many:
        return f"In all {len(found)} groups, {level} hold as many outcomes as they should, as far as the rows can tell."
    parts = []
    if len(few):
        k = few[0]
        parts.append(
            f"{level} hold too few outcomes in {len(few)} of {len(found)} groups, first of all in "
            f"{shown_key(found.groups[k])}: {percent(found.cover[k])} of {found.rows[k]:,} outcomes, where chance "
            f"alone allows {percent(found.low[k])} or more. If these groups matter, call conformalize with groups"
        )
    if many:
        parts.append(
            f"{'intervals' if len(few) else level} hold more than they should in {many} of {len(found)} groups"
        )
    return ". ".join(part[0].upper() + part[1:] for part in parts) + "."


def on_time(found: GroupCoverage) -> str:
    """Say in which parts of time intervals hold fewer outcomes than chance allows."""
    few = np.flatnonzero(found.outside() < 0)
    level = f"{100.0 * found.level:g} % intervals"
    if not len(few):
        return f"In all {len(found)} parts of time, {level} hold as many outcomes as they should, up to chance."
    latest = ", the latest among them" if few[-1] == len(found) - 1 else ""
    return f"{level} hold too few outcomes in {len(few)} of {len(found)} parts of time{latest}."


def on_conformal(scores: ConformalScores, around: str) -> str:
    """Say which rows conformal intervals come from."""
    return f"on {scores.rows:,} rows{'' if scores.groups is None else f' {scores.groups}'}, around {around}"


def on_whole_numbers(f: Findings) -> str:
    """Say why intervals of counts, or on few values, hold more than their level; "" for other outcomes."""
    if isinstance(f.dist, Snapped):
        outcomes, ends = f"on {len(f.dist.values)} values", "these"
    elif isinstance(f.dist, Discrete):
        outcomes, ends = "counts", "whole numbers"
    else:
        return ""
    return (
        f"Outcomes are {outcomes}. Their intervals start and end at {ends}, and so hold more than they promise: the "
        "column “should hold” says how much. The plots correct for this: they place each outcome at random within the "
        "probability that the model gave to it."
    )


def on_shape(f: Findings) -> str:
    """Say what the histogram of the probability integral transforms shows."""
    u, bins = f.pit.values, f.histogram
    outside = int(bins.outside().sum())
    rows = 1.0 / len(u) + (0.0 if f.pit.residuals is None else 1.0 / (f.pit.residuals + 1.0))
    slope = (u.mean() - 0.5) / math.sqrt(rows / 12.0)
    # both are standard normal for a calibrated model
    u_shape = (np.mean((u - 0.5) ** 2) - 1.0 / 12.0) / math.sqrt(rows / 180.0)
    faults = []
    if u_shape > _CLEAR:
        faults.append("outcomes fall into the tails more often than predicted, so spreads are too small")
    if u_shape < -_CLEAR:
        faults.append("outcomes fall into the middle more often than predicted, so spreads are too large")
    if abs(slope) > _CLEAR:
        faults.append(f"outcomes tend to lie {'above' if slope > 0.0 else 'below'} the predicted median")
    inside = f"All {len(bins.observed)} bins lie within the band"
    if not outside and not faults:
        return f"{inside}: there is no sign that the distributions are wrong."
    if not outside:
        return f"{inside}, but {'; '.join(faults)}."
    if not faults:
        faults.append("centre and spread look right, but the distribution may have another shape")
    return f"{outside} of {len(bins.observed)} bins lie outside the band: {'; '.join(faults)}."


def on_spreads(f: Findings) -> str:
    """Say whether errors are larger where the predicted spread is larger."""
    std = f.dist.std()
    if std.max() <= (1.0 + 1e-9) * std.min():
        return "All rows have the same spread: the model does not tell easy rows from hard ones."
    order, tenth = np.argsort(std, kind="stable"), max(len(std) // 10, 1)
    residual = f.y - f.prediction
    easy, hard = (float(np.sqrt(np.mean(residual[part] ** 2))) for part in (order[:tenth], order[-tenth:]))
    errors = (
        f"The typical error is {quantity(easy, f.unit)} for the 10 % of rows with the smallest spreads, and "
        f"{quantity(hard, f.unit)} for the 10 % with the largest"
    )
    if easy > 0.0 and hard > 1.2 * easy:
        return f"{errors}, {hard / easy:.1f} times as much: where the model is less sure, its errors are larger."
    return f"{errors}: on these rows the spreads do not tell easy rows from hard ones."


def on_support(f: Findings) -> str:
    """Say how many rows have values that training never saw, and how many training rows stand behind a prediction."""
    low, middle = (number(float(q)) for q in np.quantile(f.support.rows, [0.0, 0.5]))
    behind = f"Behind a prediction stand {middle} effective training rows in the median, and at least {low}."
    if f.support.n_outside is None:
        return f"{behind} What training saw of each feature is not known, so unfamiliar values are not found."
    count = int(np.count_nonzero(f.support.n_outside))
    if not count:
        return f"{behind} No value lies outside of what training saw of its feature."
    have = "row has a value" if count == 1 else "rows have values"
    return f"{behind} {count:,} of the {len(f.y):,} {have} outside of what training saw: look before you trust them."


def on_fan(f: Findings, shown: int, outside: int) -> str:
    """Say how many outcomes lie outside the widest band of the fan chart."""
    return (
        f"{shown} rows, chosen evenly and sorted by prediction. Outcomes outside the widest band: {outside}; for a "
        f"calibrated model, about {(1.0 - f.intervals[-1].expected) * shown:.0f}."
    )


def on_growth(growth: Growth) -> str:
    """Say whether the variance still grows with the last trees."""
    trees, mean = growth.trees, growth.mean
    if mean[-1] <= 0.0:
        return "No tree adds any variance."
    if len(trees) < 2:
        return "There is only one tree, which adds all the variance."
    # with ten trees or fewer, this is the variance before the last one
    before = float(mean[np.searchsorted(trees, 0.9 * trees[-1], side="right") - 1])
    if before <= 0.0:
        return f"All variance comes from the last 10 % of the {trees[-1]:,} trees."
    late = float(mean[-1]) / before - 1.0
    change = f"Over the last 10 % of the {trees[-1]:,} trees, the mean variance changed by {100.0 * late:+.1f} %"
    if abs(late) < 0.02:
        return f"{change}: it has levelled off."
    if late > 0.0:
        return f"{change}: it still grows, so more trees would give larger spreads."
    return f"{change}: it falls, because the correlation between trees takes away more than they add."


def on_tuning(result: TuneResult) -> str:
    """Say what `tune` chose, and how much the correlation between trees matters."""
    best, metric = result.best, result.metric.upper()
    line = dict(zip(result.distributions, result.scores, strict=True))[best.distribution]
    k = int(np.argmin(line))
    far = np.flatnonzero(line > line[k] + 0.01 * abs(line[k]))
    valley = result.rho[far[far < k].max(initial=-1) + 1 : far[far > k].min(initial=len(line))]
    chosen, any_rho = f"{best.distribution} at rho = {best.rho:.3g}", "Any"
    if result.variance == "boosted":
        chosen, any_rho = f"{best.distribution} around a boosted spread", "Without the boosted spread, any"
    default = f"that of the untuned default is {number(result.before.score)}, "
    if result.before is result.constant:  # there is no recursion
        default = ""
    return (
        f"Tuning on {result.rows:,} rows chose {chosen}. Its mean {metric} there is {number(best.score)}; {default}"
        f"that of one spread for all rows is {number(result.constant.score)}. {any_rho} rho from {valley[0]:.3g} to "
        f"{valley[-1]:.3g} is within 1 % of the best."
    )


def on_features(f: Findings, shares: list[tuple[str, float]]) -> str:
    """Name the feature that matters most for the variance, or say why there is none."""
    out = ""
    if isinstance(f.dist, Poisson):
        out = (
            "A Poisson distribution takes its spread from its mean, and ignores the variance of the trees. This "
            "section is about the variance of the trees. "
        )
    if f.features is None:
        return out + "The trees are too deep to compute the shares of the features."
    if not shares:
        spread = f.dist.std()
        relative = " relative to its prediction" if spread.max() > 1.001 * spread.min() else ""
        return out + f"No feature matters: the model gives every row the same spread{relative}."
    name, share = shares[0]
    return out + f"{name} matters most, with a share of {percent(share)} (computed on {f.explained:,} rows)."


ON_BOOSTED = (
    "The spread is boosted: each leaf that a row falls into makes it larger or smaller, depending on how large the "
    "errors of other rows in that leaf were. It does not add up over the trees, so there is no growth to show."
)

CERTIFICATES = {
    "certified": "The spreads were computed from the rows that the model was trained on. This was checked: the values "
    "in its leaves, computed again from these rows, are the same to the last digits.",
    "held-out": "The spreads were computed from other rows than the training set. If the model saw none of them, the "
    "spreads are out of sample: they describe errors on new rows.",
    "subsampled": "Each tree was trained on a part of the rows. The model does not store which part, so the spreads "
    "were computed from all rows.",
    "approximate": "The values in the leaves of the model differ from those computed from the rows. Predictions are "
    "not affected, but spreads are approximate.",
}
