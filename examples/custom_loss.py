"""Train with a torch loss: torch derives it, and the trees are those of derivatives written by hand.

python examples/custom_loss.py [--quick]

The second part forecasts sales that must also be right in sum: its loss counts errors of rows, departments and days.
"""

from __future__ import annotations

import argparse

import lightgbm as lgb
import numpy as np
import torch
import xgboost as xgb

from pgbm_plugin import torch_objective, wrap


def pseudo_huber(pred: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Return a loss that is like the squared error for small errors and like the absolute error for large ones."""
    return torch.sqrt(1.0 + (pred - true) ** 2) - 1.0


def pseudo_huber_by_hand(margin: np.ndarray, data: lgb.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and second derivatives of `pseudo_huber`, as LightGBM asks for them."""
    error = margin - data.get_label()
    root = np.sqrt(1.0 + error**2)
    return error / root, root**-3


def squared(pred: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    return 0.5 * (pred - true) ** 2


def make_sales(days: int, items: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Simulate daily sales in four departments: features, labels, and each row's day and department on that day."""
    rng = np.random.default_rng(seed)
    day, item = np.divmod(np.arange(days * items), items)
    weather = rng.normal(size=days)[day]
    X = np.column_stack([day % 7, item, item % 4, weather, rng.normal(size=len(day))])
    y = 2.0 + (day % 7 >= 5) + 0.1 * (item % 5) + 0.5 * weather * (item % 4) + rng.gamma(2.0, 0.5, len(day))
    return X, y, day, day * 4 + item % 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows and trees")
    quick = parser.parse_args().quick
    days, items, trees = (60, 20, 20) if quick else (150, 60, 60)
    X, y, day, department = make_sales(days, items, 0)
    X_new, y_new, day_new, department_new = make_sales(days, items, 1)
    X_val, y_val, _, _ = make_sales(days, items, 2)
    params = {"num_leaves": 15, "learning_rate": 0.1, "verbose": -1}

    objective = torch_objective(pseudo_huber)
    base_score = objective.init(y)  # without it, boosters start a custom objective at 0 or 0.5
    init_score = np.full(len(y), base_score)
    by_torch = lgb.train({**params, "objective": objective}, lgb.Dataset(X, y, init_score=init_score), trees)
    by_hand = lgb.train({**params, "objective": pseudo_huber_by_hand}, lgb.Dataset(X, y, init_score=init_score), trees)
    difference = np.abs(by_torch.predict(X_new) - by_hand.predict(X_new)).max()
    print(f"pseudo-Huber, LightGBM: torch and by hand differ by at most {difference:.1e}")
    model = wrap(by_torch, X, y, init_score=init_score)  # finds the objective, which is still in memory
    print(f"  certificate: {model.certificate.status}")
    model.tune(X_val, y_val, init_score=np.full(len(y_val), base_score))
    d = model.predict_dist(X_new, init_score=np.full(len(y_new), base_score))
    print(f"  continuous ranked probability score (CRPS) on new rows: {d.crps(y_new).mean():.4f}")

    xgb_params = {"max_leaves": 15, "max_depth": 0, "grow_policy": "lossguide", "eta": 0.1, "base_score": base_score}
    model = wrap(xgb.train(xgb_params, xgb.DMatrix(X, y), trees, obj=objective), X, y)
    print(f"the same objective in XGBoost: {model.certificate.status}")

    levels = [(None, 1.0), (department, 1.0 / items), (day, 1.0 / items)]
    hierarchical = torch_objective(squared, levels=levels)
    base_score = hierarchical.init(y)
    data = lgb.Dataset(X, y, init_score=np.full(len(y), base_score))
    by_levels = lgb.train({**params, "objective": hierarchical}, data, trees)
    by_row = lgb.train({**params, "objective": "regression"}, lgb.Dataset(X, y), trees)
    print("root mean squared error on new rows, and on their sums by department and by day")
    print("  loss                  row  department     day")
    for name, pred in (("rows alone", by_row.predict(X_new)), ("three levels", by_levels.predict(X_new) + base_score)):
        errors = [np.bincount(g, pred - y_new) for g in (np.arange(len(y_new)), department_new, day_new)]
        print(f"  {name:16}" + "  ".join(f"{np.sqrt(np.mean(e**2)):8.3f}" for e in errors))


if __name__ == "__main__":
    main()
