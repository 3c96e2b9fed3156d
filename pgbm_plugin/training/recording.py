"""What record() has seen of a training: the moments of its trees so far, and the rows on their way through them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..boosters import read_model
from ..errors import UnsupportedModelError
from ..leaves.base_score import LabelSums
from ..leaves.moments import LeafMoments, custom_gradients, from_sums, joined
from ..losses.custom_objectives import TorchSteps
from ..losses.torch_objective import TorchObjective
from ..parallel import map_chunks
from ..routes.choose import gradient_arguments
from ..trees.forest import Forest
from ..trees.objectives import IDENTITY, Gradients, custom, forgotten
from ..trees.training_spec import TrainingSpec

# Where a booster keeps what was recorded: a Python attribute survives pickle and, in XGBoost, copies.
ATTRIBUTE = "_pgbm_recorded"

# Rows per accumulator at least, and accumulators at most: merging them costs more than filling small ones. Neither
# depends on the number of threads, so that the moments do not either.
_CHUNK, _CHUNKS = 1 << 14, 8

# Parts into which the range of all steps that a row can take is cut, to look up a step in.
_PARTS = 1 << 16

# Steps through two trees that are told apart at most, and how likely it may be that rounding hides one of them.
_MAX_STEPS, _RISK = 1 << 14, 1e-5

# A score that went through exp and log, or through an average, is off by a few roundings.
SLACK = 16.0 * float(np.finfo(np.float64).eps)

INSTEAD = "call wrap(booster, X, y)"


@dataclass(frozen=True)
class Leaves:
    """The leaves of one tree: the booster's own numbers for them, as in `Forest.leaf_label`, and their values."""

    label: NDArray[np.int32]
    value: NDArray[Any]


@dataclass(frozen=True)
class Ways:
    """How n rows went through a few trees, of which there are P ways.

    Attributes
    ----------
    leaf : (trees, P) int32, the leaves on each way, numbered through the trees.
    taken : (n,) uint32, the way of each row.
    """

    leaf: NDArray[np.int32]
    taken: NDArray[np.uint32]


@dataclass(frozen=True)
class Recorded:
    """What was seen of a training.

    Attributes
    ----------
    start : margin of a row before the first tree, where it had no init_score.
    has_init_score, weighted, custom : whether rows had init scores, weights; whether the objective was the user's.
    leaves, moments : of each tree; the lists grow with the model.
    failure : why no further trees were recorded, or None.
    """

    start: float
    has_init_score: bool
    weighted: bool
    custom: bool
    leaves: list[Leaves]
    moments: list[LeafMoments]
    failure: str | None = None


def recorded(booster: Any, forest: Forest, spec: TrainingSpec) -> tuple[TrainingSpec, LeafMoments, bool] | None:
    """How the trees were grown, their moments, and whether rows were weighted; None if nothing was recorded.

    `forest` and `spec` are what `read_model` makes of the booster: trees after the best iteration are not in them.
    """
    found: Recorded | None = getattr(getattr(booster, "_Booster", booster), ATTRIBUTE, None)
    if found is None:
        return None
    seen = len(found.leaves)
    if seen < forest.n_trees:
        reason = found.failure or "training went on without it"
        raise ValueError(f"record() saw {seen} of the model's {forest.n_trees} trees: {reason}; {INSTEAD}")
    for t, leaves in enumerate(found.leaves[: forest.n_trees]):
        of_tree = slice(forest.leaf_start[t], forest.leaf_start[t + 1])
        same = np.array_equal(leaves.label, forest.leaf_label[of_tree])
        if not same or not np.array_equal(leaves.value, forest.leaf_value[of_tree]):
            raise ValueError(f"tree {t} is not the one that record() saw: the model was changed since; {INSTEAD}")
    if found.custom:
        spec = replace(spec, objective=custom(forgotten))
    if found.has_init_score:
        spec = spec.with_own_starts()
    return replace(spec, start=found.start), joined(found.moments[: forest.n_trees]), found.weighted


def _chunk(rows: int) -> int:
    """An even number of rows, for the moments' lanes (see `kernels.accumulate`)."""
    return max(_CHUNK, -(-rows // (2 * _CHUNKS)) * 2)


def _first_leaves(trees: list[Leaves]) -> NDArray[np.int64]:
    """(trees + 1,) where the leaves of each begin, numbered through them."""
    return np.cumsum([0, *(len(tree.value) for tree in trees)])


def _merged(sums: list[NDArray[np.float64]], rows: int) -> LeafMoments:
    """Moments from the accumulators of chunks of so many rows in all; finished at once, for the sake of speed."""
    all_chunks, leaves = from_sums(np.concatenate(sums), 0), len(sums[0])
    chunks = (all_chunks.part(i * leaves, (i + 1) * leaves) for i in range(len(sums)))
    return replace(reduce(LeafMoments.merge, chunks), rows=rows)


class TrainingRows:
    """The rows of a training, as far as its trees have taken them; n of them.

    Attributes
    ----------
    forest, spec : what the model was when it had its first trees.
    recorded : what was seen since.
    y, weight : (n,) labels and weights; the latter may be empty.
    margin : (n,) sums of leaf values so far, in the booster's precision: a mean label comes with the first tree.
    at : (n,) margins at which the next trees see gradients.
    average : whether the booster's scores are averages of the trees; gradients are then those at the start.
    reach : how far from 0 a margin can be.
    """

    def __init__(
        self,
        model: Any,
        y: NDArray[Any],
        weight: NDArray[Any] | None,
        init_score: NDArray[Any] | None,
        objective: Gradients | TorchObjective | None,
        average: bool = False,
    ):
        self.forest, spec = read_model(model)
        spec, weight = _with_objective(spec, objective, weight)
        assert spec.objective is not None
        self.y = spec.objective.margin_labels(y.astype(np.float64))
        self.weight = np.empty(0) if weight is None else weight.astype(np.float64)
        dtype = self.forest.leaf_value.dtype
        if init_score is not None:
            spec = spec.with_own_starts()
            self.margin = self.at = init_score.astype(dtype)
        else:
            if spec.start_is_mean:
                weights = self.weight if len(self.weight) else None
                sums = LabelSums.of_model(spec, self.forest).add(spec, y.astype(np.float64), weights)
                spec = replace(spec, start=sums.start(spec, self.forest))
            self.margin = np.full(len(y), self.forest.base_margin, dtype)
            self.at = np.full(len(y), spec.start, dtype) if spec.folded[0] or average else self.margin
        self.spec, self.average = spec, average
        self.reach = float(np.abs(self.margin).max())
        self._taken = np.empty(len(y), np.uint32)
        self.recorded = Recorded(spec.start, init_score is not None, weight is not None, objective is not None, [], [])

    def tell_two(self, tree: Leaves) -> bool:
        """Whether the scores after another tree like this one will still tell the leaves of both.

        As many steps as there are pairs of leaves must differ by more than rounding hides: a birthday problem.
        """
        assert self.spec.objective is not None
        if self.at is not self.margin or self.spec.objective.gradients is not None:
            return False  # see `follow`
        steps = len(tree.value) ** 2
        hidden = 4.0 * SLACK * (1.0 + self.reach) / max(float(np.ptp(tree.value)), np.finfo(np.float64).tiny)
        return 1 < steps <= _MAX_STEPS and steps**2 * hidden < _RISK

    def find(self, trees: list[Leaves], score: NDArray[Any], link: int, n_jobs: int | None) -> Ways | None:
        """How the rows went through the next trees, from the scores after them; None if these do not tell.

        `link` is how the booster gives its scores.
        """
        from ..kernels.cpu import BLOCK
        from ..kernels.record import find_steps

        step = reduce(np.add.outer, [tree.value for tree in trees])
        order = np.argsort(step, axis=None, kind="stable")
        first = _first_leaves(trees)[:-1]
        ways = Ways((np.unravel_index(order, step.shape) + first[:, None]).astype(np.int32), self._taken)
        if step.size == 1:
            ways.taken[:] = 0
            return ways
        step = step.reshape(-1)[order]
        gap = np.concatenate([[np.inf], np.diff(step.astype(np.float64)), [np.inf]])
        scale = (_PARTS - 1) / max(float(step[-1]) - float(step[0]), float(np.finfo(np.float64).tiny))
        guess = np.zeros(_PARTS, np.uint32)
        guess[((step - np.float64(step[0])) * scale + 0.5).astype(np.int64)] = np.arange(len(step))
        number = step.dtype.type
        table = step, np.minimum(gap[1:], gap[:-1]).astype(number), guess, scale, number(2.0 * np.finfo(number).eps)
        times = len(self.recorded.leaves) + len(trees) if self.average else 1
        exact = link == IDENTITY and not self.average and len(trees) == 1
        how = (None, None, None) if exact else (link, float(times), times * SLACK)

        def told(lo: int, hi: int) -> bool:
            room_ = np.empty(BLOCK, number), np.empty(BLOCK, np.int32)
            return bool(find_steps(score[lo:hi], self.margin[lo:hi], *table, *how, *room_, ways.taken[lo:hi]))

        return ways if all(map_chunks(told, len(self.y), _chunk(len(self.y)), n_jobs)) else None

    def follow(self, trees: list[Leaves], ways: Ways, n_jobs: int | None, *, one_iteration: bool = True) -> None:
        """Record trees, of one iteration or of one each, and take the rows through them."""
        from ..kernels.accumulate import accumulators, add_rows, room
        from ..kernels.cpu import BLOCK
        from ..kernels.record import add_trees

        objective, y, weight, at, margin = self.spec.objective, self.y, self.weight, self.at, self.margin
        assert objective is not None
        value = np.concatenate([tree.value for tree in trees])
        _, *loss = gradient_arguments(self.spec, weight)
        unit = objective.unit_hessian and not len(weight)
        g, h = (np.empty(0),) * 2 if objective.gradients is None else custom_gradients(self.spec, at, y)
        new_iteration = np.full(len(trees), not one_iteration)
        new_iteration[0] = True

        def gather(lo: int, hi: int) -> NDArray[np.float64]:
            sums, rows = accumulators(len(value), unit), slice(lo, hi)
            taken = ways.taken[rows]
            if len(g):
                for leaf in ways.leaf:
                    add_rows(leaf[taken], g[rows], h[rows], value, margin[rows], sums)
            else:
                room_ = np.empty(BLOCK, np.int32), *room(BLOCK, sums)
                given = y[rows], weight[rows], at[rows], new_iteration, *loss
                add_trees(ways.leaf, taken, *given, *room_, value, margin[rows], sums)
            return sums

        first = _first_leaves(trees)
        moments = _merged(list(map_chunks(gather, len(y), _chunk(len(y)), n_jobs)), len(y))
        for tree, lo, hi in zip(trees, first[:-1], first[1:], strict=True):
            self.recorded.moments.append(moments.part(lo, hi))
            self.recorded.leaves.append(tree)
            self.reach += float(np.abs(tree.value).max())
        if not self.average:
            self.at = margin


def _with_objective(
    spec: TrainingSpec, objective: Gradients | TorchObjective | None, weight: NDArray[Any] | None
) -> tuple[TrainingSpec, NDArray[Any] | None]:
    """The objective of training, and the weights that its gradients still need: custom ones bring their own."""
    if objective is None:
        if spec.objective is None:
            raise UnsupportedModelError(
                "training has a custom objective, whose gradients a callback does not see: give record(objective=f), a "
                "torch_objective or a function (margin, y) -> (g, h)"
            )
        return spec, weight
    if spec.objective is not None and spec.objective.link != IDENTITY:
        raise ValueError(f"the model has a built-in objective, {spec.objective.name!r}; leave objective= out")
    if isinstance(objective, TorchObjective):
        objective = TorchSteps(objective, weight)
    return replace(spec, objective=custom(objective)), None
