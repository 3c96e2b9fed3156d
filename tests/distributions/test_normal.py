"""Normal against scipy, its shapes, its edges; and what the model makes of it."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
from scipy import integrate, stats

from pgbm_plugin import wrap
from pgbm_plugin.distributions import FAMILIES, Empirical, Gamma, NegativeBinomial, Normal, Poisson, StudentT, register
from pgbm_plugin.predict.power_map import Calibration

MEAN = np.array([0.0, -3.0, 1e6, 2.5])
SD = np.array([1.0, 0.2, 5.0, 1e-3])
LEVELS = [1e-12, 0.05, 0.5, 0.95]


@pytest.fixture
def normal():
    return Normal.from_moments(MEAN, SD**2)


@pytest.mark.parametrize("method", ["pdf", "logpdf", "cdf", "sf"])
@pytest.mark.parametrize("z", [-30.0, -1.0, 0.0, 0.3, 8.0])
def test_against_scipy(method, z, normal):
    x = MEAN + z * SD
    np.testing.assert_allclose(getattr(normal, method)(x), getattr(stats.norm(MEAN, SD), method)(x), rtol=1e-11)


def test_moments_against_scipy(normal):
    frozen = normal.to_scipy()
    for method in ("mean", "var", "std", "median"):
        np.testing.assert_allclose(getattr(normal, method)(), getattr(frozen, method)(), rtol=1e-14)
    for ours, theirs in zip(normal.interval(0.9), frozen.interval(0.9), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-13)
    for method in ("ppf", "isf"):
        for q in LEVELS:
            np.testing.assert_allclose(getattr(normal, method)(q), getattr(frozen, method)(q), rtol=1e-13)
    y = MEAN + 0.7 * SD
    np.testing.assert_allclose(normal.nll(y), -frozen.logpdf(y), rtol=1e-12)
    np.testing.assert_allclose(normal.pit(y), frozen.cdf(y), rtol=1e-12)


@pytest.mark.parametrize("method", ["ppf", "isf"])
def test_a_list_of_levels_is_a_new_axis(method, normal):
    call = getattr(normal, method)
    assert call(0.5).shape == (4,)
    assert call([0.5]).shape == (4, 1)
    for levels in (LEVELS, LEVELS[:3]):  # as many levels as rows is no special case
        matrix = call(levels)
        assert matrix.shape == (4, len(levels))
        for k, q in enumerate(levels):
            assert np.array_equal(matrix[:, k], call(q))
    with pytest.raises(ValueError, match="levels must be a number or a list"):
        call([[0.5]])


def test_values_go_with_rows(normal):
    assert normal.cdf(0.0).shape == (4,)
    assert normal.cdf(MEAN).shape == (4,)
    assert normal.cdf(np.zeros((4, 7))).shape == (4, 7)
    assert normal.crps(np.zeros((4, 7))).shape == (4, 7)
    assert np.array_equal(normal.cdf(np.stack([MEAN, MEAN + 1], 1))[:, 1], normal.cdf(MEAN + 1))
    for bad in (np.zeros(3), np.zeros((3, 4)), np.zeros((4, 1, 1))):
        with pytest.raises(ValueError, match="do not fit 4 rows"):
            normal.cdf(bad)


@pytest.mark.parametrize(
    "rows", [0, -1, slice(1, 3), slice(None, None, -1), [2, 0], np.array([True, False, True, False])]
)
def test_indexing(rows, normal):
    part = normal[rows]
    assert isinstance(part, Normal)
    assert len(part) == len(np.atleast_1d(MEAN[rows]))
    assert np.array_equal(part.mean(), np.atleast_1d(MEAN[rows]))
    assert np.array_equal(part.ppf(0.9), np.atleast_1d(normal.ppf(0.9)[rows]))
    assert str(len(part)) in repr(part)


def test_iteration_ends(normal):
    assert [len(d) for d in normal] == [1, 1, 1, 1]
    with pytest.raises(IndexError):
        normal[4]


def test_immutable(normal):
    for distribution in (normal, normal[:2]):
        for array in distribution.params.values():
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1.0
    with pytest.raises((AttributeError, TypeError)):
        normal.params["loc"] = np.zeros(4)
    with pytest.raises((AttributeError, TypeError)):
        normal.params = {}


def test_results_are_the_callers_own(normal):
    """Whatever a caller does to an array it was given, the distribution stays as it was."""
    for method in ("mean", "var", "std", "median"):
        array = getattr(normal, method)()
        if array.flags.writeable:
            array[:] = 99.0
    assert np.array_equal(normal.mean(), MEAN)
    assert np.array_equal(normal.std(), SD)


def test_the_callers_arrays_stay_writable():
    mean = np.zeros(3)
    Normal.from_moments(mean, np.ones(3))
    mean[0] = 1.0


@pytest.mark.parametrize("z", [-4.0, -0.5, 0.0, 2.0])
def test_crps_is_the_integral(z):
    """Integral of (F(x) - 1[x >= y])^2, in two pieces because of the step."""
    mean, sd = np.array([0.3]), np.array([0.7])
    y = mean[0] + z * sd[0]
    below, _ = integrate.quad(lambda x: stats.norm.cdf(x, mean[0], sd[0]) ** 2, mean[0] - 12, y)
    above, _ = integrate.quad(lambda x: stats.norm.sf(x, mean[0], sd[0]) ** 2, y, mean[0] + 12)
    assert Normal.from_moments(mean, sd**2).crps(y)[0] == pytest.approx(below + above, rel=1e-7)


def test_point_mass():
    """A scale of 0: finite quantiles, a step for a cdf, absolute error for a score; and no warnings."""
    d = Normal.from_moments(np.array([2.0, 2.0, 2.0]), np.zeros(3))
    x = np.array([1.0, 2.0, 3.0])
    assert d.cdf(x).tolist() == [0.0, 1.0, 1.0]
    assert d.sf(x).tolist() == [1.0, 0.0, 0.0]
    assert d.pdf(x).tolist() == [0.0, np.inf, 0.0]
    assert d.crps(x).tolist() == [1.0, 0.0, 1.0]
    assert d.ppf([0.1, 0.9]).tolist() == [[2.0, 2.0]] * 3
    assert d.rvs(5, random_state=0).tolist() == [[2.0] * 5] * 3
    assert d.interval(0.9)[0].tolist() == [2.0] * 3


def test_samples(normal):
    assert normal.rvs(random_state=1).shape == (4,)
    draws = normal.rvs(20_000, random_state=1)
    assert draws.shape == (4, 20_000)
    assert np.array_equal(draws, normal.rvs(20_000, random_state=1))
    assert not np.array_equal(draws, normal.rvs(20_000, random_state=2))
    generator = np.random.default_rng(1)
    assert np.array_equal(draws, normal.rvs(20_000, random_state=generator))
    # five standard errors of a mean and of a standard deviation
    assert np.all(np.abs(draws.mean(1) - MEAN) < 5 * SD / np.sqrt(20_000))
    assert np.all(np.abs(draws.std(1) / SD - 1) < 5 / np.sqrt(40_000))


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 90, np.nan])
def test_bad_confidence(level, normal):
    with pytest.raises(ValueError, match="confidence must lie strictly between 0 and 1"):
        normal.interval(level)


@pytest.mark.parametrize("q", [-0.1, 1.1, np.nan])
def test_bad_levels(q, normal):
    for call in (normal.ppf, normal.isf):
        with pytest.raises(ValueError, match="levels must lie between 0 and 1"):
            call([0.5, q])


def test_parameters_of_two_lengths():
    with pytest.raises(ValueError):  # noqa: PT011 - NumPy's own words
        Normal(loc=np.zeros(3), scale=np.zeros(2))


def test_model_methods_agree(numeric):
    X, y = numeric
    model = wrap(lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(X, y), 5), X, y)
    d = model.predict_dist(X)
    mean, std = model.predict(X, return_std=True)
    assert np.array_equal(mean, model.predict(X))
    assert np.array_equal(d.mean(), mean)
    assert np.array_equal(d.std(), std)
    np.testing.assert_allclose(model.predict_var(X), d.var(), rtol=1e-14)
    assert np.array_equal(model.predict_quantiles(X, [0.1, 0.9]), d.ppf([0.1, 0.9]))
    assert model.predict_quantiles(X, 0.5).shape == (len(X), 1)
    assert np.array_equal(model.predict_interval(X, 0.8), np.stack(d.interval(0.8), 1))
    assert model.predict_interval(X).shape == (len(X), 2)
    model.rho = 0.5
    np.testing.assert_allclose(model.predict_var(X), model.predict_dist(X, rho=0.5).var(), rtol=1e-14)
    assert not np.allclose(model.predict_var(X), d.var(), rtol=1e-3)


def test_the_papers_mean(numeric):
    """mean="pgbm" predicts -alpha mu: for squared error (var_h = cov = 0) those are the booster's leaves."""
    X, y = numeric
    booster = lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(X, y), 5)
    np.testing.assert_allclose(wrap(booster, X, y, mean="pgbm").predict(X), booster.predict(X), rtol=1e-12)
    booster = lgb.train({"verbose": -1, "num_threads": 1, "objective": "fair"}, lgb.Dataset(X, y), 5)
    own, paper = wrap(booster, X, y), wrap(booster, X, y, mean="pgbm")
    assert np.array_equal(own.predict_var(X), paper.predict_var(X))
    assert 0 < np.abs(own.predict(X) - paper.predict(X)).max() < 0.5


def test_repr_tells_what_there_is(numeric):
    X, y = numeric
    text = repr(wrap(lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(X, y), 5), X, y))
    for word in ("LightGBM", "regression", "5 trees", "400", "certified", "0.02602", "normal"):
        assert word in text


def test_one_interval_at_a_time(normal, numeric):
    X, y = numeric
    model = wrap(lgb.train({"num_leaves": 4, "verbose": -1}, lgb.Dataset(X, y), 2), X, y)
    for ask in (normal.interval, lambda levels: model.predict_interval(X, levels)):
        with pytest.raises(ValueError, match="must be one number"):
            ask([0.5, 0.9])


def test_distributions_are_no_arrays():
    d = Normal(loc=np.zeros(1000), scale=1.0)
    for convert in (
        np.asarray,
        np.array,
        lambda d: np.asarray(d, np.float64),
        lambda d: np.zeros(1000) + np.asarray(d),
    ):
        with pytest.raises(TypeError, match=r"of 1000 rows> is not an array .*mean\(\).*ppf.*rvs"):
            convert(d)
    assert len(list(d)) == 1000


def test_large_counts_have_a_crps():
    """Closed forms cancel, and scipy's Bessel functions end below 1e9; these families are then normal to 1e-4."""
    mu = np.array([1e7, 9.9e7, 1.1e8, 1e9, 9.9e9, 1.1e10, 1e12, 1e16])
    for cls, variance in ((Poisson, mu), (NegativeBinomial, 2.0 * mu), (Gamma, mu)):
        y = np.floor(mu + 0.3 * np.sqrt(variance))
        want = Normal.from_moments(mu, variance).crps(y)
        np.testing.assert_allclose(cls.from_moments(mu, variance).crps(y), want, rtol=5e-4)


@pytest.mark.parametrize("mean", [1e15, 2e16, 1e19, 1e300])
@pytest.mark.parametrize("cls", [Poisson, NegativeBinomial])
def test_quantiles_of_huge_counts_end(cls, mean):
    """Beyond 2^53 there is no whole number between two neighbours."""
    d = cls.from_moments(np.array([mean]), np.array([2.0 * mean]))
    low, high = d.ppf([0.1, 0.9])[0]
    assert low <= high
    assert abs(high / mean - 1.0) < 1e-6


@pytest.mark.parametrize("mean", [1e14, 2e15, 1e19, 1e30, 1e100, 1e300])
@pytest.mark.parametrize("spread", [1.0, 2.0, 1e6])
@pytest.mark.parametrize("cls", [Poisson, NegativeBinomial])
def test_draws_of_huge_counts(cls, spread, mean):
    """NumPy draws counts as integers, below 9e18; rows beside a huge one keep their draws."""
    means, variances = np.array([3.0, mean]), np.array([4.0, spread * mean])
    d = cls.from_moments(means, variances)
    draws = d.rvs(4000, 0)
    sd = d.std()[1]
    z = (draws[1] - mean) / sd
    grain = np.spacing(mean) / sd  # distance of neighbouring floats
    assert abs(z.mean()) < 0.06 + grain
    assert abs(z.std() - 1.0) < 0.05 + grain
    assert np.array_equal(draws[1], np.floor(draws[1]))
    assert draws[0].mean() == pytest.approx(3.0, abs=0.15)
    if cls is Poisson:
        assert np.array_equal(draws[0], cls.from_moments(means[:1], variances[:1]).rvs(4000, 0)[0])


@pytest.mark.parametrize("df", [2.1, 3.0, 5.0, 100.0])
def test_students_largest_variances(df):
    mean, variance = np.array([1.0, -1e154]), np.array([1e308, 1.7e308])
    d, unit = StudentT.from_moments(mean, variance, df=df), StudentT.from_moments(np.zeros(1), np.ones(1), df=df)
    sd = np.sqrt(variance)
    np.testing.assert_allclose(d.var(), variance, rtol=1e-14)
    np.testing.assert_allclose(d.ppf(0.9), mean + sd * unit.ppf(0.9), rtol=1e-14)
    np.testing.assert_allclose(d.crps(mean + sd), sd * unit.crps(1.0), rtol=1e-12)
    np.testing.assert_allclose(d.cdf(mean + sd), unit.cdf(1.0)[0], rtol=1e-12)
    np.testing.assert_allclose(d.logpdf(mean + sd), unit.logpdf(1.0) - np.log(sd), rtol=1e-12)
    assert np.isfinite(d.rvs(10, 0)).all()


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - {"empirical", "conformal"}))
def test_outcomes_that_are_not_finite(name):
    d = FAMILIES[name].from_moments(np.array([3.0]), np.array([4.0]))
    for method in ("cdf", "sf", "logpdf", "crps"):
        assert np.isnan(getattr(d, method)(np.nan)).all()
    for x in (np.inf, -np.inf):
        assert d.crps(x) == np.inf
        assert d.logpdf(x) == -np.inf
    assert (d.cdf(-np.inf), d.cdf(np.inf)) == (0.0, 1.0)


def test_students_quantiles_at_the_ends():
    d = StudentT.from_moments(np.zeros(1), np.ones(1))
    assert np.array_equal(d.ppf([0.0, 1.0])[0], [-np.inf, np.inf])
    assert np.array_equal(d.isf([0.0, 1.0])[0], [np.inf, -np.inf])
    assert d.ppf(1e-300)[0] < -1e99  # where the search of older versions of scipy ends


def test_what_is_not_known_is_not_drawn():
    """A parameter that is NaN makes draws that are, or none; only a point mass has such parameters of its own."""
    assert np.isnan(Normal(loc=[np.nan], scale=[1.0]).rvs(random_state=0)).all()
    assert np.array_equal(Normal.from_moments(np.array([2.0]), np.zeros(1)).rvs(3, random_state=0), [[2.0, 2.0, 2.0]])
    with pytest.raises(ValueError, match="not finite"):
        Empirical.from_moments(np.ones(1), np.array([np.inf]), residuals=[-1.0, 1.0])


@pytest.mark.parametrize("wrong", [(-1.0, 1.0), (1.0, -2.0), (np.nan, 1.0)])
def test_a_calibration_keeps_variances_positive(wrong):
    with pytest.raises(ValueError, match="calibration must not be negative"):
        Calibration(*wrong)


def test_a_family_of_a_known_name_is_refused():
    with pytest.raises(ValueError, match="a family 'normal' already"):
        register(type("Normal", (Normal,), {"__module__": "elsewhere"}))


def test_a_misspelt_setting_is_refused(numeric):
    X, y = numeric
    model = wrap(lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(X, y), 2), X, y)
    with pytest.raises(AttributeError, match=r"no attribute 'family'; rho, distribution, calibration"):
        model.family = "laplace"
    with pytest.raises(AttributeError, match="moments of a model is read-only"):
        model.moments = None
    with pytest.raises(TypeError, match="wrapped already"):
        wrap(model, X, y)
