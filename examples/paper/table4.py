"""Table 4: one store of the M5 competition, squared error of items against a loss that also sees their sums.

python -m examples.paper.table4 --data DIR [--seeds 3] [--windows 4] [--losses mse,wmse-rowsum] [--jobs 2]
    [--threads 1] [--out DIR] [--quick]

Protocol of the paper: rows from 2014 on; 28 days choose the number of trees by the RMSE of items, a model of all days
before the test is tested on the next 28; 64 leaves, a step of 0.1, lambda 1, 70 % of rows and features a tree, 1,024
bins, up to 1,000 trees, stopped after 20 without gain. Window 0 is the paper's; window k ends 28 k days before it.

wMSE is a quarter each of: items, departments, categories, total a day; the last three divided by their number. It
steps with the exact diagonal of its Hessian, or with its row sums, which is what the paper's code computes. The
variance is taken with the diagonal; for row sums also with these, as in the paper.

Samples of items are drawn independently and summed, as in the paper. Items share good and bad days, so that such sums
are too narrow, whatever the loss. The paper also clamps samples at 0, which lifts every item's mean and adds up over
3,049 of them: scores are given without clamping and with it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np

from benchmarks.accuracy.__main__ import chosen
from pgbm_plugin import ProbabilisticModel, torch_objective, wrap
from pgbm_plugin.scores import coverage, crps_ensemble

from .m5 import FIRST, MONTH, Rows, made_up_store, read_store, rows
from .published import TABLE_4
from .results import Key, Record, complete, digest, figure, mean_and_sd, number, options, save, table, write
from .uci import SAMPLES, rmse

NAME = "table4"
LIGHTGBM = {
    "num_leaves": 64,
    "learning_rate": 0.1,
    "lambda_l2": 1.0,
    "feature_fraction": 0.7,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "max_bin": 1024,
    "min_data_in_leaf": 1,
    "metric": "rmse",
    "verbose": -1,
}
PATIENCE = 20
LOSSES = {
    "mse": "MSE",
    "mse-300": "MSE, 300 trees",
    "wmse-diagonal": "wMSE, diagonal",
    "wmse-rowsum": "wMSE, row sums",
    "wmse-rowsum-paper": "wMSE, row sums, also in the variance",
}
"""The last is the model of the one before it with another variance."""
LEVELS = ("item", "department", "category", "total")
METRICS = {"rmse": "RMSE", "crps": "CRPS, samples as drawn", "crps_clamped": "CRPS, clamped at 0"}


def squared(pred: Any, true: Any) -> Any:
    return (pred - true) ** 2


def groups(part: Rows) -> dict[str, np.ndarray]:
    """level -> the group of each row: a day, and a part of the store."""
    departments, categories = part.department.max() + 1, part.category.max() + 1
    return {
        "department": part.day * departments + part.department,
        "category": part.day * categories + part.category,
        "total": part.day,
    }


def weighted_mse(part: Rows, hessian: Any) -> Any:
    """A quarter each: the sum over items, and for each other level the mean over its groups, days times parts."""
    levels: list[Any] = [(None, 0.25)]
    levels += [(group, 0.25 / len(np.unique(group))) for group in groups(part).values()]
    return torch_objective(squared, levels=levels, hessian=hessian)


def train(part: Rows, held_out: Rows | None, loss: str, trees: int, seed: int, threads: int) -> tuple[Any, Any, float]:
    """The booster, its objective if it has one of its own, and its start; stopped on held-out rows if there are any."""
    params = {**LIGHTGBM, "seed": seed, "num_threads": threads}
    objective, start = None, float(part.y.mean())
    if loss.startswith("wmse"):
        objective = weighted_mse(part, loss.partition("-")[2])
        params["objective"] = objective
        start = objective.init(part.y)
    # LightGBM starts a loss of one's own at 0 and then leaves its start out of predictions; so it has one either way
    data = lgb.Dataset(part.X, part.y, params=params, init_score=np.full(len(part), start))
    watched, stop = [], []
    if held_out is not None:
        watched = [data.create_valid(held_out.X, held_out.y, init_score=np.full(len(held_out), start))]
        stop = [lgb.early_stopping(PATIENCE, verbose=False)]
    return lgb.train(params, data, trees, valid_sets=watched, callbacks=stop), objective, start


def with_spread(booster: Any, objective: Any, part: Rows, start: float) -> ProbabilisticModel:
    """Wrapped; rows that a tree did not see because of bagging count as well, which the certificate says."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "not certified", UserWarning)
        return wrap(booster, part.X, part.y, init_score=np.full(len(part), start), objective=objective)


def score(model: ProbabilisticModel, test: Rows, start: float) -> Record:
    """RMSE, and CRPS with and without clamping, of every level; how far clamping lifts the total of a day."""
    forecast = model.predict_dist(test.X, init_score=np.full(len(test), start))
    mean = forecast.mean()
    found = {"rmse": {"item": rmse(mean, test.y)}, "crps": {"item": float(np.mean(forecast.crps(test.y)))}}
    sums = {level: np.unique(group, return_inverse=True)[1] for level, group in groups(test).items()}
    for level, group in sums.items():
        found["rmse"][level] = rmse(np.bincount(group, mean), np.bincount(group, test.y))
    plain, clamped, item = sampled(forecast, test, sums)
    found["crps_clamped"] = {"item": item}
    for level, group in sums.items():
        outcome = np.bincount(group, test.y)
        found["crps"][level] = crps_ensemble(outcome, plain[level])
        found["crps_clamped"][level] = crps_ensemble(outcome, clamped[level])
    lift = clamped["total"].mean() - plain["total"].mean()
    ends = np.column_stack(forecast.interval(0.8))
    return {**found, "lift": float(lift), "coverage_80": coverage(test.y, ends), "sigma": float(forecast.std().mean())}


def sampled(forecast: Any, test: Rows, sums: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, Any], float]:
    """(groups, samples) sums of a level's groups, as drawn and clamped at 0; and the items' CRPS when clamped."""
    rng = np.random.default_rng(1)
    plain, clamped = ({level: np.zeros((g.max() + 1, SAMPLES)) for level, g in sums.items()} for _ in range(2))
    items = []
    for day in np.unique(test.day):  # 3,049 items x 1,000 samples at a time
        here = test.day == day
        drawn = forecast[here].rvs(SAMPLES, random_state=rng)
        positive = np.maximum(drawn, 0.0)
        items.append(crps_ensemble(test.y[here], positive) * here.sum())
        for level, group in sums.items():
            for one in np.unique(group[here]):
                mine = group[here] == one
                plain[level][one], clamped[level][one] = drawn[mine].sum(axis=0), positive[mine].sum(axis=0)
    return plain, clamped, float(sum(items) / len(test))


@cache
def all_rows(path: Path | None) -> Rows:
    if path is None:
        return rows(made_up_store(), np.datetime64("2014-06-01"))
    return rows(read_store(path), FIRST)


def compute(key: Key, path: Path | None, trees: int, threads: int) -> Record:
    table_ = all_rows(path)
    end = int(table_.day[-1]) + 1 - MONTH * key["window"]
    known, test = table_.between(0, end - MONTH), table_.between(end - MONTH, end)
    before, held_out = known.between(0, end - 2 * MONTH), known.between(end - 2 * MONTH, end - MONTH)
    loss = key["loss"]
    if loss == "mse-300":
        best = min(300, trees)
    else:
        best = train(before, held_out, loss, trees, key["seed"], threads)[0].best_iteration
    booster, objective, start = train(known, None, loss, best, key["seed"], threads)
    counts = {"rows": [len(before), len(held_out), len(test)], "trees": best}
    found = {loss: score(with_spread(booster, objective, known, start), test, start)}
    if loss == "wmse-rowsum":

        def by_rowsum(margin: Any, y: Any) -> Any:
            return objective.derivatives(margin, y)

        found["wmse-rowsum-paper"] = score(with_spread(booster, by_rowsum, known, start), test, start)
    return {**counts, "scores": found}


def columns(records: Sequence[Record]) -> dict[str, list[Record]]:
    """loss -> its scores, each with its window."""
    out: dict[str, list[Record]] = {}
    for record in records:
        for loss, values in record["scores"].items():
            out.setdefault(loss, []).append({**values, "window": record["key"]["window"], "trees": record["trees"]})
    return {loss: out[loss] for loss in LOSSES if loss in out}


def markdown(found: dict[str, list[Record]]) -> str:
    parts = []
    for title, wanted in (("The paper's window", [0]), ("Earlier windows", None)):
        here = {loss: [s for s in all_ if (s["window"] == 0) == (wanted is not None)] for loss, all_ in found.items()}
        here = {loss: list_ for loss, list_ in here.items() if list_}
        for metric, name in METRICS.items():
            lines = [_line(loss, scores, metric) for loss, scores in here.items()]
            if wanted is not None and metric != "crps":
                paper = {level: TABLE_4[level][metric.partition("_")[0]] for level in LEVELS}
                for model in paper["item"]:
                    values = {level: number(paper[level][model]) for level in LEVELS}
                    lines.append({"loss": f"paper: {model}", "fits": "1", "trees": "", **values})
            if lines:
                parts += [f"**{title}: {name}**, mean ± sd over fits", table(lines)]
    if "mse" in found:
        for metric in ("rmse", "crps"):
            title = f"**Total of a day: {METRICS[metric]}**, over that of MSE in the same window"
            parts += [title, _by_window(found, metric)]
    spread = [
        {
            "loss": LOSSES[loss],
            "80 % interval of an item holds": f"{np.mean([s['coverage_80'] for s in scores]):.0%}",
            "mean sigma of an item": f"{np.mean([s['sigma'] for s in scores]):.3g}",
            "clamping adds to the total of a day": f"{np.mean([s['lift'] for s in scores]):+.0f}",
        }
        for loss, scores in found.items()
    ]
    return "\n\n".join([*parts, "**Spread**, all windows", table(spread)]) + "\n"


def _line(loss: str, scores: Sequence[Record], metric: str) -> dict[str, str]:
    counts = [s["trees"] for s in scores]
    trees = " to ".join(map(str, sorted({min(counts), max(counts)})))
    values = {level: mean_and_sd([s[metric][level] for s in scores]) for level in LEVELS}
    return {"loss": LOSSES[loss], "fits": str(len(scores)), "trees": trees, **values}


def relative(scores: Sequence[Record], base: Sequence[Record], metric: str, level: str) -> dict[int, float]:
    """window -> mean over seeds, over that of `base` in the same window."""
    means = [
        {window: np.mean([s[metric][level] for s in all_ if s["window"] == window]) for window in _windows(all_)}
        for all_ in (scores, base)
    ]
    return {window: float(means[0][window] / means[1][window]) for window in means[0] if window in means[1]}


def _windows(scores: Sequence[Record]) -> list[int]:
    return sorted({s["window"] for s in scores})


def _by_window(found: dict[str, list[Record]], metric: str) -> str:
    lines = []
    for loss, scores in found.items():
        ratios = relative(scores, found["mse"], metric, "total")
        cells = {f"window {w}": f"{ratios[w]:.2f}" if w in ratios else "" for w in _windows(found["mse"])}
        lines.append({"loss": LOSSES[loss], **cells})
    return table(lines)


def draw(found: dict[str, list[Record]], out: Path) -> None:
    """Scores over those of MSE in the same window: a panel a metric, a dot a window."""
    drawing, panels = figure(1, 3, 4.5, 3.5)
    for panel, metric in zip(panels[0], METRICS, strict=True):
        for k, (loss, scores) in enumerate(found.items()):
            ratios = [relative(scores, found.get("mse", []), metric, level) for level in LEVELS]
            places = np.arange(len(LEVELS)) + 0.8 * ((k + 0.5) / len(found) - 0.5)
            dots = [(x, value) for x, by in zip(places, ratios, strict=True) for value in by.values()]
            if dots:  # nothing is drawn without MSE
                panel.plot(*zip(*dots, strict=True), "o", label=LOSSES[loss])
        panel.set_xticks(range(len(LEVELS)), LEVELS)
        panel.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
        panel.set_title(METRICS[metric])
    panels[0, 0].set_ylabel("over MSE in the same window")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=max(1, len(labels)))
    save(drawing, NAME, out)


def main(arguments: Sequence[str] | None = None) -> None:
    given = options(
        __doc__,
        arguments,
        seeds={"type": int, "help": "per window; 3 unless given"},
        windows={"type": int, "help": "how many; 4 unless given"},
        losses={"help": f"of {', '.join(list(LOSSES)[:-1])}; with commas"},
        threads={"type": int, "default": 1, "help": "of LightGBM"},
    )
    losses = chosen(given.losses, list(LOSSES)[:-1], "loss")
    seeds, windows = (given.seeds or 1, given.windows or 1) if given.quick else (given.seeds or 3, given.windows or 4)
    path = None if given.data is None or given.quick else given.data / "m5" / "m5_ca1.npz"
    trees = 12 if given.quick else 1000
    settings = digest([LIGHTGBM, PATIENCE, trees])
    keys = [
        {"window": window, "seed": seed, "loss": loss, "settings": settings}
        for window in range(windows)
        for seed in range(1, seeds + 1)
        for loss in losses
    ]
    records = complete(NAME, keys, compute, given.out, given.jobs, path, trees, given.threads)
    found = columns(records)
    write(NAME, markdown(found), {"scores": found, "paper": TABLE_4}, records, given.out)
    if given.out is not None:
        draw(found, given.out)


if __name__ == "__main__":
    main()
