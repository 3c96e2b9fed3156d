"""Cut rows into parts; and a loss for torch that processes can import."""

from __future__ import annotations

import numpy as np

LGB = {"num_leaves": 8, "min_data_in_leaf": 5, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 3, "nthread": 1}


def cut(n, parts=7):
    return np.array_split(np.arange(n), parts)


def parts_of(make_data):
    X, y = make_data("numeric", n=400)
    return [(X[rows], y[rows]) for rows in cut(400, 4)], X, y


def smooth(pred, true):
    return (1 + (pred - true) ** 2) ** 0.5
