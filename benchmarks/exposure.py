"""Coverage of 90 % intervals by exposure, for claims of groups of very different sizes.

python -m benchmarks.exposure --data DIR [--repeats 2] [--json PATH] [--quick]

DIR holds sweden.parquet: motor claims of 1977 with the columns Claims, Insured (the exposure), Kilometres, Zone, Bonus
and Make. A LightGBM model (Poisson, 31 leaves, a step of 0.05, log exposure as init_score) is trained on nine tenths
of the rows, with the number of trees that a fifth of them chose, and calibrated on the same rows by cv=5. Every row is
tested once a repeat.
"""

from __future__ import annotations

import sys
import warnings
from collections import defaultdict
from pathlib import Path

import lightgbm as lgb
import numpy as np

from pgbm_plugin import UntunedWarning, wrap
from pgbm_plugin.parallel import progress_bar

from .contest import options, report

GROUPS = {"all": (0.0, np.inf), "< 10": (0.0, 10.0), "10-50": (10.0, 50.0), "50-500": (50.0, 500.0)}
GROUPS["more"] = (500.0, np.inf)
FEATURES = ["Kilometres", "Zone", "Bonus", "Make"]
_PARAMS = {"objective": "poisson", "num_leaves": 31, "learning_rate": 0.05, "num_threads": 1, "seed": 1, "verbose": -1}
_PARTS = 10


def read(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, claims and exposure."""
    import pandas as pd

    table = pd.read_parquet(path)
    return table[FEATURES].to_numpy(float), table["Claims"].to_numpy(float), table["Insured"].to_numpy(float)


def made_up() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Over-dispersed claims with exposures from 1 to 10,000."""
    rng = np.random.default_rng(0)
    X, exposure = rng.normal(size=(1000, 4)), 10.0 ** rng.uniform(0.0, 4.0, 1000)
    return X, rng.poisson(exposure * np.exp(0.3 * X[:, 0] - 2.0) * rng.gamma(20.0, 0.05, 1000)).astype(float), exposure


def n_trees(X: np.ndarray, y: np.ndarray, start: np.ndarray, rounds: int) -> int:
    """The number with the best deviance on a fifth of the rows."""
    order = np.random.default_rng(0).permutation(len(y))
    held_out, train = np.split(order, [len(y) // 5])
    rows = lgb.Dataset(X[train], y[train], init_score=start[train], params=_PARAMS)
    stop = rows.create_valid(X[held_out], y[held_out], init_score=start[held_out])
    stopping = lgb.early_stopping(100, verbose=False)
    return lgb.train(_PARAMS, rows, rounds, valid_sets=[stop], callbacks=[stopping]).best_iteration


def main() -> None:
    given = options(
        __doc__,
        data={"type": Path, "help": "folder of sweden.parquet; --quick does without"},
        repeats={"type": int, "default": 1, "help": "divisions into ten parts"},
    )
    if given.data is None and not given.quick:
        sys.exit("--data DIR is needed: the folder of sweden.parquet; or --quick for made-up claims")
    X, y, exposure = made_up() if given.quick else read(given.data / "sweden.parquet")
    start, rounds = np.log(exposure), 50 if given.quick else 2000
    inside = {name: defaultdict(list) for name in ("untuned", "cv=5")}
    widths = {name: defaultdict(list) for name in inside}
    with progress_bar(given.repeats * _PARTS, "models", True) as advance:
        for repeat in range(given.repeats):
            part_of = np.random.default_rng(repeat).permutation(len(y)) % _PARTS
            for part in range(1 if given.quick else _PARTS):
                train, test = part_of != part, part_of == part
                trees = n_trees(X[train], y[train], start[train], rounds)
                rows = lgb.Dataset(X[train], y[train], init_score=start[train], params=_PARAMS)
                booster = lgb.train(_PARAMS, rows, trees)
                for name, cv in (("untuned", None), ("cv=5", 5)):
                    model = wrap(booster, X[train], y[train], init_score=start[train], cv=cv, n_jobs=1)
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", UntunedWarning)
                        low, high = model.predict_interval(X[test], coverage=0.9, init_score=start[test]).T
                    hit = (low <= y[test]) & (y[test] <= high)
                    for group, (least, most) in GROUPS.items():
                        chosen = (exposure[test] >= least) & (exposure[test] < most)
                        inside[name][group] += hit[chosen].tolist()
                        widths[name][group] += (high - low)[chosen].tolist()
                advance(1)
    lines = []
    for name in inside:
        lines.append({"coverage": name} | {group: f"{np.mean(inside[name][group]):.3f}" for group in GROUPS})
    lines += [
        {"coverage": f"mean width, {name}"} | {g: float(np.mean(widths[name][g])) for g in GROUPS} for name in widths
    ]
    lines.append({"coverage": "rows"} | {group: len(inside["cv=5"][group]) for group in GROUPS})
    report("coverage of 90 % intervals by exposure", lines, given.json)


if __name__ == "__main__":
    main()
