"""Custom objectives: the gradients that trees were grown from, and whether a part of the rows is enough for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arrays import AnyArray, Array
from ..errors import UnsupportedModelError
from ..tables.labelled import LabelledRows
from ..trees.objectives import IDENTITY, Gradients, custom
from ..trees.training_spec import TrainingSpec
from .torch_objective import Hessian, TorchObjective, remembered

CustomObjective = Gradients | TorchObjective
"""What users give as `objective`: a function ``(margin, y) -> (g, h)``, or a `torch_objective`."""

_BUILT_IN = "the model has a built-in objective, {!r}; leave objective= out"


@dataclass(frozen=True)
class TorchGradients:
    """A torch objective on rows of these weights, as a function ``(margin, y) -> (g, h)``.

    Attributes
    ----------
    objective : TorchObjective
        The loss.
    weight : (n,) float array or None
        Weights of the rows.
    hessian : {"diagonal", "rowsum"} or None
        The second derivative that is returned; None for the one that stepped the trees.
    batch : bool
        Whether the rows are a part of all rows. The loss must then not couple them, nor need an average of all.
    """

    objective: TorchObjective
    weight: Array | None
    hessian: Hessian | None = None
    batch: bool = False

    def __call__(self, margin: AnyArray, y: Array) -> tuple[Array, Array]:
        g, h = self.objective.derivatives(margin, y, self.weight, self.hessian, floor=not self.batch)
        if self.batch and not np.all(h[slice(None) if self.weight is None else self.weight > 0] > 0):
            raise ValueError(
                f"{self.objective!r} has second derivatives that are not positive, which are raised to a share of the "
                "average of all rows: these are needed at once, wrap(booster, X, y)"
            )
        return g, h


def candidate_objectives(
    booster: Any, spec: TrainingSpec, objective: CustomObjective | None, y: Array
) -> Sequence[CustomObjective | None]:
    """Return the custom objectives that training may have had; None stands for the model's own.

    The certificate decides between several: a booster does not store a custom objective, but a `torch_objective` that
    still lives remembers the labels it was called with.
    """
    attribute = getattr(booster, "objective", None)
    if objective is not None or isinstance(attribute, TorchObjective):
        return [attribute if objective is None else objective]
    if spec.objective is None:
        return remembered(y) or [None]
    return [None, *remembered(y)] if spec.objective.may_be_custom else [None]


def with_objective(spec: TrainingSpec, objective: CustomObjective | None, data: LabelledRows) -> TrainingSpec:
    """Return the spec with a custom objective on these rows, or with the model's own for None."""
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
    check_may_be_custom(spec)
    if not isinstance(objective, TorchObjective):
        return replace(spec, objective=custom(objective))
    gradients = TorchGradients(objective, data.weight)
    coupled = objective.levels is not None and objective.hessian == "rowsum"
    return replace(spec, objective=custom(gradients, replace(gradients, hessian="diagonal") if coupled else None))


def check_may_be_custom(spec: TrainingSpec) -> None:
    """Refuse a custom objective for a model that stores a built-in one with a link."""
    if spec.objective is not None and spec.objective.link != IDENTITY:
        raise ValueError(_BUILT_IN.format(spec.objective.name))


def with_diagonal(spec: TrainingSpec) -> TrainingSpec:
    """Return the spec with the Hessian's diagonal, which the variance needs, if trees were stepped with another."""
    if spec.objective is None or spec.objective.diagonal is None:
        return spec
    return replace(spec, objective=replace(spec.objective, gradients=spec.objective.diagonal))


def on_rows(spec: TrainingSpec, data: LabelledRows) -> TrainingSpec:
    """Return the spec of a wrapped model for other rows: a torch objective gets their weights."""
    objective = spec.objective
    assert objective is not None
    objective.check_labels(data.y)
    gradients, diagonal = (
        replace(function, weight=data.weight) if isinstance(function, TorchGradients) else function
        for function in (objective.gradients, objective.diagonal)
    )
    return replace(spec, objective=replace(objective, gradients=gradients, diagonal=diagonal))


def own_objective(spec: TrainingSpec) -> CustomObjective | None:
    """Return the custom objective that a model was wrapped with; None for a built-in one."""
    gradients = None if spec.objective is None else spec.objective.gradients
    return gradients.objective if isinstance(gradients, TorchGradients) else gradients


def check_takes_batches(spec: TrainingSpec, objective: CustomObjective | None) -> None:
    """Refuse an objective that needs all rows at once, before any row is read."""
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


def on_batch(spec: TrainingSpec, objective: CustomObjective | None, data: LabelledRows, probe: bool) -> TrainingSpec:
    """Return the spec with the objective of training on a part of the rows.

    `probe` tests whether a torch loss couples rows, and refuses one that does.
    """
    spec = with_objective(spec, objective, data)
    if not isinstance(objective, TorchObjective):
        return spec
    margin = np.full(len(data), spec.start) if data.init_score is None else data.init_score
    if probe and objective.couples_rows(margin, data.y):
        raise UnsupportedModelError(f"the loss of {objective!r} couples rows, and needs all of them for each tree")
    return replace(spec, objective=custom(TorchGradients(objective, data.weight, batch=True)))


def without_weights(spec: TrainingSpec, objective: CustomObjective | None) -> TrainingSpec:
    """Return what a model keeps of the objective that its batches had: everything but their weights."""
    if not isinstance(objective, TorchObjective):
        return spec
    return replace(spec, objective=custom(TorchGradients(objective, None, batch=True)))
