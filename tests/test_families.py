"""Every family against scipy.stats, its CRPS against the integral of the cdf, and what a family must refuse."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import special, stats

from pgbm_plugin.distributions import FAMILIES, Discrete, Distribution, Empirical, Poisson, family, register
from pgbm_plugin.scores import crps_ensemble

REAL = ["normal", "studentt", "studentt(df=5)", "studentt(df=2.1)", "logistic", "laplace", "gumbel"]
POSITIVE = ["lognormal", "gamma", "weibull"]
DISCRETE = ["poisson", "negativebinomial"]
CONTINUOUS = REAL + POSITIVE
PARAMETRIC = CONTINUOUS + DISCRETE
SAMPLED = ["empirical", "conformal"]
RESIDUALS = np.random.default_rng(5).gumbel(size=41)
MEAN = np.array([2.0, 0.3, 40.0, 7.0])
VARIANCE = np.array([3.0, 0.5, 90.0, 70.0])

means = st.floats(-3, 6).map(lambda e: 10.0**e)
variations = st.floats(-3, 1).map(lambda e: 10.0**e)
# mostly near the mean, sometimes a million standard deviations away
distances = st.one_of(
    st.floats(-4, 4), st.floats(-2, 6).map(lambda e: 10.0**e), st.floats(-2, 6).map(lambda e: -(10.0**e))
)


def make(name, mean=MEAN, variance=VARIANCE):
    cls, options = family(name)
    if name in SAMPLED:
        options["residuals"] = RESIDUALS
    return cls.from_moments(np.atleast_1d(mean), np.atleast_1d(variance), **options)


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


@pytest.mark.parametrize("name", DISCRETE + SAMPLED)
def test_no_closed_entropy(name):
    with pytest.raises(NotImplementedError, match=f"entropy of {name}"):
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


@pytest.mark.parametrize("name", PARAMETRIC + SAMPLED)
def test_seeds_and_shapes_of_draws(name):
    d = make(name)
    assert d.rvs(random_state=1).shape == (4,)
    assert d.rvs(5, random_state=1).shape == (4, 5)
    assert np.array_equal(d.rvs(5, random_state=1), d.rvs(5, random_state=np.random.default_rng(1)))
    assert not np.array_equal(d.rvs(5, random_state=1), d.rvs(5, random_state=2))


@pytest.mark.parametrize("name", PARAMETRIC + SAMPLED)
def test_point_masses(name):
    """Of three rows the middle one has variance 0: numbers everywhere, and no warning."""
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
    methods = ["cdf", "sf", "crps", "pit"] + (["pdf", "logpdf", "nll"] if name not in SAMPLED else [])
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


@pytest.mark.parametrize("name", POSITIVE + DISCRETE)
def test_moments_that_do_not_fit(name):
    with pytest.raises(ValueError, match=rf"{name} cannot have the moments of 2 of 4 rows: it needs a mean > 0"):
        make(name, np.array([1.0, -1.0, 0.0, 2.0]), np.ones(4))


@pytest.mark.parametrize("name", PARAMETRIC)
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
    ],
)
def test_bad_names_and_options(spec, match):
    with pytest.raises(ValueError, match=match):
        make(spec)


def test_options():
    assert family(" studentt( df = 5 ) ")[1] == {"df": 5.0}
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


@pytest.mark.parametrize("name", PARAMETRIC + SAMPLED)
def test_rows_and_shapes(name):
    d = make(name)
    assert len(d) == 4
    assert name.split("(")[0] in repr(d).lower()
    values = ["cdf", "sf", "crps", "pit"] + (["pdf", "logpdf", "nll"] if name not in SAMPLED else [])
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


@pytest.mark.parametrize("name", PARAMETRIC + SAMPLED)
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
