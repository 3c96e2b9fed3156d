"""How the variance grows with the trees (paper eq. 12)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..tables.rows import Rows, some_rows
from ..trees.forest import Forest

Array = NDArray[np.float64]

# Rows that are walked, and places along the trees that are summarised, at most.
MAX_ROWS, MAX_PLACES = 2000, 200


@dataclass(frozen=True)
class Growth:
    """The margin's variance, before calibration, after the first trees; over rows, in K places.

    Attributes
    ----------
    trees : (K,) how many trees.
    mean, low, high : (K,) over the rows: mean, and the quantiles of the levels `tails`.
    rows : how many rows these are.
    """

    trees: NDArray[np.int64]
    mean: Array
    low: Array
    high: Array
    tails: tuple[float, float]
    rows: int


def variance_growth(forest: Forest, rows: Rows, leaf_sd: Array, rho: float, tails: tuple[float, float]) -> Growth:
    """Walk some of the rows, drawn by chance if there are more than `MAX_ROWS`, and keep summaries alone."""
    drawn = some_rows(len(rows), MAX_ROWS)
    trees = np.unique(np.linspace(1, forest.n_trees, MAX_PLACES).astype(np.int64))
    walk = variance_after(forest, rows.sample(drawn), leaf_sd, rho, trees)
    mean, low, high = np.array([(variance.mean(), *np.quantile(variance, tails)) for variance in walk]).T
    return Growth(trees, mean, low, high, tails, len(drawn))


def variance_after(
    forest: Forest, rows: Rows, leaf_sd: Array, rho: float, trees: NDArray[np.int64]
) -> Iterator[NDArray[np.float64]]:
    """(n,) variance of every row's margin after so many trees, in rising order: one array, which moves on."""
    from ..kernels import cpu

    root, *splits = forest.routing
    variance, correlation = np.zeros((1, len(rows))), np.array([rho])
    blocks = list(rows.blocks(0, len(rows)))
    for first, end in zip([0, *trees[:-1]], trees, strict=True):
        for lo, hi, X in blocks:
            cpu.add_variances(X, root[first:end], *splits, leaf_sd, correlation, variance[:, lo:hi])
        yield variance[0]
