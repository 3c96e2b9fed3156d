"""Distributions made of residuals: what lies on a bound, and levels that are too far out."""

from __future__ import annotations

import numpy as np
import pytest

from pgbm_plugin.distributions import Conformal, Empirical


def test_a_mass_at_zero_stays_there():
    """With one relative spread, a label of 0 has the same residual in every row: rounding must not lift it off 0."""
    rng = np.random.default_rng(3)
    mean, y = np.exp(rng.normal(size=500)), rng.exponential(size=500) * (rng.random(500) < 0.4)
    std = 0.7 * mean
    residuals = (y - mean) / std
    d = Empirical.from_moments(mean, std**2, residuals=residuals, lower=0.0)
    c = Conformal.from_moments(mean, std**2, residuals=residuals, lower=0.0)
    zeros = np.mean(y == 0.0)
    for distribution in (d, c):
        assert np.all(distribution.cdf(0.0) == zeros)
        assert np.all(distribution.cdf(-1e-300) == 0.0)
        assert np.all(distribution.ppf(0.5) == 0.0)
        draws = distribution.rvs(200, random_state=0)
        assert not np.any((draws > 0.0) & (draws < 1e-6))
    assert np.all(np.diff(d.cdf(np.broadcast_to(np.linspace(-1.0, 9.0, 50), (500, 50))), axis=1) >= 0.0)


def test_a_warning_is_at_the_callers_line():
    d = Conformal.from_moments(np.zeros(3), np.ones(3), residuals=np.arange(5.0))
    with pytest.warns(UserWarning, match="too few") as seen:
        d.ppf(0.01)
    assert seen[0].filename == __file__
    with pytest.warns(UserWarning, match="too few") as seen:
        d.interval(0.99)
    assert seen[0].filename == __file__
