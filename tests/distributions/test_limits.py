"""Clipped and snapped distributions, against numerical integrals and samples."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate

from pgbm_plugin.distributions import Clipped, Empirical, Snapped
from pgbm_plugin.scores import crps_ensemble
from tests.distributions.families import BINNED, LATTICE, MEAN, VARIANCE, make

FAMILIES = ["normal", "studentt(df=5)", "logistic", "laplace", "gumbel", "lognormal", "gamma", "weibull", "tweedie"]
BOUNDS = [(-np.inf, 3.0), (1.0, np.inf), (1.0, 3.0), (-1e3, 1e3), (2.5, 2.6)]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
def test_clipped_moments_and_scores_are_integrals(name, lower, upper):
    inner = make(name, 2.0, 3.0)
    d = Clipped(inner, lower, upper)
    low, high = max(lower, float(inner.ppf(1e-13)[0]), -1e4), min(upper, float(inner.isf(1e-13)[0]), 1e4)

    def integral(f, a, b):
        middle = np.clip(inner.ppf([1e-6, 0.01, 0.2, 0.5, 0.8, 0.99, 1 - 1e-6])[0], a, b)
        ends = np.unique(np.concatenate([[a, b], middle]))
        return sum(integrate.quad(f, s, t, limit=200)[0] for s, t in pairwise(ends))

    cdf = lambda x: d.cdf(x)[0]  # noqa: E731
    mean = high - integral(cdf, low, high)
    second = high**2 - integral(lambda x: 2.0 * x * cdf(x), low, high)
    sd = np.sqrt(3.0)
    np.testing.assert_allclose(d.mean()[0], mean, atol=1e-5 * sd)
    np.testing.assert_allclose(d.var()[0], second - mean**2, atol=(1e-3 if "student" in name else 1e-4) * sd)
    for y in (0.5, 1.0, 2.0, 2.55, 3.0, 5.0):
        nearest = np.clip(y, low, high)
        below = integral(lambda x: cdf(x) ** 2, low, nearest) if nearest > low else 0.0
        above = integral(lambda x: (1.0 - cdf(x)) ** 2, nearest, high) if nearest < high else 0.0
        np.testing.assert_allclose(d.crps(y)[0], abs(y - np.clip(y, lower, upper)) + below + above, atol=1e-5 * sd)


@pytest.mark.parametrize("name", ["poisson", "negativebinomial"])
def test_clipped_counts_are_sums(name):
    d = Clipped(make(name, 4.0, 9.0), 1.0, 6.0)
    k = np.arange(1.0, 7.0)
    mass = d.pdf(k[None])[0]
    np.testing.assert_allclose(mass.sum(), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.cumsum(mass), d.cdf(k[None])[0], rtol=1e-12)
    np.testing.assert_allclose(d.mean()[0], mass @ k, rtol=1e-8)
    np.testing.assert_allclose(d.std()[0], np.sqrt(mass @ k**2 - (mass @ k) ** 2), rtol=1e-8)
    for y in (0.0, 1.0, 4.0, 6.0, 9.0):
        expected = mass @ np.abs(k - y) - 0.5 * (mass @ np.abs(k[:, None] - k) @ mass)
        np.testing.assert_allclose(d.crps(y)[0], expected, rtol=1e-8)
    np.testing.assert_allclose(d.pit(k[None]), d.cdf(k[None]) - 0.5 * d.pdf(k[None]), rtol=1e-12)
    np.testing.assert_allclose(mass @ d.pit(k[None])[0], 0.5, rtol=1e-12)


@pytest.mark.parametrize("inner", [make("normal"), make("tweedie", 2.0, 9.0), make("studentt")])
def test_the_mean_pit_is_one_half(inner):
    """Also where much probability lies on a bound, or at 0."""
    d = Clipped(inner, 0.5, 5.0) if inner.name != "tweedie" else inner
    samples = d.rvs(20_000, random_state=0)
    pit = d.pit(samples)
    assert np.mean(samples == samples.min()) > 0.05
    np.testing.assert_allclose(pit.mean(), 0.5, atol=0.005)
    inside = (samples > samples.min()) & (samples < samples.max())
    np.testing.assert_allclose(pit[inside], d.cdf(samples)[inside], rtol=1e-9)


def test_clipped_outcomes():
    inner = make("normal")
    d = Clipped(inner, 0.0, 9.0)
    q = [0.01, 0.3, 0.99]
    assert np.array_equal(d.ppf(q), np.clip(inner.ppf(q), 0.0, 9.0))
    assert np.array_equal(d.rvs(50, random_state=1), np.clip(inner.rvs(50, random_state=1), 0.0, 9.0))
    assert np.array_equal(d.interval(0.9), np.clip(inner.interval(0.9), 0.0, 9.0))
    np.testing.assert_allclose(np.exp(d.logpdf(0.0)), inner.cdf(0.0))
    np.testing.assert_allclose(np.exp(d.logpdf(9.0)), inner.sf(9.0))
    assert np.array_equal(d.logpdf(4.0), inner.logpdf(4.0))
    assert np.all(d.logpdf(np.array([[-1.0, 10.0]] * 4)) == -np.inf)
    assert d.cdf(np.array([[-1e-300, 9.0]] * 4)).tolist() == [[0.0, 1.0]] * 4
    points = Clipped(make("normal", np.array([-3.0, 4.0, 12.0]), np.zeros(3)), 0.0, 9.0)
    assert points.mean().tolist() == points.ppf(0.3).tolist() == [0.0, 4.0, 9.0]
    assert points.crps(1.0).tolist() == [1.0, 3.0, 8.0]
    for bad in ((1.0, 1.0), (2.0, 1.0), (np.nan, 1.0)):
        with pytest.raises(ValueError, match="less than"):
            Clipped(inner, *bad)


@pytest.mark.parametrize("name", ["normal", "gamma", "poisson", "empirical", *BINNED])
def test_snapped_is_exact(name):
    """All that follows from the masses of the values, against sums over them."""
    inner = make(name)
    d = Snapped(inner, LATTICE)
    middle = 0.5 * (LATTICE[1:] + LATTICE[:-1])
    up_to = np.column_stack([inner.cdf(np.tile(middle, (4, 1))), np.ones(4)])
    mass = np.diff(up_to, axis=1, prepend=0.0)
    np.testing.assert_allclose(d.cdf(np.tile(LATTICE, (4, 1))), up_to, atol=1e-14)
    np.testing.assert_allclose(d.pdf(np.tile(LATTICE, (4, 1))), mass, atol=1e-14)
    assert np.all(d.pdf(0.5) == 0.0)
    np.testing.assert_allclose(d.mean(), mass @ LATTICE, atol=1e-12)
    np.testing.assert_allclose(d.var(), mass @ LATTICE**2 - (mass @ LATTICE) ** 2, atol=1e-10)
    gaps = np.abs(LATTICE[:, None] - LATTICE)
    for y in (-4.0, -1.0, 0.4, 3.0, 44.0, 50.0):
        expected = mass @ np.abs(LATTICE - y) - 0.5 * np.sum((mass @ gaps) * mass, axis=1)
        np.testing.assert_allclose(d.crps(y), expected, atol=1e-10)
    q = np.linspace(0.01, 0.99, 40)
    smallest = [[LATTICE[np.searchsorted(up_to[row], level - 1e-12)] for level in q] for row in range(4)]
    np.testing.assert_array_equal(d.ppf(q), smallest)
    assert np.isin(d.rvs(100, random_state=0), LATTICE).all()
    assert np.isin(d.interval(0.8), LATTICE).all()
    np.testing.assert_allclose(d.pit(3.0), d.cdf(3.0) - 0.5 * d.pdf(3.0))


def test_halves_go_down():
    """A value between two of the lattice takes the lower one: cdf and quantiles then agree."""
    d = Snapped(make("empirical", np.zeros(1), np.ones(1)), [0.0, 1.0])
    assert d._outcome(np.array([0.5, np.nextafter(0.5, 1.0)])).tolist() == [0.0, 1.0]


def test_snapped_scores_without_the_own_residual():
    rng = np.random.default_rng(2)
    values, n = np.array([0.0, 1.0, 2.0, 5.0]), 60
    y, mean, sd = rng.choice(values, n), rng.normal(1.5, 1.0, n), rng.uniform(0.5, 2.0, n)
    residuals = (y - mean) / sd
    inner = Empirical(residuals=residuals, weights=np.full(n, 1 / n), loc=mean, scale=sd)
    found = Snapped(inner, values).left_out_crps(y, np.full(n, 1 / n))
    for i in range(n):
        others = mean[i] + sd[i] * np.delete(residuals, i)
        snapped = values[np.searchsorted([0.5, 1.5, 3.5], others)]
        np.testing.assert_allclose(found[i], crps_ensemble(y[[i]], snapped[None]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0], [2.0, 1.0], [0.0, np.nan], [[0.0, 1.0]]])
def test_values_that_are_no_lattice(values):
    with pytest.raises(ValueError, match=r"finite values|rise"):
        Snapped(make("normal", MEAN, VARIANCE), values)
