"""The losses of HistGradientBoostingRegressor, by the names that its users give."""

from __future__ import annotations

from ...trees.objectives import GAMMA, LOG, POISSON, SQUARED, Objective

# Derivatives are float64 until they are weighted, and rounded once.
OBJECTIVES = {
    o.name: o
    for o in (
        Objective("squared_error", SQUARED, value=0.0, rounds_first=False),
        Objective("poisson", POISSON, value=0.0, link=LOG, lower=0.0, rounds_first=False),
        Objective("gamma", GAMMA, value=0.0, link=LOG, lower=0.0, strict=True, rounds_first=False),
        Objective("absolute_error", SQUARED, value=0.0, rounds_first=False, renewed=True),
    )
}
