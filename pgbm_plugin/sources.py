"""Moments that reach `wrap` without a table in memory: recorded, given, or gathered from batches, files, clusters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .leaves.base_score import implied_start, starting_from
from .leaves.certificate import leaf_errors
from .leaves.moments import LeafMoments
from .losses.custom_objectives import Objective, TorchSteps
from .losses.torch_objective import TorchObjective
from .streams.batches import is_labelled_stream, is_stream
from .streams.moments import stream_moments
from .streams.partitions import is_dask
from .training.recording import recorded
from .trees.forest import Forest
from .trees.objectives import custom, forgotten
from .trees.training_spec import TrainingSpec

Gathered = tuple[TrainingSpec, LeafMoments, bool]
"""How the trees were grown, their moments, and whether rows were weighted."""


@dataclass(frozen=True)
class Given:
    """What was given besides the rows; None where nothing was."""

    y: Any = None
    sample_weight: Any = None
    init_score: Any = None
    objective: Objective | None = None
    label: str | None = None
    weight: str | None = None
    device: str = "cpu"

    def refuse(self, names: tuple[str, ...], reason: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise TypeError(f"{name} was given, but {reason}")

    def refuse_with_moments(self) -> None:
        """Where the booster brings its own."""
        self.refuse(
            ("sample_weight", "init_score", "objective", "label", "weight"),
            "the booster brings its recorded moments, which hold weights, init scores and objective of training: "
            "leave it out, or give the rows as well, wrap(booster, X, y)",
        )


def moments_from(
    booster: Any,
    forest: Forest,
    spec: TrainingSpec,
    X: Any,
    given: Given,
    n_jobs: int | None,
    progress: bool,
) -> Gathered | None:
    """Moments from anything but a table in memory; None if `X` is one, or is to be found in the booster."""
    if X is None and given.y is None:
        gathered = recorded(booster, forest, spec)
        if gathered is not None:
            given.refuse_with_moments()
        return gathered
    if isinstance(X, LeafMoments):
        names = ("y", "sample_weight", "init_score", "objective", "label", "weight")
        given.refuse(names, "moments are complete: give it to partial_moments")
        return given_moments(forest, spec, X)
    held = getattr(booster, "objective", None)
    objective = held if given.objective is None and isinstance(held, TorchObjective) else given.objective
    return streamed_moments(forest, spec, X, replace(given, objective=objective), n_jobs=n_jobs, progress=progress)


def streamed_moments(
    forest: Forest,
    spec: TrainingSpec,
    X: Any,
    given: Given,
    *,
    settle: bool = True,
    n_jobs: int | None = None,
    progress: bool = False,
) -> Gathered | None:
    """Moments of batches, files or a Dask collection; None if `X` is a table."""
    if is_dask(X):
        from .streams.partitions import dask_moments

        given.refuse(("label", "weight"), "Dask collections take y= and sample_weight=")
        return dask_moments(forest, spec, X, given, settle=settle)
    if not is_streamed(X, given):
        given.refuse(("label", "weight"), "X is no file or batch: give y= and sample_weight=")
        return None
    given.refuse(("y", "sample_weight"), "batches bring their own: (X, y, weight), or label= and weight= of files")
    given.refuse(("init_score",), "batches have none: give each to partial_moments(booster, X, y, init_score=...)")
    spec = starting_from(spec, None)
    return stream_moments(
        forest,
        spec,
        X,
        given.objective,
        label=given.label,
        weight=given.weight,
        settle=settle,
        device=given.device,
        n_jobs=n_jobs,
        progress=progress,
    )


def is_streamed(X: Any, given: Given) -> bool:
    """Whether `X` is a Dask collection, batches or files."""
    return is_dask(X) or is_stream(X) or (given.y is None and is_labelled_stream(X))


def own_objective(spec: TrainingSpec) -> Objective | None:
    """The custom objective that a model was wrapped with; None for a built-in one."""
    steps = None if spec.objective is None else spec.objective.gradients
    return steps.objective if isinstance(steps, TorchSteps) else steps


def given_moments(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> Gathered:
    """Moments that someone else has gathered and merged."""
    check_moments(forest, moments)
    if spec.objective is None:
        spec = replace(spec, objective=custom(forgotten))
    if spec.start_is_mean:
        spec = _with_implied_start(forest, spec, moments)
    assert spec.objective is not None
    weighted = spec.objective.unit_hessian and bool(np.any(moments.h_mean[moments.count > 0] != 1.0))
    return spec, moments, weighted


def check_moments(forest: Forest, moments: LeafMoments) -> None:
    """Refuse moments of other trees: every row is in one leaf of each."""
    leaves = len(moments.count)
    if leaves != forest.n_leaves:
        raise ValueError(f"these are moments of {leaves} leaves, the model has {forest.n_leaves}: they are another's")
    of_tree = np.add.reduceat(moments.count, forest.leaf_start[:-1])
    if not np.allclose(of_tree, moments.rows, rtol=1e-9, atol=0.0):
        raise ValueError("not every tree's leaves hold all rows of these moments: they are those of another model")
    if moments.rows == 0:
        raise ValueError("these are moments of no rows")


def _with_implied_start(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> TrainingSpec:
    """The start at which the first tree's moments were taken, which its leaves tell if they are those of training."""
    first = forest.first_trees(1)
    leaves = first.n_leaves
    of_tree, at_model = moments.part(0, leaves), spec.first_trees(1, leaves)
    implied = implied_start(first, spec, of_tree)

    def typical_error(start: float) -> float:
        return float(np.median(leaf_errors(first, replace(at_model, start=start), of_tree)))

    better = typical_error(implied) <= min(spec.tolerance, typical_error(spec.start))
    return replace(spec, start=implied) if better else spec
