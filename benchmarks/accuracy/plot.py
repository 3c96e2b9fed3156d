"""A box a contender, a panel a set: CRPS over the baseline's median, as in the paper's figure of its results."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np

from .tables import BASELINE, Results


def plot(results: Results, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    sets = [name for name in results.sets if results.column(name, BASELINE, "crps")]
    if not sets:
        raise ValueError(f"there is nothing to plot: no result of {BASELINE!r}, which the others are compared with")
    columns = min(3, len(sets))
    lines = -(-len(sets) // columns)
    names = list(results.titles)[::-1]  # the first on top
    size = (1.5 + 3.0 * columns, 0.6 + (0.6 + 0.2 * len(names)) * lines)
    figure, panels = plt.subplots(lines, columns, figsize=size, layout="constrained", sharey=True, squeeze=False)
    for panel in panels.flat[len(sets) :]:
        panel.set_axis_off()
    lying = "orientation" in inspect.signature(panels[0, 0].boxplot).parameters  # before matplotlib 3.10 it was vert
    style = {"widths": 0.6, "medianprops": {"color": "black"}, "flierprops": {"markersize": 3}}
    style |= {"orientation": "horizontal"} if lying else {"vert": False}
    for panel, name in zip(panels.flat, sets, strict=False):
        base = np.median(list(results.column(name, BASELINE, "crps").values()))
        boxes = [np.array(list(results.column(name, contender, "crps").values())) / base for contender in names]
        panel.boxplot(boxes, **style)
        panel.set_yticks(range(1, len(names) + 1), [results.titles[contender] for contender in names])
        panel.axvline(1.0, color="grey", linewidth=0.8, linestyle=":")
        panel.set_title(name)
    figure.supxlabel(f'CRPS over the median of "{results.titles[BASELINE]}"; lower is better')
    figure.savefig(path, dpi=120)
    plt.close(figure)
