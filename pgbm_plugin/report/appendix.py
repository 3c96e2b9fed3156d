"""The appendix of the report: scores, figures and terms for people who know statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import plot
from ..plot.calibration_plots import draw_pit
from ..plot.model_plots import draw_growth
from . import words
from .figures import figure
from .findings import Findings, Score
from .numbers import number, plus_minus
from .page import captioned, facts, paragraph, section, table

if TYPE_CHECKING:
    from ..calibration.tune_result import TuneResult
    from ..model import ProbabilisticModel

_TERMS = (
    ("calibrated", "A model is calibrated if its intervals hold as many outcomes as they promise, up to chance."),
    ("certificate", "Says whether the spreads were computed from the rows that the model was trained on."),
    ("conformal", "Intervals that are widened by the residuals of rows set apart, which guarantees their coverage."),
    (
        "CRPS",
        "Continuous ranked probability score: how far a predicted distribution is from the outcome, in the unit of the "
        "outcome. For a prediction without any spread it is the absolute error. Lower is better.",
    ),
    ("MAE, RMSE", "Mean absolute error, and root mean squared error: typical errors of the predicted values alone."),
    ("NLL", "Negative log likelihood: how improbable the outcomes were to the model, in nats. Lower is better."),
    (
        "PIT",
        "Probability integral transform: the probability that the model gave to values below the outcome. If the "
        "distributions are right, all of its values are equally frequent.",
    ),
    ("rho", "Correlation between successive trees: how much of a tree's variance it shares with those before it."),
    ("spread", "The standard deviation of the distribution that is predicted for a row."),
)


def appendix(model: ProbabilisticModel, f: Findings, tuning: TuneResult | None) -> str:
    """Return the parts of the appendix under one heading."""
    parts = (_scores(f), _shape(f), _trees(model, f, tuning), _about(model), _terms())
    return section("appendix", "Appendix: for statisticians", *parts)


def _scores(f: Findings) -> str:
    """Return the table of scores, with those of one spread for all rows."""

    def line(name: str, score: Score, otherwise: str = "the same") -> list[str]:
        if score.baseline is None or score.difference is None:
            return [name, plus_minus(score.model), otherwise, ""]
        return [name, *map(plus_minus, (score.model, score.baseline, score.difference))]

    lines = [line("continuous ranked probability score (CRPS)", f.crps)]
    if f.nll is not None:
        lines.append(line("negative log likelihood (NLL)", f.nll, "not comparable"))
    lines += [line("root mean squared error (RMSE)", f.rmse), line("mean absolute error (MAE)", f.mae)]
    impossible = f"To the model, {f.impossible:,} of the outcomes were impossible: density 0." if f.impossible else ""
    return section(
        "scores",
        "Scores",
        table(["lower is better", "this model", "one spread for all rows", "difference"], lines, "Scores"),
        paragraph(
            "The number after ± is one standard error. “One spread for all rows” is a simple model for comparison: "
            "the same predicted values, each with a normal distribution of standard "
            f"deviation {number(f.sd)}. That is the RMSE on these same rows, which gives this simple model a small "
            f"advantage. {impossible}",
            "note",
        ),
        level=3,
    )


def _shape(f: Findings) -> str:
    """Return the histogram of the probability integral transforms."""
    said = words.on_shape(f)
    histogram = captioned(
        figure("pit", said, lambda ax: draw_pit(f.histogram, ax), 3.7),
        said,
        "The histogram shows, over all outcomes, the probability that the model gave to smaller values (PIT). It "
        "should be flat. A U shape means that spreads are too small, a hump that they are too large, a slope that "
        "predictions are too low (rising) or too high (falling).",
    )
    return section("shape", "Shape of the distributions", histogram, level=3)


def _trees(model: ProbabilisticModel, f: Findings, tuning: TuneResult | None) -> str:
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
    return section("trees", "How the spread builds up", f'<div class="figures">{grown}{chosen}</div>', level=3)


def _about(model: ProbabilisticModel) -> str:
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
    return section("model", "The model", paragraph(words.CERTIFICATES[certificate.status]), facts(pairs), level=3)


def _terms() -> str:
    """Return what the terms on the page mean."""
    return section("terms", "Terms", facts(_TERMS), level=3)
