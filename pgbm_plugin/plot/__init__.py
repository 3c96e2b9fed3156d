"""Plots of distributions, of their calibration, and of how a model came to its spreads. Needs matplotlib.

Each function draws into `ax`, or into a new figure, and returns the Axes. Titles, limits and files are up to you.
"""

from __future__ import annotations

from .calibration_plots import pit, reliability
from .contributions import contributions
from .fan_chart import fan
from .model_plots import tuning, variance_by_tree

__all__ = ["contributions", "fan", "pit", "reliability", "tuning", "variance_by_tree"]
