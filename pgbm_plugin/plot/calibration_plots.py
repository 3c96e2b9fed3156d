"""`pit` and `reliability`: plots of how well distributions fit outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from .axes import COLOURS, DASHES, check_matplotlib, percent, prepare_axes
from .uniformity import LEVELS, Shares, central_coverage, pit_histogram, randomised_pit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..distributions import Distribution


def pit(
    dist: Distribution,
    y: Any,
    bins: int = 20,
    confidence: float = 0.95,
    *,
    random_state: Any = 0,
    ax: Axes | None = None,
) -> Axes:
    """Draw a histogram of the outcomes' probability integral transforms (PIT).

    The PIT of an outcome is the probability that its distribution gave to smaller values. If the distributions are
    right, the histogram is flat. A U shape means that spreads are too small. A hump means that they are too large. Bars
    that rise mean that predictions are too low, and bars that fall that they are too high.

    The dashed lines allow for chance. If the rows are independent and the distributions right, all bins lie between the
    lines at once with probability `confidence`. For distributions made of residuals ("empirical", "conformal"), the
    lines are wider, because these residuals are a sample themselves.

    Parameters
    ----------
    dist : Distribution
        Distributions of n rows, as ``model.predict_dist(X)`` returns them.
    y : array-like of shape (n,)
        Outcomes.
    bins : int
        Number of bins, at least 2.
    confidence : float
        Probability that all bins of a calibrated model lie between the dashed lines.
    random_state : int or numpy.random.Generator
        Seed. A count has no single PIT: it is drawn between the probabilities of fewer and of at most so many.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into and to return. Default: those of a new figure.
    """
    check_matplotlib()
    return draw_pit(pit_histogram(randomised_pit(dist, y, random_state), bins, confidence), ax)


def draw_pit(shares: Shares, ax: Axes | None) -> Axes:
    """Draw the result of `pit_histogram`."""
    ax, ink = prepare_axes(ax)
    bins = len(shares.observed)
    density, low, high = shares.observed * bins, shares.low[0] * bins, shares.high[0] * bins
    ax.stairs(density, np.arange(bins + 1) / bins, fill=True, color=COLOURS[0], alpha=0.5)
    for height, dashes, label in ((low, "--", None), (1.0, "-", None), (high, "--", _band_label(shares))):
        ax.plot([0.0, 1.0], [height, height], dashes, color=ink, linewidth=1.0, label=label)
    ax.set(xlabel="PIT: predicted probability of a smaller outcome", ylabel="density of rows", xlim=(0.0, 1.0))
    ax.set_ylim(0.0, 1.2 * max(density.max(), high))  # leaves space for the legend
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
    """Draw the share of outcomes inside central intervals against the share that the intervals promise.

    Below the diagonal, intervals are too narrow; above it, too wide. The band allows for chance: if the rows are
    independent, the whole line of a calibrated model lies inside it with probability `confidence`. For
    distributions made of residuals ("empirical", "conformal"), the band also allows for the chance in these residuals.

    Parameters
    ----------
    dist : Distribution, or dict of str to Distribution
        Distributions of n rows, as ``model.predict_dist(X)`` returns them; or several of them for the same rows, to
        compare: ``{"before": ..., "after": ...}``.
    y : array-like of shape (n,)
        Outcomes.
    confidence : float
        Probability that the whole line of a calibrated model lies inside the band.
    random_state : int or numpy.random.Generator
        Seed. Counts are placed by the random PIT of `plot.pit`; otherwise their intervals, which end on whole numbers,
        would all seem too wide.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into and to return. Default: those of a new figure.
    """
    check_matplotlib()
    if isinstance(dist, Mapping) and not dist:
        raise ValueError('dist is an empty dict: pass at least one distribution, {"name": model.predict_dist(X)}')
    named = dist if isinstance(dist, Mapping) else {None: dist}
    transforms = {name: randomised_pit(one, y, random_state) for name, one in named.items()}
    coverages = {name: central_coverage(transform, LEVELS, confidence) for name, transform in transforms.items()}
    return draw_coverages(coverages, ax)


def draw_coverages(named: Mapping[Any, Shares], ax: Axes | None) -> Axes:
    """Draw results of `central_coverage` by name; a line named None gets no label."""
    ax, ink = prepare_axes(ax)
    handles: list[Any] = []
    # most often all lines have the same band, which is then drawn once
    for shares in {shares.low.tobytes() + shares.high.tobytes(): shares for shares in named.values()}.values():
        band = ax.fill_between(shares.expected, shares.low, shares.high, color=ink, alpha=0.15, linewidth=0.0)
    for shares, colour, dashes in zip(named.values(), cycle(COLOURS), cycle(DASHES), strict=False):
        x, held = [0.0, *shares.expected, 1.0], [0.0, *shares.observed, 1.0]
        handles += ax.plot(x, held, dashes, color=colour)
    ax.plot([0.0, 1.0], [0.0, 1.0], color=ink, linewidth=1.0, zorder=1.5)
    ax.set(xlabel="coverage that intervals promise", ylabel="share of outcomes inside")
    ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0), aspect="equal")
    labels = [*(str(name) for name in named if name is not None), _band_label(shares)]
    handles = [*handles[: len(labels) - 1], band]
    legend = ax.legend(handles, ["name"] * len(handles), frameon=False, fontsize="small", loc="upper left")
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set(text=label, parse_math=False)  # names may hold "$", or start with "_", which a legend would leave out
    return ax


def _band_label(shares: Shares) -> str:
    return f"holds {percent(shares.confidence)} of calibrated models"
