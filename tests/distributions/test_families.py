"""Every family against scipy.stats, and its CRPS against the integral of the cdf."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import special, stats

from pgbm_plugin.distributions import Discrete
from tests.distributions.families import (
    ALL,
    CONTINUOUS,
    DISCRETE,
    LIMITED,
    PARAMETRIC,
    POSITIVE,
    SAMPLED,
    TWEEDIE,
    make,
)

means = st.floats(-3, 6).map(lambda e: 10.0**e)
variations = st.floats(-3, 1).map(lambda e: 10.0**e)
# mostly near the mean, sometimes a million standard deviations away
distances = st.one_of(
    st.floats(-4, 4), st.floats(-2, 6).map(lambda e: 10.0**e), st.floats(-2, 6).map(lambda e: -(10.0**e))
)


def one(name, mean, cv):
    """A distribution of one row; a count's variance is at least its mean."""
    sd = cv * mean
    d = make(name, mean, mean + sd**2 if name == "negativebinomial" else sd**2)
    return d, float(d.std()[0])


# Integration: Gauss-Legendre on panels between quantiles, each of which is a smooth piece of the cdf.

NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)
TAILS = 0.5 ** np.arange(1, 71)


def panels(f, breaks):
    breaks = np.unique(breaks)
    half = 0.5 * np.diff(breaks)[:, None]
    return float(np.sum(half * WEIGHTS * f(breaks[:-1, None] + half * (1.0 + NODES))))


def integral(f, low, high, quantiles, positive):
    if not high > low:
        return 0.0
    inside = quantiles[(quantiles > low) & (quantiles < high)]
    if not positive:
        return panels(f, np.concatenate([[low, high], inside]))
    low = max(low, 1e-40 * high)  # a cdf like x^0.01 is smooth in log x only
    octaves = np.linspace(np.log(low), np.log(high), 2 + int(np.log2(high / low)))
    return panels(lambda t: np.exp(t) * f(np.exp(t)), np.concatenate([octaves, np.log(inside)]))


def integrated_crps(frozen, y, positive):
    """Integral of (F(x) - 1[x >= y])^2, in two pieces because of the step, neither of which cancels."""
    quantiles = np.unique(np.concatenate([frozen.ppf(TAILS), frozen.isf(TAILS)]))
    if positive:
        quantiles = quantiles[quantiles > 0]
    low = 0.0 if positive else min(y, quantiles[0])
    below = integral(lambda x: frozen.cdf(x) ** 2, low, y, quantiles, positive)
    above = integral(lambda x: frozen.sf(x) ** 2, max(y, low), max(y, quantiles[-1]), quantiles, positive)
    return below + above + max(low - y, 0.0)


def total(f, low, high, sd):
    """f(low) + ... + f(high - 1); by Euler and Maclaurin where there are too many terms, all of them smooth."""
    few = high if high - low <= 100_000 else min(high, low + 5_000)
    result = float(np.sum(f(np.arange(low, few))))
    if few < high:
        doubling = np.minimum(few + 1_000.0 * 2.0 ** np.arange(60), high)
        ends = np.array([few, high])
        result += panels(f, np.concatenate([np.arange(few, high, max(sd / 4.0, 1_000.0)), doubling, ends]))
        result -= 0.5 * np.diff(f(ends))[0]
        result += np.diff(0.5 * (f(ends + 1.0) - f(ends - 1.0)))[0] / 12.0
    return result


def summed_crps(cdf, sf, y, top, sd):
    k = np.floor(y)
    if y < 0:
        return -y + total(lambda x: sf(x) ** 2, 0.0, top, sd)
    step = (y - k) * cdf(k) ** 2 + (k + 1.0 - y) * sf(k) ** 2
    upper = total(lambda x: sf(x) ** 2, k + 1.0, top, sd) if top > k + 1.0 else 0.0
    return total(lambda x: cdf(x) ** 2, 0.0, k, sd) + step + upper


@pytest.mark.parametrize("name", CONTINUOUS)
@settings(max_examples=40)
@given(mean=means, cv=variations, z=distances)
@example(mean=1e6, cv=1e-3, z=0.4)
@example(mean=1e-3, cv=10.0, z=-0.0999)
@example(mean=1.0, cv=10.0, z=1e6)
@example(mean=1.0, cv=1.0, z=-1.0)
def test_crps_is_the_integral(name, mean, cv, z):
    d, sd = one(name, mean, cv)
    y = mean + z * sd
    frozen = d.to_scipy().dist(**{key: value[0] for key, value in d.params.items()})
    with np.errstate(all="ignore"):  # scipy's own
        expected = integrated_crps(frozen, y, name in POSITIVE)
    # far away the score is the distance, and has only its digits
    assert abs(d.crps(y)[0] - expected) <= 1e-8 * sd + 1e-13 * abs(y - mean)
    assert d.crps(y)[0] >= 0.0


@pytest.mark.parametrize("name", DISCRETE)
@settings(max_examples=40)
@given(mean=means, cv=variations, z=distances, part=st.sampled_from([0.0, 0.0, 0.3]))
@example(mean=1e6, cv=1e-3, z=-0.9, part=0.0)
@example(mean=1e6, cv=10.0, z=0.1, part=0.0)
@example(mean=1e-3, cv=10.0, z=3.0, part=0.5)
@example(mean=1.0, cv=1e-4, z=3.0, part=0.0)  # n = 1e8, nearly a Poisson
def test_crps_is_the_sum(name, mean, cv, z, part):
    d, sd = one(name, mean, cv)
    z = np.clip(z, -1e3, 1e3)  # terms up to y are summed
    y = np.round(mean + z * sd) + part
    n = d.params["n"][0] if name == "negativebinomial" else np.inf
    if np.isinf(n):
        cdf, sf = (lambda x: special.gammaincc(x + 1.0, mean)), (lambda x: special.gammainc(x + 1.0, mean))
    else:
        failure = mean / (n + mean)
        cdf, sf = (lambda x: special.betaincc(x + 1.0, n, failure)), (lambda x: special.betainc(x + 1.0, n, failure))
    expected = summed_crps(cdf, sf, y, d.isf(1e-22)[0] + 10.0, sd)
    assert abs(d.crps(y)[0] - expected) <= 1e-8 * sd + 1e-13 * abs(y - mean)


@pytest.mark.parametrize("name", PARAMETRIC)
@settings(max_examples=60)
@given(mean=means, cv=variations, z=distances)
def test_functions_are_scipys(name, mean, cv, z):
    assume(abs(mean + z * cv * mean) > 1e-9 * mean)  # a density at 0 is 0 or infinite by the last digit of a shape
    d, sd = one(name, mean, cv)
    frozen, discrete = d.to_scipy(), isinstance(d, Discrete)
    x = np.round(mean + z * sd) if discrete else mean + z * sd
    # densities are differences of numbers as large as this: a million counts have a log mass to 1e-9
    large = [special.gammaln(1.0 + v[0]) for k, v in d.params.items() if k in ("a", "n", "mu") and np.isfinite(v[0])]
    digits = 1e-11 + 1e-14 * (sum(map(abs, large)) + (special.gammaln(2.0 + abs(x)) if discrete else 0.0))
    mass = "mf" if discrete else "df"
    with np.errstate(all="ignore"):
        names = [f"p{mass}", f"logp{mass}", "cdf", "sf"]
        density, log_density, cdf, sf = (getattr(frozen, method)(x) for method in names)
    np.testing.assert_allclose(d.pdf(x), density, rtol=1e-9 + digits, atol=1e-290)
    np.testing.assert_allclose(d.cdf(x), cdf, rtol=1e-9 + digits, atol=1e-290)
    np.testing.assert_allclose(d.sf(x), sf, rtol=1e-9 + digits, atol=1e-290)
    if log_density[0] > -700.0:  # further out, scipy takes the log of a denormal for some
        np.testing.assert_allclose(d.logpdf(x), log_density, rtol=1e-10, atol=digits)
    else:
        assert d.logpdf(x)[0] < -600.0
    assert np.array_equal(d.nll(x), -d.logpdf(x))


@pytest.mark.parametrize("name", PARAMETRIC)
@settings(max_examples=40)
@given(mean=means, cv=variations, q=st.one_of(st.floats(1e-3, 0.999), st.sampled_from([1e-12, 1e-5, 0.5])))
def test_quantiles_are_scipys(name, mean, cv, q):
    d, sd = one(name, mean, cv)
    frozen = d.to_scipy()
    # where a level falls on a step of the cdf, rounding decides between two whole numbers
    atol = 1.0 if name in DISCRETE else 1e-9 * sd
    np.testing.assert_allclose(d.ppf(q), frozen.ppf(q), rtol=1e-12, atol=atol)
    np.testing.assert_allclose(d.isf(q), frozen.isf(q), rtol=1e-12, atol=atol)
    np.testing.assert_allclose(d.median(), frozen.median(), rtol=1e-12, atol=atol)
    np.testing.assert_allclose(d.interval(0.9), frozen.interval(0.9), rtol=1e-12, atol=atol)
    if name in DISCRETE:
        x = d.ppf(q)
        assert d.cdf(x)[0] >= q
        assert d.cdf(x - 1.0)[0] < q
        assert d.sf(d.isf(q))[0] <= q < d.sf(d.isf(q) - 1.0)[0]


@pytest.mark.parametrize("name", PARAMETRIC)
@settings(max_examples=60)
@given(mean=means, cv=variations)
@example(mean=1.0, cv=1e-3)
@example(mean=1.0, cv=10.0)
@example(mean=1e6, cv=2e-5)  # a negative binomial with 1.0004 times a Poisson's variance
def test_moments_round_trip(name, mean, cv):
    d, _ = one(name, mean, cv)
    variance = {"poisson": mean, "negativebinomial": mean + (cv * mean) ** 2}.get(name, (cv * mean) ** 2)
    np.testing.assert_allclose(d.mean(), mean, rtol=1e-13)
    np.testing.assert_allclose(d.var(), variance, rtol=1e-11)
    np.testing.assert_allclose(d.std(), np.sqrt(variance), rtol=1e-11)
    # scipy takes differences of moments, which leaves it 1e-16 / cv^2; its nbinom has 1 - p, the excess of variance
    lost = 2e-16 / (1.0 - mean / variance) if name == "negativebinomial" else 0.0
    np.testing.assert_allclose(d.to_scipy().mean(), mean, rtol=1e-10 + lost)
    np.testing.assert_allclose(d.to_scipy().var(), variance, rtol=1e-9 + lost + 1e-14 * mean**2 / variance)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_entropy(name):
    np.testing.assert_allclose(make(name).entropy(), make(name).to_scipy().entropy(), rtol=1e-10)


@pytest.mark.parametrize("name", DISCRETE + SAMPLED + TWEEDIE + LIMITED)
def test_no_closed_entropy(name):
    with pytest.raises(
        NotImplementedError, match=f"entropy of {name.removeprefix('clipped ').removeprefix('snapped ').split('(')[0]}"
    ):
        make(name).entropy()


@pytest.mark.parametrize("name", CONTINUOUS)
def test_draws_of_continuous_families(name):
    d = make(name)
    draws = d.rvs(4000, random_state=3)
    for row in range(len(d)):  # a false alarm once in 1e4
        assert stats.kstest(draws[row], lambda x, row=row: d[row].cdf(x[None])[0]).pvalue > 1e-4


@pytest.mark.parametrize("name", DISCRETE)
def test_draws_of_discrete_families(name):
    d = make(name)
    draws = d.rvs(4000, random_state=4)
    assert np.array_equal(draws, np.floor(draws))
    for row in range(len(d)):
        edges = np.unique(d[row].ppf(np.linspace(0.05, 0.95, 10)))
        share = np.diff(np.concatenate([[0.0], d[row].cdf(edges[None])[0], [1.0]]))
        seen = np.bincount(np.searchsorted(edges, draws[row]), minlength=len(share))
        assert stats.chisquare(seen[share > 0], 4000 * share[share > 0]).pvalue > 1e-4


@pytest.mark.parametrize("name", ALL)
def test_seeds_and_shapes_of_draws(name):
    d = make(name)
    assert d.rvs(random_state=1).shape == (4,)
    assert d.rvs(5, random_state=1).shape == (4, 5)
    assert np.array_equal(d.rvs(5, random_state=1), d.rvs(5, random_state=np.random.default_rng(1)))
    assert not np.array_equal(d.rvs(5, random_state=1), d.rvs(5, random_state=2))
