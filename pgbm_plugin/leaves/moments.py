"""LeafMoments: per leaf, the sample moments of gradient and hessian (paper eq. 3-7), gathered in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..parallel import map_chunks, progress_bar
from ..routes.choose import choose_route, tree_by_tree
from ..tables.rows import Rows
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec

# Least count of a leaf's rows however often they decay: below it, counts would underflow.
_FAINT = 1e-100


@dataclass(frozen=True, eq=False)
class LeafMoments:
    """Moments of (g, h) over the rows of each leaf; L leaves. Two of them over other rows merge exactly.

    Attributes
    ----------
    rows : rows seen; after a decay, as many as they still count for.
    count : (L,) int64, rows in the leaf, n_j; after a decay float64, what they still count for.
    g_mean, h_mean : (L,) mean gradient and hessian; 0 in an empty leaf.
    gg, hh, gh : (L,) sums of squares and products of the deviations from the means.
    freedom : (L,) what makes variances of those sums; None for count - 1, which it is until a decay.
    """

    rows: float
    count: NDArray[Any]
    g_mean: NDArray[np.float64]
    h_mean: NDArray[np.float64]
    gg: NDArray[np.float64]
    hh: NDArray[np.float64]
    gh: NDArray[np.float64]
    freedom: NDArray[np.float64] | None = None

    @classmethod
    def of_nothing(cls, leaves: int) -> LeafMoments:
        """Moments over no rows: what merging begins with."""
        return cls(0, np.zeros(leaves, np.int64), *np.zeros((5, leaves)))

    @property
    def size(self) -> NDArray[Any]:
        """(L,) n_j; after a decay, how many rows of equal count would tell as much: (sum w)^2 / sum w^2."""
        if self.freedom is None:
            return self.count
        return self.count / np.where(self.count > 0, self.count - self.freedom, 1.0)

    @property
    def var_g(self) -> NDArray[np.float64]:
        """(L,) sample variance of the gradient, divisor n - 1; 0 for a single row."""
        return self.gg / self._divisor

    @property
    def var_h(self) -> NDArray[np.float64]:
        """(L,) sample variance of the hessian."""
        return self.hh / self._divisor

    @property
    def cov_gh(self) -> NDArray[np.float64]:
        """(L,) sample covariance of gradient and hessian."""
        return self.gh / self._divisor

    @property
    def _divisor(self) -> NDArray[Any]:
        if self.freedom is None:
            return np.maximum(self.count - 1, 1)
        return np.where(self.freedom > 0, self.freedom, 1.0)

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
        if len(self.count) != len(other.count):
            raise ValueError(
                f"moments of {len(self.count)} leaves do not merge with moments of {len(other.count)}: they are those "
                f"of another model"
            )
        count = self.count + other.count
        some = np.where(count > 0, count, 1)
        share = other.count / some
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
            self._merged_freedom(other, some),
        )

    def _merged_freedom(self, other: LeafMoments, count: NDArray[Any]) -> NDArray[np.float64] | None:
        """W - sum w^2 / W over the rows of both, from the same of each; a sum of what cannot be negative."""
        if self.freedom is None and other.freedom is None:
            return None
        a, b = (part.freedom if part.freedom is not None else np.maximum(part.count - 1, 0) for part in (self, other))
        return (2.0 * self.count * other.count + self.count * a + other.count * b) / count

    def faded(self, decay: float) -> LeafMoments:
        """The same rows, each counting `decay` times what it did: means and variances stay, merging weighs them less.

        So a leaf that no further row reaches keeps its variance, whatever the decay, as long as that is not 0.
        """
        if decay == 1.0:
            return self
        if decay == 0.0:
            return LeafMoments.of_nothing(len(self.count))
        # a leaf that is never reached again would underflow; beside one fresh row this much is nothing
        share = np.where(self.count * decay > _FAINT, decay, 1.0)
        freedom = np.maximum(self.count - 1.0, 0.0) if self.freedom is None else self.freedom
        squares = (share * sums for sums in (self.gg, self.hh, self.gh, freedom))
        return LeafMoments(self.rows * decay, self.count * share, self.g_mean, self.h_mean, *squares)

    def part(self, lo: int, hi: int) -> LeafMoments:
        """Those of the leaves lo..hi."""
        return LeafMoments(self.rows, **{name: values[lo:hi] for name, values in self.arrays().items()})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays over leaves, by name."""
        named = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        return {name: values for name, values in named.items() if values is not None}

    def to_bytes(self) -> bytes:
        """For another process or machine; `from_bytes` is the way back."""
        from .moments_as_bytes import to_bytes

        return to_bytes(self)

    @classmethod
    def from_bytes(cls, raw: bytes) -> LeafMoments:
        """Moments from `to_bytes`; anything else is a ValueError."""
        from .moments_as_bytes import from_bytes

        return from_bytes(raw)


def joined(trees: Sequence[LeafMoments]) -> LeafMoments:
    """Moments of several trees over the same rows, none of them decayed, one after the other."""
    arrays = [moments.arrays() for moments in trees]
    return LeafMoments(trees[0].rows, **{name: np.concatenate([of[name] for of in arrays]) for name in arrays[0]})


@dataclass(frozen=True, eq=False)
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

    def sample(self, rows: int) -> LabelledRows:
        """So many of them at random, the same every time; all if there are no more."""
        if len(self) <= rows:
            return self
        index = np.sort(np.random.default_rng(0).choice(len(self), rows, replace=False))
        weight, score = (None if of is None else of[index] for of in (self.weight, self.init_score))
        return LabelledRows(self.rows.sample(index), self.y[index], weight, score)

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
    """One pass over labelled rows.

    Trees after a folded start see the margins of training to the bit: LightGBM stored the first tree's values as it
    added them to the start. So these moments do not depend on the start, which may be known less exactly.
    """
    assert spec.objective is not None
    data = replace(data, y=spec.objective.margin_labels(data.y))
    gather = _gather if spec.objective.gradients is None else _gather_custom
    trees = spec.first_iteration()
    if not spec.folded[0] or trees == forest.n_trees:
        return gather(forest, spec, data, n_jobs, progress)
    first = forest.first_trees(trees)
    at_start = gather(first, spec.first_trees(trees, first.n_leaves), data, n_jobs, False)
    later = gather(forest, spec.from_zero(), data, n_jobs, progress)
    return joined([at_start, later.part(first.n_leaves, forest.n_leaves)])


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
