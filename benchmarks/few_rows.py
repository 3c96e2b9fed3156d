"""CRPS by the number of validation rows: `tune`, one number on the training scale, and no tuning at all.

python -m benchmarks.few_rows --data DIR [--sets yacht,bike] [--splits 2] [--json PATH] [--quick]

DIR and its folders hold the sets: NAME.npz with X and y, or NAME.parquet with the label in the column `target`. Of each
set, at most 20,000 rows are drawn; half of them train a LightGBM model (31 leaves, a step of 0.05), a tenth stops it, a
quarter is there to tune on, and the rest is scored. The rows to tune on are drawn anew for every size.

Figures are CRPS over that of `tune` with all rows to tune on, at most 2,000: the geometric mean over sets, and in
brackets the worst of all cases.
"""

from __future__ import annotations

import copy
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
from scipy.optimize import minimize_scalar

from pgbm_plugin import ProbabilisticModel, wrap
from pgbm_plugin.calibration import Calibration
from pgbm_plugin.distributions import Normal
from pgbm_plugin.parallel import progress_bar

from .contest import options, report

DRAWS = {20: 3, 50: 2, 100: 2, 200: 1, 500: 1}
"""How often rows to tune on are drawn, by their number."""
MOST = 2000
_MAX_ROWS, _MAX_TEST = 20_000, 2000
_PARAMS = {"num_leaves": 31, "learning_rate": 0.05, "num_threads": 1, "seed": 1, "verbose": -1}


@dataclass(frozen=True)
class Case:
    """A split of a set, and the booster that was trained on it; wrapped without a training scale, and with one."""

    plain: ProbabilisticModel
    boosted: ProbabilisticModel
    tuning: tuple[Any, np.ndarray]
    test: tuple[Any, np.ndarray]


def one_number(case: Case, X: Any, y: np.ndarray) -> ProbabilisticModel:
    """The spread boosted from training rows, times the number with the best CRPS of a normal."""
    model = copy.copy(case.boosted)
    mean, std = model.predict(X, return_std=True)

    def score(log_number: float) -> float:
        return float(Normal.from_moments(mean, np.exp(log_number) * std**2).crps(y).mean())

    model.calibration = Calibration(1.0, float(np.exp(minimize_scalar(score, bounds=(-6.0, 8.0)).x)))
    return model


def tuned(name: str) -> Callable[[Case, Any, np.ndarray], ProbabilisticModel]:
    """`tune` as it is without arguments but for the source of the variance."""

    def fit(case: Case, X: Any, y: np.ndarray) -> ProbabilisticModel:
        model = copy.copy(getattr(case, name))
        model.tune(X, y, variance="auto")
        return model

    return fit


CONTENDERS: dict[str, Callable[[Case, Any, np.ndarray], ProbabilisticModel]] = {
    "tune": tuned("boosted"),
    "tune, wrapped without a training scale": tuned("plain"),
    "one number on the training scale": one_number,
    "untuned": lambda case, X, y: case.plain,
}


def read_set(path: Path) -> tuple[Any, np.ndarray] | None:
    """Return (X, y) of a file; None if it is none of a regression set."""
    if path.suffix == ".npz":
        with np.load(path) as data:
            return (data["X"], data["y"]) if {"X", "y"} <= set(data.files) else None
    import pandas as pd

    table = pd.read_parquet(path)
    return (table.drop(columns="target"), table["target"].to_numpy(float)) if "target" in table else None


def made_up() -> tuple[np.ndarray, np.ndarray]:
    """Rows whose noise differs from row to row."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 5))
    return X, X[:, 0] + np.sin(3.0 * X[:, 1]) + np.exp(0.7 * X[:, 2] - 1.0) * rng.standard_t(4, 800)


def make_case(X: Any, y: np.ndarray, split: int, rounds: int) -> Case:
    """Split a set, train on one part and wrap."""
    order = np.random.default_rng(split).permutation(len(y))[:_MAX_ROWS]
    parts = np.split(order, (np.array([0.5, 0.6, 0.85]) * len(order)).astype(int))
    train, stop, tuning, test = ((X.iloc[i] if hasattr(X, "iloc") else X[i], y[i]) for i in parts)
    rows = lgb.Dataset(*train)
    params = {**_PARAMS, "min_data_in_leaf": 20 if len(order) > 1000 else 5}
    stopping = lgb.early_stopping(50, verbose=False)
    booster = lgb.train(params, rows, rounds, valid_sets=[rows.create_valid(*stop)], callbacks=[stopping])
    plain, boosted = wrap(booster, *train, n_jobs=1), wrap(booster, *train, variance="boosted", n_jobs=1)
    return Case(plain, boosted, tuning, (test[0][:_MAX_TEST], test[1][:_MAX_TEST]))


def measure(case: Case, model: ProbabilisticModel) -> tuple[float, float]:
    """Return mean CRPS and coverage of 90 % intervals on the test rows."""
    X, y = case.test
    try:
        distributions = model.predict_dist(X)
    except ValueError:  # the chosen family cannot have the moments of a test row
        distributions = model.predict_dist(X, "normal")
    low, high = distributions.interval(0.9)
    return float(distributions.crps(y).mean()), float(np.mean((y >= low) & (y <= high)))


def results(case: Case) -> Iterator[tuple[str, int, float, float]]:
    """Yield contender, number of rows, CRPS over that of `tune` with the most rows, and coverage."""
    X, y = case.tuning
    best, _ = measure(case, CONTENDERS["tune"](case, X[:MOST], y[:MOST]))
    for n, draws in DRAWS.items():
        for draw in range(draws if n <= len(y) else 0):
            chosen = np.random.default_rng(100 * n + draw).permutation(len(y))[:n]
            rows = X.iloc[chosen] if hasattr(X, "iloc") else X[chosen]
            for name, fit in CONTENDERS.items():
                crps, coverage = measure(case, fit(case, rows, y[chosen]))
                yield name, n, crps / best, coverage


def main() -> None:
    given = options(
        __doc__,
        data={"type": Path, "help": "folder of the sets; --quick does without"},
        sets={"help": "with commas; all unless given"},
        splits={"type": int, "default": 2, "help": "splits of each set"},
    )
    if given.data is None and not given.quick:
        sys.exit("--data DIR is needed: a folder of .npz or .parquet files; or --quick for made-up rows")
    paths = sorted(p for p in given.data.rglob("*") if p.suffix in (".npz", ".parquet")) if given.data else []
    read = {p.stem: read_set(p) for p in paths if given.sets is None or p.stem in given.sets.split(",")}
    sets = {"made-up": made_up()} if given.quick else {name: rows for name, rows in read.items() if rows is not None}
    splits, rounds = (1, 50) if given.quick else (given.splits, 2000)
    found: dict[tuple[str, int], dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    with progress_bar(len(sets) * splits, "splits", True) as advance:
        for name, rows in sets.items():
            for split in range(splits):
                for contender, n, ratio, coverage in results(make_case(*rows, split, rounds)):
                    found[contender, n][name].append((ratio, coverage))
                advance(1)
    sizes = [n for n in DRAWS if ("tune", n) in found]
    for title, summary in (("CRPS, mean over sets (worst case)", _crps), ("coverage of 90 % intervals", _coverage)):
        lines = [{"rows": name, **{str(n): summary(found[name, n]) for n in sizes}} for name in CONTENDERS]
        report(f"{title}; {len(sets)} sets, {splits} splits", lines, given.json if summary is _crps else None)


def _crps(by_set: dict[str, list[tuple[float, float]]]) -> str:
    logs = [np.log([ratio for ratio, _ in cases]) for cases in by_set.values()]
    return f"{np.exp(np.mean([values.mean() for values in logs])):.3f} ({np.exp(max(map(np.max, logs))):.2f})"


def _coverage(by_set: dict[str, list[tuple[float, float]]]) -> str:
    return f"{np.mean([np.mean([coverage for _, coverage in cases]) for cases in by_set.values()]):.2f}"


if __name__ == "__main__":
    main()
