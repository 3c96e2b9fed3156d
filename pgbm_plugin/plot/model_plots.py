"""`tuning` and `variance_by_tree`: how a model came to its spreads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import check_levels
from .axes import BAND_ALPHA, COLOURS, DASHES, check_matplotlib, percent, prepare_axes
from .growth import Growth, variance_growth

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..calibration.tune_result import TuneResult
    from ..model import ProbabilisticModel

# Number of families that `tuning` draws in a colour of their own.
NAMED = 4


def tuning(result: TuneResult, ax: Axes | None = None) -> Axes:
    """Draw the score of every family over the correlation between trees, as figure 3 of the paper does.

    Lines are scores of the paper's variance, calibrated by one power map for all families, on the at most 2,000
    rows that the search uses. The dot on a line is the choice; its own power map, fitted on all rows, may score a
    little better. A choice without a line, such as a boosted scale, is a line across at its score. The dotted line is
    one spread for all rows. Families after the best four are grey.

    Parameters
    ----------
    result : TuneResult
        Result of ``model.tune``.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into and to return. Default: those of a new figure.
    """
    ax, ink = prepare_axes(ax)
    scores = dict(zip(result.distributions, result.scores, strict=True))
    ranked = [candidate.distribution for candidate in result.candidates]
    ranked += [name for name in result.distributions if name not in ranked]
    marker = "" if len(result.rho) > 1 else "o"
    missing = np.full(len(result.rho), np.nan)  # bins of the spread may need a boosted scale
    for k, name in enumerate(ranked):
        style: dict[str, Any] = {"color": ink, "alpha": 0.3, "linewidth": 0.8, "zorder": 1.5}
        style["label"] = "other families" if k == NAMED else None
        if k < NAMED:
            style = {"color": COLOURS[k], "linestyle": DASHES[k], "label": name}
        ax.plot(result.rho, scores.get(name, missing), marker=marker, **style)
    best, line = result.best, scores.get(result.best.distribution, missing)
    if result.variance == "pgbm" and np.isfinite(line).any():
        on_line = np.interp(best.rho, result.rho, line)
        ax.plot([best.rho], [on_line], "o", color=COLOURS[0], label=f"chosen, rho = {best.rho:.3g}")
    else:
        chosen = "chosen" if result.variance == "pgbm" else "chosen, with a boosted scale"
        ax.axhline(best.score, color=COLOURS[0], linewidth=1.0, label=chosen)
    if np.isfinite(result.constant.score):
        label = "one spread for all rows"
        ax.axhline(result.constant.score, color=ink, linestyle=":", linewidth=1.0, label=label)
    ax.set(xlabel="rho, correlation between trees", ylabel=f"mean {result.metric.upper()}, {result.rows} rows")
    ax.legend(frameon=False, fontsize="small")
    return ax


def variance_by_tree(
    model: ProbabilisticModel, X: Any, quantiles: tuple[float, float] = (0.05, 0.95), ax: Axes | None = None
) -> Axes:
    """Draw how the variance grows with the trees: its mean over rows, and a band between two quantiles over rows.

    This is the variance of the margin (the sum of the trees) by the paper's recursion (eq. 12), before calibration
    and link. A boosted scale does not take part; the label of the y axis then says so.

    Parameters
    ----------
    model : ProbabilisticModel
        Model whose variance is drawn.
    X : array-like of shape (n, features)
        Rows. Of more than 2,000, a random 2,000 are used. A forest of more than 200 trees is drawn at 200 points.
    quantiles : tuple of float
        Lower and upper end of the band, as probabilities.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into and to return. Default: those of a new figure.
    """
    low, high = np.sort(check_levels("quantiles", quantiles)).tolist()
    check_matplotlib()
    model.spec.check_sequential("variance_by_tree", "its boosted scale does not grow with the trees")
    rows, _ = model.read_rows(X, None, "cpu")
    if len(rows) == 0:
        raise ValueError("X has no rows")
    growth = variance_growth(model.forest, rows, model.weights.sd, model.rho, (low, high))
    ax = draw_growth(growth, ax)
    if model.chosen.scale is not None:
        ax.set_ylabel("variance of the margin, without the boosted scale")
    return ax


def draw_growth(growth: Growth, ax: Axes | None) -> Axes:
    """Draw the result of `variance_growth`."""
    ax, _ = prepare_axes(ax)
    label = "{} to {} of rows".format(*map(percent, growth.levels))
    band: dict[str, Any] = {"color": COLOURS[0], "alpha": BAND_ALPHA, "linewidth": 0.0, "label": label}
    ax.fill_between(growth.trees, growth.low, growth.high, **band)
    ax.plot(growth.trees, growth.mean, color=COLOURS[0], label="mean")
    ax.set(xlabel="trees", ylabel="variance of the margin")
    ax.set_ylim(bottom=0.0)
    ax.legend(frameon=False, fontsize="small")
    return ax
