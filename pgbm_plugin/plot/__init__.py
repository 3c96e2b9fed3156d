"""Plots of distributions, of what they hold, and of how they came about. Needs matplotlib.

Each draws into `ax`, or into an Axes of a new figure, and returns it: titles, limits and files are yours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..tables.columns import check_levels, read_column
from .growth import Growth, variance_growth
from .uniformity import LEVELS, Shares, central_coverage, pit_histogram, randomised_pit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..calibration.tune_result import TuneResult
    from ..distributions import Distribution
    from ..model import ProbabilisticModel

# Okabe and Ito's colours, which colour-blind eyes tell apart; dashes for those who print in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", "--", "-.", ":")

BAND = 0.22  # how opaque

# Families that `tuning` gives a colour of their own.
NAMED = 4


def fan(
    dist: Distribution,
    y: Any = None,
    x: Any = None,
    coverages: Sequence[float] = (0.5, 0.8, 0.95),
    ax: Axes | None = None,
) -> Axes:
    """Central intervals as bands, medians as a line and outcomes as points, one row after the other.

    Parameters
    ----------
    dist : distributions of n rows.
    y : (n,) outcomes, or None.
    x : (n,) where to draw the rows, numbers or dates, in any order; None for the rows' numbers.
    coverages : of the intervals.
    """
    levels = np.sort(np.atleast_1d(check_levels("coverages", coverages)))[::-1]
    outcome = read_column("y", y, len(dist))
    place = _places(x, len(dist))
    ax, ink = _axes(ax)
    from matplotlib.patches import Patch

    order = np.argsort(place, kind="stable")
    place, dist = place[order], dist[order]
    handles: list[Any] = []
    for k, level in enumerate(levels):
        ends = dist.interval(float(level))
        label = _percent(level) + ("" if np.isfinite(ends).all() else ", partly without end")
        ax.fill_between(place, *ends, color=COLOURS[0], alpha=BAND, linewidth=0.0, label=label)
        # bands lie on top of each other: in the legend as dark as they look
        handles.append(Patch(color=COLOURS[0], alpha=1.0 - (1.0 - BAND) ** (k + 1), linewidth=0.0, label=label))
    handles += ax.plot(place, dist.median(), color=COLOURS[0], label="median")
    if outcome is not None:
        points: dict[str, Any] = {"color": ink, "markersize": 3.0, "markeredgewidth": 0.0, "label": "outcome"}
        handles += ax.plot(place, outcome[order], "o", **points)
    if x is None:
        ax.set_xlabel("row")
    ax.set_ylabel("outcome")
    ax.margins(x=0.01)
    ax.legend(handles=handles, frameon=False, fontsize="small")
    return ax


def pit(
    dist: Distribution,
    y: Any,
    bins: int = 20,
    confidence: float = 0.95,
    *,
    random_state: Any = 0,
    ax: Axes | None = None,
) -> Axes:
    """Histogram of the probability integral transforms F(y), which are uniform if the distributions are right.

    A hollow means that spreads are too small, a hump that they are too large, a slope that the mean is off. The band
    holds all bins of a calibrated model at once, in `confidence` of all cases, if rows are independent; for
    distributions made of residuals ("empirical", "conformal") the chance in these is counted in.

    Where a cdf jumps, as that of counts does, a transform is drawn evenly from the jump; `random_state` is the seed.
    """
    check_matplotlib()
    return draw_pit(pit_histogram(randomised_pit(dist, y, random_state), bins, confidence), ax)


def draw_pit(shares: Shares, ax: Axes | None) -> Axes:
    """`pit` of what is known already."""
    ax, ink = _axes(ax)
    bins = len(shares.observed)
    density, low, high = shares.observed * bins, shares.low[0] * bins, shares.high[0] * bins
    ax.stairs(density, np.arange(bins + 1) / bins, fill=True, color=COLOURS[0], alpha=0.5)
    for height, dashes, label in ((low, "--", None), (1.0, "-", None), (high, "--", _band_label(shares))):
        ax.plot([0.0, 1.0], [height, height], dashes, color=ink, linewidth=1.0, label=label)
    ax.set(xlabel="F(y), predicted probability of less than y", ylabel="density of rows", xlim=(0.0, 1.0))
    ax.set_ylim(0.0, 1.2 * max(density.max(), high))  # room for the legend
    ax.legend(frameon=False, fontsize="small", loc="upper center")
    return ax


def reliability(
    dist: Distribution | Mapping[str, Distribution],
    y: Any,
    confidence: float = 0.95,
    *,
    random_state: Any = 0,
    ax: Axes | None = None,
) -> Axes:
    """Share of outcomes inside central intervals against the share that these promise.

    Below the diagonal intervals are too narrow, above it too wide. `dist` may be several distributions of the same
    rows by their names, ``{"before": ..., "after": ...}``. The band is that of `pit`, for all levels at once. As there,
    outcomes are placed by randomised transforms: intervals of whole numbers hold more than they promise, and would seem
    to be too wide.
    """
    check_matplotlib()
    if isinstance(dist, Mapping) and not dist:
        raise ValueError("dist is empty; give distributions by their names")
    named = dist if isinstance(dist, Mapping) else {None: dist}
    transforms = {name: randomised_pit(of_name, y, random_state) for name, of_name in named.items()}
    coverages = {name: central_coverage(values, LEVELS, confidence) for name, values in transforms.items()}
    return draw_coverages(coverages, ax)


def draw_coverages(named: Mapping[Any, Shares], ax: Axes | None) -> Axes:
    """`reliability` of what is known already; what is named None is not named."""
    ax, ink = _axes(ax)
    handles: list[Any] = []
    # as a rule all have the same band
    for shares in {shares.low.tobytes() + shares.high.tobytes(): shares for shares in named.values()}.values():
        ends = shares.low, shares.high
        band = ax.fill_between(shares.expected, *ends, color=ink, alpha=0.15, linewidth=0.0)
    for shares, colour, dashes in zip(named.values(), cycle(COLOURS), cycle(DASHES), strict=False):
        x, held = [0.0, *shares.expected, 1.0], [0.0, *shares.observed, 1.0]
        handles += ax.plot(x, held, dashes, color=colour)
    ax.plot([0.0, 1.0], [0.0, 1.0], color=ink, linewidth=1.0, zorder=1.5)
    ax.set(xlabel="nominal coverage, probability", ylabel="observed coverage, share of rows")
    ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0), aspect="equal")
    labels = [*(str(name) for name in named if name is not None), _band_label(shares)]
    handles = [*handles[: len(labels) - 1], band]
    legend = ax.legend(handles, ["name"] * len(handles), frameon=False, fontsize="small", loc="upper left")
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set(text=label, parse_math=False)  # as they are: not formulas, nor left out for an underscore
    return ax


def tuning(result: TuneResult, ax: Axes | None = None) -> Axes:
    """Score of every family over the correlation between trees: figure 3 of the paper, for one data set.

    `result` is what ``model.tune`` returned. Lines are the recursion's, with one map on the variance for all families,
    scored on the 2,000 rows at most that the search looks at. The point is the choice, with a map of its own or a
    boosted scale, scored on all rows; so is the dotted line, one spread for all rows. So the point may lie off its
    line. Families beyond the best few are grey.
    """
    ax, ink = _axes(ax)
    scores = dict(zip(result.distributions, result.scores, strict=True))
    ranked = [candidate.distribution for candidate in result.candidates]
    ranked += [name for name in result.distributions if name not in ranked]
    marker = "" if len(result.rho) > 1 else "o"
    for k, name in enumerate(ranked):
        style: dict[str, Any] = {"color": ink, "alpha": 0.3, "linewidth": 0.8, "zorder": 1.5}
        style["label"] = "other families" if k == NAMED else None
        if k < NAMED:
            style = {"color": COLOURS[k], "linestyle": DASHES[k], "label": name}
        ax.plot(result.rho, scores[name], marker=marker, **style)
    best = result.best
    chosen = f"chosen, rho = {best.rho:.3g}" if result.variance == "pgbm" else "chosen, with a boosted scale"
    ax.plot([best.rho], [best.score], "o", color=COLOURS[0], label=chosen)
    if np.isfinite(result.constant.score):
        ax.axhline(result.constant.score, color=ink, linestyle=":", linewidth=1.0, label="one spread")
    ax.set(xlabel="rho, correlation between trees", ylabel=f"mean {result.metric.upper()}, {result.rows} rows")
    ax.legend(frameon=False, fontsize="small")
    return ax


def variance_by_tree(
    model: ProbabilisticModel, X: Any, quantiles: tuple[float, float] = (0.05, 0.95), ax: Axes | None = None
) -> Axes:
    """How the variance grows with the trees: its mean over rows, and a band between two quantiles over rows.

    It is the variance of the margin as the recursion leaves it (paper eq. 12), before `calibration` and the link, also
    where the model has a boosted scale; the label then says so. Of more than 2,000 rows so many are drawn by chance,
    and forests of more than 200 trees are summarised in 200 places.
    """
    low, high = np.sort(check_levels("quantiles", quantiles)).tolist()
    check_matplotlib()
    rows, _ = model._read(X, None, "cpu")
    growth = variance_growth(model.forest, rows, model.weights.sd, model.rho, (low, high))
    ax = draw_growth(growth, ax)
    if model._settings.scale is not None:
        ax.set_ylabel("variance of the margin, without the boosted scale")
    return ax


def draw_growth(growth: Growth, ax: Axes | None) -> Axes:
    """`variance_by_tree` of what is known already."""
    ax, _ = _axes(ax)
    label = "{} to {} of rows".format(*map(_percent, growth.tails))
    ax.fill_between(growth.trees, growth.low, growth.high, color=COLOURS[0], alpha=BAND, linewidth=0.0, label=label)
    ax.plot(growth.trees, growth.mean, color=COLOURS[0], label="mean")
    ax.set(xlabel="trees", ylabel="variance of the margin")
    ax.set_ylim(bottom=0.0)
    ax.legend(frameon=False, fontsize="small")
    return ax


def check_matplotlib() -> None:
    """Refuse to work without it, before any work."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install "pgbm-plugin[plot]"') from error


def _axes(ax: Axes | None) -> tuple[Axes, Any]:
    """Where to draw, and the colour of text there, which is seen on its ground."""
    check_matplotlib()
    if ax is None:
        from matplotlib import pyplot as plt

        _, ax = plt.subplots(layout="constrained")
    return ax, ax.xaxis.label.get_color()


def _places(x: Any, n: int) -> NDArray[Any]:
    """(n,) numbers or dates."""
    if x is None:
        return np.arange(n)
    place = np.asarray(x)
    if place.shape != (n,):
        raise ValueError(f"x must have shape ({n},), one place for each row, not {place.shape}")
    if place.dtype.kind not in "fiubMO" or any(isinstance(value, str) for value in place.tolist()):
        raise TypeError(f"x must hold numbers or dates, not {place.dtype}")
    if np.any(place != place):  # NaN and NaT
        raise ValueError("x has missing values")
    return place


def _percent(level: float) -> str:
    return f"{100.0 * level:.4g} %"


def _band_label(shares: Shares) -> str:
    return f"holds {_percent(shares.confidence)} of calibrated models"
