"""XGBoost's regression objectives, by the names that its models store."""

from __future__ import annotations

from ...trees.objectives import GAMMA, LOG, POISSON, PSEUDOHUBER, SQUARED, SQUAREDLOG, TWEEDIE, Objective

OBJECTIVES = {
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
