"""Names of the families by the numbers that they describe, and a distribution of each."""

from __future__ import annotations

import numpy as np

from pgbm_plugin.distributions import family

REAL = ["normal", "studentt", "studentt(df=5)", "studentt(df=2.1)", "logistic", "laplace", "gumbel"]
POSITIVE = ["lognormal", "gamma", "weibull"]
DISCRETE = ["poisson", "negativebinomial"]
CONTINUOUS = REAL + POSITIVE
PARAMETRIC = CONTINUOUS + DISCRETE
SAMPLED = ["empirical", "conformal"]
RESIDUALS = np.random.default_rng(5).gumbel(size=41)
MEAN = np.array([2.0, 0.3, 40.0, 7.0])
VARIANCE = np.array([3.0, 0.5, 90.0, 70.0])


def make(name, mean=MEAN, variance=VARIANCE):
    cls, options = family(name)
    if name in SAMPLED:
        options["residuals"] = RESIDUALS
    return cls.from_moments(np.atleast_1d(mean), np.atleast_1d(variance), **options)
