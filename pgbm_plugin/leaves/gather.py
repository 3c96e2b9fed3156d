"""The pass over labelled rows that gathers the moments of every leaf."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np

from ..arrays import AnyArray, Array
from ..parallel import map_chunks, progress_bar
from ..routes.choose import choose_route
from ..tables.labelled import LabelledRows
from ..tables.ranges import ranges_of
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec
from .moments import LeafMoments, from_sums


def leaf_moments(
    forest: Forest,
    spec: TrainingSpec,
    data: LabelledRows,
    *,
    margin: AnyArray | None = None,
    n_jobs: int | None = None,
    progress: bool = False,
) -> LeafMoments:
    """Send labelled rows through the trees in order, as training did, and return the moments of all leaves.

    If the first tree holds the base score, the trees after it see exactly the margins of training, because margins are
    then sums of stored values. Their moments do not depend on the base score, which may not be known exactly.

    Labels of `data` are on the margin's scale. `margin`, if given, is replaced by the margins after the last tree.
    """
    assert spec.objective is not None
    if margin is None:
        margin = data.initial_margin(forest, spec, 0, len(data))
    restarts = bool(spec.folded[0]) and spec.first_iteration() < forest.n_trees
    step = forest.leaf_value if restarts else spec.step(forest.leaf_value, forest.tree_of_leaf())
    if spec.objective.gradients is not None:
        return _gather_custom(forest, spec, data, step, restarts, margin, n_jobs, progress)
    route = choose_route(forest, data.rows)
    step, weight = route.ordered(step), np.empty(0) if data.weight is None else data.weight

    def chunk(lo: int, hi: int) -> LeafMoments:
        sums = route.gather_moments(lo, hi, data.y, weight, spec, step, restarts, margin[lo:hi])
        return from_sums(sums, data.effective(lo, hi))

    chunks = map_chunks(chunk, len(data), route.moments_task, route.threads(n_jobs), progress)
    return reduce(LeafMoments.merge, chunks)


def _gather_custom(
    forest: Forest,
    spec: TrainingSpec,
    data: LabelledRows,
    step: AnyArray,
    restarts: bool,
    margin: AnyArray,
    n_jobs: int | None,
    progress: bool,
) -> LeafMoments:
    """Send all rows through one tree after the other, because a custom objective may couple rows."""
    from ..kernels.accumulate import accumulators, add_rows

    route, new_iteration = choose_route(forest, data.rows), spec.new_iteration()
    g = h = np.empty(0)
    weight = g if data.weight is None else data.weight
    step, sums = route.ordered(step), accumulators(forest.n_leaves, unit_hessian=False, weighted=len(weight) > 0)
    with progress_bar(forest.n_trees, "trees", progress) as advance:
        for t, leaf in enumerate(route.leaves_by_tree(n_jobs)):
            if new_iteration[t]:
                g, h = custom_gradients(spec, margin, data.y, data.weight)
            if restarts and t == 0:
                margin[:] = 0.0
            leaves = slice(forest.leaf_start[t], forest.leaf_start[t + 1])
            add_rows(leaf, g, h, weight, step[leaves], margin, sums[leaves])
            advance(1)
    return from_sums(route.by_leaf(sums), data.effective(0, len(data)))


def with_ranges(moments: LeafMoments, forest: Forest, data: LabelledRows, n_jobs: int | None = None) -> LeafMoments:
    """Return the moments of rows with what these held of each feature."""
    return replace(moments, ranges=ranges_of(data.rows, forest, data.weight, n_jobs))


def custom_gradients(spec: TrainingSpec, margin: AnyArray, y: Array, weight: Array | None) -> tuple[Array, Array]:
    """Return the user's g and h, checked and rounded as the booster rounds them, per unit of weight.

    A function that is given `weight` returns w g and w h. A row of weight 0 counts nothing, and gets 0.
    """
    assert spec.objective is not None
    assert spec.objective.gradients is not None
    result = spec.objective.gradients(margin.copy(), y.copy())
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError("objective must return a pair (g, h)")
    pair = []
    for name, derivative in zip(("g", "h"), result, strict=True):
        derivative = np.asarray(derivative, np.float64).reshape(-1)
        if derivative.shape != y.shape:
            raise ValueError(f"objective returned {len(derivative)} values of {name} for {len(y)} rows")
        if not np.all(np.isfinite(derivative)):
            raise ValueError(f"objective returned NaN or inf in {name}")
        held = derivative.astype(spec.gradient_dtype).astype(np.float64)
        pair.append(held if weight is None else np.divide(held, weight, out=np.zeros(len(y)), where=weight > 0))
    return pair[0], pair[1]
