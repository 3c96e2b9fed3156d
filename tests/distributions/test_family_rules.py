"""What holds for every family: point masses, refusals, options, rows and shapes, copies; and families of one's own."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from scipy import stats

from pgbm_plugin.distributions import FAMILIES, Discrete, Distribution, Empirical, Poisson, family, register
from pgbm_plugin.scores import crps_ensemble
from tests.distributions.families import (
    ALL,
    DISCRETE,
    MEAN,
    NO_DENSITY,
    PARAMETRIC,
    POSITIVE,
    RESIDUALS,
    SAMPLED,
    TWEEDIE,
    VARIANCE,
    make,
)


@pytest.mark.parametrize("name", ALL)
def test_point_masses(name):
    """The middle one of three rows has variance 0: numbers everywhere, and no warning."""
    d = make(name, np.array([2.0, 3.0, 4.0]), np.array([4.0, 0.0, 9.0]))
    x = np.array([[-1.0, 0.0, 2.0, 3.0, 4.0, 1e9]] * 3)
    assert d.cdf(x)[1].tolist() == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    assert d.sf(x)[1].tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    assert d.crps(x)[1].tolist() == [4.0, 3.0, 1.0, 0.0, 1.0, 1e9 - 3.0]
    assert d.ppf([0.1, 0.5, 0.9])[1].tolist() == [3.0, 3.0, 3.0]
    assert d.isf([0.1, 0.5, 0.9])[1].tolist() == [3.0, 3.0, 3.0]
    assert d.rvs(4, random_state=0)[1].tolist() == [3.0] * 4
    assert (d.mean()[1], d.var()[1], d.std()[1], d.median()[1]) == (3.0, 0.0, 0.0, 3.0)
    assert [end[1] for end in d.interval(0.9)] == [3.0, 3.0]
    assert np.all((d.pit(x) >= 0.0) & (d.pit(x) <= 1.0))
    methods = ["cdf", "sf", "crps", "pit"] + (["pdf", "logpdf", "nll"] if name not in NO_DENSITY else [])
    for method in methods:
        assert not np.isnan(getattr(d, method)(x)).any()
    if isinstance(d, Discrete):
        assert d.pmf(x)[1].tolist() == [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    # the other rows do not notice
    rest = make(name, np.array([2.0, 4.0]), np.array([4.0, 9.0]))
    for method in methods:
        assert np.array_equal(getattr(d, method)(x)[[0, 2]], getattr(rest, method)(x[:2]))


def test_negative_binomial_at_or_below_its_limit():
    """No such member: the Poisson of the same mean."""
    d, limit = make("negativebinomial", MEAN, MEAN * [1.0, 0.5, 1e-9, 1.0]), Poisson.from_moments(MEAN, MEAN)
    k = np.arange(60.0)[None].repeat(4, 0)
    for method in ("pmf", "logpmf", "cdf", "sf", "crps", "pit"):
        assert np.array_equal(getattr(d, method)(k), getattr(limit, method)(k))
    assert np.array_equal(d.ppf([0.01, 0.5, 0.99]), limit.ppf([0.01, 0.5, 0.99]))
    assert np.array_equal(d.var(), MEAN)
    extreme = np.array([1e-3, 1.0, 1e6])
    frozen = make("negativebinomial", extreme, extreme).to_scipy()
    np.testing.assert_allclose(frozen.mean(), extreme, rtol=1e-6)
    np.testing.assert_allclose(frozen.var(), extreme, rtol=1e-6)


@pytest.mark.parametrize("name", POSITIVE + DISCRETE + TWEEDIE)
def test_moments_that_do_not_fit(name):
    with pytest.raises(
        ValueError, match=rf"{name.split('(')[0]} cannot have the mean and variance of 2 of 4 rows: it needs a mean > 0"
    ):
        make(name, np.array([1.0, -1.0, 0.0, 2.0]), np.ones(4))


@pytest.mark.parametrize("name", PARAMETRIC + TWEEDIE)
@pytest.mark.parametrize("bad", [(np.nan, 1.0), (np.inf, 1.0), (1.0, np.nan), (1.0, np.inf)])
def test_moments_that_are_not_finite(name, bad):
    if name == "poisson" and bad[0] == 1.0:
        pytest.skip("has no use for a variance")
    with pytest.raises(ValueError, match="1 of 1 rows"):
        make(name, *bad)


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("cauchy", r"unknown distribution 'cauchy'; known: conformal, empirical, gamma, .*normal.*weibull"),
        ("Normal", "unknown distribution 'Normal'"),
        ("", "unknown distribution ''"),
        (None, "unknown distribution None"),
        ("studentt(df)", "cannot read the options of 'studentt"),
        ("studentt(df=five)", r"write them as in 'studentt\(df=5\)'"),
        ("studentt(df=2)", "df must be more than 2"),
        ("studentt(df=nan)", "df must be more than 2"),
        ("studentt(df=inf)", "df must be"),
        ("studentt(nu=5)", "nu"),
        ("normal(df=5)", "df"),
        ("tweedie(power=2)", "power must be more than 1 and less than 2"),
        ("tweedie(power=nan)", "power must be"),
        ("empirical(by='label', bins=3)", "by must be 'mean' or 'spread'"),
        ("empirical(bins=2.5)", "bins must be a whole number from 1 to 100"),
        ("empirical(bins=nan)", "bins must be a whole number"),
        ("empirical(bins=1e9)", "bins must be a whole number"),
        ("empirical(by=)", "by must be"),
        ("conformal(bins=3)", "conformal has no option 'bins'; its options: none"),
    ],
)
def test_bad_names_and_options(spec, match):
    with pytest.raises(ValueError, match=match):
        make(spec)


def test_options():
    assert family(" studentt( df = 5 ) ")[1] == {"df": 5.0}
    assert family("empirical(by='spread', bins=3)")[1] == family("empirical( bins = 3, by=spread )")[1]
    assert make("studentt").params["df"].tolist() == [3.0] * 4
    assert make("studentt(df=5)").params["df"].tolist() == [5.0] * 4


class Uniform(Distribution):
    """The five formulas that a family needs; the rest follows from them."""

    name = "uniform"
    _parameters = staticmethod(
        lambda mean, variance: {"low": mean - np.sqrt(3 * variance), "width": np.sqrt(12 * variance)}
    )
    _moments = staticmethod(lambda low, width: (low + width / 2, width**2 / 12))
    _logpdf = staticmethod(lambda x, low, width: np.where((x >= low) & (x <= low + width), -np.log(width), -np.inf))
    _cdf = staticmethod(lambda x, low, width: np.clip((x - low) / width, 0.0, 1.0))
    _ppf = staticmethod(lambda q, low, width: low + q * width)


def test_a_family_of_ones_own():
    try:
        assert register(Uniform) is Uniform
        d, low, width = make("uniform"), MEAN - np.sqrt(3 * VARIANCE), np.sqrt(12 * VARIANCE)
    finally:
        FAMILIES.pop("uniform", None)
    frozen = stats.uniform(low, width)
    np.testing.assert_allclose(d.mean(), MEAN)
    np.testing.assert_allclose(d.var(), VARIANCE)
    np.testing.assert_allclose(d.sf(MEAN + 0.1), frozen.sf(MEAN + 0.1))
    np.testing.assert_allclose(d.isf(0.2), frozen.isf(0.2))
    assert stats.kstest((d.rvs(2000, random_state=1)[2] - low[2]) / width[2], "uniform").pvalue > 1e-4
    for u in (-0.5, 0.0, 0.3, 1.0, 2.0):  # the integral of (F - step)^2, in units of the width
        inside = np.clip(u, 0.0, 1.0)
        expected = (inside**3 + (1.0 - inside) ** 3) / 3.0 + abs(u - inside)
        np.testing.assert_allclose(d.crps(low + u * width), expected * width, rtol=1e-4)


def test_what_is_no_family():
    for bad in (Uniform(low=0.0, width=1.0), int, "normal"):
        with pytest.raises(TypeError, match="subclass of Distribution"):
            register(bad)
    for name in ("", "Big", "two words"):
        with pytest.raises(ValueError, match="needs a class attribute name"):
            register(type("Other", (Uniform,), {"name": name}))
    with pytest.raises(TypeError, match="Incomplete lacks _cdf"):
        register(type("Incomplete", (Distribution,), {"name": "incomplete"}))
    with pytest.raises(ValueError, match="'normal' already"):
        register(type("Other", (Uniform,), {"name": "normal"}))
    assert "incomplete" not in FAMILIES
    assert FAMILIES["normal"].__name__ == "Normal"


@pytest.mark.parametrize("lower", [-np.inf, 1.0])
def test_empirical_is_its_residuals(lower):
    d = Empirical.from_moments(MEAN, VARIANCE, residuals=RESIDUALS, lower=lower)
    sample = np.maximum(MEAN[:, None] + np.sqrt(VARIANCE)[:, None] * np.sort(RESIDUALS), lower)
    np.testing.assert_allclose(d.mean(), sample.mean(1), rtol=1e-12)
    np.testing.assert_allclose(d.var(), sample.var(1), rtol=1e-10)
    for z in (-50.0, -0.3, 0.0, 1.2, 50.0):
        y = MEAN + z * np.sqrt(VARIANCE)
        expected = [crps_ensemble(y[[i]], sample[[i]]) for i in range(4)]
        np.testing.assert_allclose(d.crps(y), expected, rtol=1e-11)
        np.testing.assert_allclose(d.cdf(y), (sample <= y[:, None]).mean(1), atol=1e-15)
        np.testing.assert_allclose(d.sf(y), (sample > y[:, None]).mean(1), atol=1e-15)
    for k in range(1, 42):  # the k-th of 41 is the quantile of (k - 1, k] / 41
        for q in (k / 41, (k - 0.5) / 41):
            np.testing.assert_allclose(d.ppf(q), sample[:, k - 1], rtol=1e-14)
    assert np.isin(d.rvs(300, random_state=0), d.ppf(np.arange(1, 42) / 41)).all()
    for bad in ([1.0], [1.0, np.nan], [[1.0, 2.0]]):
        with pytest.raises(ValueError, match="at least two finite residuals"):
            Empirical.from_moments(MEAN, VARIANCE, residuals=bad)
    for call in (d.pdf, d.logpdf, d.nll):
        with pytest.raises(NotImplementedError, match="no density"):
            call(1.0)


@pytest.mark.parametrize("name", ALL)
def test_rows_and_shapes(name):
    d = make(name)
    assert len(d) == 4
    assert name.split("(")[0] in repr(d).lower()
    values = ["cdf", "sf", "crps", "pit"] + (["pdf", "logpdf", "nll"] if name not in NO_DENSITY else [])
    for method in values:
        call = getattr(d, method)
        assert call(1.0).shape == call(np.ones(4)).shape == (4,)
        assert call(np.ones((4, 2))).shape == (4, 2)
        with pytest.raises(ValueError, match="do not fit 4 rows"):
            call(np.ones(3))
    for method in ("ppf", "isf"):
        assert getattr(d, method)(0.5).shape == (4,)
        assert getattr(d, method)([0.3, 0.4, 0.5, 0.6]).shape == (4, 4)
    for method in ("mean", "var", "std", "median"):
        assert getattr(d, method)().shape == (4,)
    for rows in (2, -1, slice(1, 3), [3, 0], np.array([True, False, False, True])):
        part = d[rows]
        assert type(part) is type(d)
        for method in ("mean", "var", "median"):
            assert np.array_equal(getattr(part, method)(), np.atleast_1d(getattr(d, method)()[rows]))
        y = np.atleast_1d(MEAN[rows]) + 1.0
        assert np.array_equal(part.crps(y), np.atleast_1d(d.crps(MEAN + 1.0)[rows]))


@pytest.mark.parametrize("name", ALL)
def test_copies_are_equal_and_immutable(name):
    d = make(name)
    for twin in (d, d[1:], copy.deepcopy(d), pickle.loads(pickle.dumps(d))):  # noqa: S301 - made here
        assert np.array_equal(twin.ppf([0.3, 0.6])[-1], d.ppf([0.3, 0.6])[-1])
        arrays = list(twin.params.values()) + ([twin.residuals] if name in SAMPLED else [])
        for array in arrays:
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1.0
        with pytest.raises((AttributeError, TypeError)):
            twin.params["loc"] = np.zeros(4)
