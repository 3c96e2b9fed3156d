"""Early stopping on the continuous ranked probability score (CRPS), compared with the root mean squared error (RMSE).

The RMSE finds the number of trees that is best for the mean, the CRPS the one that is best for the distributions.

python examples/early_stopping_crps.py [--quick]
"""

from __future__ import annotations

import argparse
from typing import Any

import lightgbm as lgb
import numpy as np
import xgboost as xgb
from numpy.typing import NDArray

from pgbm_plugin import crps_callback, wrap
from pgbm_plugin.scores import coverage, crps

Rows = tuple[NDArray[np.float64], NDArray[np.float64]]

ROUNDS, PATIENCE = 500, 20
THREADS = 1  # more threads gain nothing on so few rows


def make_data(n: int, rng: np.random.Generator) -> Rows:
    """Simulate n rows with a smooth mean and noise whose size depends on the row."""
    X = rng.uniform(-1.0, 1.0, (n, 6))
    mean = 4.0 * np.sin(3.0 * X[:, 0]) + 3.0 * X[:, 1] * X[:, 2]
    return X, mean + np.exp(X[:, 3]) * rng.normal(size=n)


def train_lightgbm(train: Rows, valid: Rows, metric: str) -> tuple[Any, int]:
    """Train until `metric` ("rmse" or "crps") stops improving; return the booster and its best number of trees."""
    params = {"num_leaves": 16, "learning_rate": 0.1, "metric": "rmse", "num_threads": THREADS, "verbose": -1}
    data = lgb.Dataset(*train)
    callbacks: list[Any] = [lgb.early_stopping(PATIENCE, first_metric_only=True, verbose=False)]
    if metric == "crps":  # crps_callback puts it first, and early_stopping looks at the first metric
        callbacks.append(crps_callback(*valid, X=train[0], y=train[1]))
    booster = lgb.train(params, data, ROUNDS, [lgb.Dataset(*valid, reference=data)], callbacks=callbacks)
    return booster, booster.best_iteration


def train_xgboost(train: Rows, valid: Rows, metric: str) -> tuple[Any, int]:
    """Train until `metric` ("rmse" or "crps") stops improving; return the booster and its best number of trees."""
    params = {"max_depth": 4, "eta": 0.1, "nthread": THREADS}
    stop = xgb.callback.EarlyStopping(rounds=PATIENCE, data_name="valid", metric_name=metric, save_best=True)
    callbacks = [crps_callback(*valid, X=train[0], y=train[1]), stop] if metric == "crps" else [stop]
    evals = [(xgb.DMatrix(*valid), "valid")]
    booster = xgb.train(params, xgb.DMatrix(*train), ROUNDS, evals=evals, callbacks=callbacks, verbose_eval=False)
    return booster, booster.num_boosted_rounds()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    n = 1_000 if parser.parse_args().quick else 10_000
    rng = np.random.default_rng(0)
    train, valid, test = (make_data(size, rng) for size in (n, n, 2 * n))
    print(f"{n} rows to train on, {n} to stop on and to tune, {2 * n} to test on\n")
    print(f"{'':10} {'stopped on':>10} {'trees':>6} {'test RMSE':>10} {'test CRPS':>10} {'90 % interval covers':>21}")
    for name, fit in (("LightGBM", train_lightgbm), ("XGBoost", train_xgboost)):
        for metric in ("rmse", "crps"):
            booster, trees = fit(train, valid, metric)
            model = wrap(booster, *train)
            model.tune(*valid)
            X, y = test
            rmse = np.sqrt(np.mean((model.predict(X) - y) ** 2))
            inside = coverage(y, model.predict_interval(X, coverage=0.9))
            print(
                f"{name:10} {metric:>10} {trees:6} {rmse:10.4f} {crps(y, model.predict_dist(X)):10.4f} {inside:21.1%}"
            )


if __name__ == "__main__":
    main()
