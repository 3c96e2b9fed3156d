"""Findings in sentences, for people who do not know the code. No more is said than the rows can tell."""

from __future__ import annotations

import math

import numpy as np

from ..calibration.tune_result import TuneResult
from ..distributions import Discrete, Poisson
from ..plot.growth import Growth
from .findings import Findings, Mean

# Standard errors from which a difference is called one.
_CLEAR = 3.0
# Deviations of a coverage below this are called slight.
_SLIGHT = 0.05


def percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"


def number(value: float) -> str:
    if math.isnan(value):
        return "not defined"
    return f"{value:.4g}".replace("inf", "\u221e")


def plus_minus(mean: Mean) -> str:
    """A mean with as many digits as its standard error lets it have."""
    if not (math.isfinite(mean.value) and math.isfinite(mean.error)) or mean.error <= 0.0:
        return number(mean.value)
    digits = 1 - math.floor(math.log10(mean.error))
    if not 0 <= digits <= 6:
        return f"{mean.value:.4g} ± {mean.error:.2g}"
    return f"{mean.value:,.{digits}f} ± {mean.error:,.{digits}f}"


def on_rows(f: Findings) -> list[str]:
    """What to know of the rows before reading on."""
    out = []
    if f.seen == "wrap":
        out.append(
            "These are the rows that the model's spreads were taken from. A model looks better on rows it has seen: "
            "all that follows is too favourable. Make this report on rows that were held out."
        )
    if f.seen == "tune":
        out.append(
            "The spreads were tuned on these very rows, so that all that follows is a little too favourable. Make this "
            "report on rows that were held out from tuning, too."
        )
    if f.given > len(f.y):
        out.append(f"Of {f.given:,} rows given, {len(f.y):,} were drawn by chance; figures are about these.")
    return out


def on_scores(f: Findings) -> str:
    base, difference = f.crps.baseline, f.crps.difference
    assert base is not None
    assert difference is not None
    shown = f"(difference {plus_minus(difference)})"
    if abs(difference.value) <= _CLEAR * difference.error or base.value <= 0.0:
        return f"On these rows the CRPS is not told apart from that of one spread for all rows {shown}."
    change = percent(abs(difference.value) / base.value)
    if difference.value < 0.0:
        return f"The CRPS is {change} lower than with one spread for all rows {shown}: the spreads pay."
    return (
        f"The CRPS is {change} higher than with one spread for all rows {shown}: the spreads do harm here. Tuning on "
        "held-out rows is the remedy."
    )


def on_intervals(f: Findings) -> str:
    """Whether intervals hold what they promise."""
    shares, outside = f.reliability, f.reliability.outside()
    ninety = next(interval for interval in f.intervals if interval.level == 0.9)
    held = f"90 % intervals held {percent(ninety.held)} of outcomes"
    band = f"those of a calibrated model hold {percent(ninety.low)} to {percent(ninety.high)} on so many rows"
    if not outside.any():
        return f"As wide as they should be, as far as {len(f.y):,} rows can tell: {held} ({band})."
    difference = np.where(outside, shares.observed - shares.expected, 0.0)
    worst = int(np.argmax(np.abs(difference)))
    off = difference[outside]
    if np.all(off < 0.0):
        how = "too narrow"
    elif np.all(off > 0.0):
        how = "too wide"
    elif off[-1] < 0.0:
        how = "too wide in the middle and too narrow further out"
    else:
        how = "too narrow in the middle and too wide further out"
    how = f"slightly {how}" if abs(difference[worst]) < _SLIGHT else how
    most = f"{100.0 * shares.expected[worst]:g} % intervals held {percent(shares.observed[worst])}"
    if ninety.low <= ninety.held <= ninety.high:
        return f"{how.capitalize()}, if not at every level: {most}, {held} ({band})."
    return f"{how.capitalize()}: {held} ({band}). Most off: {most}."


def on_whole_numbers(f: Findings) -> str:
    if not isinstance(f.dist, Discrete):
        return ""
    return (
        "Outcomes are counts, and an interval that ends on whole numbers holds more than its level: the column "
        "“should hold” says how much. The diagram places counts evenly within their jumps, which removes this."
    )


def on_shape(f: Findings) -> str:
    """What the histogram of the transforms shows."""
    u, bins = f.pit.values, f.histogram
    outside = int(bins.outside().sum())
    rows = 1.0 / len(u) + (0.0 if f.pit.residuals is None else 1.0 / (f.pit.residuals + 1.0))
    slope = (u.mean() - 0.5) / math.sqrt(rows / 12.0)
    hollow = (np.mean((u - 0.5) ** 2) - 1.0 / 12.0) / math.sqrt(rows / 180.0)  # both are standard normal, if calibrated
    seen = []
    if hollow > _CLEAR:
        seen.append("outcomes fall into the tails more often than predicted, so that the spread is too small")
    if hollow < -_CLEAR:
        seen.append("outcomes fall into the middle more often than predicted, so that the spread is too large")
    if abs(slope) > _CLEAR:
        seen.append(f"outcomes lie {'above' if slope > 0.0 else 'below'} the predicted median more often than not")
    if not outside and not seen:
        return f"All {len(bins.observed)} bins lie within the band: nothing here speaks against the distributions."
    if not seen:
        seen.append("there is no tilt and no hollow, so that the shape of the distribution may be another")
    return f"{outside} of {len(bins.observed)} bins lie outside the band: {'; '.join(seen)}."


def on_spreads(f: Findings) -> str:
    """Whether rows that are called uncertain are so."""
    std = f.dist.std()
    if std.max() <= (1.0 + 1e-9) * std.min():
        return "All rows have the same spread: the model does not tell easy rows from hard ones."
    order, tenth = np.argsort(std, kind="stable"), max(len(std) // 10, 1)
    residual = f.y - f.prediction
    sure, unsure = (float(np.sqrt(np.mean(residual[part] ** 2))) for part in (order[:tenth], order[-tenth:]))
    found = (
        f"In the tenth of rows with the smallest spread the RMSE was {number(sure)}, with the largest {number(unsure)}"
    )
    if sure > 0.0 and unsure > 1.2 * sure:
        return f"{found}, {unsure / sure:.1f} times as much: where the model is unsure, it is more often far off."
    return f"{found}: on these rows the spreads do not tell easy rows from hard ones."


def on_fan(f: Findings, shown: int, outside: int) -> str:
    return (
        f"{shown} rows, evenly chosen and ordered by prediction. {outside} of their outcomes lie outside the widest "
        f"band; of a calibrated model it would be about {(1.0 - f.intervals[-1].expected) * shown:.0f}."
    )


def on_growth(growth: Growth) -> str:
    trees, mean = growth.trees, growth.mean
    if mean[-1] <= 0.0:
        return "No tree brings any variance."
    if len(trees) < 2:
        return "There is one tree, and all variance is its own."
    before = float(mean[np.searchsorted(trees, 0.9 * trees[-1], side="right") - 1])  # of few trees the last alone
    if before <= 0.0:
        return f"All variance comes with the last tenth of {trees[-1]:,} trees."
    late = float(mean[-1]) / before - 1.0
    found = f"Over the last tenth of {trees[-1]:,} trees the mean variance changed by {100.0 * late:+.1f} %"
    if abs(late) < 0.02:
        return f"{found}: it has levelled off."
    if late > 0.0:
        return f"{found}: it still grows, and more trees would mean more spread."
    return f"{found}: the correlation between trees takes away more than they add."


def on_tuning(result: TuneResult) -> str:
    best, metric = result.best, result.metric.upper()
    line = dict(zip(result.distributions, result.scores, strict=True))[best.distribution]
    k = int(np.argmin(line))
    far = np.flatnonzero(line > line[k] + 0.01 * abs(line[k]))
    valley = result.rho[far[far < k].max(initial=-1) + 1 : far[far > k].min(initial=len(line))]
    how, within = f"at rho = {best.rho:.3g}", "the best"
    if result.variance == "boosted":
        how, within = "around a boosted spread", "the best without it"
    return (
        f"Chosen on {result.rows:,} other rows: {best.distribution} {how}, with a mean {metric} of "
        f"{number(best.score)}. The untuned default had {number(result.before.score)}, one spread for all rows "
        f"{number(result.constant.score)}. Any rho between {valley[0]:.3g} and {valley[-1]:.3g} is within 1 % of "
        f"{within}."
    )


def on_features(f: Findings, shares: list[tuple[str, float]]) -> str:
    out = ""
    if isinstance(f.dist, Poisson):
        out = "A Poisson distribution takes its spread from its mean; this is the trees' variance, which it ignores. "
    if f.growth is None:
        return out + "The variance is boosted on the leaves of the trees, and its parts by feature are not known."
    if f.features is None:
        return out + "The trees are too deep for this to be computed."
    if not shares:
        spread = f.dist.std()
        relative = " relative to its prediction" if spread.max() > 1.001 * spread.min() else ""
        return out + f"No feature matters: the model gives every row the same spread{relative}."
    name, share = shares[0]
    return out + f"{name} tells most: {percent(share)} of all parts, over {f.explained:,} rows."


ON_BOOSTED = (
    "The spread is boosted: each leaf that a row falls into makes it larger or smaller, as the errors of rows there "
    "were. It does not add up along the trees, so that there is no growth to show."
)

CERTIFICATES = {
    "certified": "The spreads rest on the very rows that the model was trained on: its leaves could be computed anew "
    "from them, to the last digits.",
    "held-out": "The spreads rest on other rows than those of training: out of sample, unless these are some of them.",
    "subsampled": "Each tree was grown on a part of the rows. Which part is not stored, so that the spreads are those "
    "of all rows.",
    "approximate": "The stored leaves are not exactly those that the rows give; the predictions are the model's own, "
    "the spreads are approximate.",
}
