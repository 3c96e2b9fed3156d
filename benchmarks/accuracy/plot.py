"""A box a contender, a panel a set: CRPS over the median of tuned PGBM, as in the paper's figure of its results."""

from __future__ import annotations

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
    names = list(results.titles)
    size = (0.6 + columns * (0.8 + 0.25 * len(names)), 2.2 + 2.4 * lines)
    figure, panels = plt.subplots(lines, columns, figsize=size, layout="constrained", squeeze=False)
    for panel in panels.flat[len(sets) :]:
        panel.set_axis_off()
    for place, (panel, name) in enumerate(zip(panels.flat, sets, strict=False)):
        base = np.median(list(results.column(name, BASELINE, "crps").values()))
        boxes = [np.array(list(results.column(name, contender, "crps").values())) / base for contender in names]
        panel.boxplot(boxes, widths=0.6, medianprops={"color": "black"}, flierprops={"markersize": 3})
        below = place + columns < len(sets)  # a panel with another one under it needs no names
        titles = [""] * len(names) if below else [results.titles[contender] for contender in names]
        panel.set_xticks(range(1, len(names) + 1), titles, rotation=90)
        panel.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
        panel.set_title(name)
    figure.supylabel("CRPS over the median of tuned PGBM; lower is better")
    figure.savefig(path, dpi=120)
    plt.close(figure)
