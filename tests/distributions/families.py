"""Names of the families by the numbers that they describe, and a distribution of each."""

from __future__ import annotations

import numpy as np

from pgbm_plugin.distributions import Clipped, Snapped, family

REAL = ["normal", "studentt", "studentt(df=5)", "studentt(df=2.1)", "logistic", "laplace", "gumbel"]
POSITIVE = ["lognormal", "gamma", "weibull"]
DISCRETE = ["poisson", "negativebinomial"]
CONTINUOUS = REAL + POSITIVE
PARAMETRIC = CONTINUOUS + DISCRETE
TWEEDIE = ["tweedie", "tweedie(power=1.2)"]
BINNED = ["empirical(by='mean', bins=2)", "empirical(by='spread', bins=3)"]
SAMPLED = ["empirical", "conformal", *BINNED]
# outcomes between bounds, or on a lattice; with the family of what is limited
LIMITED = ["clipped normal", "clipped poisson", "snapped normal", f"snapped {BINNED[0]}"]
ALL = PARAMETRIC + TWEEDIE + SAMPLED + LIMITED
NO_DENSITY = SAMPLED
RESIDUALS = np.random.default_rng(5).gumbel(size=41)
MEAN = np.array([2.0, 0.3, 40.0, 7.0])
VARIANCE = np.array([3.0, 0.5, 90.0, 70.0])
LOWER, UPPER, LATTICE = 0.0, 45.0, np.array([-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 9.5, 45.0])


def make(name, mean=MEAN, variance=VARIANCE):
    if name in LIMITED:
        kind, inner = name.split(" ", 1)
        inner = make(inner, mean, variance)
        return Clipped(inner, LOWER, UPPER) if kind == "clipped" else Snapped(inner, LATTICE)
    cls, options = family(name)
    if cls.needs_residuals:
        options["residuals"] = RESIDUALS
    if name in BINNED:
        options["edges"] = [5.0] if options["bins"] == 2 else [1.0, 9.0]
        options["residual_bin"] = np.arange(41) % int(options["bins"])
    return cls.from_moments(np.atleast_1d(mean), np.atleast_1d(variance), **options)
