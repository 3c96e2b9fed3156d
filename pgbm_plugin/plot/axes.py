"""Axes, colours and labels that all plots share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import needing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which colour-blind readers can tell apart. Dashes tell lines apart in grey print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", "--", "-.", ":")

BAND_ALPHA = 0.22


def check_matplotlib() -> None:
    """Raise an error if matplotlib is missing; called before any long computation."""
    with needing('plots need matplotlib: pip install "pgbm-plugin[plot]"'):
        import matplotlib  # noqa: F401


def prepare_axes(ax: Axes | None) -> tuple[Axes, Any]:
    """Return `ax`, or the Axes of a new figure, and the colour of its labels, which suits dark styles, too."""
    check_matplotlib()
    if ax is None:
        from matplotlib import pyplot as plt

        _, ax = plt.subplots(layout="constrained")
    return ax, ax.xaxis.label.get_color()


def percent(level: float) -> str:
    """Return a probability as text: 0.95 as "95 %"."""
    return f"{100.0 * level:.4g} %"
