"""Variance of the margin after 1, 2, ... trees (paper eq. 12), summarised over rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..tables.rows import Rows, some_rows
from ..trees.forest import Forest

# The most rows that are walked, and the most numbers of trees at which their variances are summarised.
MAX_ROWS, MAX_PLACES = 2000, 200


@dataclass(frozen=True)
class Growth:
    """Variance of the margin, before calibration, after K rising numbers of trees."""

    trees: NDArray[np.int64]  # (K,) numbers of trees
    mean: Array  # (K,) mean variance over the rows
    low: Array  # (K,) lower quantile of the variance over the rows
    high: Array  # (K,) upper quantile
    levels: tuple[float, float]  # probabilities of the two quantiles
    rows: int  # number of rows


def variance_growth(forest: Forest, rows: Rows, leaf_sd: Array, rho: float, levels: tuple[float, float]) -> Growth:
    """Summarise the growing variance of the rows, or of a random `MAX_ROWS` of them if there are more."""
    drawn = some_rows(len(rows), MAX_ROWS)
    trees = np.unique(np.linspace(1, forest.n_trees, MAX_PLACES).astype(np.int64))
    variances = _variance_after(forest, rows.sample(drawn), leaf_sd, rho, trees)
    mean, low, high = np.array([(variance.mean(), *np.quantile(variance, levels)) for variance in variances]).T
    return Growth(trees, mean, low, high, levels, len(drawn))


def _variance_after(
    forest: Forest, rows: Rows, leaf_sd: Array, rho: float, trees: NDArray[np.int64]
) -> Iterator[NDArray[np.float64]]:
    """Yield the (n,) variances of the rows after each of the rising numbers of `trees`, always in the same array."""
    from ..kernels import cpu

    root, *splits = forest.routing
    variance, correlation = np.zeros((1, len(rows))), np.array([rho])
    blocks = list(rows.blocks(0, len(rows)))
    for first, end in zip([0, *trees[:-1]], trees, strict=True):
        for lo, hi, X in blocks:
            cpu.add_variances(X, root[first:end], *splits, leaf_sd, correlation, variance[:, lo:hi])
        yield variance[0]
