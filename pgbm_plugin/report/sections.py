"""Sections of the report, as HTML."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from .. import plot
from ..group_coverage import GroupCoverage, shown_key
from ..plot.axes import BAND_ALPHA, COLOURS
from ..plot.calibration_plots import draw_coverages
from . import verdicts, words
from .figures import figure
from .findings import Findings
from .numbers import number, percent, plus_minus, quantity
from .page import bars, box, bullets, captioned, paragraph, section, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..model import ProbabilisticModel

# Numbers of rows in the fan chart, and of features in the list.
_FAN, _FEATURES = 100, 12
# The most names of features in a cell.
_NAMES = 4
# The most groups of rows in the table.
_GROUPS = 30


def header(f: Findings) -> str:
    """Return whether intervals hold, how wide they are and what they are worth, after warnings."""
    verdict, levels = verdicts.on_promises(f)
    about = (
        "For each row, this model predicts a value and how far off it may be. A 90 % interval should contain 9 of 10 "
        f"outcomes. This page compares the intervals with the outcomes of {len(f.y):,} rows. Do they hold?"
    )
    return (
        box([] if f.calibrated else [verdicts.UNTUNED], "danger")
        + paragraph(about)
        + paragraph(verdict, "verdict")
        + bullets(levels)
        + paragraph(f"{verdicts.on_widths(f)} {verdicts.on_worth(f)}")
        + box(words.on_rows(f), "warning")
    )


def calibration(f: Findings) -> str:
    """Return the coverage of intervals as a table, and the plots of `reliability` and `pit`."""
    lines = [
        [
            f"{100.0 * i.level:.0f} %",
            percent(i.expected),
            percent(i.held),
            f"{percent(i.low)} to {percent(i.high)}",
            plus_minus(i.width),
            percent(i.baseline_held),
            number(i.baseline_width),
        ]
        for i in f.intervals
    ]
    head = [
        "level",
        "should hold",
        "held",
        "calibrated models hold",
        f"mean width{_in(f.unit)}",
        "one spread: held",
        "one spread: width",
    ]
    coverage = captioned(
        figure("reliability", words.on_intervals(f), lambda ax: draw_coverages({None: f.reliability}, ax), 3.7),
        words.on_intervals(f),
        "Below the diagonal, intervals are too narrow; above it, too wide.",
    )
    return section(
        "calibration",
        "Do intervals hold what they promise?",
        table(head, lines, "Coverage of intervals"),
        paragraph(words.on_whole_numbers(f), "note"),
        coverage,
        paragraph(
            "The bands allow for chance: a calibrated model stays completely inside each of them 19 times out of 20. "
            "This holds if rows are independent of each other. Rows that follow one another in time often are not, and "
            "then the bands are too narrow.",
            "note",
        ),
    )


def groups(found: GroupCoverage, unit: str) -> str:
    """Return the coverage and width of intervals by group, the worst first."""
    return section(
        "groups",
        "Do intervals hold in every group?",
        paragraph(words.on_groups(found)),
        _by_part("group, the worst first", found, unit),
        paragraph(f"{len(found) - _GROUPS} more groups are not shown." if len(found) > _GROUPS else ""),
        paragraph(
            "The bands allow for chance: if intervals are right in every group, all groups stay inside their bands 19 "
            "times out of 20. The first group is the one that would least likely hold so few by chance.",
            "note",
        ),
    )


def time(found: GroupCoverage, unit: str) -> str:
    """Return the coverage and width of intervals in parts of time."""

    def draw(ax: Axes) -> None:
        place, half = np.arange(len(found)), 0.4
        for k in place:
            ax.fill_between([k - half, k + half], found.low[k], found.high[k], color=COLOURS[0], alpha=BAND_ALPHA, lw=0)
        ax.plot(place, found.cover, "o", color=COLOURS[0])
        ax.axhline(found.level, color=COLOURS[1], linestyle=":", linewidth=1.0)
        ax.set(xlabel="part of time", ylabel="held", xticks=place, xticklabels=place + 1)

    said = words.on_time(found)
    return section(
        "time",
        "Do intervals hold over time?",
        captioned(
            figure("time", said, draw), said, "Points are shares of outcomes inside their intervals, bands chance."
        ),
        _by_part("part of time", found, unit),
    )


def trust(f: Findings) -> str:
    """Return when not to trust the model."""
    return section("trust", "When not to trust it", bullets(verdicts.on_trust(f)))


def _by_part(head: str, found: GroupCoverage, unit: str) -> str:
    """Return the table of coverages by parts of the rows."""
    lines = [
        [
            shown_key(found.groups[k]),
            f"{found.rows[k]:,}",
            percent(found.cover[k]),
            f"{percent(found.low[k])} to {percent(found.high[k])}",
            number(found.width[k]),
        ]
        for k in range(min(len(found), _GROUPS))
    ]
    return table(
        [head, "rows", "held", "calibrated models hold", f"mean width{_in(unit)}"], lines, f"Coverage by {head}"
    )


def _in(unit: str) -> str:
    """Return the unit as the end of a column's name."""
    return f", {unit}" if unit else ""


def rows(f: Findings) -> str:
    """Return the fan chart of some rows, and the table of the least certain rows."""
    order = np.argsort(f.prediction, kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, _FAN).astype(np.int64))]
    least = f.least_sure
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the page shows which ends of conformal intervals are infinite
        low, high = f.dist[shown].interval(0.95)
        ends = np.stack(f.dist[least.at].interval(0.9), axis=1)

        def draw(ax: Axes) -> None:
            plot.fan(f.dist[shown], f.y[shown], ax=ax).set_xlabel("rows, sorted by prediction")
            ax.yaxis.set_major_formatter(lambda value, _: quantity(value, f.unit))

        caption = words.on_fan(f, len(shown), int(np.sum((f.y[shown] < low) | (f.y[shown] > high))))
        svg = figure("fan", caption, draw)
    lines = [
        [
            name,
            quantity(f.prediction[k], f.unit),
            f"{quantity(below, f.unit)} to {quantity(above, f.unit)}",
            quantity(f.y[k], f.unit),
            why or "not computed",
        ]
        for k, name, why, (below, above) in zip(least.at, least.names, least.why, ends, strict=True)
    ]
    head = [f.id_name, "prediction", "90 % interval", "outcome", "what adds most to the spread"]
    return section(
        "rows",
        "Row by row",
        captioned(svg, caption, "The line is the median, points are outcomes."),
        paragraph(words.on_spreads(f)),
        paragraph(f"The {len(lines)} rows that the model is least sure of:"),
        table(head, lines, "Least certain rows"),
    )


def support(f: Findings) -> str:
    """Return the rows that are least like those that the model has seen."""
    outside, lines = f.support.outside, []
    for k, name in zip(f.support.least(), f.least_supported, strict=True):
        own = ("not known",) if outside is None else outside[k]
        more = f" and {len(own) - _NAMES} more" if len(own) > _NAMES else ""
        values = quantity(f.prediction[k], f.unit), quantity(f.y[k], f.unit)
        lines.append([name, number(f.support.rows[k]), ", ".join(own[:_NAMES]) + more, *values])
    return section(
        "support",
        "Which rows are unlike those of training?",
        paragraph(words.on_support(f)),
        table(
            [f.id_name, "effective training rows", "features outside", "prediction", "outcome"],
            lines,
            "Least supported rows",
        ),
        paragraph(
            "The spread of a row is learnt from the training rows in the same leaves. For rows that are unlike all of "
            "these, neither the prediction nor the spread can be trusted. “Effective training rows” says how many rows "
            "share in a prediction. A feature is outside if its value is larger or smaller than all those of training, "
            "or if it is a category that training did not have, or missing where no value was missing in training.",
            "note",
        ),
    )


def features(model: ProbabilisticModel, f: Findings) -> str:
    """Return the features that move the variance most."""
    names = model.forest.features.shown_names
    shares: list[tuple[str, float]] = []
    if f.features is not None and f.features.sum() > 0.0:
        share = f.features / f.features.sum()
        top = np.argsort(-share, kind="stable")[:_FEATURES]
        shares = [(names[j], float(share[j])) for j in top if share[j] > 0.0]
        if (rest := 1.0 - sum(value for _, value in shares)) > 5e-4:
            shares.append((f"{len(names) - len(shares)} others", rest))
    return section(
        "features",
        "Where the spread comes from",
        paragraph(words.on_features(f, shares)),
        bars(["feature", "share"], shares, [percent(share) for _, share in shares]) if shares else "",
        paragraph(
            "The share of a feature is how much it moves the variance of a row away from the average, up or down "
            "(mean absolute Shapley values). It shows which features tell easy rows from hard ones. It does not show "
            "what causes the noise.",
            "note",
        ),
    )
