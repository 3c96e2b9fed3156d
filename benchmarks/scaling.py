"""How the cost of `predict_dist` grows with rows, trees, leaves and threads, each alone, and how much memory it takes.

python -m benchmarks.scaling [--quick] [--json PATH] [--plot PATH.png]

The last columns: cost relative to the line before it over size relative to the line before it (1 is proportional), and
the most memory that a call held beyond its input, of which its outputs are a part.
"""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

from pgbm_plugin.parallel import progress_bar

from .contest import check_answers, interleave, options, report
from .models import CASES, Case, Contender, contender

BASE = CASES[0]


def measure(it: Contender, axis: str, size: int, n: int, repeats: int) -> dict[str, Any]:
    X = it.X[:n]
    check_answers(it.wrapped, it.predict, X[:20_000])
    calls = {"own": lambda: it.predict(X), "dist": lambda: it.wrapped.predict_dist(X)}
    best = interleave(calls, repeats, time.perf_counter)
    tracemalloc.start()
    result = it.wrapped.predict_dist(X)
    extra = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    line = {"axis": axis, "size": size, "ms": 1e3 * best["dist"], "times faster": best["own"] / best["dist"]}
    line |= {"ns per row and tree": best["dist"] * 1e9 / (len(result) * it.wrapped.forest.n_trees)}
    return line | {"MB held": extra / 2**20, "MB returned": 16 * len(result) / 2**20}


def with_growth(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each line with its growth against the one before it on the same axis."""
    out = []
    for before, line in zip([None, *lines], lines, strict=False):
        growth: float | str = ""
        if before is not None and before["axis"] == line["axis"]:
            growth = (line["ms"] / before["ms"]) / (line["size"] / before["size"])
        out.append({**line, "growth": growth})
    return out


def plot(lines: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    axes = list(dict.fromkeys(line["axis"] for line in lines))
    figure, panels = plt.subplots(1, len(axes), figsize=(4 * len(axes), 3.2), layout="constrained")
    for panel, axis in zip(panels, axes, strict=True):
        of_axis = [line for line in lines if line["axis"] == axis]
        sizes = [line["size"] for line in of_axis]
        panel.loglog(sizes, [line["ms"] for line in of_axis], "o-", label="predict_dist")
        panel.loglog(sizes, [line["ms"] * line["times faster"] for line in of_axis], "s--", label="booster's predict")
        panel.set(xlabel=axis, ylabel="ms")
    panels[0].legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    given = options(__doc__, plot={"type": Path})
    scale, n_train = (20, 2_000) if given.quick else (1, 50_000)
    rows = [10**k // scale for k in (3, 4, 5, 6)]
    trees = [max(5, t // scale) for t in (50, 200, 500, 2000)]
    leaves = [8, 31, 128, 512]
    threads = [1, 2]
    n = 20_000 // scale
    repeats = 1 if given.quick else 3

    def grown(case: Case, n_test: int, n_jobs: int = 1) -> Contender:
        return contender("LightGBM", case, n_train, n_test, n_jobs)

    base = replace(BASE, trees=max(5, BASE.trees // scale))
    lines: list[dict[str, Any]] = []
    with progress_bar(len(rows) + len(trees) + len(leaves) + len(threads), "points", True) as advance:
        it = grown(base, max(rows))
        for size in rows:
            lines.append(measure(it, "rows", size, size, repeats))
            advance(1)
        for size in trees:
            lines.append(measure(grown(replace(BASE, trees=size), n), "trees", size, n, repeats))
            advance(1)
        for size in leaves:
            lines.append(measure(grown(replace(base, leaves=size), n), "leaves", size, n, repeats))
            advance(1)
        for size in threads:
            lines.append(measure(grown(base, 5 * n, size), "threads", size, 5 * n, repeats))
            advance(1)
    lines = with_growth(lines)
    report(f"predict_dist around {base}, {n} rows, one thread, against LightGBM's predict", lines, given.json)
    if given.plot:
        plot(lines, given.plot)


if __name__ == "__main__":
    main()
