"""Objectives: the losses that trees were grown with. Their derivatives are in `kernels.scalar`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ..arrays import AnyArray, Array

# The loss that `kernels.scalar.gradient_hessian` computes.
SQUARED, HUBER, FAIR, POISSON, GAMMA, TWEEDIE, PSEUDOHUBER, SQUAREDLOG, CUT_HUBER, LQ, LOGCOSH = range(11)

# Added to the loss if a leaf steps along its mean gradient: every hessian then counts as 1.
GRADIENT_STEP = 32

# When a booster rounds g and h to float32: after they are weighted, before and after, or never (it holds float64).
ROUND_ONCE, ROUND_TWICE, ROUND_NEVER = range(3)

# Links, margin to response: m, exp(m), m * |m|.
IDENTITY, LOG, SIGNED_SQRT = range(3)

Gradients = Callable[[AnyArray, Array], tuple[Any, Any]]
"""A custom objective: ``(margin, y) -> (g, h)`` over all rows at once (it may couple rows)."""


@dataclass(frozen=True)
class Objective:
    """An objective as its booster defines it."""

    name: str  # the booster's own name
    code: int  # the loss whose derivatives the kernels compute
    parameter: str | None = None  # the booster's name of the objective's parameter
    default: float = 0.0  # the booster's default for the parameter
    value: float = math.nan  # the parameter's value in this model
    link: int = IDENTITY  # how a margin becomes a response
    lower: float = -math.inf  # the smallest label that is allowed
    strict: bool = False  # whether labels must be greater than `lower`
    rounds_first: bool = True  # whether the booster rounds g and h before it weights them as well as after
    # Whether the booster replaces its leaf values by a quantile of the residuals. The moments are then those of the
    # residuals, because the gradients are signs, which do not keep the scale of the labels.
    renewed: bool = False
    may_be_custom: bool = False  # whether the booster writes this name for custom objectives as well
    gradients: Gradients | None = None  # derivatives of a custom objective; `code` is then not used
    diagonal: Gradients | None = None  # derivatives for the variance, if `gradients` returns other second derivatives

    def __getstate__(self) -> dict[str, Any]:
        """Leave out a custom objective's functions: many of them cannot be pickled."""
        names = ("gradients", "diagonal")
        return vars(self) | {name: forgotten for name in names if getattr(self, name) is not None}

    def __copy__(self) -> Objective:
        return self

    def __deepcopy__(self, memo: Any) -> Objective:
        return self

    @property
    def unit_hessian(self) -> bool:
        """Return whether the hessian of an unweighted row is 1."""
        return (self.code in (SQUARED, HUBER) or self.code >= GRADIENT_STEP) and self.gradients is None

    @property
    def loss(self) -> int:
        """Return the loss, whichever hessians its leaves count."""
        return self.code % GRADIENT_STEP

    def check_labels(self, y: Array) -> None:
        """Refuse labels outside the objective's domain."""
        bad = (y <= self.lower) if self.strict else (y < self.lower)
        if np.any(bad):
            allowed = f"{'>' if self.strict else '>='} {self.lower:g}"
            raise ValueError(
                f"{int(bad.sum())} of {len(y)} labels are outside the domain of objective {self.name!r}, which needs "
                f"y {allowed} (first: y[{int(np.argmax(bad))}] = {y[np.argmax(bad)]:g})"
            )


def custom(gradients: Gradients, diagonal: Gradients | None = None) -> Objective:
    """Return a custom objective from its derivatives; its prediction is the margin itself."""
    return Objective("custom", SQUARED, gradients=gradients, diagonal=diagonal)


def forgotten(margin: AnyArray, y: Array) -> NoReturn:
    """Raise an error in place of a custom objective that was not stored with the model."""
    raise RuntimeError(
        "the model no longer has its custom objective, because saved, pickled and recorded models do not store it. "
        "Predictions do not need it, but moments of further rows do: call wrap(booster, X, y, objective=f)"
    )
