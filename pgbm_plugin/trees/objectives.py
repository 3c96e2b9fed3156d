"""The objectives: one table of names, parameters, links and labels. Their derivatives are in `kernels.scalar`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

# The code that kernels switch on.
SQUARED, HUBER, FAIR, POISSON, GAMMA, TWEEDIE, PSEUDOHUBER, SQUAREDLOG = range(8)

# Links, margin to response: m, exp(m), m * |m|.
IDENTITY, LOG, SIGNED_SQRT = range(3)

Gradients = Callable[[NDArray[Any], NDArray[np.float64]], tuple[Any, Any]]
"""A custom objective: ``(margin, y) -> (g, h)`` over all rows at once (it may couple rows)."""


@dataclass(frozen=True)
class Objective:
    """One objective as a booster knows it.

    Attributes
    ----------
    name : the booster's own name.
    code : which pair of derivatives `kernels.scalar.gradient_hessian` computes.
    parameter : the booster's name of the objective's parameter, or None.
    default : the booster's default for it.
    value : its value in this model.
    link : margin to response.
    lower : smallest label allowed.
    strict : whether `lower` itself is not.
    rounds_first : g and h are rounded to float32 before they are weighted (and again after), not only after.
    renewed : the booster replaces the leaf values afterwards by a quantile of the residuals; the moments are then
        those of the residuals, because the gradients (signs) have lost the labels' scale.
    may_be_custom : the booster also writes this name for a custom objective, which it does not store.
    gradients : a custom objective's derivatives; `code` is then not used.
    diagonal : the same with the diagonal of the Hessian, for the variance, where trees were stepped with another.
    """

    name: str
    code: int
    parameter: str | None = None
    default: float = 0.0
    value: float = math.nan
    link: int = IDENTITY
    lower: float = -math.inf
    strict: bool = False
    rounds_first: bool = True
    renewed: bool = False
    may_be_custom: bool = False
    gradients: Gradients | None = None
    diagonal: Gradients | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without a custom objective's functions: what they close over often cannot be pickled."""
        names = ("gradients", "diagonal")
        return vars(self) | {name: forgotten for name in names if getattr(self, name) is not None}

    def __copy__(self) -> Objective:
        return self

    def __deepcopy__(self, memo: Any) -> Objective:
        return self

    @property
    def unit_hessian(self) -> bool:
        """Whether the hessian of an unweighted row is 1."""
        return self.code in (SQUARED, HUBER) and self.gradients is None

    def margin_labels(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Labels as the derivatives see them: in float32, the precision in which both boosters store labels."""
        if self.link == SIGNED_SQRT:
            y = np.copysign(np.sqrt(np.abs(y.astype(np.float32))), y)
        return y.astype(np.float32).astype(np.float64)

    def check_labels(self, y: NDArray[np.float64]) -> None:
        """Refuse labels outside the objective's domain."""
        bad = (y <= self.lower) if self.strict else (y < self.lower)
        if np.any(bad):
            allowed = f"{'>' if self.strict else '>='} {self.lower:g}"
            raise ValueError(
                f"{int(bad.sum())} of {len(y)} labels are outside the domain of objective {self.name!r}, which needs "
                f"y {allowed} (first: y[{int(np.argmax(bad))}] = {y[np.argmax(bad)]:g})"
            )


def forgotten(margin: NDArray[Any], y: NDArray[np.float64]) -> NoReturn:
    """Stands for a custom objective's function where it was not kept."""
    raise RuntimeError(
        "the model no longer knows its custom objective, which is not part of a saved, pickled or recorded model; "
        "predicting does not need it, moments of further rows do: call wrap(booster, X, y, objective=f)"
    )


LIGHTGBM = {
    o.name: o
    for o in (
        Objective("regression", SQUARED),
        Objective("regression sqrt", SQUARED, link=SIGNED_SQRT),
        Objective("huber", HUBER, "alpha", 0.9, rounds_first=False),
        Objective("fair", FAIR, "fair_c", 1.0, rounds_first=False),
        Objective("poisson", POISSON, "poisson_max_delta_step", 0.7, link=LOG, lower=0.0, rounds_first=False),
        Objective("gamma", GAMMA, link=LOG, lower=0.0, strict=True, rounds_first=False),
        Objective("tweedie", TWEEDIE, "tweedie_variance_power", 1.5, link=LOG, lower=0.0, rounds_first=False),
        Objective("regression_l1", SQUARED, renewed=True),
        Objective("mape", SQUARED, renewed=True),
    )
}

XGBOOST = {
    o.name: o
    for o in (
        Objective("reg:squarederror", SQUARED, may_be_custom=True),
        Objective("reg:pseudohubererror", PSEUDOHUBER, "huber_slope", 1.0),
        Objective("reg:squaredlogerror", SQUAREDLOG, lower=-1.0, strict=True),
        Objective("count:poisson", POISSON, "max_delta_step", 0.7, link=LOG, lower=0.0),
        Objective("reg:gamma", GAMMA, link=LOG, lower=0.0, strict=True),
        Objective("reg:tweedie", TWEEDIE, "tweedie_variance_power", 1.5, link=LOG, lower=0.0),
        Objective("reg:absoluteerror", SQUARED, renewed=True),
    )
}


def custom(gradients: Gradients, diagonal: Gradients | None = None) -> Objective:
    """An objective given by its derivatives; its margin is the prediction, as both boosters have it."""
    return Objective("custom", SQUARED, gradients=gradients, diagonal=diagonal)
