"""report(): one page of HTML that says how far a model's distributions can be trusted. Needs matplotlib."""

from __future__ import annotations

import datetime
import os
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import plot
from ..calibration.tune_result import TuneResult
from ..model import ProbabilisticModel
from ..predict.power_map import Calibration
from ..saving.container import check_place, write_atomically
from . import words
from .figures import figure
from .findings import Findings, Score, assess
from .page import bars, box, captioned, facts, page, paragraph, section, table
from .words import number, percent, plus_minus

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["report"]

# Rows in the fan, in the table of those that the model is least sure of, and features that are shown.
_FAN, _LEAST_SURE, _FEATURES = 100, 10, 12


def report(
    model: ProbabilisticModel,
    X: Any,
    y: Any,
    *,
    title: str | None = None,
    tuning: TuneResult | None = None,
    init_score: Any = None,
    path: str | os.PathLike[str] | None = None,
) -> str:
    """One page of HTML, complete in itself: scores, coverage, plots and what the model is, with a sentence for each.

    It loads nothing and runs no script, so it can be sent by mail, and is meant for people who do not know the code.
    Of more than 100,000 rows so many are drawn by chance.

    Parameters
    ----------
    X, y : rows that neither training nor `tune` nor `conformalize` saw, and their outcomes.
    title : heading of the page.
    tuning : what ``model.tune`` returned, to show it as well.
    init_score : of the rows, for models that were trained with one.
    path : where to write the page as well; it is returned in any case.
    """
    if not isinstance(model, ProbabilisticModel):
        raise TypeError(f"model must be a ProbabilisticModel, as wrap returns it, not a {type(model).__name__}")
    if tuning is not None and not isinstance(tuning, TuneResult):
        raise TypeError(f"tuning must be what model.tune returned, not a {type(tuning).__name__}")
    plot.check_matplotlib()
    if path is not None:
        check_place(path)
    found = assess(model, X, y, init_score)
    sections = [
        _scores(found),
        _calibration(found),
        _rows(found),
        _features(model, found),
        _trees(model, found, tuning),
        _model(model),
    ]
    text = page(title or "How sure is this model?", _header(found), sections, _footer())
    if path is not None:
        write_atomically(path, text.encode(errors="replace"))
    return text


def _header(f: Findings) -> str:
    what = (
        "A model predicts a value for each row, and here also how far off that value may be: a whole distribution. "
        f"This page compares these distributions with what was then observed in {len(f.y):,} rows."
    )
    short = ["Intervals: " + words.on_intervals(f), "Scores: " + words.on_scores(f)]
    return paragraph(what) + box(words.on_rows(f), "warning") + box(short)


def _scores(f: Findings) -> str:
    def line(name: str, score: Score, otherwise: str) -> list[str]:
        if score.baseline is None or score.difference is None:
            return [name, plus_minus(score.model), otherwise, ""]
        return [name, *map(plus_minus, (score.model, score.baseline, score.difference))]

    lines = [line("CRPS", f.crps, "")]
    if f.nll is not None:
        lines.append(line("NLL", f.nll, "not comparable"))
    lines += [line("RMSE of the prediction", f.rmse, "the same"), line("MAE of the prediction", f.mae, "the same")]
    impossible = f"{f.impossible:,} outcomes lie where the model gives no density at all." if f.impossible else ""
    return section(
        "scores",
        "Scores",
        table(["mean over rows", "this model", "one spread", "difference"], lines, "Scores"),
        paragraph(
            "Lower is better; ± is one standard error. The CRPS is in the unit of the outcome and becomes the absolute "
            "error where there is no spread; the NLL is in nats. “One spread” is a normal distribution around the same "
            f"predictions with the standard deviation {number(f.sd)} of the residuals of these very rows, a little "
            f"help that the model does not have. {impossible}",
            "note",
        ),
    )


def _calibration(f: Findings) -> str:
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
    head = ["intervals", "should hold", "held", "calibrated models: 95 % in", "mean width", "one spread: held", "width"]
    coverage = captioned(
        figure("reliability", words.on_intervals(f), lambda ax: plot.draw_coverages({None: f.reliability}, ax), 3.7),
        words.on_intervals(f),
        "Below the diagonal intervals are too narrow, above it too wide.",
    )
    shape = captioned(
        figure("pit", words.on_shape(f), lambda ax: plot.draw_pit(f.histogram, ax), 3.7),
        words.on_shape(f),
        "Each outcome is placed by the probability that the model gave to smaller ones. Level is right, a hollow means "
        "spreads that are too small, a hump too large, a slope a prediction that is off.",
    )
    return section(
        "calibration",
        "Do intervals hold what they promise?",
        table(head, lines, "Coverage of intervals"),
        paragraph(words.on_whole_numbers(f), "note"),
        f'<div class="figures">{coverage}{shape}</div>',
        paragraph(
            "The bands allow for chance, in all places at once, if rows are independent of each other. Rows that "
            "follow one another in time often are not, and then bands are too narrow.",
            "note",
        ),
    )


def _rows(f: Findings) -> str:
    order = np.argsort(f.prediction, kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, _FAN).astype(np.int64))]
    std = f.dist.std()
    least = np.argsort(-std, kind="stable")[:_LEAST_SURE]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # conformal ends that are infinite are shown as such
        low, high = f.dist[shown].interval(0.95)
        ends = np.stack(f.dist[least].interval(0.9), axis=1)

        def draw(ax: Axes) -> None:
            plot.fan(f.dist[shown], f.y[shown], ax=ax).set_xlabel("rows, by prediction")

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
    head = ["row, from 0", "prediction", "standard deviation", "90 % interval", "outcome"]
    return section(
        "rows",
        "Row by row",
        captioned(svg, caption, "The line is the median, points are outcomes."),
        paragraph(words.on_spreads(f)),
        paragraph(f"The {len(least)} rows that the model is least sure of:"),
        table(head, lines, "Least certain rows"),
    )


def _features(model: ProbabilisticModel, f: Findings) -> str:
    names = model.forest.features.names or tuple(f"feature {j}" for j in range(model.forest.features.count))
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
            "How much each feature moves a row's variance away from that of an average row, up or down: mean absolute "
            "Shapley values. It says which features tell easy rows from hard ones, not what makes the noise.",
            "note",
        ),
    )


def _trees(model: ProbabilisticModel, f: Findings, tuning: TuneResult | None) -> str:
    growth = f.growth
    if growth is None:
        grown = paragraph(words.ON_BOOSTED)
    else:
        grown = captioned(
            figure("trees", words.on_growth(growth), lambda ax: plot.draw_growth(growth, ax)),
            words.on_growth(growth),
            f"Variance of the margin over {growth.rows:,} rows, before calibration, after so many trees; each adds its "
            f"own, less what it shares with those before (rho = {model.rho:.3g}).",
        )
    chosen = ""
    if tuning is not None:
        chosen = captioned(
            figure("tuning", words.on_tuning(tuning), lambda ax: plot.tuning(tuning, ax)),
            words.on_tuning(tuning),
            "Each line is a family of distributions; the lower, the better.",
        )
    return section("trees", "How the spread came about", f'<div class="figures">{grown}{chosen}</div>')


def _model(model: ProbabilisticModel) -> str:
    forest, certificate = model.forest, model.certificate
    conformal, identity = model._settings.conformal, model.calibration == Calibration()
    pairs = [
        ("booster", forest.booster),
        ("objective", model.spec.objective.name if model.spec.objective else "custom"),
        ("trees, leaves", f"{forest.n_trees:,}, {forest.n_leaves:,}"),
        ("features", f"{forest.features.count:,}"),
        ("rows behind the spreads", f"{model.moments.rows:,.0f}"),
        ("distribution", model.distribution),
        ("variance", "the paper's recursion" if model._settings.scale is None else "boosted on the trees' leaves"),
        (
            "rho, correlation between trees",
            f"{model.rho:.4g}" + (" (default)" if model.rho == model.default_rho else ""),
        ),
        ("calibration", "none" if identity else f"variance -> {model.calibration}"),
        (
            "conformal",
            "no" if conformal is None else f"on {len(conformal.residuals):,} rows, around {conformal.family}",
        ),
        ("certificate", str(certificate)),
    ]
    return section("model", "The model", paragraph(words.CERTIFICATES[certificate.status]), facts(pairs))


def _footer() -> str:
    from .. import __version__

    return f"Made by pgbm_plugin {__version__} on {datetime.date.today().isoformat()}."
