"""Losses for torch, and the settings of boosters that are trained with them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

LGB = {"num_leaves": 8, "min_data_in_leaf": 10, "num_threads": 1, "verbose": -1, "learning_rate": 0.1}
XGB = {"max_depth": 3, "eta": 0.1, "nthread": 1}


def squared(p, y):
    return 0.5 * (p - y) ** 2


def smoothed_quantile(p, y, level=0.8, width=0.1):
    z = (y - p) / width
    return (level - 1.0) * (y - p) + width * torch.nn.functional.softplus(z)


LOSSES = {
    "squared": squared,
    "sum of squares": lambda p, y: ((p - y) ** 2).sum(),
    "huber": lambda p, y: torch.nn.functional.huber_loss(p, y, delta=0.7, reduction="none"),
    "pseudohuber": lambda p, y: torch.sqrt(1.0 + (p - y) ** 2) - 1.0,
    "log-cosh": lambda p, y: (p - y) + torch.nn.functional.softplus(-2.0 * (p - y)),
    "poisson": lambda p, y: torch.exp(p) - y * p,
    "gamma": lambda p, y: p + y * torch.exp(-p),
    "tweedie": lambda p, y: -y * torch.exp(-0.5 * p) / -0.5 + torch.exp(0.5 * p) / 0.5,
    "smoothed quantile": smoothed_quantile,
    "asymmetric": lambda p, y: torch.where(p > y, 3.0, 1.0) * (p - y) ** 2,
    "expectile of logs": lambda p, y: (torch.exp(p) - y) ** 2 * torch.sigmoid(p - y),
    "gamma of the mean": lambda p, y: torch.where(p > 0, y / p + torch.log(p), torch.nan),
    "student t": lambda p, y: torch.log1p((p - y) ** 2 / 3.0),
}
