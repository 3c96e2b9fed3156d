"""LeafMoments: per leaf, the sample moments of gradient and hessian (paper eq. 3-7), gathered in one pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .forest import Forest
from .parallel import map_chunks, progress_bar
from .route import choose_route, tree_by_tree
from .rows import Rows
from .training import TrainingSpec


@dataclass(frozen=True)
class LeafMoments:
    """Moments of (g, h) over the rows of each leaf; L leaves. Two of them over other rows merge exactly.

    Attributes
    ----------
    rows : rows seen.
    count : (L,) int64, rows in the leaf, n_j.
    g_mean, h_mean : (L,) mean gradient and hessian; 0 in an empty leaf.
    gg, hh, gh : (L,) sums of squares and products of the deviations from the means.
    """

    rows: int
    count: NDArray[np.int64]
    g_mean: NDArray[np.float64]
    h_mean: NDArray[np.float64]
    gg: NDArray[np.float64]
    hh: NDArray[np.float64]
    gh: NDArray[np.float64]

    @property
    def var_g(self) -> NDArray[np.float64]:
        """(L,) sample variance of the gradient, divisor n - 1; 0 for a single row."""
        return self.gg / np.maximum(self.count - 1, 1)

    @property
    def var_h(self) -> NDArray[np.float64]:
        """(L,) sample variance of the hessian."""
        return self.hh / np.maximum(self.count - 1, 1)

    @property
    def cov_gh(self) -> NDArray[np.float64]:
        """(L,) sample covariance of gradient and hessian."""
        return self.gh / np.maximum(self.count - 1, 1)

    @property
    def g_sum(self) -> NDArray[np.float64]:
        """(L,) G, the sum of gradients."""
        return self.count * self.g_mean

    @property
    def h_sum(self) -> NDArray[np.float64]:
        """(L,) H, the sum of hessians."""
        return self.count * self.h_mean

    def merge(self, other: LeafMoments) -> LeafMoments:
        """Moments over the rows of both (Chan, Golub and LeVeque's update)."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        dg, dh = other.g_mean - self.g_mean, other.h_mean - self.h_mean
        between = self.count * share
        return LeafMoments(
            self.rows + other.rows,
            count,
            self.g_mean + dg * share,
            self.h_mean + dh * share,
            self.gg + other.gg + dg * dg * between,
            self.hh + other.hh + dh * dh * between,
            self.gh + other.gh + dg * dh * between,
        )


@dataclass(frozen=True)
class LabelledRows:
    """Rows to take moments of; n of them.

    Attributes
    ----------
    rows : the table.
    y : (n,) labels.
    weight, init_score : (n,) or None.
    """

    rows: Rows
    y: NDArray[np.float64]
    weight: NDArray[np.float64] | None
    init_score: NDArray[np.float64] | None

    def __len__(self) -> int:
        return len(self.rows)

    def initial_margin(self, forest: Forest, spec: TrainingSpec, lo: int, hi: int) -> NDArray[Any]:
        """Margins of rows lo..hi before the first tree, in the precision in which the booster sums."""
        if self.init_score is not None:
            return self.init_score[lo:hi].astype(forest.leaf_value.dtype)
        return np.full(hi - lo, spec.start, forest.leaf_value.dtype)


def leaf_moments(
    forest: Forest,
    spec: TrainingSpec,
    data: LabelledRows,
    *,
    n_jobs: int | None = None,
    progress: bool = False,
) -> LeafMoments:
    """One pass over labelled rows."""
    assert spec.objective is not None
    data = replace(data, y=spec.objective.margin_labels(data.y))
    gather = _gather if spec.objective.gradients is None else _gather_custom
    return gather(forest, spec, data, n_jobs, progress)


def _gather(forest: Forest, spec: TrainingSpec, data: LabelledRows, n_jobs: int | None, progress: bool) -> LeafMoments:
    route = choose_route(forest, data.rows)
    step = route.ordered(spec.step(forest.leaf_value, forest.tree_of_leaf()))
    weight = np.empty(0) if data.weight is None else data.weight

    def chunk(lo: int, hi: int) -> LeafMoments:
        margin = data.initial_margin(forest, spec, lo, hi)
        return from_sums(route.gather_moments(lo, hi, data.y, weight, spec, step, margin), hi - lo)

    chunks = map_chunks(chunk, len(data), route.moments_task, route.threads(n_jobs), progress)
    return reduce(LeafMoments.merge, chunks)


def _gather_custom(
    forest: Forest, spec: TrainingSpec, data: LabelledRows, n_jobs: int | None, progress: bool
) -> LeafMoments:
    """Tree by tree on all rows, because a custom objective may couple them. Neither booster weights what it returns."""
    route = tree_by_tree(forest, data.rows)
    step = spec.step(forest.leaf_value, forest.tree_of_leaf())
    new_iteration = spec.new_iteration()
    margin = data.initial_margin(forest, spec, 0, len(data))
    sums = []

    g = h = np.empty(0)
    with progress_bar(forest.n_trees, "trees", progress) as advance:
        for t in range(forest.n_trees):
            if new_iteration[t]:
                g, h = custom_gradients(spec, margin, data.y)
            sums.append(route.add_tree(t, g, h, step, margin, n_jobs))
            advance(1)
    return from_sums(np.concatenate(sums), len(data))


def custom_gradients(
    spec: TrainingSpec, margin: NDArray[Any], y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The user's g and h, checked, in the float32 in which both boosters hold them."""
    assert spec.objective is not None
    assert spec.objective.gradients is not None
    result = spec.objective.gradients(margin.copy(), y.copy())
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError("objective must return a pair (g, h)")
    pair = []
    for name, values in zip(("g", "h"), result, strict=True):
        values = np.asarray(values, np.float64).reshape(-1)
        if values.shape != y.shape:
            raise ValueError(f"objective returned {len(values)} values of {name} for {len(y)} rows")
        if not np.all(np.isfinite(values)):
            raise ValueError(f"objective returned NaN or inf in {name}")
        pair.append(values.astype(np.float32).astype(np.float64))
    return pair[0], pair[1]


def from_sums(sums: NDArray[np.float64], rows: int) -> LeafMoments:
    """Shifted sums (see `kernels.accumulate`) -> means and sums of squared deviations, merged over the lanes."""
    lanes = np.moveaxis(sums, 0, 2)
    return reduce(LeafMoments.merge, (_from_lane(*lane, rows=rows if i == 0 else 0) for i, lane in enumerate(lanes)))


def _from_lane(
    count: NDArray[np.float64],
    shift_g: NDArray[np.float64],
    g: NDArray[np.float64],
    gg: NDArray[np.float64],
    *of_hessian: NDArray[np.float64],
    rows: int,
) -> LeafMoments:
    n = np.maximum(count, 1.0)
    met = count.astype(np.int64)
    g_mean, gg = shift_g + g / n, np.maximum(gg - g * g / n, 0.0)
    if not of_hessian:  # every one is 1
        zero = np.zeros(len(count))
        return LeafMoments(rows, met, g_mean, np.minimum(count, 1.0), gg, zero, zero)
    shift_h, h, hh, gh = of_hessian
    return LeafMoments(rows, met, g_mean, shift_h + h / n, gg, np.maximum(hh - h * h / n, 0.0), gh - g * h / n)
