"""Distributions made of residuals: what lies on a bound, and levels that are too far out."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pgbm_plugin.distributions import Conformal, Empirical
from pgbm_plugin.distributions.residuals import sorted_residuals


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


@pytest.mark.parametrize("cls", [Empirical, Conformal])
@pytest.mark.parametrize("binned", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_prepared_residuals_have_the_same_bits(cls, binned, weighted):
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=200), rng.uniform(0.5, 2.0, 200) if weighted else None
    bins = rng.integers(0, 3, 200) if binned else None
    params = {
        "loc": rng.normal(size=9),
        "scale": rng.uniform(1.0, 2.0, 9),
        **({"bin": np.arange(9) % 3} if binned else {}),
    }
    prepared = sorted_residuals("x", values, weights, bins)
    for bounds in ({}, {"lower": -0.5, "upper": 1.0}):
        raw = cls(residuals=values, weights=weights, residual_bin=bins, **params, **bounds)
        for _ in range(2):  # the second one finds what the first one computed
            kept = cls(residuals=prepared, **params, **bounds)
            for name, *args in (
                ("ppf", [0.1, 0.5, 0.9]),
                ("ppf", 0.5),
                ("isf", 0.3),
                ("interval", 0.8),
                ("mean",),
                ("var",),
            ):
                assert np.array_equal(getattr(raw, name)(*args), getattr(kept, name)(*args))
            y = rng.normal(size=9)
            assert np.array_equal(raw.crps(y), kept.crps(y))
            assert np.array_equal(raw.cdf(y), kept.cdf(y))


def test_levels_that_were_asked_for_are_kept_and_no_others():
    rng = np.random.default_rng(0)
    prepared = sorted_residuals("x", rng.normal(size=50))
    first, second = (cls(residuals=prepared, loc=1.0, scale=2.0) for cls in (Empirical, Conformal))
    lists = [np.sort(rng.uniform(0.1, 0.9, k % 5 + 1)) for k in range(600)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(first.ppf, lists * 2))
    for levels, quantiles in zip(lists * 2, found, strict=True):
        assert np.array_equal(quantiles, Empirical(residuals=prepared.values, loc=1.0, scale=2.0).ppf(levels))
    assert len(prepared._kept) <= 256
    assert not np.array_equal(first.ppf(0.1), second.ppf(0.1))  # each family rounds in its own way
    first.ppf(np.linspace(0.1, 0.9, 1000))
    assert max(quantiles.size for quantiles in prepared._kept.values()) < 1000


def test_every_call_warns_of_too_few_residuals():
    dist = Conformal(residuals=np.arange(5.0), loc=0.0, scale=1.0)
    for _ in range(2):
        with pytest.warns(UserWarning, match="5 calibration rows are too few"):
            assert dist.interval(0.99)[1] == np.inf


def test_prepared_residuals_are_read_only_in_copies():
    prepared = sorted_residuals("x", np.arange(5.0), np.ones(5))
    first = prepared.means
    other = pickle.loads(pickle.dumps(prepared))  # noqa: S301
    assert "means" not in vars(other)
    assert np.array_equal(other.means, first)
    for array in (other.values, other.weights, other.start):
        assert not array.flags.writeable
