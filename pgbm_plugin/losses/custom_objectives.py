"""Custom objectives: whose gradients the trees were grown from, and which of them can be taken of some rows alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UnsupportedModelError
from ..leaves.moments import LabelledRows
from ..trees.objectives import IDENTITY, Gradients, custom
from ..trees.training_spec import TrainingSpec
from .torch_objective import Hessian, TorchObjective

Objective = Gradients | TorchObjective


@dataclass(frozen=True)
class TorchSteps:
    """A torch objective's derivatives on rows of these weights, in the form of any custom objective.

    `batch` says that the rows are some of many: a loss must then not couple them, nor need an average of all.
    """

    objective: TorchObjective
    weight: NDArray[np.float64] | None
    hessian: Hessian | None = None
    batch: bool = False

    def __call__(self, margin: NDArray[Any], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        g, h = self.objective.derivatives(margin, y, self.weight, self.hessian, floor=not self.batch)
        if self.batch and not np.all(h[slice(None) if self.weight is None else self.weight > 0] > 0):
            raise ValueError(
                f"{self.objective!r} has second derivatives that are not positive, which are raised to a share of the "
                "average of all rows: these are needed at once, wrap(booster, X, y)"
            )
        return g, h


def with_objective(spec: TrainingSpec, objective: Objective | None, data: LabelledRows) -> TrainingSpec:
    """The spec with the objective of training, the model's own for None, as these rows need it."""
    if objective is None:
        if spec.objective is None:
            raise UnsupportedModelError(
                "the model was trained with a custom objective, which it does not store, and none that lives saw these "
                "labels: give wrap(..., objective=f), a torch_objective or a function (margin, y) -> (g, h)"
            )
        spec.objective.check_labels(data.y)
        return spec
    if not callable(objective):
        raise TypeError(
            f"objective must be a function (margin, y) -> (g, h), not {objective!r}; built-in objectives are read "
            f"from the model"
        )
    if spec.objective is not None and spec.objective.link != IDENTITY:
        raise ValueError(f"the model has a built-in objective, {spec.objective.name!r}; leave objective= out")
    if not isinstance(objective, TorchObjective):
        return replace(spec, objective=custom(objective))
    steps = TorchSteps(objective, data.weight)
    coupled = objective.levels is not None and objective.hessian == "rowsum"
    return replace(spec, objective=custom(steps, replace(steps, hessian="diagonal") if coupled else None))


def on_rows(spec: TrainingSpec, data: LabelledRows) -> TrainingSpec:
    """The same objective on other rows."""
    objective = spec.objective
    assert objective is not None
    objective.check_labels(data.y)
    steps, diagonal = (
        replace(of, weight=data.weight) if isinstance(of, TorchSteps) else of
        for of in (objective.gradients, objective.diagonal)
    )
    return replace(spec, objective=replace(objective, gradients=steps, diagonal=diagonal))


def check_takes_batches(spec: TrainingSpec, objective: Objective | None) -> None:
    """Refuse an objective that needs all rows at once, before any is read."""
    if objective is None and spec.objective is not None:
        return
    way_out = "give all rows at once, wrap(booster, X, y, objective=...), or record() them in training"
    if objective is None:
        raise UnsupportedModelError(
            "the model was trained with a custom objective, which it does not store: with batches give objective=, a "
            "torch_objective of single rows"
        )
    if not isinstance(objective, TorchObjective):
        name = getattr(objective, "__name__", repr(objective))
        raise UnsupportedModelError(
            f"objective {name} may couple rows, and then needs all of them for each tree, which batches do not give: "
            f"make it a torch_objective, whose rows can be told apart, or {way_out}"
        )
    if objective.levels is not None or objective.hessian == "rowsum":
        raise UnsupportedModelError(f"{objective!r} couples rows, and needs all of them for each tree: {way_out}")


def on_batch(spec: TrainingSpec, objective: Objective | None, data: LabelledRows, probe: bool) -> TrainingSpec:
    """The spec with the objective of training, for some rows of many; `probe` whether a torch loss couples them."""
    spec = with_objective(spec, objective, data)
    if not isinstance(objective, TorchObjective):
        return spec
    margin = np.full(len(data), spec.start) if data.init_score is None else data.init_score
    if probe and objective.couples_rows(margin, data.y):
        raise UnsupportedModelError(f"the loss of {objective!r} couples rows, and needs all of them for each tree")
    return replace(spec, objective=custom(TorchSteps(objective, data.weight, batch=True)))


def without_weights(spec: TrainingSpec, objective: Objective | None) -> TrainingSpec:
    """What a model keeps of the objective that its batches had: all but their weights."""
    if not isinstance(objective, TorchObjective):
        return spec
    return replace(spec, objective=custom(TorchSteps(objective, None, batch=True)))
