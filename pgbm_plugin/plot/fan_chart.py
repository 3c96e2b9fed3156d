"""`fan`: intervals, medians and outcomes, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..checks import check_levels
from ..tables.columns import read_column
from .axes import BAND_ALPHA, COLOURS, percent, prepare_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..distributions import Distribution


def fan(
    dist: Distribution,
    y: Any = None,
    x: Any = None,
    coverages: Sequence[float] = (0.5, 0.8, 0.95),
    ax: Axes | None = None,
) -> Axes:
    """Draw central intervals as bands, medians as a line and outcomes as points, row by row.

    Parameters
    ----------
    dist : Distribution
        Distributions of n rows, as ``model.predict_dist(X)`` returns them.
    y : array-like of shape (n,), optional
        Outcomes. Default: no points are drawn.
    x : array-like of shape (n,), optional
        Positions of the rows on the x axis: numbers or dates, in any order. Default: 0, 1, 2, ...
    coverages : sequence of float
        Probabilities of the intervals, strictly between 0 and 1.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into and to return. Default: those of a new figure.
    """
    levels = np.sort(np.atleast_1d(check_levels("coverages", coverages)))[::-1]
    outcome = read_column("y", y, len(dist))
    position = _read_positions(x, len(dist))
    ax, ink = prepare_axes(ax)
    from matplotlib.patches import Patch

    order = np.argsort(position, kind="stable")
    position, dist = position[order], dist[order]
    handles: list[Any] = []
    for k, level in enumerate(levels):
        ends = dist.interval(float(level))
        label = percent(level) + ("" if np.isfinite(ends).all() else ", partly infinite")
        ax.fill_between(position, *ends, color=COLOURS[0], alpha=BAND_ALPHA, linewidth=0.0, label=label)
        # bands lie on top of each other, and the legend shows the colour that results
        handles.append(Patch(color=COLOURS[0], alpha=1.0 - (1.0 - BAND_ALPHA) ** (k + 1), linewidth=0.0, label=label))
    handles += ax.plot(position, dist.median(), color=COLOURS[0], label="median")
    if outcome is not None:
        points: dict[str, Any] = {"color": ink, "markersize": 3.0, "markeredgewidth": 0.0, "label": "outcome"}
        handles += ax.plot(position, outcome[order], "o", **points)
    if x is None:
        ax.set_xlabel("row")
    ax.set_ylabel("outcome")
    ax.margins(x=0.01)
    ax.legend(handles=handles, frameon=False, fontsize="small")
    return ax


def _read_positions(x: Any, n: int) -> NDArray[Any]:
    """Return the (n,) positions on the x axis, numbers or dates, or refuse them."""
    if x is None:
        return np.arange(n)
    position = np.asarray(x)
    if position.shape != (n,):
        raise ValueError(f"x must have shape ({n},), one position for each row, not {position.shape}")
    if position.dtype.kind not in "fiubMO" or any(isinstance(value, str) for value in position.tolist()):
        raise TypeError(f"x must hold numbers or dates, not {position.dtype}")
    if np.any(position != position):  # NaN and NaT
        raise ValueError("x has missing values: leave these rows out of dist, y and x")
    return position
