"""Normal scores: outcomes as numbers of a standard normal, against sums over a fine grid of such numbers."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from scipy import stats

from pgbm_plugin.distributions import Clipped, Normal, Poisson
from pgbm_plugin.distributions.normal_scores import ORDERS, expected_scores, hermite, score_variances
from tests.distributions.families import ALL, BINNED, DISCRETE, LIMITED, SAMPLED, make

# off the nodes of the rule
Z = np.arange(-8.197, 8.2, 0.01)
WEIGHT = 0.01 * stats.norm.pdf(Z)
# The rule has jumps of residuals and lattices between its nodes.
ROUGH = (*SAMPLED, *LIMITED, "tweedie", "tweedie(power=1.2)")


@cache
def outcomes(name):
    d = make(name)
    return d.from_uniform(np.broadcast_to(stats.norm.cdf(Z), (len(d), len(Z))))


@pytest.mark.parametrize("name", ALL)
def test_from_uniform_draws_the_distribution(name):
    d, y = make(name), outcomes(name)
    assert np.all(np.diff(y, axis=1) >= 0.0)
    x = np.array([-2.0, 0.0, 0.7, 3.0, 11.0, 45.0])
    found = np.stack([(y <= value) @ WEIGHT for value in x], axis=1)
    np.testing.assert_allclose(found, d.cdf(np.tile(x, (len(d), 1))), atol=4e-3)  # one point of the grid
    np.testing.assert_array_equal(d.from_uniform([0.3] * len(d)), d.from_uniform([[0.3]] * len(d))[:, 0])


@pytest.mark.parametrize("name", ["poisson", "negativebinomial", "clipped poisson"])
def test_many_numbers_of_a_count_are_looked_up_and_few_searched(name):
    d, u = make(name), np.random.default_rng(0).random((4, 40))
    u[:, 0] = d.cdf(3.0)  # exactly on a step
    np.testing.assert_array_equal(d.from_uniform(u), np.hstack([d.from_uniform(u[:, k : k + 1]) for k in range(40)]))


@pytest.mark.parametrize("name", ALL)
def test_hermite_coefficients(name):
    d, y = make(name), outcomes(name)
    found, deviation = hermite(d), np.sqrt(y**2 @ WEIGHT - (y @ WEIGHT) ** 2)
    for k in range(ORDERS):
        polynomial = np.polynomial.hermite_e.hermeval(Z, [0.0] * (k + 1) + [1.0]) / math.sqrt(math.factorial(k + 1))
        # lattices are summed exactly, and here jump within a step of the grid
        tolerance = (0.03 if name in ROUGH else 3e-3 if name in DISCRETE else 3e-5) * (k + 1) * deviation
        assert np.all(np.abs(found[k] - y @ (WEIGHT * polynomial)) <= tolerance), k
    assert np.all((found**2).sum(axis=0) <= 1.02 * deviation**2)


def test_the_first_coefficient_of_a_normal_is_its_deviation():
    np.testing.assert_array_equal(hermite(make("normal")), [make("normal").std(), *np.zeros((ORDERS - 1, 4))])
    wide = Clipped(make("normal"), -1e9, 1e9)  # on nodes, without a jump
    np.testing.assert_allclose(hermite(wide), hermite(make("normal")), atol=1e-9)


def test_a_lognormal_has_known_coefficients():
    """With sigma of the logarithm, they are mean sigma^k / sqrt(k!)."""
    d = make("lognormal")
    sigma = np.sqrt(np.log1p(d.var() / d.mean() ** 2))
    want = [d.mean() * sigma**k / math.sqrt(math.factorial(k)) for k in range(1, ORDERS + 1)]
    np.testing.assert_allclose(hermite(d), want, rtol=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_scores_have_mean_0_and_the_variance_that_is_said(name):
    d, y = make(name), outcomes(name)[:, ::5]
    weight = WEIGHT[::5] / WEIGHT[::5].sum()
    score = expected_scores(d[np.repeat(np.arange(4), y.shape[1])], y.ravel()).reshape(y.shape)
    rough = 0.06 if name in BINNED else 0.03  # bins of 13 residuals; rounding moves an outcome across its own
    assert np.all(np.abs(score @ weight) < rough)
    variance = score_variances(d)
    np.testing.assert_allclose(score**2 @ weight, variance, atol=rough)
    if not d.has_mass and name not in SAMPLED:
        np.testing.assert_array_equal(variance, 1.0)
        central = np.abs(Z[::5]) < 5.0  # beyond, u has no digits left
        np.testing.assert_allclose(score[:, central], np.tile(Z[::5][central], (len(d), 1)), atol=1e-6)


def test_a_count_has_the_mean_of_its_interval():
    """The mean of a standard normal between the quantiles of the cdf."""
    d, poisson = make("poisson", [0.4], [0.4]), stats.poisson(0.4)
    for count in range(4):
        own = stats.truncnorm(*stats.norm.ppf([poisson.cdf(count - 1), poisson.cdf(count)]))
        assert expected_scores(d, np.array([float(count)])) == pytest.approx(own.mean(), rel=1e-6)


def test_tails_are_exact_and_the_farthest_are_finite():
    d = Normal(loc=np.zeros(6), scale=1.0)
    found = expected_scores(d, np.array([-7.5, 7.5, -40.0, 40.0, 1e-9, 0.0]))
    np.testing.assert_allclose(found, [-7.5, 7.5, -8.0, 8.0, 1e-9, 0.0], atol=1e-12)
    assert expected_scores(make("gamma", [1.0], [1.0]), np.array([-1.0])) == -8.0  # no outcome of the family


def test_outcomes_beyond_all_residuals_are_not_infinite():
    d = make("empirical")
    low, high = (expected_scores(d, d.mean() + side * 1e6) for side in (-1.0, 1.0))
    m = 41 + 1  # places of a new residual
    want = m * stats.norm.pdf(stats.norm.ppf(1.0 / m))
    np.testing.assert_allclose(high, want, rtol=1e-9)
    np.testing.assert_allclose(low, -want, rtol=1e-9)


def test_rows_without_spread_say_nothing():
    d = make("gamma", [1.0, 2.0], [0.0, 1.0])
    assert expected_scores(d, np.array([7.0, 7.0]))[0] == 0.0
    assert score_variances(d).tolist() == [0.0, 1.0]
    assert np.all(hermite(d)[:, 0] == 0.0)
    assert d.from_uniform([[0.1, 0.9]] * 2)[0].tolist() == [1.0, 1.0]


def test_large_counts_are_taken_as_smooth():
    small, large = (Poisson(mu=np.array([mu])) for mu in (195.0, 205.0))  # on both sides of the limit
    assert hermite(large)[0] / large.std() == pytest.approx(hermite(small)[0] / small.std(), rel=2e-3)
    assert score_variances(large) == pytest.approx(score_variances(small), abs=5e-3)


@pytest.mark.parametrize(
    ("u", "words"),
    [([0.5], "do not fit"), ([[0.5]], "do not fit"), ([0.0] * 4, "strictly"), ([np.nan] * 4, "strictly")],
)
def test_wrong_uniform_numbers_are_refused(u, words):
    with pytest.raises(ValueError, match=words):
        make("normal").from_uniform(u)
