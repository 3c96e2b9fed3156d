"""Sections of the report, as HTML."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from .. import plot
from ..group_coverage import GroupCoverage, shown_key
from ..plot.calibration_plots import draw_coverages, draw_pit
from ..plot.model_plots import draw_growth
from . import words
from .figures import figure
from .findings import Findings, Score
from .page import bars, box, captioned, facts, paragraph, section, table
from .words import number, percent, plus_minus

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..calibration.tune_result import TuneResult
    from ..model import ProbabilisticModel

# Numbers of rows in the fan chart, of rows in the table of least certain rows, and of features in the list.
_FAN, _LEAST_SURE, _FEATURES = 100, 10, 12
# The most names of features in a cell of the table of least supported rows.
_NAMES = 4
# The most groups of rows in the table.
_GROUPS = 30


def header(f: Findings) -> str:
    """Return what the page is about, warnings about its rows, and the two main findings."""
    about = (
        "For each row, this model predicts a value and how far off that value may be: a whole distribution. "
        f"This page compares the distributions with the outcomes of {len(f.y):,} rows. “Spread” means the standard "
        "deviation of a distribution. A model is “calibrated” if its distributions are right: its 90 % intervals then "
        "hold 90 % of outcomes, up to chance."
    )
    return paragraph(about) + box(words.on_rows(f), "warning") + box([words.on_intervals(f), words.on_scores(f)])


def scores(f: Findings) -> str:
    """Return the table of scores, with those of one spread for all rows."""

    def line(name: str, score: Score, otherwise: str = "the same") -> list[str]:
        if score.baseline is None or score.difference is None:
            return [name, plus_minus(score.model), otherwise, ""]
        return [name, *map(plus_minus, (score.model, score.baseline, score.difference))]

    lines = [line("continuous ranked probability score (CRPS)", f.crps)]
    on_nll = ""
    if f.nll is not None:
        lines.append(line("negative log likelihood (NLL)", f.nll, "not comparable"))
        on_nll = "The NLL says how improbable the outcomes were to the model, in nats. "
    lines += [line("root mean squared error (RMSE)", f.rmse), line("mean absolute error (MAE)", f.mae)]
    impossible = f"To the model, {f.impossible:,} of the outcomes were impossible: density 0." if f.impossible else ""
    return section(
        "scores",
        "Scores",
        table(["lower is better", "this model", "one spread for all rows", "difference"], lines, "Scores"),
        paragraph(
            "The number after ± is one standard error. The CRPS measures how far a predicted distribution is from the "
            "outcome, in the unit of the outcome; for a prediction without any spread it is the absolute error. "
            f"{on_nll}The RMSE and the MAE are errors of the predicted values alone. “One spread for all rows” is a "
            "simple model for comparison: the same predicted values, each with a normal distribution of standard "
            f"deviation {number(f.sd)}. That is the RMSE on these same rows, which gives this simple model a small "
            f"advantage. {impossible}",
            "note",
        ),
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
        "mean width",
        "one spread: held",
        "one spread: width",
    ]
    coverage = captioned(
        figure("reliability", words.on_intervals(f), lambda ax: draw_coverages({None: f.reliability}, ax), 3.7),
        words.on_intervals(f),
        "Below the diagonal, intervals are too narrow; above it, too wide.",
    )
    shape = captioned(
        figure("pit", words.on_shape(f), lambda ax: draw_pit(f.histogram, ax), 3.7),
        words.on_shape(f),
        "The histogram shows, over all outcomes, the probability that the model gave to smaller values, called the "
        "probability integral transform (PIT). It should be flat. A U shape means that spreads are too small, a hump "
        "that they are too large, a slope that predictions are too low (rising) or too high (falling).",
    )
    return section(
        "calibration",
        "Do intervals hold what they promise?",
        table(head, lines, "Coverage of intervals"),
        paragraph(words.on_whole_numbers(f), "note"),
        f'<div class="figures">{coverage}{shape}</div>',
        paragraph(
            "The bands allow for chance: a calibrated model stays completely inside each of them 19 times out of 20. "
            "This holds if rows are independent of each other. Rows that follow one another in time often are not, and "
            "then the bands are too narrow.",
            "note",
        ),
    )


def groups(found: GroupCoverage) -> str:
    """Return the coverage and width of intervals by group, the worst first."""
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
    head = ["group, the worst first", "rows", "held", "calibrated models hold", "mean width"]
    return section(
        "groups",
        "Do intervals hold in every group?",
        paragraph(words.on_groups(found)),
        table(head, lines, "Coverage by group"),
        paragraph(f"{len(found) - _GROUPS} more groups are not shown." if len(found) > _GROUPS else ""),
        paragraph(
            "The bands allow for chance: if intervals are right in every group, all groups stay inside their bands 19 "
            "times out of 20. The first group is the one that would least likely hold so few by chance.",
            "note",
        ),
    )


def rows(f: Findings) -> str:
    """Return the fan chart of some rows, and the table of the least certain rows."""
    order = np.argsort(f.prediction, kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, _FAN).astype(np.int64))]
    std = f.dist.std()
    least = np.argsort(-std, kind="stable")[:_LEAST_SURE]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the page shows which ends of conformal intervals are infinite
        low, high = f.dist[shown].interval(0.95)
        ends = np.stack(f.dist[least].interval(0.9), axis=1)

        def draw(ax: Axes) -> None:
            plot.fan(f.dist[shown], f.y[shown], ax=ax).set_xlabel("rows, sorted by prediction")

        caption = words.on_fan(f, len(shown), int(np.sum((f.y[shown] < low) | (f.y[shown] > high))))
        svg = figure("fan", caption, draw)
    lines = [
        [
            f"{f.index[k]}",
            number(f.prediction[k]),
            number(std[k]),
            f"{number(below)} to {number(above)}",
            number(f.y[k]),
        ]
        for k, (below, above) in zip(least, ends, strict=True)
    ]
    head = ["row (the first is 0)", "prediction", "standard deviation", "90 % interval", "outcome"]
    return section(
        "rows",
        "Row by row",
        captioned(svg, caption, "The line is the median, points are outcomes."),
        paragraph(words.on_spreads(f)),
        paragraph(f"The {len(least)} rows that the model is least sure of:"),
        table(head, lines, "Least certain rows"),
    )


def support(f: Findings) -> str:
    """Return the rows that are least like those that the model has seen."""
    least, outside = f.support.least(_LEAST_SURE), f.support.outside
    names = [outside[k] if outside is not None else ("not known",) for k in least]
    lines = [
        [
            f"{f.index[k]}",
            number(f.support.rows[k]),
            ", ".join(own[:_NAMES]) + (f" and {len(own) - _NAMES} more" if len(own) > _NAMES else ""),
            number(f.prediction[k]),
            number(f.y[k]),
        ]
        for k, own in zip(least, names, strict=True)
    ]
    head = ["row (the first is 0)", "effective training rows", "features outside", "prediction", "outcome"]
    return section(
        "support",
        "Which rows are unlike those of training?",
        paragraph(words.on_support(f)),
        table(head, lines, "Least supported rows"),
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


def trees(model: ProbabilisticModel, f: Findings, tuning: TuneResult | None) -> str:
    """Return how the variance grows with the trees, and what `tune` chose."""
    growth = f.growth
    if growth is None:
        grown = paragraph(words.ON_BOOSTED)
    else:
        grown = captioned(
            figure("trees", words.on_growth(growth), lambda ax: draw_growth(growth, ax)),
            words.on_growth(growth),
            f"The plot shows the variance of the margin (the sum of the trees) after the first 1, 2, ... trees, over "
            f"{growth.rows:,} rows and before calibration. Each tree adds its own variance, less the part that it "
            f"shares with the trees before it (rho = {model.rho:.3g}).",
        )
    chosen = ""
    if tuning is not None:
        chosen = captioned(
            figure("tuning", words.on_tuning(tuning), lambda ax: plot.tuning(tuning, ax)),
            words.on_tuning(tuning),
            "Each line is a family of distributions. Lower is better.",
        )
    return section("trees", "How the spread builds up", f'<div class="figures">{grown}{chosen}</div>')


def about(model: ProbabilisticModel) -> str:
    """Return the facts about the model."""
    forest, certificate = model.forest, model.certificate
    conformal, identity = model.chosen.conformal, model.calibration.b == model.calibration.c == 1.0
    pairs = [
        ("booster", forest.booster),
        ("objective", model.spec.objective.name if model.spec.objective else "custom"),
        ("trees, leaves", f"{forest.n_trees:,}, {forest.n_leaves:,}"),
        ("features", f"{forest.features.count:,}"),
        ("rows that the spreads were computed from", f"{model.moments.rows:,.0f}"),
        ("distribution", model.distribution),
        ("variance", "the paper's recursion" if model.chosen.scale is None else "boosted on the trees' leaves"),
        (
            "rho, correlation between trees",
            f"{model.rho:.4g}" + (" (default)" if model.rho == model.default_rho else ""),
        ),
        ("calibration", "none" if identity else model.state.describe_calibration()),
        (
            "conformal",
            "no" if conformal is None else words.on_conformal(conformal, model.chosen.around),
        ),
        ("certificate", str(certificate)),
    ]
    return section("model", "The model", paragraph(words.CERTIFICATES[certificate.status]), facts(pairs))
