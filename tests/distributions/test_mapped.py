"""Distributions of a monotone function of an outcome, against closed forms, samples and the distribution inside."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import numpy as np
import pytest

from pgbm_plugin.distributions import Clipped, Conformal, Empirical, LogNormal, Mapped, Normal, Snapped, family

MU, VARIANCE = np.array([-1.0, 0.0, 2.0]), np.array([0.01, 0.25, 1.0])
LEVELS = [0.001, 0.05, 0.5, 0.95, 0.999]


@dataclass(frozen=True)
class Exponential:
    """The functions exp(z) and exp(-z)."""

    rising: bool = True
    unit: float = 1.0

    def __call__(self, z):
        return np.exp(z if self.rising else -z)

    def level(self, x):
        with np.errstate(divide="ignore", invalid="ignore"):
            logarithm = np.where(x > 0.0, np.log(np.where(x > 0.0, x, 1.0)), -np.inf)
        return logarithm if self.rising else -logarithm

    def slope(self, z):
        return self(z)


@pytest.fixture(params=[True, False], ids=["rising", "falling"])
def pair(request):
    """Return a mapped normal, and the log-normal that it is."""
    inner = Normal.from_moments(MU if request.param else -MU, VARIANCE)
    mean = np.exp(MU + VARIANCE / 2)
    return Mapped(inner, Exponential(request.param)), LogNormal.from_moments(mean, mean**2 * np.expm1(VARIANCE))


def test_exponential_of_a_normal(pair):
    d, expected = pair
    for name in ("ppf", "isf"):
        np.testing.assert_allclose(getattr(d, name)(LEVELS), getattr(expected, name)(LEVELS), rtol=1e-9)
    np.testing.assert_allclose(d.interval(0.9), expected.interval(0.9), rtol=1e-9)
    x = np.array([-1.0, 0.0, 0.3, 0.9, 1.0, 4.0, 50.0, np.inf]) * np.ones((3, 1))
    for name in ("cdf", "sf"):
        np.testing.assert_allclose(getattr(d, name)(x), getattr(expected, name)(x), rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(d.logpdf(x[:, 2:7]), expected.logpdf(x[:, 2:7]), rtol=1e-8)
    assert np.all(d.pdf([[-1.0, 0.0]] * 3) == 0.0)
    np.testing.assert_allclose(d.mean(), expected.mean(), rtol=1e-5)
    np.testing.assert_allclose(d.std(), expected.std(), rtol=1e-5)
    y = np.array([[0.1, 0.4, 5.0], [0.1, 1.0, 9.0], [0.1, 7.0, 90.0]])
    np.testing.assert_allclose(d.crps(y), expected.crps(y), atol=1e-5 * expected.std().max())
    assert np.array_equal(d.pit(y), d.cdf(y))
    samples = d.rvs(4_000, random_state=0)
    np.testing.assert_allclose(np.mean(samples <= d.median()[:, None], axis=1), 0.5, atol=0.03)


def test_tails_without_a_mean():
    """Under an exponential: Student's t never has a mean; Laplace has one below scale 1, and a variance below 1/2."""
    for name, variance, mean, var in (
        ("studentt(df=3)", 0.04, False, False),
        ("laplace", 2 * 0.4**2, True, True),
        ("laplace", 2 * 0.7**2, True, False),
        ("laplace", 2 * 1.2**2, False, False),
        ("logistic", 0.1, True, True),
    ):
        cls, options = family(name)
        inner = cls.from_moments(np.zeros(2), np.full(2, variance), **options)
        for sign in (True, False):
            d = Mapped(inner, Exponential(sign))
            assert np.isfinite(d.mean()).tolist() == [mean] * 2, name
            assert np.isfinite(d.var()).tolist() == [var] * 2, name
            assert np.all(d.mean() > 0.0)
            assert np.all(np.isfinite(d.ppf(LEVELS)))


def test_samples_of_residuals():
    residuals = np.random.default_rng(0).gumbel(size=700)
    parts = {"residuals": residuals}
    d = Mapped(Empirical.from_moments(MU, VARIANCE, **parts), Exponential())
    outcomes = np.exp(MU[:, None] + np.sqrt(VARIANCE)[:, None] * residuals)
    np.testing.assert_allclose(d.mean(), outcomes.mean(axis=1), rtol=1e-10)
    np.testing.assert_allclose(d.std(), outcomes.std(axis=1), rtol=1e-10)
    spread = np.abs(outcomes[:, :, None] - outcomes[:, None, :]).mean(axis=(1, 2)) / 2
    y = np.exp(MU)
    expected = np.abs(outcomes - y[:, None]).mean(axis=1) - spread
    np.testing.assert_allclose(d.crps(y), expected, rtol=1e-9)
    np.testing.assert_array_equal(d.cdf(outcomes[:, :5]), (outcomes[:, None, :] <= outcomes[:, :5, None]).mean(axis=2))
    with pytest.raises(NotImplementedError, match="density"):
        d.pdf(y)
    many = np.random.default_rng(0).normal(size=5_000)
    d = Mapped(Empirical.from_moments(MU, VARIANCE, residuals=many), Exponential())
    outcomes = np.exp(MU[:, None] + np.sqrt(VARIANCE)[:, None] * many)
    np.testing.assert_allclose(d.mean(), outcomes.mean(axis=1), rtol=1e-2)
    np.testing.assert_allclose(d.std(), outcomes.std(axis=1), rtol=5e-2)


def test_conformal_quantiles_are_mapped():
    residuals = np.linspace(-2.0, 2.0, 99)
    inner = Conformal.from_moments(MU, VARIANCE, residuals=residuals)
    d = Mapped(inner, Exponential())
    assert np.array_equal(d.interval(0.8), np.exp(inner.interval(0.8)))
    assert np.all(np.isfinite(d.mean()))  # although the outermost quantiles are infinite
    with pytest.warns(UserWarning, match="too few"):
        assert np.all(d.ppf(0.999) == np.inf)


def test_mass_inside():
    snapped = Mapped(Snapped(Normal.from_moments(MU, VARIANCE), [-1.0, 0.0, 1.0, 2.0]), Exponential())
    masses = snapped.cdf(np.exp([[-1.0, 0.0, 1.0, 2.0]] * 3))
    np.testing.assert_allclose(masses, snapped._inner._cdf(np.array([-1.0, 0.0, 1.0, 2.0]), **snapped._as_columns()[0]))
    np.testing.assert_allclose(snapped.pit(np.exp([[0.0]] * 3))[:, 0], 0.5 * (masses[:, 0] + masses[:, 1]))
    falling = Mapped(Snapped(Normal.from_moments(-MU, VARIANCE), [-2.0, -1.0, 0.0, 1.0]), Exponential(False))
    np.testing.assert_allclose(falling.cdf(np.exp([[-1.0, 0.0, 1.0, 2.0]] * 3)), masses, atol=1e-12)
    clipped = Mapped(Clipped(Normal.from_moments(MU, VARIANCE), -1.0, 2.0), Exponential())
    samples = clipped.rvs(50_000, random_state=0)
    np.testing.assert_allclose(clipped.mean(), samples.mean(axis=1), rtol=0.01)
    np.testing.assert_allclose(clipped.std(), samples.std(axis=1), rtol=0.02)
    assert clipped.has_mass
    with pytest.raises(NotImplementedError, match="no density"):
        clipped.pdf(1.0)


def test_point_masses_selection_and_copies():
    d = Mapped(Normal.from_moments(MU, np.array([0.01, 0.0, 1.0])), Exponential())
    assert d.mean()[1] == d.median()[1] == 1.0
    assert d.std()[1] == 0.0
    assert d.crps(3.0)[1] == 2.0
    again = pickle.loads(pickle.dumps(d))[[0, 2]]  # noqa: S301
    assert np.array_equal(again.ppf(LEVELS), d.ppf(LEVELS)[[0, 2]])
    assert repr(again) == "<Mapped normal distribution of 2 rows>"
