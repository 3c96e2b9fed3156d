"""LeafWeights: mean and spread of each leaf's weight (paper eq. 8-9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec
from .moments import LeafMoments
from .newton import soft_threshold


@dataclass(frozen=True, eq=False)
class LeafWeights:
    """Mean and spread of each leaf's weight; L leaves.

    Attributes
    ----------
    mu : (L,) float array
        Expected weight, before the learning rate and with the paper's sign (a step is -alpha * mu).
    variance : (L,) float array
        Variance V of the weight.
    sd : (L,) float array
        Standard deviation that a leaf adds to the recursion: alpha * sqrt(V) / forest.divisor. 0 for trees that are not
        sequential, because V is not that of their training.
    """

    mu: Array
    variance: Array
    sd: Array

    def __post_init__(self) -> None:
        self.sd.flags.writeable = False  # routes keep it in their own order

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # pickle makes arrays writable


def leaf_weights(forest: Forest, spec: TrainingSpec, moments: LeafMoments, *, whole: bool = True) -> LeafWeights:
    """Return the weights of paper eq. 8-9, with lambda and l1 divided by n or the sum of weights: g and h are means.

    A leaf gets the average V of its tree if no row reached it, if its hessians do not have a positive sum, or if its
    own V is not finite. A `whole` model without any split is a constant, whose spread is that of the labels.
    """
    tree = forest.tree_of_leaf()
    n = np.where(moments.size > 0, moments.size, 1)
    d = moments.h_mean + spec.lambda_ / n
    defined = (moments.mass > 0) & (d > 0)
    d = np.where(defined, d, 1.0)
    g = soft_threshold(moments.g_mean, spec.l1 / n)
    var_g, var_h, cov = moments.var_g, moments.var_h, moments.cov_gh

    with np.errstate(over="ignore", invalid="ignore"):
        mu = g / d - cov / d**2 + g * var_h / d**3
        variance = np.maximum(var_g / d**2 + g**2 * var_h / d**4 - 2.0 * g * cov / d**3, 0.0)

    defined &= np.isfinite(variance) & np.isfinite(mu)
    variance = np.where(defined, variance, 0.0)
    alpha = spec.alpha[tree]
    rows = np.where(defined, moments.mass, 0.0)
    tree_rows = np.bincount(tree, rows, forest.n_trees)
    mean_variance = np.bincount(tree, rows * variance, forest.n_trees) / np.where(tree_rows > 0.0, tree_rows, 1.0)
    stored = -spec.step(forest.leaf_value, tree) / np.where(alpha > 0, alpha, 1.0)
    mu = np.clip(np.where(defined, mu, stored), -spec.max_step, spec.max_step)
    variance = np.where(defined, variance, mean_variance[tree])
    if not spec.sequential:
        return LeafWeights(mu, variance, np.zeros(forest.n_leaves))
    if whole and forest.n_leaves == forest.n_trees:
        return LeafWeights(mu, variance, np.where(tree == tree[-1], np.sqrt(variance), 0.0))
    return LeafWeights(mu, variance, alpha * np.sqrt(variance) / forest.divisor)


def paper_leaf_values(forest: Forest, spec: TrainingSpec, weights: LeafWeights) -> Array:
    """Return the (L,) leaf values of the paper's mean, -alpha * mu, in place of the booster's stored ones."""
    tree = forest.tree_of_leaf()
    value = np.where(spec.folded[tree], spec.start, 0.0) - spec.alpha[tree] * weights.mu
    value.flags.writeable = False
    return value


def typical_variance(forest: Forest, moments: LeafMoments, weights: LeafWeights) -> float:
    """Return the average variance over the rows of the moments, at rho = 0."""
    return float(forest.n_trees * np.average(weights.sd**2, weights=moments.mass))
