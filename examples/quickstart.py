"""Quick start: predict distributions with a LightGBM and an XGBoost model, before and after calibration.

python examples/quickstart.py

The score is the continuous ranked probability score (CRPS), in the unit of the outcome; lower is better.
"""

from __future__ import annotations

import warnings
from typing import Any

import lightgbm as lgb
import xgboost as xgb
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from pgbm_plugin import UntunedWarning, wrap
from pgbm_plugin.scores import coverage, crps


def show(name: str, booster: Any, train: Any, test: Any) -> None:
    """Wrap a trained booster, and print its intervals and scores on test rows, calibrated and not."""
    X_test, y_test = test
    model = wrap(booster, *train, cv=5)  # trains five times more, each time without a fifth of the rows
    distribution, interval = model.predict_dist(X_test), model.predict_interval(X_test, coverage=0.9)

    print(f"\n{name}\n{model}\n")
    print(f"{'true':>8} {'mean':>8} {'std':>8}   90 % interval")
    for row in zip(y_test[:5], distribution.mean(), distribution.std(), *interval.T, strict=False):
        print("{:8.1f} {:8.1f} {:8.1f}   [{:.1f}, {:.1f}]".format(*row))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntunedWarning)  # "this model is untuned": it is, and the cover shows it
        untuned = wrap(booster, *train).predict_dist(X_test)
    print(f"\non {len(y_test)} test rows   coverage of the 90 % interval   mean CRPS")
    for label, forecast in (("not calibrated", untuned), ("calibrated, cv=5", distribution)):
        print(f"{label:>17}   {coverage(y_test, forecast.interval(0.9)):29.0%}   {crps(y_test, forecast):9.2f}")


def main() -> None:
    X, y = load_diabetes(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=0)
    data = (X, y), (X_test, y_test)

    lgb_model = lgb.train({"num_leaves": 8, "learning_rate": 0.05, "verbose": -1}, lgb.Dataset(X, y), 60)
    show("LightGBM", lgb_model, *data)

    xgb_model = xgb.XGBRegressor(n_estimators=60, max_depth=3, learning_rate=0.05).fit(X, y)
    show("XGBoost", xgb_model, *data)


if __name__ == "__main__":
    main()
