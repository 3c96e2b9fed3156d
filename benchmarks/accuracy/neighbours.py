"""An instance-based contender: the spread of a row is that of the training rows which share most leaves with it.

IBUG (Brophy and Lowd, NeurIPS 2022). The affinity of two rows is the number of trees in which they reach the same leaf;
the variance of a row is that of the labels of its k nearest training rows. All pairs are compared, which is what makes
the method slow; here a leaf number is a byte, and one instruction compares 32 of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pgbm_plugin.kernels.jit import kernel

from pgbm_plugin.calibration.fit_map import fit_map
from pgbm_plugin.distributions import Normal
from pgbm_plugin.predict.power_map import Calibration

Array = NDArray[np.float64]

# The grid of the authors; k is at most the number of training rows.
NEIGHBOURS = (3, 5, 7, 9, 11, 15, 31, 61, 91, 121, 151, 201, 301, 401, 501, 601, 701)
# Rows that are compared at a time: a group of trees of so many training rows stays in the cache.
_BLOCK = 1024
_QUERIES = 64
# A byte counts so far.
_GROUP = 255


@kernel
def affinities(train: Any, query: Any, out: Any) -> None:
    """Trees in which rows share a leaf: (T, n) and (T, m) leaf numbers -> (m, n) counts."""
    trees, n = train.shape
    few = np.empty(_BLOCK, np.uint8)
    out[:] = 0
    for lo in range(0, n, _BLOCK):
        size = min(_BLOCK, n - lo)
        for first in range(0, trees, _GROUP):
            for i in range(query.shape[1]):
                count = few[:size]
                count[:] = 0
                for t in range(first, min(first + _GROUP, trees)):
                    leaf, leaves = query[t, i], train[t, lo : lo + size]
                    for j in range(size):  # in bytes from end to end, or it is ten times slower
                        count[j] = np.uint8(count[j] + (leaves[j] == leaf))
                total = out[i, lo : lo + size]
                for j in range(size):
                    total[j] += count[j]


@kernel
def nearest_variances(affinity: Any, trees: int, y: Any, neighbours: Any, out: Any) -> None:
    """Variance of y over the nearest rows: (m, n) affinities of at most `trees`, rising (k,) numbers -> (m, k).

    Of rows with the same affinity the first are nearer. They are sorted by counting, as far as they are needed.
    """
    most = neighbours[-1]
    order = np.empty(most, np.int64)
    place = np.empty(trees + 1, np.int64)
    for i in range(len(affinity)):
        place[:] = 0
        for a in affinity[i]:
            place[a] += 1
        before = 0
        for a in range(trees, -1, -1):
            place[a], before = before, before + place[a]
        for j in range(affinity.shape[1]):
            a = affinity[i, j]
            if place[a] < most:
                order[place[a]] = j
            place[a] += 1
        mean = total = 0.0
        column = 0
        for k in range(most):  # Welford's update
            step = y[order[k]] - mean
            mean += step / (k + 1)
            total += step * (y[order[k]] - mean)
            if k + 1 == neighbours[column]:
                out[i, column] = total / max(k, 1)
                column += 1


def leaf_numbers(booster: Any, X: Array) -> NDArray[np.uint8]:
    """(trees, n) of a LightGBM model of at most 256 leaves a tree; in parts, as it takes eight bytes for each."""
    parts = (booster.predict(part, pred_leaf=True, num_threads=1) for part in _parts(X, 4096))
    return np.concatenate([np.ascontiguousarray(part.reshape(len(part), -1).T, np.uint8) for part in parts], axis=1)


def variances(train: NDArray[np.uint8], y: Array, query: NDArray[np.uint8], neighbours: NDArray[np.int64]) -> Array:
    """(m, k) variances of y over each row's nearest training rows."""
    out = np.empty((query.shape[1], len(neighbours)))
    affinity = np.empty((_QUERIES, train.shape[1]), np.uint16)
    for lo in range(0, len(out), _QUERIES):
        some = out[lo : lo + _QUERIES]
        affinities(train, np.ascontiguousarray(query[:, lo : lo + _QUERIES]), affinity[: len(some)])
        nearest_variances(affinity[: len(some)], len(train), y, neighbours, some)
    return out


def choose(residual: Array, table: Array) -> tuple[int, float, Calibration]:
    """The column of a (m, k) table of variances with the best CRPS of a normal, its least variance, and its map.

    The map is the one that `tune` fits, sigma^2 -> c sigma^(2b). Neighbours with equal labels have no variance; they
    get the least of the others, as in IBUG.
    """
    weight = np.full(len(residual), 1.0 / len(residual))
    found = []
    for column in range(table.shape[1]):
        variance = table[:, column]
        if not np.any(variance > 0):
            continue
        floor = float(variance[variance > 0].min())
        variance = np.maximum(variance, floor)
        typical = float(np.exp(np.log(variance).mean()))
        calibration = fit_map(residual, np.ones_like(residual), variance, typical, weight, "crps")
        score = float(Normal.from_moments(np.zeros_like(residual), calibration(variance)).crps(residual).mean())
        found.append((score, column, floor, calibration))
    if not found:
        raise ValueError("no number of neighbours has labels that differ")
    _, column, floor, calibration = min(found, key=lambda line: line[0])
    return column, floor, calibration


def _parts(X: Array, size: int) -> Iterator[Array]:
    return (X[lo : lo + size] for lo in range(0, len(X), size))
