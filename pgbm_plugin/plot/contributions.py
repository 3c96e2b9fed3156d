"""`contributions`: which features make rows hard to predict."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .axes import COLOURS, prepare_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..predict.variance_parts import VarianceParts


def contributions(parts: VarianceParts, row: int | None = None, count: int = 10, ax: Axes | None = None) -> Axes:
    """Draw the largest parts of features in the variance, or in the standard deviation, as bars.

    Parameters
    ----------
    parts : VarianceParts
        Result of ``model.explain_variance(X)``, or its ``std()``.
    row : int, optional
        Draw the parts of this row: bars to the right make it harder than an average row, bars to the left easier.
        Default: the mean of the absolute parts of all rows.
    count : int
        Most bars to draw.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into and to return. Default: those of a new figure.
    """
    if len(parts) == 0:
        raise ValueError("the parts are of no rows: give explain_variance at least one")
    size = np.abs(parts.values).mean(axis=0) if row is None else parts.values[row]
    order = np.argsort(-np.abs(size), kind="stable")[:count]
    ax, ink = prepare_axes(ax)
    ax.barh([parts.names[j] for j in order], size[order], color=COLOURS[0], height=0.6)
    ax.invert_yaxis()
    what = "variance" if parts.unit == "variance" else "standard deviation"
    ax.set_xlabel(f"mean absolute part of the {what}" if row is None else f"part of the {what}")
    if row is not None:
        ax.axvline(0.0, color=ink, linewidth=0.8)
    return ax
