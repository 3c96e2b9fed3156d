"""Stochastic leaf weights (paper eq. 8-9) and their way through the trees (eq. 11-12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..parallel import run_chunks
from ..routes.choose import choose_route
from ..tables.rows import Rows
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec
from .moments import LeafMoments


@dataclass(frozen=True, eq=False)
class LeafWeights:
    """Mean and spread of each leaf's weight; L leaves.

    Attributes
    ----------
    mu : (L,) expected weight, before the learning rate and with the paper's sign (a step is -alpha * mu).
    variance : (L,) its variance V.
    sd : (L,) what a leaf brings to the recursion: alpha * sqrt(V), divided as the forest's sum is.
    """

    mu: NDArray[np.float64]
    variance: NDArray[np.float64]
    sd: NDArray[np.float64]


def leaf_weights(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> LeafWeights:
    """Paper eq. 8-9, with lambda and l1 divided by n as the sums are.

    A leaf that no row reached, or whose hessians do not sum to anything positive, or whose V is not finite, takes the
    average V of its tree.
    """
    tree = forest.tree_of_leaf()
    n = np.maximum(moments.size, 1)
    d = moments.h_mean + spec.lambda_ / n
    known = (moments.count > 0) & (d > 0)
    d = np.where(known, d, 1.0)
    g = soft_threshold(moments.g_mean, spec.l1 / n)
    var_g, var_h, cov = moments.var_g, moments.var_h, moments.cov_gh

    with np.errstate(over="ignore", invalid="ignore"):
        mu = g / d - cov / d**2 + g * var_h / d**3
        variance = np.maximum(var_g / d**2 + g**2 * var_h / d**4 - 2.0 * g * cov / d**3, 0.0)

    known &= np.isfinite(variance) & np.isfinite(mu)
    mu, variance = np.where(known, mu, 0.0), np.where(known, variance, 0.0)
    alpha = spec.alpha[tree]
    weight = np.where(known, moments.count, 0).astype(np.float64)
    total = np.bincount(tree, weight, forest.n_trees)
    mean_variance = np.bincount(tree, weight * variance, forest.n_trees) / np.maximum(total, 1.0)
    stored = -spec.step(forest.leaf_value, tree) / np.where(alpha > 0, alpha, 1.0)
    mu = np.clip(np.where(known, mu, stored), -spec.max_step, spec.max_step)
    variance = np.where(known, variance, mean_variance[tree])
    return LeafWeights(mu, variance, alpha * np.sqrt(variance) / forest.divisor)


def typical_variance(forest: Forest, moments: LeafMoments, weights: LeafWeights) -> float:
    """The variance of a row that meets the leaves as the rows of the moments did, with trees that are uncorrelated."""
    return float(forest.n_trees * np.average(weights.sd**2, weights=moments.count))


def soft_threshold(g: NDArray[np.float64], l1: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """What L1 regularisation leaves of a gradient: sign(g) max(|g| - l1, 0)."""
    return np.sign(g) * np.maximum(np.abs(g) - l1, 0.0)


def paper_leaf_values(forest: Forest, spec: TrainingSpec, weights: LeafWeights) -> NDArray[np.float64]:
    """(L,) leaf values of the paper's mean, -alpha * mu, in place of the booster's stored ones."""
    tree = forest.tree_of_leaf()
    return np.where(spec.folded[tree], spec.start, 0.0) - spec.alpha[tree] * weights.mu


def margins(
    forest: Forest,
    rows: Rows,
    leaf_value: NDArray[Any],
    init_score: NDArray[np.float64] | None = None,
    leaf_sd: NDArray[np.float64] | None = None,
    rho: float = 0.0,
    leaf_step: NDArray[np.float64] | None = None,
    n_jobs: int | None = None,
    dtype: Any = np.float64,
) -> tuple[NDArray[Any], NDArray[Any] | None, NDArray[np.float64] | None]:
    """Margin of every row in the precision of `leaf_value`.

    Also its variance (eq. 12) if `leaf_sd` is given, and with it the sum of its leaves' steps if these are. `dtype`
    is the precision of the recursion on a GPU.
    """
    margin = np.empty(len(rows), leaf_value.dtype)
    margin[:] = forest.base_margin if init_score is None else init_score * forest.divisor  # divided out again below
    route = choose_route(forest, rows)
    variance = log_scale = None
    if leaf_sd is None:
        value = route.ordered(leaf_value)
        run_chunks(lambda lo, hi: route.add_margin(lo, hi, value, margin), len(rows), route.task, route.threads(n_jobs))
    else:
        weights, variance = route.paired(leaf_value, leaf_sd, leaf_step), np.zeros(len(rows), dtype)
        log_scale = None if leaf_step is None else np.zeros(len(rows))

        def chunk(lo: int, hi: int) -> None:
            route.add_margin_variance(lo, hi, weights, rho, margin, variance, log_scale)

        run_chunks(chunk, len(rows), route.task, route.threads(n_jobs))
    if forest.divisor > 1:
        margin /= forest.divisor
    return margin, variance, log_scale


def leaf_sums(
    forest: Forest, rows: Rows, per_leaf: NDArray[np.float64], n_jobs: int | None = None
) -> NDArray[np.float64]:
    """(n,) the sum over each row's leaves."""
    route = choose_route(forest, rows)
    value, out = route.ordered(per_leaf), np.zeros(len(rows))
    run_chunks(lambda lo, hi: route.add_margin(lo, hi, value, out), len(rows), route.task, route.threads(n_jobs))
    return out


def variances(
    forest: Forest, rows: Rows, leaf_sd: NDArray[np.float64], rho: NDArray[np.float64], n_jobs: int | None = None
) -> NDArray[np.float64]:
    """(k, n) variance of every row's margin under each of k correlations, in one pass."""
    route = choose_route(forest, rows)
    sd, out = route.ordered(leaf_sd), np.zeros((len(rho), len(rows)))
    run_chunks(lambda lo, hi: route.add_variances(lo, hi, sd, rho, out), len(rows), route.task, route.threads(n_jobs))
    return out


def are_wrapped_rows(forest: Forest, moments: LeafMoments, rows: Rows) -> bool:
    """Whether the rows of the moments come again: as many, and spread over the first trees' leaves alike."""
    if len(rows) != moments.rows:
        return False
    from ..kernels import cpu

    root, *splits = forest.routing
    leaf = np.empty(len(rows), np.int64)
    for start in root[:3]:
        for lo, hi, X in rows.blocks(0, len(rows)):
            cpu.route(X, start, *splits, leaf[lo:hi])
        met = np.unique(leaf)
        if np.any(np.bincount(leaf, minlength=forest.n_leaves)[met] != moments.count[met]):
            return False
    return True
