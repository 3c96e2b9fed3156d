"""Tables 3 and 7: what 2,000 iterations cost, with a distribution and without.

python -m examples.paper.table3 --data DIR [--sets wine-red,naval] [--repeats 3] [--out DIR] [--quick]

Processor seconds of one thread, in turn, the best of several; ratios to LightGBM alone. wine, naval and protein are the
real sets; msd and higgs are made-up rows of the same shape, with a bagging fraction of 0.1, as in the paper. What is
too slow runs for fewer iterations or rows, and is extrapolated: linearly in iterations after the set-up, linearly in
rows. Such figures have a ~.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import xgboost as xgb

from benchmarks.accuracy.__main__ import chosen
from pgbm_plugin import wrap

from .published import TABLE_7
from .results import Key, Record, complete, digest, figure, number, options, save, table, write
from .uci import LIGHTGBM, ROUNDS, XGBOOST, has_ngboost, ngboost

NAME = "table3"
LEVELS = np.arange(1, 11) / 11
"""Of the ten quantile models."""
TITLES = {
    "lightgbm": "LightGBM alone",
    "lightgbm+wrap": "LightGBM + plugin",
    "xgboost": "XGBoost alone",
    "xgboost+wrap": "XGBoost + plugin",
    "quantiles": "10 LightGBM quantile models",
    "ngboost": "NGBoost",
}


@dataclass(frozen=True)
class Size:
    """A set and how much of it is run.

    Attributes
    ----------
    rows, features, bagging : of the paper.
    run : rows that are made up; None for the real set.
    trees, quantile_trees, ngboost_trees : iterations that are run, of 2,000.
    """

    rows: int
    features: int
    bagging: float = 1.0
    run: int | None = None
    trees: int = ROUNDS
    quantile_trees: int = ROUNDS
    ngboost_trees: int = 100


SIZES = {
    "wine-red": Size(1_599, 11, ngboost_trees=ROUNDS),
    "naval": Size(11_934, 14, ngboost_trees=500),
    "protein": Size(45_730, 9, ngboost_trees=200),
    "msd": Size(515_345, 90, 0.1, 515_345, ROUNDS, 200, 20),
    "higgs": Size(10_500_000, 28, 0.1, 2_000_000, 500, 50, 5),
}
QUICK = {
    "wine-red": Size(1_599, 11, run=300, trees=40, quantile_trees=10, ngboost_trees=3),
    "msd": Size(515_345, 90, 0.1, 2_000, 20, 5, 3),
}


@dataclass(frozen=True)
class Cost:
    """Processor seconds: once, and of `trees` iterations."""

    once: float
    boosting: float
    trees: int

    def of(self, rounds: int) -> float:
        return self.once + self.boosting * rounds / self.trees


def load(name: str, size: Size, folder: Path | None) -> tuple[Any, Any]:
    """The real rows, or made-up ones of their shape."""
    if size.run is None:
        assert folder is not None
        with np.load(folder / f"{name}.npz") as data:
            return data["X"], data["y"]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((size.run, size.features), np.float32)
    noise = np.exp(0.5 * X[:, 2]) * rng.standard_normal(size.run, np.float32)
    return X, (X[:, 0] + np.sin(3.0 * X[:, 1]) + X[:, 3] * X[:, 4] + noise).astype(np.float64)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = call()
    return time.process_time() - start, found


def lightgbm_costs(X: Any, y: Any, size: Size, trees: int, **loss: Any) -> tuple[Cost, Any]:
    params = {**LIGHTGBM, "bagging_fraction": size.bagging, "bagging_freq": int(size.bagging < 1.0), **loss}
    rows = lgb.Dataset(X, y, params=params)
    once, _ = timed(rows.construct)
    boosting, booster = timed(lambda: lgb.train(params, rows, trees))
    return Cost(once, boosting, trees), booster


def xgboost_costs(X: Any, y: Any, size: Size, trees: int) -> tuple[Cost, Any]:
    params = {**XGBOOST, "subsample": size.bagging}
    once, rows = timed(lambda: xgb.QuantileDMatrix(X, y, max_bin=XGBOOST["max_bin"], nthread=1))
    boosting, booster = timed(lambda: xgb.train(params, rows, trees))
    return Cost(once, boosting, trees), booster


def wrap_cost(booster: Any, X: Any, y: Any, trees: int) -> Cost:
    """The pass over the rows grows with the trees; with bagging it also sees the rows that a tree did not."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "not certified", UserWarning)
        seconds, _ = timed(lambda: wrap(booster, X, y, n_jobs=1))
    return Cost(0.0, seconds, trees)


def compute(key: Key, sizes: dict[str, Size], folder: Path | None) -> Record:
    """All contenders once, in turn."""
    size = sizes[key["set"]]
    X, y = load(key["set"], size, folder)
    for train in (lightgbm_costs, xgboost_costs):
        _, booster = train(X[:500], y[:500], size, 5)
        wrap_cost(booster, X[:500], y[:500], 5)  # compiles, and loads what is loaded late
    costs = {}
    for name, train in (("lightgbm", lightgbm_costs), ("xgboost", xgboost_costs)):
        costs[name], booster = train(X, y, size, size.trees)
        costs[f"{name}+wrap"] = wrap_cost(booster, X, y, size.trees)
    levels = [lightgbm_costs(X, y, size, size.quantile_trees, objective="quantile", alpha=q)[0] for q in LEVELS]
    once, boosting = (sum(getattr(cost, part) for cost in levels) for part in ("once", "boosting"))
    costs["quantiles"] = Cost(once, boosting, size.quantile_trees)
    if key["ngboost"]:
        settings = {} if size.bagging == 1.0 else {"minibatch_frac": size.bagging, "learning_rate": 0.1}
        model = ngboost(size.ngboost_trees, **settings)
        costs["ngboost"] = Cost(0.0, timed(lambda: model.fit(X, y))[0], size.ngboost_trees)
    return {"costs": {name: asdict(cost) for name, cost in costs.items()}}


def seconds(records: Sequence[Record], name: str, size: Size) -> dict[str, tuple[float, bool]]:
    """method -> least processor seconds of 2,000 iterations on the paper's number of rows, and whether extrapolated."""
    here = [record["costs"] for record in records if record["key"]["set"] == name]
    scale = size.rows / (size.run or size.rows)
    out = {}
    for method in TITLES:
        if method not in here[0]:
            continue
        costs = [Cost(**costs[method]) for costs in here]
        total = min(cost.of(ROUNDS) for cost in costs) * scale
        part = any(cost.trees < ROUNDS for cost in costs) or scale > 1.0
        if method.endswith("+wrap"):
            base, of_base = out[method.removesuffix("+wrap")]
            total, part = base + total, part or of_base
        out[method] = total, part
    return out


def markdown(found: dict[str, dict[str, tuple[float, bool]]]) -> str:
    ratios, absolute = [], []
    for name, line in found.items():
        base, _ = line["lightgbm"]
        methods = {method: line.get(method) for method in TITLES}
        marks = {m: "~" if value is not None and value[1] else "" for m, value in methods.items()}
        ratios.append({"set": name} | {TITLES[m]: _cell(marks[m], v and v[0] / base) for m, v in methods.items()})
        paper = TABLE_7[name]
        ratios[-1] |= {
            f"paper: {m}": f"{paper[m] / paper['LightGBM']:.0f}" for m in ("PGBM-gpu", "PGBM-cpu", "NGBoost")
        }
        absolute.append({"set": name} | {TITLES[m]: _cell(marks[m], v and v[0]) for m, v in methods.items()})
        absolute[-1] |= {f"paper: {m}": str(value) for m, value in paper.items()}
    parts = [
        "**As multiples of LightGBM alone** (~: extrapolated); the paper's LightGBM seconds are whole ones",
        table(ratios),
        "**Processor seconds of one thread for 2,000 iterations**; the paper's are by the clock, of six cores or a GPU",
        table(absolute),
    ]
    return "\n\n".join(parts) + "\n"


def _cell(mark: str, value: float | None) -> str:
    return "" if value is None else mark + number(value)


def draw(found: dict[str, dict[str, tuple[float, bool]]], out: Path) -> None:
    drawing, panels = figure(1, 1, 8.0, 4.0)
    panel = panels[0, 0]
    methods = [m for m in TITLES if m != "lightgbm" and all(m in line for line in found.values())]
    for k, method in enumerate(methods):
        places = np.arange(len(found)) + 0.8 * ((k + 0.5) / len(methods) - 0.5)
        heights = [line[method][0] / line["lightgbm"][0] for line in found.values()]
        bars = panel.bar(places, heights, 0.7 / len(methods), edgecolor="white", linewidth=0.0)
        for bar, line in zip(bars, found.values(), strict=True):
            bar.set_hatch("///" if line[method][1] else "")
    panel.set_xticks(range(len(found)), list(found))
    panel.set(yscale="log", ylabel="processor time over LightGBM alone\n(hatched: extrapolated)")
    panel.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
    labels = ["LightGBM alone", *(TITLES[m] for m in methods)]
    drawing.legend([*panel.lines, *panel.containers], labels, loc="outside lower center", ncols=3)
    save(drawing, NAME, out)


def main(arguments: Sequence[str] | None = None) -> None:
    given = options(
        __doc__,
        arguments,
        sets={"help": "with commas; all five unless given"},
        repeats={"type": int, "default": 3, "help": "of wine, naval and protein; larger ones run once"},
    )
    sizes = QUICK if given.quick else SIZES
    names = chosen(given.sets, tuple(sizes), "set")
    repeats = {name: 1 if given.quick or name in ("msd", "higgs") else given.repeats for name in names}
    settings = {name: digest([LIGHTGBM, XGBOOST, asdict(sizes[name])]) for name in names}
    also = {"ngboost": has_ngboost()}
    keys = [{"set": n, "repeat": k, "settings": settings[n], **also} for n in names for k in range(repeats[n])]
    folder = None if given.data is None else given.data / "uci"
    records = complete(NAME, keys, compute, given.out, 1, sizes, folder)
    found = {name: seconds(records, name, sizes[name]) for name in names}
    write(NAME, markdown(found), {"seconds": found, "paper": TABLE_7}, records, given.out)
    if given.out is not None:
        draw(found, given.out)


if __name__ == "__main__":
    main()
