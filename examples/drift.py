"""Growing noise: a model that is updated every month keeps its coverage, a frozen model loses it.

python examples/drift.py [--quick]

Only the noise grows, month by month. The mean stays the same, so the trees need no training. `update` adds the labelled
rows of each month to the moments of the leaves; with decay 0.2, rows count a fifth as much with each month that passes.
"""

from __future__ import annotations

import argparse
import copy

import lightgbm as lgb
import numpy as np

from pgbm_plugin import wrap
from pgbm_plugin.scores import coverage

MONTHS, DECAY = 12, 0.2


def make_rows(n: int, noise: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Simulate n rows with a smooth mean and noise that grows with the third feature."""
    X = rng.uniform(-2, 2, size=(n, 5))
    mean = np.sin(2 * X[:, 0]) + X[:, 1]
    return X, mean + noise * np.exp(0.3 * X[:, 2]) * rng.normal(size=n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    n = 2_000 if parser.parse_args().quick else 20_000
    rng = np.random.default_rng(0)
    X, y = make_rows(n, 0.5, rng)
    booster = lgb.train({"num_leaves": 15, "min_data_in_leaf": 50, "verbose": -1}, lgb.Dataset(X, y), 100)
    frozen = wrap(booster, X, y)
    frozen.tune(*make_rows(n, 0.5, rng), variance="pgbm")
    updated = copy.copy(frozen)

    print(f"{'month':>5} {'noise':>6} {'90 % interval covers, frozen':>30} {'updated':>8} {'effective rows':>16}")
    for month in range(1, MONTHS + 1):
        noise = 0.5 * 1.1**month
        X_new, y_new = make_rows(n, noise, rng)
        covered = [coverage(y_new, model.predict_interval(X_new, coverage=0.9)) for model in (frozen, updated)]
        print(f"{month:5} {noise:6.2f} {covered[0]:30.1%} {covered[1]:8.1%} {updated.moments.rows:16.0f}")
        updated.update(X_new, y_new, decay=DECAY)  # labels arrive at the end of the month


if __name__ == "__main__":
    main()
