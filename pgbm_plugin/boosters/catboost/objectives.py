"""CatBoost's regression losses, by the names that its models store.

Newton leaves use the second derivatives of a loss, gradient leaves count 1 in their place. The same loss is then two
objectives, of which the second has the method in its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...trees.objectives import (
    CUT_HUBER,
    GRADIENT_STEP,
    LOG,
    LOGCOSH,
    LQ,
    POISSON,
    SQUARED,
    TWEEDIE,
    Objective,
)
from ..booster import unsupported_loss

_NEWTON = (
    Objective("RMSE", SQUARED),
    Objective("Huber", CUT_HUBER, "delta"),
    Objective("Lq", LQ, "q", 2.0),
    Objective("LogCosh", LOGCOSH),
    Objective("Poisson", POISSON, value=0.0, link=LOG, lower=0.0),
    Objective("Tweedie", TWEEDIE, "variance_power", 1.5, link=LOG, lower=0.0),
)
_RENEWED = (
    Objective("LogCosh (Exact)", SQUARED, renewed=True),
    Objective("MAE", SQUARED, renewed=True),
    Objective("MAPE", SQUARED, renewed=True),
)


def _gradient_name(loss: str) -> str:
    return f"{loss} (Gradient)"


OBJECTIVES = {
    objective.name: objective
    for objective in (
        *_NEWTON,
        *(replace(o, name=_gradient_name(o.name), code=o.code + GRADIENT_STEP) for o in _NEWTON[1:]),
        *_RENEWED,
    )
}

# Losses that are another one at this parameter.
_SAME = {("Expectile", 0.5): "RMSE", ("Quantile", 0.5): "MAE"}


def objective_of(params: Mapping[str, Any]) -> Objective | None:
    """Return the objective of a model's parameters, None for a custom one; refuse what is not a regression."""
    stored = params["loss_function"]
    loss, own = stored["type"], stored.get("params") or {}
    if loss.startswith("PythonUserDefined"):
        return None
    loss = _SAME.get((loss, float(own.get("alpha", 0.5))), loss)
    method = params["tree_learner_options"]["leaf_estimation_method"]
    name = loss
    if method == "Gradient" and _gradient_name(loss) in OBJECTIVES:
        name = _gradient_name(loss)
    elif method == "Exact" and loss == "LogCosh":
        name = "LogCosh (Exact)"
    if name not in OBJECTIVES:
        raise unsupported_loss("loss_function", loss, {o.name.partition(" ")[0] for o in OBJECTIVES.values()})
    objective = OBJECTIVES[name]
    if objective.parameter is None:
        return objective
    value = float(own.get(objective.parameter, objective.default))
    if not np.isfinite(value):
        raise ValueError(f"{objective.parameter} is {value}")
    return replace(objective, value=value)
