"""Where boosting started: LightGBM's mean label, which it folds into the first tree and does not store."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..parallel import run_chunks
from ..routes.choose import gradient_arguments
from ..trees.forest import Forest
from ..trees.objectives import LOG
from ..trees.training_spec import TrainingSpec
from .certificate import contains_training_rows, leaf_errors
from .moments import LabelledRows, LeafMoments, from_sums, joined
from .weights import soft_threshold

# Rows that are read back at a time; bytes of them that are kept in memory.
_CHUNK = 1 << 14
_IN_MEMORY = 1 << 26

# Steps towards a start; losses that are not quadratic take a few.
_SECANTS = 8

FirstMoments = Callable[[TrainingSpec], LeafMoments]
"""Moments of the first trees, as many as the spec is of."""
MomentsOf = Callable[[Forest, TrainingSpec], LeafMoments]
"""Moments of some trees over all rows."""


@dataclass(frozen=True)
class LabelSums:
    """What the mean label is made of: sums over rows that add up over parts of them.

    Attributes
    ----------
    origin : labels are counted from here; close to the mean, so that an offset of all labels costs no digits.
    weight : sum of weights.
    label : weighted sum of labels less `origin`.
    """

    origin: float
    weight: float = 0.0
    label: float = 0.0

    @classmethod
    def of_model(cls, spec: TrainingSpec, forest: Forest) -> LabelSums:
        """No labels yet; they are counted from where the model's leaves say that it started."""
        with np.errstate(over="ignore"):
            origin = float(np.exp(spec.start)) if forest.link == LOG else spec.start
        return cls(origin if np.isfinite(origin) else 0.0)

    def add(self, spec: TrainingSpec, y: NDArray[np.float64], weight: NDArray[np.float64] | None) -> LabelSums:
        """With the labels of more rows."""
        assert spec.objective is not None
        from_origin = spec.objective.margin_labels(y) - self.origin
        if weight is None:
            return self.merge(replace(self, weight=float(len(y)), label=float(from_origin.sum())))
        return self.merge(replace(self, weight=float(weight.sum()), label=float((weight * from_origin).sum())))

    def merge(self, other: LabelSums) -> LabelSums:
        """Of the rows of both."""
        return replace(self, weight=self.weight + other.weight, label=self.label + other.label)

    def start(self, spec: TrainingSpec, forest: Forest) -> float:
        """The margin of the mean label."""
        if not self.weight > 0:
            raise ValueError("there are no rows, or the weights of all rows are zero")
        mean = self.origin + self.label / self.weight
        if forest.link != LOG:
            return mean
        return float(np.log(mean)) if mean > 0 else spec.start


def settled_moments(
    forest: Forest, spec: TrainingSpec, sums: LabelSums, moments_of: MomentsOf
) -> tuple[TrainingSpec, LeafMoments]:
    """The spec with its start, and the moments; only those of the first iteration depend on it."""
    from_labels = replace(spec, start=sums.start(spec, forest))
    moments = moments_of(forest, from_labels)

    def first_moments(spec: TrainingSpec) -> LeafMoments:
        first = forest.first_trees(len(spec.alpha))
        return moments.part(0, first.n_leaves) if spec.start == from_labels.start else moments_of(first, spec)

    spec = settle_start(forest, spec, sums, first_moments)
    if spec.start != from_labels.start:
        trees = spec.first_iteration()
        at_start = first_moments(spec.first_trees(trees, int(forest.leaf_start[trees])))
        moments = joined([at_start, moments.part(len(at_start.count), forest.n_leaves)])
    return spec, moments


def settle_start(forest: Forest, spec: TrainingSpec, sums: LabelSums, moments_of: FirstMoments) -> TrainingSpec:
    """The margin before the first tree, as exactly as the rows allow: their mean label if it explains that tree.

    Otherwise, with rows other than those of training, what the model's own leaves imply. If the rows are those of
    training, what solves the first tree's leaf equations: trained on several machines, LightGBM starts from the mean of
    their mean labels.
    """
    first = forest.first_trees(1)

    def look(start: float) -> tuple[float, LeafMoments]:
        """The typical error of a leaf of the first tree: a wrong label spoils one leaf, a wrong start all of them."""
        at = replace(spec, start=start).first_trees(1, first.n_leaves)
        moments = moments_of(at)
        contained = contains_training_rows(at, moments)
        return float(np.median(leaf_errors(first, at, moments))) if contained else np.inf, moments

    from_labels = sums.start(spec, forest)
    error, moments = look(from_labels)
    if error <= spec.tolerance:
        return replace(spec, start=from_labels)
    # a constant agrees with itself, whatever the labels
    if np.isinf(error) or (look(spec.start)[0] <= spec.tolerance and not spec.constant[0]):
        return spec
    # the equations of one tree alone would also be solved for labels that are all off by the same
    if spec.first_iteration() < forest.n_trees and not spec.constant[0]:
        solved = _solved_start(spec, from_labels, moments, look, lambda at, of: implied_start(first, spec, of) - at)
        if solved is not None:
            return replace(spec, start=solved)
    return replace(spec, start=from_labels)


def _solved_start(
    spec: TrainingSpec,
    start: float,
    moments: LeafMoments,
    look: Callable[[float], tuple[float, LeafMoments]],
    residual: Callable[[float, LeafMoments], float],
) -> float | None:
    """The start that the first tree's leaf equations imply at itself, by secants; None if there is none near."""
    off = residual(start, moments)
    # gradients grow by hessians as the start does: exact for squared error
    share = float(np.median(moments.h_sum / np.maximum(moments.h_sum + spec.lambda_[: len(moments.count)], 1e-300)))
    step = off / max(1.0 - float(spec.alpha[0]) * share, 1e-3)
    for _ in range(_SECANTS):
        start += step
        if not np.isfinite(start):
            return None
        error, moments = look(start)
        if error <= spec.tolerance:
            return start
        before, off = off, residual(start, moments)
        if off == before:
            return None
        step *= off / (before - off)
    return None


def implied_start(first: Forest, spec: TrainingSpec, moments: LeafMoments) -> float:
    """The start under which the first tree's values follow from these moments: value + alpha G / (H + lambda)."""
    denominator = moments.h_sum + spec.lambda_[: first.n_leaves]
    denominator = np.where(denominator > 0, denominator, 1.0)
    newton = np.clip(soft_threshold(moments.g_sum, spec.l1) / denominator, -spec.max_step, spec.max_step)
    return float(np.median(first.leaf_value + spec.alpha[0] * newton))


def starting_from(spec: TrainingSpec, init_score: Any) -> TrainingSpec:
    """The spec for rows that start from these scores of their own, or for None from where the model does."""
    if init_score is None:
        if spec.own_starts:
            raise ValueError("training had an init_score (base_margin): give that of these rows too, init_score=")
        return spec
    if np.any(spec.folded & ~spec.constant) and not np.all(spec.alpha == 1.0):
        raise ValueError(
            "init_score was given, but the model was trained without one: its first tree holds the mean label"
        )
    return spec.with_own_starts()


class FirstTrees:
    """What the trees of the first iteration took from rows that came once: their moments at any start.

    Labels, weights and leaves go to a temporary file once there are many: 6 bytes a row, 4 more with weights, as a
    rule; in a random forest, whose trees are all of the first iteration, 2 a tree.
    """

    def __init__(self, forest: Forest, spec: TrainingSpec, weighted: bool):
        trees = spec.first_iteration()
        self.forest = forest.first_trees(trees)
        self.spec = spec.first_trees(trees, self.forest.n_leaves)
        leaf = np.uint16 if np.diff(self.forest.leaf_start).max() <= 1 << 16 else np.uint32
        columns = [("y", np.float32), *([("weight", np.float32)] if weighted else []), ("leaf", leaf, (trees,))]
        self._row = np.dtype(columns)
        self._file: Any = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115, see __exit__

    def __enter__(self) -> FirstTrees:
        return self

    def __exit__(self, *of_error: object) -> None:
        self._file.close()

    def add(self, data: LabelledRows, n_jobs: int | None) -> None:
        """Remember rows."""
        from ..kernels import cpu

        assert self.spec.objective is not None
        taken = np.empty(len(data), self._row)
        taken["y"] = self.spec.objective.margin_labels(data.y)
        if data.weight is not None:
            taken["weight"] = data.weight
        root, nodes, *sets = self.forest.routing
        columns = np.unique(nodes["feature"]).astype(np.int64)
        nodes = nodes.copy()  # of blocks that hold no other columns
        nodes["feature"] = data.rows.place(columns)[np.searchsorted(columns, nodes["feature"])]
        for t, first in enumerate(self.forest.leaf_start[:-1]):

            def chunk(lo: int, hi: int, start: np.int32 = root[t], first: np.int64 = first, t: int = t) -> None:
                leaf = np.empty(hi - lo, np.int64)
                for begin, end, X in data.rows.blocks(lo, hi, columns):
                    cpu.route(X, start, nodes, *sets, leaf[begin - lo : end - lo])
                taken["leaf"][lo:hi, t] = leaf - first

            run_chunks(chunk, len(data), _CHUNK, n_jobs)
        self._file.write(taken.tobytes())

    def moments(self, spec: TrainingSpec) -> LeafMoments:
        """Those of the first trees, as many as `spec` is of."""
        return reduce(LeafMoments.merge, (self._of_chunk(rows, spec) for rows in self._read()))

    def _read(self) -> Iterator[NDArray[Any]]:
        self._file.seek(0)
        while raw := self._file.read(_CHUNK * self._row.itemsize):
            yield np.frombuffer(raw, self._row)

    def _of_chunk(self, rows: NDArray[Any], spec: TrainingSpec) -> LeafMoments:
        from ..kernels.accumulate import accumulators, room
        from ..kernels.cpu import BLOCK
        from ..kernels.record import add_trees

        weighted = "weight" in (rows.dtype.names or ())
        y = rows["y"].astype(np.float64)
        weight = rows["weight"].astype(np.float64) if weighted else np.empty(0)
        assert spec.objective is not None
        bounds = self.forest.leaf_start[: len(spec.alpha) + 1]
        sums = accumulators(int(bounds[-1]), spec.objective.unit_hessian and not weighted)
        at, new_iteration, loss = np.full(len(y), spec.start), np.ones(1, bool), gradient_arguments(spec, weight)[1:]
        for t, (lo, hi) in enumerate(pairwise(bounds)):
            leaves, taken = np.arange(hi - lo, dtype=np.int32)[None], rows["leaf"][:, t].astype(np.uint32)
            room_ = np.empty(BLOCK, np.int32), *room(BLOCK, sums)
            add_trees(
                leaves,
                taken,
                y,
                weight,
                at,
                new_iteration,
                *loss,
                *room_,
                np.zeros(hi - lo),  # margins must not advance
                np.zeros(len(y)),
                sums[lo:hi],
            )
        return from_sums(sums, len(y))
