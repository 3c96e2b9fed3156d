"""LightGBM's regression objectives, by the names that its models store."""

from __future__ import annotations

from ...trees.objectives import FAIR, GAMMA, HUBER, LOG, POISSON, SIGNED_SQRT, SQUARED, TWEEDIE, Objective

OBJECTIVES = {
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
