"""TrainingRows: the rows of a training that `record` follows, tree by tree."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray, Array
from ..boosters import read_model
from ..boosters.booster import FollowedTraining, LeafPaths, TreeLeaves
from ..errors import UnsupportedModelError, warn
from ..leaves.base_score import LabelSums
from ..leaves.comparison import leaf_errors
from ..leaves.gather import custom_gradients
from ..leaves.moments import LeafMoments, from_sums, joined
from ..leaves.solve_rates import solve_rates
from ..losses.custom_objectives import CustomObjective, TorchGradients, check_may_be_custom
from ..losses.torch_objective import TorchObjective
from ..parallel import map_chunks
from ..routes.base import has_unit_hessian, loss_arguments
from ..trees.objectives import IDENTITY, custom
from ..trees.training_spec import TrainingSpec
from .recorded import ATTRIBUTE, Recorded

# The smallest number of rows per accumulator and the largest number of accumulators, because merging them is slow. They
# do not depend on the number of threads, so neither do the moments.
_CHUNK, _CHUNKS = 1 << 14, 8

# Size of the table in which the step of a row is looked up.
_PARTS = 1 << 16

# The largest number of steps through two trees, and the largest probability that rounding makes two of them equal.
_MAX_STEPS, _RISK = 1 << 14, 1e-5

# Relative error of a score that went through exp and log, or through an average.
_SLACK = 16.0 * float(np.finfo(np.float64).eps)


def _chunk(rows: int) -> int:
    """Return the number of rows of a chunk; it is even for the moments' lanes (see `kernels.accumulate`)."""
    return max(_CHUNK, -(-rows // (2 * _CHUNKS)) * 2)


def _first_leaves(trees: list[TreeLeaves]) -> NDArray[np.int64]:
    """Return the number of the first leaf of each tree, and the total number of leaves."""
    return np.cumsum([0, *(len(tree.value) for tree in trees)])


def _merged(sums: list[Array], rows: int) -> LeafMoments:
    """Return the merged moments of all chunks, which have `rows` rows in total."""
    # `from_sums` is faster for all chunks at once
    all_chunks, leaves = from_sums(np.concatenate(sums), 0), len(sums[0])
    chunks = (all_chunks.part(i * leaves, (i + 1) * leaves) for i in range(len(sums)))
    return replace(reduce(LeafMoments.merge, chunks), rows=rows)


class TrainingRows(FollowedTraining):
    """The n training rows and their margins after the trees so far.

    Attributes
    ----------
    forest, spec : Forest, TrainingSpec
        The model when it had its first trees.
    recorded : Recorded
        The leaves and moments so far.
    y, weight : (n,) float array
        Labels on the margin's scale, and weights, which may be empty.
    margin : (n,) float array
        Sums of leaf values so far, in the booster's precision. The first tree may hold the mean label.
    at : (n,) float array
        Margins at which the gradients of the next trees are computed.
    average : bool
        Whether the booster's scores are averages of the trees. Gradients are then those at the base score.
    reach : float
        Upper bound of the margins' absolute values.
    """

    def __init__(
        self,
        model: Any,
        y: AnyArray,
        weight: AnyArray | None,
        init_score: AnyArray | None,
        average: bool = False,
        *,
        objective: CustomObjective | None,
        n_jobs: int,
    ):
        self.forest, spec = read_model(model)
        spec.check_sequential("record", "train without dropout, or call wrap(booster, X, y) after training")
        spec, weight = _with_objective(spec, objective, weight)
        assert spec.objective is not None
        self.n_jobs = n_jobs
        self.y = spec.margin_labels(y.astype(np.float64))
        self.weight = np.empty(0) if weight is None else weight.astype(np.float64)
        dtype = self.forest.leaf_value.dtype
        if init_score is not None:
            spec = spec.with_own_starts()
            self.margin = self.at = init_score.astype(dtype)
        else:
            if spec.start_is_mean:
                sums = LabelSums.of_model(spec, self.forest).add(self.y, self._weights)
                spec = replace(spec, start=sums.base_score(spec, self.forest))
            self.margin = np.full(len(y), self.forest.base_margin, dtype)
            self.at = np.full(len(y), spec.start, dtype) if spec.folded[0] or average else self.margin
        self.spec, self.average = spec, average
        self.reach = float(np.abs(self.margin).max())
        self._taken = np.empty(len(y), np.uint32)
        self.recorded = Recorded(spec.start, init_score is not None, objective is not None, [], [])

    @property
    def _weights(self) -> Array | None:
        return self.weight if len(self.weight) else None

    @property
    def n_recorded(self) -> int:
        return len(self.recorded.leaves)

    @property
    def split_seen(self) -> bool:
        return any(len(tree.value) > 1 for tree in self.recorded.leaves)

    def attach(self, model: Any) -> None:
        setattr(model, ATTRIBUTE, self.recorded)

    def give_up(self, model: Any, trees: list[TreeLeaves]) -> None:
        failure = self._why_hidden(trees)
        setattr(model, ATTRIBUTE, replace(self.recorded, failure=failure))
        warn(f"record() ends here, but training goes on: {failure}")

    def _why_hidden(self, trees: list[TreeLeaves]) -> str:
        for t, tree in enumerate(trees, self.n_recorded):
            order = np.argsort(tree.value)
            gap = np.diff(tree.value[order])
            if len(gap) and gap.min() <= 4.0 * _SLACK * (t + 1.0 + self.reach):
                k = int(np.argmin(gap))
                a, b = sorted(tree.label[order[k : k + 2]].tolist())
                return (
                    f"leaves {a} and {b} of tree {t} have the same value, {tree.value[a]:g}, so training scores do not "
                    f"show which of them a row reached"
                )
        first = self.n_recorded
        if len(trees) > 1:
            return f"two paths through trees {first} and {first + 1} lead to the same score"
        return f"the training scores are not sums of leaf values in tree {first}"

    def check_first_tree(self) -> None:
        # XGBoost stores a custom objective as reg:squarederror, so only the leaf values show it
        forest, spec, moments = self.forest, self.spec, joined(self.recorded.moments)
        assert spec.objective is not None
        if spec.subsampled or spec.approximate:
            return  # then the leaf values do not show it either
        any_rate = replace(spec, alpha_error=np.full(len(spec.alpha), np.inf))  # a schedule may have changed it by now
        errors = [np.median(leaf_errors(forest, s, moments)) for s in (spec, solve_rates(forest, any_rate, moments))]
        if min(errors) > spec.tolerance:
            raise UnsupportedModelError(
                f"the first tree does not follow from the data given to record and objective {spec.objective.name!r}: "
                f"if training has a custom objective, give record(dtrain, objective=f) with f(margin, y) -> (g, h); "
                f"otherwise give the same matrix as to training, with its weights and base_margin"
            )

    def tells_two(self, tree: TreeLeaves) -> bool:
        # every pair of leaves is a step, and all steps must differ by more than rounding: a birthday problem
        assert self.spec.objective is not None
        if self.at is not self.margin or self.spec.objective.gradients is not None:
            return False  # see `follow`
        steps = len(tree.value) ** 2
        hidden = 4.0 * _SLACK * (1.0 + self.reach) / max(float(np.ptp(tree.value)), np.finfo(np.float64).tiny)
        return 1 < steps <= _MAX_STEPS and steps**2 * hidden < _RISK

    def find(self, trees: list[TreeLeaves], score: AnyArray, link: int) -> LeafPaths | None:
        from ..kernels.cpu import BLOCK
        from ..kernels.record import find_steps

        step = reduce(np.add.outer, [tree.value for tree in trees])
        order = np.argsort(step, axis=None, kind="stable")
        first = _first_leaves(trees)[:-1]
        paths = LeafPaths((np.unravel_index(order, step.shape) + first[:, None]).astype(np.int32), self._taken)
        if step.size == 1:
            paths.taken[:] = 0
            return paths
        step = step.reshape(-1)[order]
        gap = np.concatenate([[np.inf], np.diff(step.astype(np.float64)), [np.inf]])
        scale = (_PARTS - 1) / max(float(step[-1]) - float(step[0]), float(np.finfo(np.float64).tiny))
        guess = np.zeros(_PARTS, np.uint32)
        guess[((step - np.float64(step[0])) * scale + 0.5).astype(np.int64)] = np.arange(len(step))
        number = step.dtype.type
        table = step, np.minimum(gap[1:], gap[:-1]).astype(number), guess, scale, number(2.0 * np.finfo(number).eps)
        times = len(self.recorded.leaves) + len(trees) if self.average else 1
        exact = link == IDENTITY and not self.average and len(trees) == 1
        link_arguments = (None, None, None) if exact else (link, float(times), times * _SLACK)

        def find_chunk(lo: int, hi: int) -> bool:
            buffers, rows = (np.empty(BLOCK, number), np.empty(BLOCK, np.int32)), slice(lo, hi)
            return bool(
                find_steps(score[rows], self.margin[rows], *table, *link_arguments, *buffers, paths.taken[rows])
            )

        return paths if all(map_chunks(find_chunk, len(self.y), _chunk(len(self.y)), self.n_jobs)) else None

    def follow(self, trees: list[TreeLeaves], paths: LeafPaths, *, one_iteration: bool = True) -> None:
        from ..kernels.accumulate import accumulators, add_rows, gradient_buffers
        from ..kernels.cpu import BLOCK
        from ..kernels.record import add_trees

        objective, y, weight, at, margin = self.spec.objective, self.y, self.weight, self.at, self.margin
        assert objective is not None
        value = np.concatenate([tree.value for tree in trees])
        unit = has_unit_hessian(self.spec, weight)
        g, h = (np.empty(0),) * 2 if objective.gradients is None else custom_gradients(self.spec, at, y, self._weights)
        new_iteration = np.full(len(trees), not one_iteration)
        new_iteration[0] = True

        def gather(lo: int, hi: int) -> Array:
            sums, rows = accumulators(len(value), unit, len(weight) > 0), slice(lo, hi)
            taken = paths.taken[rows]
            if len(g):
                for leaf in paths.leaf:
                    add_rows(leaf[taken], g[rows], h[rows], weight[rows], value, margin[rows], sums)
            else:
                loss = y[rows], weight[rows], at[rows], new_iteration, *loss_arguments(self.spec, weight)
                buffers = np.empty(BLOCK, np.int32), *gradient_buffers(BLOCK, sums)
                add_trees(paths.leaf, taken, *loss, *buffers, value, margin[rows], sums)
            return sums

        first = _first_leaves(trees)
        effective = int(np.count_nonzero(weight)) if len(weight) else len(y)
        moments = _merged(list(map_chunks(gather, len(y), _chunk(len(y)), self.n_jobs)), effective)
        for tree, lo, hi in zip(trees, first[:-1], first[1:], strict=True):
            self.recorded.moments.append(moments.part(lo, hi))
            self.recorded.leaves.append(tree)
            self.reach += float(np.abs(tree.value).max())
        if not self.average:
            self.at = margin


def _with_objective(
    spec: TrainingSpec, objective: CustomObjective | None, weight: AnyArray | None
) -> tuple[TrainingSpec, AnyArray | None]:
    """Return the spec with the objective, and the weights of the rows; a plain function takes none."""
    if objective is None:
        if spec.objective is None:
            raise UnsupportedModelError(
                "training has a custom objective, whose gradients a callback cannot see: give record(objective=f), a "
                "torch_objective or a function (margin, y) -> (g, h)"
            )
        return spec, weight
    check_may_be_custom(spec)
    if isinstance(objective, TorchObjective):
        return replace(spec, objective=custom(TorchGradients(objective, weight))), weight
    return replace(spec, objective=custom(objective)), None
