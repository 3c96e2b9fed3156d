"""Bands hold calibrated models as often as they say: against simulated ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pgbm_plugin.distributions import Conformal, Empirical, NegativeBinomial, Normal, Poisson
from pgbm_plugin.plot.uniformity import LEVELS, Pit, central_coverage, pit_histogram, randomised_pit

MODELS = 2000


def leaving(rng, n, residuals, confidence, bins):
    """Shares of simulated calibrated models that leave the bands of the histogram and of the coverages."""
    left = np.zeros(2)
    shares = None
    for _ in range(MODELS):
        u = rng.random(n)
        if residuals is not None:
            known = np.sort(rng.normal(size=residuals))
            u = (np.searchsorted(known, rng.normal(size=n)) + u) / (residuals + 1)
        if shares is None:  # bands depend on the numbers of rows alone
            pit = Pit(u, residuals)
            shares = pit_histogram(pit, bins, confidence), central_coverage(pit, LEVELS, confidence)
        observed = (
            np.histogram(u, bins, (0, 1))[0] / n,
            np.searchsorted(np.sort(np.abs(2 * u - 1)), LEVELS, side="right") / n,
        )
        left += [np.any((o < s.low) | (o > s.high)) for o, s in zip(observed, shares, strict=True)]
    return left / MODELS


@pytest.mark.parametrize(
    ("n", "residuals", "confidence", "bins"),
    [
        (1000, None, 0.95, 20),
        (1000, None, 0.8, 10),
        (5000, None, 0.95, 20),
        (1000, 200, 0.95, 20),
        (200, 1000, 0.9, 10),
    ],
)
def test_calibrated_models_leave_the_bands_as_often_as_stated(n, residuals, confidence, bins):
    left = leaving(np.random.default_rng(3), n, residuals, confidence, bins)
    stated = 1.0 - confidence
    # at most as often, up to four standard errors of this simulation and the band's own; counts are whole, so less
    assert np.all(left <= stated + 5.0 * np.sqrt(stated * (1.0 - stated) / MODELS))
    assert np.all(left >= 0.5 * stated)


def test_few_rows_leave_the_bands_at_most_as_often():
    assert np.all(leaving(np.random.default_rng(4), 30, None, 0.95, 20) <= 0.07)


def test_the_band_ignoring_residuals_would_be_too_narrow():
    """What the Dirichlet draws are for: with 50 residuals, most conformal models leave the binomial band."""
    rng, n, m = np.random.default_rng(5), 5000, 50
    plain = pit_histogram(Pit(rng.random(n), None))
    left = 0
    for _ in range(100):
        u = (np.searchsorted(np.sort(rng.normal(size=m)), rng.normal(size=n)) + rng.random(n)) / (m + 1)
        observed = np.histogram(u, 20, (0, 1))[0] / n
        left += np.any((observed < plain.low) | (observed > plain.high))
    assert left > 90


def test_one_bin_of_the_band_is_binomial():
    """Two bins are one number: the band is its binomial interval, up to the noise of simulation."""
    shares = pit_histogram(Pit(np.random.default_rng(0).random(400), None), 2, 0.9)
    low, high = stats.binom.ppf([0.05, 0.95], 400, 0.5)
    np.testing.assert_allclose([400 * shares.low[0], 400 * shares.high[0]], [low, high], atol=1)


def test_a_single_level_has_the_binomial_or_beta_binomial_band():
    u = np.random.default_rng(0).random(500)
    for residuals, law in ((None, stats.binom(500, 0.9)), (99, stats.betabinom(500, 90, 10))):
        shares = central_coverage(Pit(u, residuals), 0.9, 0.9)
        np.testing.assert_allclose([500 * shares.low[0], 500 * shares.high[0]], law.ppf([0.05, 0.95]), atol=1)


def test_bands_are_the_same_every_time():
    pit = Pit(np.random.default_rng(0).random(100), None)
    one, two = central_coverage(pit, LEVELS), central_coverage(pit, LEVELS)
    assert np.array_equal(one.low, two.low)
    assert np.array_equal(one.high, two.high)
    assert not one.outside().any()


def test_levels_must_rise():
    with pytest.raises(ValueError, match="levels must rise"):
        central_coverage(Pit(np.array([0.5]), None), [0.9, 0.5])


def test_of_a_density_the_transform_is_the_cdf():
    y = np.random.default_rng(0).normal(size=50)
    dist = Normal(loc=np.zeros(50), scale=1.0)
    pit = randomised_pit(dist, y)
    assert pit.residuals is None
    np.testing.assert_allclose(pit.values, dist.cdf(y), rtol=1e-14)  # a step of nextafter


@pytest.mark.parametrize(
    "dist",
    [
        Poisson(mu=np.full(4000, 0.3)),
        NegativeBinomial(n=2.0, p=0.4, mu=np.full(4000, 3.0)),
        Poisson(mu=np.full(4000, 40.0)),
    ],
    ids=["rare", "spread", "many"],
)
def test_of_counts_the_transform_is_uniform(dist):
    y = dist.rvs(random_state=1)
    pit = randomised_pit(dist, y, 2)
    assert np.all(pit.values <= dist.cdf(y))
    assert np.all(pit.values >= dist.cdf(y - 1.0))
    assert stats.kstest(pit.values, "uniform").pvalue > 0.01


@pytest.mark.parametrize("family", [Empirical, Conformal])
def test_of_residuals_the_transform_is_a_rank(family):
    known = np.array([-1.0, 0.0, 0.0, 2.0])
    dist = family(residuals=known, loc=np.full(4, 10.0), scale=2.0)
    pit = randomised_pit(dist, [7.0, 9.0, 10.0, 99.0])
    assert pit.residuals == 4
    # below all; above one; among the ties, of which it may be any; above all
    low, high = np.array([0, 1, 1, 4]) / 5, np.array([1, 2, 4, 5]) / 5
    assert np.all((low <= pit.values) & (pit.values <= high))


def test_an_outcome_on_the_lower_bound_may_be_any_of_those_that_lie_there():
    dist = Empirical(residuals=np.linspace(-2, 2, 99), lower=0.0, loc=np.zeros(3000), scale=1.0)
    values = randomised_pit(dist, np.zeros(3000)).values
    assert stats.kstest(values, stats.uniform(0.0, 0.51).cdf).pvalue > 0.01  # 50 of 99 residuals are not above 0


def test_a_point_mass_that_is_met_is_uniform():
    dist = Normal.from_moments(np.full(1000, 3.0), np.zeros(1000))
    assert stats.kstest(randomised_pit(dist, np.full(1000, 3.0)).values, "uniform").pvalue > 0.01
    assert np.all(randomised_pit(dist, np.full(1000, 4.0)).values == 1.0)
