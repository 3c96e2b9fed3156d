"""The part of each feature in a row's variance: Shapley values of each tree, through the recursion of eq. 12."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray, Array
from ..parallel import run_chunks
from ..tables.rows import Rows
from ..trees.forest import Features, Forest
from .recursion import leaf_sums, recursion
from .state import ModelState
from .variance_parts import VarianceParts

# Steps from roots to leaves in all trees, at most; each takes 21 bytes.
_MAX_STEPS = 1 << 26

# Rows per task of the thread pool: few, because a row takes thousands of times as long as in a prediction.
_CHUNK = 64


@dataclass(frozen=True)
class Paths:
    """The paths from the roots to the L leaves: P steps, and S slots, one for each feature on a leaf's path."""

    step_start: NDArray[np.int64]  # (L + 1,) where the steps of each leaf begin
    step_node: NDArray[np.int32]  # (P,) the split
    step_left: NDArray[np.bool_]  # (P,) whether the leaf is on its left side
    step_slot: NDArray[np.int32]  # (P,) the slot of the split's feature, counted from the leaf's first slot
    slot_start: NDArray[np.int64]  # (L + 1,) where the slots of each leaf begin
    slot_feature: NDArray[np.int32]  # (S,) the feature
    slot_share: Array  # (S,) the share of rows that all splits on this feature together send towards the leaf


def leaf_paths(forest: Forest, count: AnyArray) -> Paths:
    """Return the paths of a forest whose leaves held `count` rows."""
    from ..kernels import explain

    n, leaves = len(forest.nodes), forest.n_leaves
    left, right, feature = (np.ascontiguousarray(forest.nodes[name]) for name in ("left", "right", "feature"))
    parents = np.zeros(n), np.empty(n, np.int64), count.astype(np.float64), np.empty(leaves, np.int64)
    steps = explain.climb(left, right, forest.root, *parents, np.empty(n, np.int64))
    if steps > _MAX_STEPS:
        raise ValueError(f"the trees are too deep to explain: {steps} steps from roots to leaves, {_MAX_STEPS} at most")
    slot_feature, slot_share = np.empty(steps, np.int32), np.empty(steps)
    step_start, slot_start = np.empty((2, leaves + 1), np.int64)
    step_arrays = np.empty(steps, np.int32), np.empty(steps, bool), np.empty(steps, np.int32)
    slots = explain.fill_paths(feature, *parents, step_start, *step_arrays, slot_start, slot_feature, slot_share)
    return Paths(step_start, *step_arrays, slot_start, slot_feature[:slots], slot_share[:slots])


def add_shapley(
    forest: Forest, X: AnyArray, paths: Paths, value: Array, scale: Array, out: Array, step: Array | None = None
) -> None:
    """Add to ``out`` (n, features) the Shapley values of every tree for leaf values (L,), times ``scale`` (n, T).

    Shapley values of further leaf values ``step`` (L,) are added as they are.
    """
    from ..kernels import explain

    most = int(np.diff(paths.slot_start).max())
    explain.add_shapley(
        X,
        *forest.routing[1:],
        forest.leaf_start,
        *vars(paths).values(),
        *_gauss_legendre(most),
        value,
        scale,
        np.zeros(forest.n_leaves) if step is None else step,
        np.empty(len(forest.nodes), bool),
        np.empty(most),
        out,
    )


def _gauss_legendre(most: int) -> tuple[NDArray[np.int64], Array, Array]:
    """Return (starts, points, weights) of quadrature rules on 0..1, exact for degrees 0, 0, 1... up to `most` - 1."""
    rules = [np.polynomial.legendre.leggauss(max(1, (d + 1) // 2)) for d in range(most + 1)]
    start = np.cumsum([0, *(len(point) for point, _ in rules)])
    point, weight = (np.concatenate(part) for part in zip(*rules, strict=True))
    return start, 0.5 * (point + 1.0), 0.5 * weight


def explain_variance(state: ModelState, rows: Rows, n_jobs: int | None = None) -> VarianceParts:
    """Return the parts of the variances of rows, see `ProbabilisticModel.explain_variance`."""
    features = state.forest.features
    blocks = [X for _, _, X in rows.blocks(0, len(rows))]
    data = np.concatenate(blocks)[:, : features.count] if blocks else np.empty((0, features.count))
    return VarianceParts(_by_column(features, _parts(state, rows, n_jobs)), features.shown_names, data)


def _by_column(features: Features, parts: Array) -> Array:
    """Return the parts with those of looked up columns given in equal shares to the columns that they are made of."""
    if features.looked_up is None:
        return parts
    out = np.concatenate([parts[:, : features.count], parts[:, -1:]], axis=1)
    for column in range(len(features.looked_up)):
        sources = np.unique(features.looked_up.sources(column))
        out[:, sources] += parts[:, features.count + column, None] / len(sources)
    return out


def _parts(state: ModelState, rows: Rows, n_jobs: int | None) -> Array:
    """Return the (n, features + 1) parts of the variances; looked up columns have parts of their own."""
    from ..kernels import explain

    forest, leaf_sd, rho, scale = state.forest, state.weights.sd, state.chosen.rho, state.chosen.scale
    paths, value = leaf_paths(forest, state.moments.mass), leaf_sd**2
    tree, step = forest.tree_of_leaf(), None if scale is None else scale.step
    # the weight of a leaf is the product of its shares, and 1 for a tree without splits
    at = np.repeat(np.arange(forest.n_leaves), np.diff(paths.slot_start))
    weight = np.ones(forest.n_leaves)
    np.multiply.at(weight, at, paths.slot_share)
    mean_sd = np.sqrt(np.bincount(tree, weight * value, forest.n_trees))
    mean_variance = recursion(mean_sd, rho)
    base = float(mean_variance[-1])

    out, variance = np.zeros((len(rows), forest.features.width + 1)), np.empty(len(rows))

    def chunk(lo: int, hi: int) -> None:
        for begin, end, X in rows.blocks(lo, hi):
            slope = np.empty((end - begin, forest.n_trees))
            means = mean_sd, mean_variance, rho, np.empty(forest.n_trees)
            explain.secants(X, *forest.routing, leaf_sd, *means, slope, variance[begin:end])
            if scale is not None:
                slope *= _secants(lambda v: scale.logarithm(v, 0.0), variance[begin:end], base, base)[:, None]
            add_shapley(forest, X, paths, value, slope, out[begin:end], step)

    run_chunks(chunk, len(rows), _CHUNK, n_jobs)

    def calibrated(x: Array) -> Array:
        return state.chosen.calibration(x if scale is None else np.exp(x))

    unit = base
    if scale is not None:  # the parts are now those of the logarithm
        variance = scale.logarithm(variance, leaf_sums(forest, rows, scale.step, n_jobs))
        base, unit = float(scale.logarithm(base, weight @ scale.step)), 1.0
    out[:, :-1] *= _secants(calibrated, variance, base, unit)[:, None]
    out[:, -1] = calibrated(np.array([base]))[0]
    return out


def _secants(function: Callable[[Array], Array], x: Array, base: float, unit: float) -> Array:
    """Return the (n,) slopes of a function between `x` and `base`.

    Where these are nearly equal, it is the slope of a short line around them, whose length is a share of `unit`.
    """
    short = 1e-5 * unit
    near = np.abs(x - base) <= 0.01 * short
    begin, end = np.where(near, x - short, base), np.where(near, x + short, x)
    length = end - begin
    return (function(end) - function(begin)) / np.where(length != 0.0, length, 1.0)
