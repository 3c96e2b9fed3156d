"""Swap the booster by one word: the same scikit-learn regressor with intervals, around each booster.

python examples/swap_boosters.py [LightGBM XGBoost CatBoost HistGradientBoosting] [--quick]
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split
from xgboost import XGBRegressor

from pgbm_plugin.scores import coverage, crps
from pgbm_plugin.sklearn import PGBMRegressor

QUIET = {"verbose": False, "allow_writing_files": False}

# One line a booster, because each has its own words for the number of trees and for columns of categories.
BOOSTERS = {
    "LightGBM": lambda trees: LGBMRegressor(n_estimators=trees, learning_rate=0.05, verbose=-1),
    "XGBoost": lambda trees: XGBRegressor(n_estimators=trees, learning_rate=0.05, max_depth=5, enable_categorical=True),
    "CatBoost": lambda trees: CatBoostRegressor(
        iterations=trees, learning_rate=0.05, cat_features=("town",), one_hot_max_size=255, **QUIET
    ),
    "HistGradientBoosting": lambda trees: HistGradientBoostingRegressor(
        max_iter=trees, learning_rate=0.05, early_stopping=False, categorical_features="from_dtype"
    ),
}


def make_data(n: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Simulate n rows whose noise depends on the second feature, and whose mean depends on a category."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(-2, 2, size=(n, 5)), columns=list("abcde"))
    X["town"] = pd.Categorical(rng.choice(["north", "south", "west"], n))
    mean = 5 * np.sin(2 * X["a"]) + 2 * X["c"] * X["d"] + 3 * (X["town"] == "south")
    return X, (mean + np.exp(0.7 * X["b"]) * rng.normal(size=n)).to_numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("boosters", nargs="*", help=f"of {', '.join(BOOSTERS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="fewer rows and trees")
    args = parser.parse_args()
    if unknown := set(args.boosters) - set(BOOSTERS):
        parser.error(f"no booster is called {min(unknown)!r}: choose from {', '.join(BOOSTERS)}")
    n, trees = (1500, 30) if args.quick else (8000, 150)
    X, X_test, y, y_test = train_test_split(*make_data(n), random_state=0)

    print(f"{len(y)} rows: 60 % to train on, 20 % to tune, 20 % to conformalize; {len(y_test)} test rows")
    print("RMSE: root mean squared error; CRPS: continuous ranked probability score\n")
    print(
        f"{'booster':>20} {'RMSE':>7} {'CRPS':>7}   90 % interval: {'coverage':>8} {'mean width':>11}   family chosen"
    )
    for name in args.boosters or BOOSTERS:
        booster = BOOSTERS[name](trees)
        model = PGBMRegressor(booster, tune_fraction=0.2, conformal_fraction=0.2, random_state=0).fit(X, y)
        ends = model.predict_interval(X_test, coverage=0.9)
        rmse, score = root_mean_squared_error(y_test, model.predict(X_test)), crps(y_test, model.predict_dist(X_test))
        print(
            f"{name:>20} {rmse:7.3f} {score:7.3f} {coverage(y_test, ends):26.1%} "
            f"{np.diff(ends).mean():11.2f}   {model.tune_result_.best.distribution}"
        )


if __name__ == "__main__":
    main()
