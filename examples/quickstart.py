"""Quick start: how sure are a LightGBM and an XGBoost model of their predictions?

python examples/quickstart.py
"""

from __future__ import annotations

from typing import Any

import lightgbm as lgb
import numpy as np
import xgboost as xgb
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from pgbm_plugin import wrap


def report(
    name: str, booster: Any, X: NDArray[Any], y: NDArray[Any], X_test: NDArray[Any], y_test: NDArray[Any]
) -> None:
    model = wrap(booster, X, y)
    distribution = model.predict_dist(X_test)
    interval = model.predict_interval(X_test, coverage=0.9)

    print(f"\n{name}\n{model}\n")
    print(f"{'true':>8} {'mean':>8} {'std':>8}   90 % interval")
    for i in range(5):
        print(
            f"{y_test[i]:8.1f} {distribution.mean()[i]:8.1f} {distribution.std()[i]:8.1f}   "
            f"[{interval[i, 0]:.1f}, {interval[i, 1]:.1f}]"
        )
    inside = (interval[:, 0] <= y_test) & (y_test <= interval[:, 1])
    print(f"coverage of the 90 % interval on {len(y_test)} test rows: {inside.mean():.0%}")
    print(
        f"mean CRPS: {distribution.crps(y_test).mean():.2f} (of a point prediction: {_mae(distribution, y_test):.2f})"
    )


def _mae(distribution: Any, y: NDArray[Any]) -> float:
    """The CRPS of a point is its absolute error."""
    return float(np.abs(distribution.mean() - y).mean())


def main() -> None:
    X, y = load_diabetes(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=0)

    lgb_model = lgb.train({"num_leaves": 8, "learning_rate": 0.1, "verbose": -1}, lgb.Dataset(X, y), 100)
    report("LightGBM", lgb_model, X, y, X_test, y_test)

    xgb_model = xgb.XGBRegressor(n_estimators=100, max_depth=3, learning_rate=0.1).fit(X, y)
    report("XGBoost", xgb_model, X, y, X_test, y_test)


if __name__ == "__main__":
    main()
