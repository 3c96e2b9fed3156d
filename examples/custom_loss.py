"""A torch loss as an objective, and its analytic twin: the same trees, without deriving anything.

python examples/custom_loss.py [--quick]

The second part forecasts rows that must also be right in sum: a loss of three levels.
"""

from __future__ import annotations

import argparse

import lightgbm as lgb
import numpy as np
import torch
import xgboost as xgb

from pgbm_plugin import torch_objective, wrap


def pseudo_huber(pred: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Squared error near 0, absolute error far out."""
    return torch.sqrt(1.0 + (pred - true) ** 2) - 1.0


def pseudo_huber_by_hand(margin: np.ndarray, data: lgb.Dataset) -> tuple[np.ndarray, np.ndarray]:
    error = margin - data.get_label()
    root = np.sqrt(1.0 + error**2)
    return error / root, root**-3


def squared(pred: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    return 0.5 * (pred - true) ** 2


def make_sales(days: int, items: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Daily sales of items in four departments: features, labels, the day and the department of each row."""
    rng = np.random.default_rng(seed)
    day, item = np.divmod(np.arange(days * items), items)
    weather = rng.normal(size=days)[day]
    X = np.column_stack([day % 7, item, item % 4, weather, rng.normal(size=len(day))])
    y = 2.0 + (day % 7 >= 5) + 0.1 * (item % 5) + 0.5 * weather * (item % 4) + rng.gamma(2.0, 0.5, len(day))
    return X, y, day, day * 4 + item % 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    days, items, trees = (60, 20, 20) if quick else (150, 60, 60)
    X, y, day, department = make_sales(days, items, 0)
    X_new, y_new, day_new, department_new = make_sales(days, items, 1)
    params = {"num_leaves": 15, "learning_rate": 0.1, "verbose": -1}

    objective = torch_objective(pseudo_huber)
    start = objective.init(y)  # boosters start a custom objective at 0 or 0.5
    init_score = np.full(len(y), start)
    by_torch = lgb.train({**params, "objective": objective}, lgb.Dataset(X, y, init_score=init_score), trees)
    by_hand = lgb.train({**params, "objective": pseudo_huber_by_hand}, lgb.Dataset(X, y, init_score=init_score), trees)
    difference = np.abs(by_torch.predict(X_new) - by_hand.predict(X_new)).max()
    print(f"pseudo-Huber, LightGBM: torch and by hand differ by at most {difference:.1e}")
    model = wrap(by_torch, X, y, init_score=init_score)  # finds the objective, which still lives
    print(f"  certificate: {model.certificate.status}")
    d = model.predict_dist(X_new, init_score=np.full(len(y_new), start))
    print(f"  CRPS on new rows: {d.crps(y_new).mean():.4f}")

    xgb_params = {"max_leaves": 15, "max_depth": 0, "grow_policy": "lossguide", "eta": 0.1, "base_score": start}
    model = wrap(xgb.train(xgb_params, xgb.DMatrix(X, y), trees, obj=objective), X, y)
    print(f"the same objective in XGBoost: {model.certificate.status}")

    levels = [(None, 1.0), (department, 1.0 / items), (day, 1.0 / items)]
    hierarchical = torch_objective(squared, levels=levels)
    start = hierarchical.init(y)
    data = lgb.Dataset(X, y, init_score=np.full(len(y), start))
    in_sum = lgb.train({**params, "objective": hierarchical}, data, trees)
    alone = lgb.train({**params, "objective": "regression"}, lgb.Dataset(X, y), trees)
    print("RMSE on new rows:      row  department     day")
    for name, pred in (("squared error", alone.predict(X_new)), ("three levels", in_sum.predict(X_new) + start)):
        errors = [np.bincount(g, pred - y_new) for g in (np.arange(len(y_new)), department_new, day_new)]
        print(f"  {name:16}" + "  ".join(f"{np.sqrt(np.mean(e**2)):8.3f}" for e in errors))


if __name__ == "__main__":
    main()
