"""Totals of one store of the M5 competition: items that err together, against the independent items of table 4.

python -m examples.paper.totals --data DIR [--seeds 2] [--windows 3] [--families normal,auto] [--jobs 2] [--threads 1]
    [--out DIR] [--quick]

Rows, features and parameters are those of table 4, with the squared error. A model of the days before the last 56 is
stopped by the RMSE of items on the next 28 days. On these days `tune` chooses the spread, and `correlate` measures how
much items of one day, category and department err together. The last 28 days are tested: the sales of each department,
each category, and the store, on each day. Window 0 is the paper's; window k ends 28 k days before it.

All forecasts of a total have the same mean, the sum of the items' predictions:

* independent: the variance is the sum of the items' variances, as in the paper;
* factors: `predict_total`;
* one sigma: a normal with the root mean square error of the same department, category or store on the 28 days before;
* hindsight: independent, but all standard deviations times the number that gives the best CRPS on the tested days. This
  is no forecast; it shows what the spread can gain while the means stay.

Families: "normal" lets `tune` choose the spread of a normal, "auto" the family as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from benchmarks.accuracy.__main__ import chosen
from pgbm_plugin.distributions import Distribution, Normal
from pgbm_plugin.scores import coverage

from .m5 import MONTH, Rows
from .results import Key, Record, complete, digest, figure, number, options, save, table, write
from .table4 import LIGHTGBM, PATIENCE, all_rows, groups, train, with_spread

NAME = "totals"
FAMILIES = {"normal": "normal", "auto": None}
METHODS = {"independent": "independent", "factors": "factors", "sigma": "one sigma", "hindsight": "hindsight"}
LEVELS = ("department", "category", "total")
COVERAGE = 0.9


def parts(rows: Rows) -> dict[str, np.ndarray]:
    """level -> the part of the store that a row belongs to, on any day."""
    return {"department": rows.department, "category": rows.category, "total": np.zeros(len(rows), np.int64)}


def levels(rows: Rows) -> dict[str, np.ndarray]:
    """Return what `correlate` is told: rows of a day, of a category on a day, and of a department on a day."""
    keys = groups(rows)
    return {"day": keys["total"], "category": keys["category"], "department": keys["department"]}


def total_of(values: Any, key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of groups, and the first row of each, in order of their first rows."""
    _, first, code = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return np.bincount(code, values)[order], first[order]


def scored(totals: Distribution, outcome: np.ndarray) -> Record:
    ends = np.column_stack(totals.interval(COVERAGE))
    return {"crps": float(np.mean(totals.crps(outcome))), "cover": coverage(outcome, ends)}


def best_in_hindsight(mean: np.ndarray, variance: np.ndarray, outcome: np.ndarray) -> Distribution:
    """Return normals whose standard deviations are multiplied by the number, 1 to 20, with the best CRPS."""

    def widened(log_ratio: float) -> Distribution:
        return Normal.from_moments(mean, variance * math.exp(log_ratio))

    loss = minimize_scalar(lambda x: np.mean(widened(x).crps(outcome)), bounds=(0.0, math.log(400.0)), method="bounded")
    return widened(loss.x)


def score(model: Any, held_out: Rows, test: Rows, start: float) -> Record:
    """method -> level -> CRPS of totals, and how many of their 90 % intervals hold."""
    starts = np.full(len(test), start)
    items, point = model.predict_dist(test.X, init_score=starts), model.predict(test.X, init_score=starts)
    before = model.predict(held_out.X, init_score=np.full(len(held_out), start))
    found: Record = {method: {} for method in METHODS}
    for level, key in groups(test).items():
        outcome, first = total_of(test.y, key)
        mean, variance = (total_of(values, key)[0] for values in (point, items.var()))
        joint = model.predict_total(test.X, key, levels(test), init_score=starts)
        assert np.array_equal(joint.groups, key[first])
        # errors of the same part of the store on the days before
        errors, first_before = total_of(held_out.y - before, groups(held_out)[level])
        part = parts(held_out)[level][first_before]
        square = np.bincount(part, errors**2) / np.maximum(np.bincount(part), 1)
        forecasts = {
            "independent": Normal.from_moments(mean, variance),
            "factors": joint,
            "sigma": Normal.from_moments(mean, square[parts(test)[level][first]]),
            "hindsight": best_in_hindsight(mean, variance, outcome),
        }
        for method, totals in forecasts.items():
            found[method][level] = {**scored(totals, outcome), "bias": float(np.mean(totals.mean() - outcome))}
    return found


def compute(key: Key, path: Path | None, trees: int, threads: int, families: Sequence[str]) -> Record:
    rows = all_rows(path)
    end = int(rows.day[-1]) + 1 - MONTH * key["window"]
    before, held_out = rows.between(0, end - 2 * MONTH), rows.between(end - 2 * MONTH, end - MONTH)
    test = rows.between(end - MONTH, end)
    booster, objective, start = train(before, held_out, "mse", trees, key["seed"], threads)
    found: Record = {"trees": booster.best_iteration, "rows": [len(before), len(held_out), len(test)]}
    model = with_spread(booster, objective, before, start)
    validation, starts = (held_out.X, held_out.y), np.full(len(held_out), start)
    for name in families:
        model.tune(*validation, distributions=FAMILIES[name], init_score=starts)
        joint = model.correlate(*validation, levels(held_out), init_score=starts)
        correlation = {
            level: {"r": r, "error": error}
            for level, r, error in zip(joint.levels, joint.r, joint.standard_error, strict=True)
        }
        scores = score(model, held_out, test, start)
        found[name] = {"family": str(model.chosen), "correlation": correlation, "scores": scores}
    return found


def mean_over(records: Sequence[Record], family: str, method: str, level: str, metric: str) -> float:
    return float(np.mean([record[family]["scores"][method][level][metric] for record in records]))


def markdown(records: Sequence[Record], families: Sequence[str]) -> str:
    windows = sorted({record["key"]["window"] for record in records})
    fits = len(records) // len(windows)
    out = []
    for family in families:
        lines = []
        for window in windows:
            here = [record for record in records if record["key"]["window"] == window]
            for level in LEVELS:
                crps = {method: mean_over(here, family, method, level, "crps") for method in METHODS}
                cells = {
                    title: f"{number(crps[method])} ({mean_over(here, family, method, level, 'cover'):.0%})"
                    for method, title in METHODS.items()
                }
                ratios = {
                    f"{METHODS[method]} / independent": f"{crps[method] / crps['independent']:.3f}"
                    for method in ("factors", "hindsight")
                }
                lines.append({"window": str(window), "level": level, **cells, **ratios})
        names = sorted({record[family]["family"] for record in records})
        title = (
            f"**Totals of a day, `tune` of {'a normal' if family == 'normal' else 'any family'}** ({'; '.join(names)})"
        )
        out += [f"{title}: CRPS (cover of 90 % intervals), {fits} fit{'s' if fits > 1 else ''} a window", table(lines)]
        lines = [
            {
                "window": str(record["key"]["window"]),
                "seed": str(record["key"]["seed"]),
                "trees": str(record["trees"]),
                **{
                    level: f"{entry['r']:.4f} ± {entry['error']:.4f}"
                    for level, entry in record[family]["correlation"].items()
                },
            }
            for record in records
        ]
        out += ["r of each level ± standard error", table(lines)]
    return "\n\n".join(out) + "\n"


def draw(records: Sequence[Record], families: Sequence[str], out: Path) -> None:
    """CRPS over that of independent items, and cover: a panel each, a dot for each fit."""
    drawing, panels = figure(1, 2, 4.5, 3.5)
    for panel, metric in zip(panels[0], ("crps", "cover"), strict=True):
        for k, (method, title) in enumerate(METHODS.items()):
            dots = []
            for x, level in enumerate(LEVELS):
                for record in records:
                    scores = record[families[0]]["scores"]
                    value = scores[method][level][metric]
                    by = scores["independent"][level][metric] if metric == "crps" else 1.0
                    dots.append((x + 0.2 * (k - 1.5), value / by))
            panel.plot(*zip(*dots, strict=True), "o", label=title)
        panel.set_xticks(range(len(LEVELS)), LEVELS)
    panels[0, 0].set_title("CRPS over that of independent items")
    panels[0, 1].set_title("cover of 90 % intervals")
    panels[0, 1].axhline(COVERAGE, color="grey", linewidth=0.8, linestyle=":")
    drawing.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(METHODS))
    save(drawing, NAME, out)


def main(arguments: Sequence[str] | None = None) -> None:
    given = options(
        __doc__,
        arguments,
        seeds={"type": int, "help": "per window; 2 unless given"},
        windows={"type": int, "help": "how many; 3 unless given"},
        families={"help": f"of {', '.join(FAMILIES)}; with commas"},
        threads={"type": int, "default": 1, "help": "of LightGBM"},
    )
    families = chosen("normal" if given.quick else given.families, list(FAMILIES), "family")
    seeds, windows = (given.seeds or 1, given.windows or 1) if given.quick else (given.seeds or 2, given.windows or 3)
    path = None if given.data is None or given.quick else given.data / "m5" / "m5_ca1.npz"
    trees = 12 if given.quick else 1000
    settings = digest([LIGHTGBM, PATIENCE, trees, families])
    keys = [
        {"window": window, "seed": seed, "settings": settings}
        for seed in range(1, seeds + 1)
        for window in range(windows)
    ]
    records = complete(NAME, keys, compute, given.out, given.jobs, path, trees, given.threads, families)
    write(NAME, markdown(records, families), {"fits": records}, records, given.out)
    if given.out is not None:
        draw(records, families, given.out)


if __name__ == "__main__":
    main()
