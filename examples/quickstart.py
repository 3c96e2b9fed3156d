"""Quick start: predict distributions with a LightGBM and an XGBoost model, and tune them.

python examples/quickstart.py

The score is the continuous ranked probability score (CRPS), in the unit of the outcome; lower is better.
"""

from __future__ import annotations

from typing import Any

import lightgbm as lgb
import xgboost as xgb
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from pgbm_plugin import wrap
from pgbm_plugin.scores import coverage, crps


def show(name: str, booster: Any, train: Any, held_out: Any, test: Any) -> None:
    """Wrap and tune a trained booster, and print its intervals and scores on test rows."""
    X_test, y_test = test
    model = wrap(booster, *train)
    untuned = model.predict_interval(X_test, coverage=0.9), model.predict_dist(X_test)

    tuned = model.tune(*held_out)
    distribution, interval = model.predict_dist(X_test), model.predict_interval(X_test, coverage=0.9)

    print(f"\n{name}\n{model}\n\n{tuned}\n")
    print(f"{'true':>8} {'mean':>8} {'std':>8}   90 % interval")
    for row in zip(y_test[:5], distribution.mean(), distribution.std(), *interval.T, strict=False):
        print("{:8.1f} {:8.1f} {:8.1f}   [{:.1f}, {:.1f}]".format(*row))
    print(f"\non {len(y_test)} test rows   coverage of the 90 % interval   mean CRPS")
    for label, (ends, forecast) in (("untuned", untuned), ("tuned", (interval, distribution))):
        print(f"{label:>17}   {coverage(y_test, ends):29.0%}   {crps(y_test, forecast):9.2f}")


def main() -> None:
    X, y = load_diabetes(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=0)
    X, X_val, y, y_val = train_test_split(X, y, test_size=0.33, random_state=0)
    data = (X, y), (X_val, y_val), (X_test, y_test)

    lgb_model = lgb.train({"num_leaves": 8, "learning_rate": 0.05, "verbose": -1}, lgb.Dataset(X, y), 60)
    show("LightGBM", lgb_model, *data)

    xgb_model = xgb.XGBRegressor(n_estimators=60, max_depth=3, learning_rate=0.05).fit(X, y)
    show("XGBoost", xgb_model, *data)


if __name__ == "__main__":
    main()
