"""Custom objectives in a TrainingSpec, and checks that they can be computed on a part of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arrays import AnyArray, Array
from ..errors import UnsupportedModelError
from ..tables.labelled import LabelledRows, RawRows
from ..trees.objectives import IDENTITY, Gradients, custom
from ..trees.training_spec import TrainingSpec
from .torch_objective import Hessian, TorchObjective, remembered

CustomObjective = Gradients | TorchObjective
"""The user's `objective`: a function ``(margin, y) -> (g, h)``, or a `torch_objective`."""


@dataclass(frozen=True)
class TorchGradients:
    """A torch objective on rows with these weights, as a function ``(margin, y) -> (g, h)``."""

    objective: TorchObjective
    weight: Array | None  # (n,) weights of the rows
    hessian: Hessian | None = None  # the second derivatives to return; None for those of the training steps
    batch: bool = False  # whether the rows are a part of all rows, so that the loss must not depend on the others

    def __call__(self, margin: AnyArray, y: Array) -> tuple[Array, Array]:
        g, h = self.objective.derivatives(margin, y, self.weight, self.hessian, floor=not self.batch)
        if self.batch and not np.all(h[slice(None) if self.weight is None else self.weight > 0] > 0):
            raise ValueError(
                f"{self.objective!r} has second derivatives that are not positive. They are replaced by a share of the "
                "average over all rows, so all rows are needed at once: call wrap(booster, X, y)"
            )
        return g, h


def with_usable_weights(raw: RawRows, given: Any, objective: CustomObjective | None) -> RawRows:
    """Return rows without weights if the objective is a plain function, because boosters do not weight what it returns.

    Refuse weights that the user has `given` for such an objective.
    """
    if objective is None or isinstance(objective, TorchObjective):
        return raw
    if given is not None:
        raise ValueError(
            "sample_weight has no effect with a custom objective, because boosters do not apply it; multiply g and h "
            "by the weights in objective, if training did"
        )
    return replace(raw, sample_weight=None)


def candidate_objectives(
    booster: Any, spec: TrainingSpec, objective: CustomObjective | None, data: LabelledRows
) -> Sequence[CustomObjective | None]:
    """Return the custom objectives that training may have had; None stands for the model's own.

    A booster does not store a custom objective, but a `torch_objective` in memory remembers the labels that it was
    called with. If there are several candidates, the certificate decides between them.
    """
    attribute = getattr(booster, "objective", None)
    if objective is not None or isinstance(attribute, TorchObjective):
        return [attribute if objective is None else objective]
    if spec.objective is None:
        return remembered(data.y, data.weight is not None) or [None]
    return [None, *remembered(data.y, data.weight is not None)] if spec.objective.may_be_custom else [None]


def with_objective(spec: TrainingSpec, objective: CustomObjective | None, data: LabelledRows) -> TrainingSpec:
    """Return the spec with a custom objective on these rows, or with the model's own for None."""
    if objective is None:
        if spec.objective is None:
            raise UnsupportedModelError(
                "the model was trained with a custom objective, which it does not store, and no torch_objective in "
                "memory saw these labels: give wrap(..., objective=f), a torch_objective or a function "
                "(margin, y) -> (g, h)"
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
        raise ValueError(f"the model has a built-in objective, {spec.objective.name!r}; leave objective= out")


def with_diagonal(spec: TrainingSpec) -> TrainingSpec:
    """Return the spec with the Hessian's diagonal, which the variance needs, if training used other derivatives."""
    if spec.objective is None or spec.objective.diagonal is None:
        return spec
    return replace(spec, objective=replace(spec.objective, gradients=spec.objective.diagonal))


def on_rows(spec: TrainingSpec, data: LabelledRows) -> TrainingSpec:
    """Return the spec of a wrapped model for other rows, with their weights in a torch objective."""
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
            "torch_objective whose loss does not couple rows"
        )
    if not isinstance(objective, TorchObjective):
        name = getattr(objective, "__name__", repr(objective))
        raise UnsupportedModelError(
            f"objective {name} may couple rows, so each tree needs all rows at once, but batches give only some: make "
            f"it a torch_objective, for which coupling can be tested, or {way_out}"
        )
    if objective.levels is not None or objective.hessian == "rowsum":
        raise UnsupportedModelError(f"{objective!r} couples rows, so each tree needs all rows at once: {way_out}")


def on_batch(spec: TrainingSpec, objective: CustomObjective | None, data: LabelledRows, probe: bool) -> TrainingSpec:
    """Return the spec with its objective on a part of the rows; `probe` refuses a loss that couples rows."""
    spec = with_objective(spec, objective, data)
    if not isinstance(objective, TorchObjective):
        return spec
    margin = np.full(len(data), spec.start) if data.init_score is None else data.init_score
    if probe and objective.couples_rows(margin, data.y):
        raise UnsupportedModelError(
            f"the loss of {objective!r} couples rows, so each tree needs all rows at once: call wrap(booster, X, y)"
        )
    return replace(spec, objective=custom(TorchGradients(objective, data.weight, batch=True)))


def without_weights(spec: TrainingSpec, objective: CustomObjective | None) -> TrainingSpec:
    """Return the spec with the objective of its batches, but without their weights."""
    if not isinstance(objective, TorchObjective):
        return spec
    return replace(spec, objective=custom(TorchGradients(objective, None, batch=True)))
