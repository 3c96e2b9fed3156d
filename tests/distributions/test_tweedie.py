"""The Tweedie family against sums over all counts, and against numerical integrals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from pgbm_plugin.distributions import Gamma, Normal, Poisson, Tweedie

# mean, coefficient of variation, power: few and many jumps, narrow and wide ones
CASES = [
    (mean, cv, power)
    for mean, cv in ((1.0, 5.0), (1.0, 1.0), (5.0, 0.3), (100.0, 0.05))
    for power in (1.05, 1.2, 1.5, 1.8, 1.95)
] + [(1.0, 2.0**0.5, 1.95), (1.0, 0.8**0.5, 1.9)]  # about ten jumps: the bell of their number ends at 0


def one(mean, cv, power):
    return Tweedie.from_moments(np.array([mean]), np.array([(cv * mean) ** 2]), power=power)


def summed(d):
    """Counts and their probabilities, and the gamma shapes and scale of the sum of so many jumps."""
    lam, a, scale = (float(d.params[key][0]) for key in ("lam", "a", "scale"))
    n = np.arange(1, int(lam + 20 * np.sqrt(lam) + 60))
    return lam, stats.poisson.pmf(n, lam), n * a, scale


@pytest.mark.parametrize("case", CASES)
def test_functions_are_sums_over_counts(case):
    d, (mean, cv, power) = one(*case), case
    sd = cv * mean
    np.testing.assert_allclose((d.mean()[0], d.std()[0]), (mean, sd), rtol=1e-12)
    lam, p, shape, scale = summed(d)
    np.testing.assert_allclose(lam, mean ** (2 - power) / (sd**2 / mean**power * (2 - power)), rtol=1e-12)
    for x in (1e-3 * mean, max(mean - 2 * sd, 0.1 * mean), mean, mean + 2 * sd, mean + 6 * sd):
        t = x / scale
        np.testing.assert_allclose(d.cdf(x), np.exp(-lam) + p @ special.gammainc(shape, t), rtol=1e-9, atol=2e-8)
        np.testing.assert_allclose(d.sf(x), p @ special.gammaincc(shape, t), rtol=1e-7, atol=2e-8)
        density = p @ stats.gamma.pdf(x, shape, scale=scale)
        np.testing.assert_allclose(d.pdf(x), density, rtol=1e-9, atol=1e-280)
    assert d.logpdf(0.0)[0] == -lam
    assert d.logpdf(-1.0)[0] == -np.inf
    assert (d.cdf(-1e-300)[0], d.sf(-1.0)[0]) == (0.0, 1.0)
    np.testing.assert_allclose(d.cdf(0.0), np.exp(-lam))


@pytest.mark.parametrize("case", CASES)
def test_quantiles_invert_the_cdf(case):
    d = one(*case)
    zero = d.cdf(0.0)[0]
    q = np.array([1e-6, 0.01, 0.3, 0.5, 0.7, 0.99, 1 - 1e-6])
    x = d.ppf(q)[0]
    assert np.array_equal(x == 0.0, q <= zero)
    np.testing.assert_allclose(d.cdf(x[None])[0][x > 0], q[x > 0], rtol=1e-7)
    np.testing.assert_allclose(d.isf(1.0 - q)[0], x, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(d.sf(d.isf([1e-9]))[0], 1e-9, rtol=1e-4)
    assert d.ppf(1.0)[0] == d.isf(0.0)[0] == np.inf
    assert d.ppf(0.0)[0] == 0.0


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("z", [-1.0, 0.0, 1.7])
def test_crps_is_the_integral(case, z):
    """The integral of (F - step)^2, by the midpoint rule on a fine grid with y on it."""
    d, (mean, cv, _) = one(*case), case
    sd = cv * mean
    y, top = mean + z * sd, d.isf(1e-10)[0]
    grid = np.concatenate([np.geomspace(1e-10, 1.0, 4000) * top, np.linspace(0.0, top, 4000), [max(y, 0.0)]])
    grid = np.unique(grid[grid <= top])
    middle = 0.5 * (grid[1:] + grid[:-1])
    expected = np.diff(grid) @ (d.cdf(middle[None])[0] - (middle >= y)) ** 2 + max(-y, 0.0)
    assert abs(d.crps(y)[0] - expected) <= 2e-6 * sd


def test_far_outcomes_and_narrow_rows():
    """Where the mean exceeds the spread by far, the distribution is normal; counts of 1e12 jumps are no more work."""
    mean = np.array([1.0, 1e3, 1e6])
    d = Tweedie.from_moments(mean, (1e-6 * mean) ** 2)
    normal = Normal.from_moments(mean, (1e-6 * mean) ** 2)
    y = mean * (1.0 + 1.3e-6)
    np.testing.assert_allclose(d.crps(y), normal.crps(y), rtol=1e-5)
    np.testing.assert_allclose(d.cdf(y), normal.cdf(y), rtol=1e-5)
    np.testing.assert_allclose(d.ppf(0.9), normal.ppf(0.9), rtol=1e-9)
    wide = Tweedie.from_moments(np.array([1e-8]), np.array([1.0]))
    assert 1.0 - wide.cdf(0.0)[0] < 1e-15
    assert np.isfinite(wide.crps([0.0, 1e9][:1])).all()
    assert d.crps(1e30)[0] == pytest.approx(1e30)


def test_limits_of_the_power():
    """Near power 2 it is a gamma, near power 1 a multiple of a Poisson."""
    mean, variance = np.array([3.0]), np.array([2.0])
    gamma = Gamma.from_moments(mean, variance)
    near_2 = Tweedie.from_moments(mean, variance, power=1.9999)
    np.testing.assert_allclose(near_2.cdf([2.0]), gamma.cdf([2.0]), rtol=1e-3)
    np.testing.assert_allclose(near_2.crps([2.0]), gamma.crps([2.0]), rtol=1e-3)
    near_1 = Tweedie.from_moments(mean, mean, power=1.0001)
    poisson = Poisson.from_moments(mean, mean)
    for k in range(6):
        np.testing.assert_allclose(near_1.cdf(k + 0.5), poisson.cdf(k), rtol=1e-3)


@pytest.mark.parametrize("power", [1.2, 1.5, 1.8])
def test_draws(power):
    d = Tweedie.from_moments(np.array([0.5, 4.0]), np.array([2.0, 3.0]), power=power)
    draws = d.rvs(20_000, random_state=3)
    for row in range(2):
        zero = d[row].cdf(0.0)[0]
        assert abs(np.mean(draws[row] == 0.0) - zero) < 4 * np.sqrt(zero * (1 - zero) / 20_000)
        positive = draws[row][draws[row] > 0.0][:4000]
        share = lambda x, row=row, zero=zero: (d[row].cdf(x[None])[0] - zero) / (1.0 - zero)  # noqa: E731
        assert stats.kstest(positive, share).pvalue > 1e-4
