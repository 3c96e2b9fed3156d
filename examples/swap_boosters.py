"""Swap the booster: the same scikit-learn regressor with intervals, around LightGBM and around XGBoost.

python examples/swap_boosters.py [--quick]
"""

from __future__ import annotations

import argparse

import numpy as np
from lightgbm import LGBMRegressor
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split
from xgboost import XGBRegressor

from pgbm_plugin.scores import coverage, crps
from pgbm_plugin.sklearn import PGBMRegressor


def make_data(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate n rows whose noise depends on the second feature."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(n, 5))
    noise = np.exp(0.7 * X[:, 1])
    return X, 5 * np.sin(2 * X[:, 0]) + 2 * X[:, 2] * X[:, 3] + noise * rng.normal(size=n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows and trees")
    n, trees = (1500, 30) if parser.parse_args().quick else (8000, 150)
    X, X_test, y, y_test = train_test_split(*make_data(n), random_state=0)

    print(f"{len(y)} rows: 60 % to train on, 20 % to tune, 20 % to conformalize; {len(y_test)} test rows")
    print("RMSE: root mean squared error; CRPS: continuous ranked probability score\n")
    print(
        f"{'booster':>14} {'RMSE':>7} {'CRPS':>7}   90 % interval: {'coverage':>8} {'mean width':>11}   family chosen"
    )
    for booster in (
        LGBMRegressor(n_estimators=trees, learning_rate=0.05, verbose=-1),
        XGBRegressor(n_estimators=trees, learning_rate=0.05, max_depth=5),
    ):
        model = PGBMRegressor(booster, distribution=None, tune_fraction=0.2, conformal_fraction=0.2, random_state=0)
        model.fit(X, y)
        ends = model.predict_interval(X_test, coverage=0.9)
        rmse, score = root_mean_squared_error(y_test, model.predict(X_test)), crps(y_test, model.predict_dist(X_test))
        print(
            f"{type(booster).__name__:>14} {rmse:7.3f} {score:7.3f} {coverage(y_test, ends):26.1%} "
            f"{np.diff(ends).mean():11.2f}   {model.tune_result_.best.distribution}"
        )


if __name__ == "__main__":
    main()
