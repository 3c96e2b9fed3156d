"""Totals of rows that err together: against an explicit covariance matrix, and against simulated outcomes."""

from __future__ import annotations

import math

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pgbm_plugin import load, wrap
from pgbm_plugin.distributions import Clipped, Empirical, Gamma, NegativeBinomial, Normal, Poisson, Snapped, family
from pgbm_plugin.distributions.normal_scores import ORDERS, hermite
from pgbm_plugin.predict import totals
from pgbm_plugin.predict.totals import draw, shared_variance, sum_groups
from tests.calibration.factors import RESIDUALS, correlation, crossed, distributions, nested, simulated

KINDS = ["normal", "poisson", "negativebinomial", "empirical"]
ALARM = 1e-6


def codes_of(levels):
    return [np.unique(code, return_inverse=True)[1] for code in levels.values()]


def assert_binomial(hits, times, level):
    """Assert that a count is one that chance gives, but for a probability of ALARM."""
    low, high = stats.binom.interval(1.0 - ALARM, times, level)
    assert low <= hits <= high, f"{hits} of {times} at {level}"


@pytest.mark.parametrize("design", [nested, crossed])
@pytest.mark.parametrize("kind", KINDS)
def test_variances_are_those_of_an_explicit_matrix(kind, design):
    """Pair by pair, the covariance of two rows is a power series in their correlation."""
    levels, r = design(8, 9), (0.35, 0.3)
    n = len(levels["day"])
    rows, matrix = distributions(kind, n), correlation(levels, r)
    coefficients = hermite(rows)
    covariance = sum(matrix ** (k + 1) * np.outer(h, h) for k, h in enumerate(coefficients))
    np.fill_diagonal(covariance, rows.var())
    for group in (levels["day"], np.zeros(n, int), np.random.default_rng(2).integers(0, 4, n)):
        group = np.unique(group, return_inverse=True)[1]
        same = group[None] == np.arange(group.max() + 1)[:, None]
        want = np.einsum("gi,ij,gj->g", same, covariance, same)
        found = sum_groups(rows.mean(), rows, group, codes_of(levels), r)
        np.testing.assert_allclose(found.var(), want, rtol=1e-9)
        np.testing.assert_allclose(found.mean(), np.bincount(group, rows.mean()), rtol=1e-12)


def test_three_levels_and_high_orders():
    """Subsets of levels are weighted so that every pair has the power of its own correlation."""
    levels = {**crossed(5, 6), "third": np.random.default_rng(3).integers(0, 3, 30)}
    r, h = (0.2, 0.0, 0.5), np.random.default_rng(4).normal(size=(ORDERS, 30))
    matrix = correlation(levels, r)
    np.fill_diagonal(matrix, 0.0)
    want = sum(h[k] @ matrix ** (k + 1) @ h[k] for k in range(ORDERS))
    assert shared_variance(np.zeros(30, int), codes_of(levels), r, h)[0] == pytest.approx(max(want, 0.0), rel=1e-9)


@pytest.mark.parametrize("design", [nested, crossed])
@pytest.mark.parametrize("kind", KINDS)
def test_totals_and_samples_hold_their_coverage(kind, design):
    """At every level: of one day, of a part of it, of one shop over all days, and of everything."""
    levels, r, times = design(12, 20), (0.15, 0.1), 1000
    rows = distributions(kind, len(levels["day"]), 1)
    y = simulated(rows, correlation(levels, r), times, 5)
    samples = draw(rows, codes_of(levels), r, times, 6)
    for group in (*levels.values(), np.zeros(len(rows), int)):
        group = np.unique(group, return_inverse=True)[1]
        found = sum_groups(rows.mean(), rows, group, codes_of(levels), r)
        for one in {0, int(group.max()) // 2}:
            outcome, drawn = y[group == one].sum(axis=0), samples[group == one].sum(axis=0)
            for level in (0.5, 0.9):
                low, high = (float(end[one]) for end in found.interval(level))
                # an interval of counts holds more than its level, and holds less without its ends
                inside = np.sum((low <= outcome) & (outcome <= high))
                strictly = np.sum((low < outcome) & (outcome < high))
                if inside == strictly:
                    assert_binomial(inside, times, level)
                else:
                    assert stats.binom.cdf(strictly, times, level) < 1.0 - ALARM
                    assert stats.binom.sf(inside, times, level) < 1.0 - ALARM
            assert stats.ks_2samp(drawn, outcome).pvalue > ALARM


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_distribution_of_each_row(kind):
    levels = nested(3, 4)
    rows = distributions(kind, len(levels["day"]))
    samples = draw(rows, codes_of(levels), (0.4, 0.3), 4000, 0)
    for k in range(len(rows)):
        for x in rows[k].ppf([0.1, 0.5, 0.8])[0]:
            assert_binomial(np.sum(samples[k] <= x), 4000, float(rows[k].cdf(x)[0]))


def test_samples_are_drawn_in_blocks(monkeypatch):
    levels, rows = nested(3, 4), distributions("normal", 12)
    whole = draw(rows, codes_of(levels), (0.4, 0.3), 500, 0)
    monkeypatch.setattr(totals, "_BLOCK", 12 * 100)
    blocks = draw(rows, codes_of(levels), (0.4, 0.3), 500, 0)
    assert blocks.shape == whole.shape == (12, 500)
    for samples in (whole, blocks):
        np.testing.assert_allclose(np.corrcoef(samples), correlation(levels, (0.4, 0.3)), atol=0.2)
    np.testing.assert_array_equal(draw(rows, codes_of(levels), (0.4, 0.3), 500, 0), blocks)


def test_totals_are_around_the_predictions():
    """The residuals of a family may have another mean, which adds up."""
    rows = Empirical.from_moments(np.ones(40), np.ones(40), residuals=RESIDUALS + 0.2)
    found = sum_groups(np.ones(40), rows, np.arange(40) % 2, [np.zeros(40, int)], (0.1,))
    np.testing.assert_allclose(found.mean(), 20.0)  # two groups
    assert rows.mean().sum() > 41.0


def test_one_row_of_its_own_family_is_exact():
    for kind in ("normal", "poisson", "negativebinomial", "gamma"):
        rows = family(kind)[0].from_moments(np.array([2.0, 5.0]), np.array([3.0, 6.0]))
        found = sum_groups(rows.mean(), rows, np.array([0, 1]), [np.array([0, 0])], (0.3,))
        np.testing.assert_allclose(found.ppf([0.1, 0.5, 0.9]), rows.ppf([0.1, 0.5, 0.9]), rtol=1e-9)


def test_families_of_totals():
    mean, variance = np.full(6, 2.0), np.full(6, 3.0)

    def of(rows):
        return type(sum_groups(rows.mean(), rows, np.zeros(6, int), [np.zeros(6, int)], (0.1,)))

    normal = Normal.from_moments(mean, variance)
    empirical = {bound: Empirical.from_moments(mean, variance, residuals=RESIDUALS, lower=bound) for bound in (0, -9)}
    assert of(normal) is Normal
    assert of(Clipped(normal, 0.0)) is of(Clipped(normal, 1.0, 5.0)) is Gamma
    assert of(Clipped(normal, -1.0)) is of(Clipped(normal, upper=5.0)) is Normal
    assert of(Snapped(normal, [0.0, 1.0, 7.0])) is of(empirical[0]) is Gamma
    assert of(Snapped(normal, [-1.0, 1.0, 7.0])) is of(empirical[-9]) is Normal
    assert (
        of(Poisson.from_moments(mean, variance))
        is of(NegativeBinomial.from_moments(mean, variance))
        is NegativeBinomial
    )
    assert of(Clipped(Poisson.from_moments(mean, variance), 0.0, 100.0)) is NegativeBinomial
    assert of(Clipped(Poisson.from_moments(mean, variance), 0.0, 3.0)) is Gamma  # less spread than a Poisson
    for name in ("gamma", "lognormal", "weibull", "tweedie"):
        assert of(family(name)[0].from_moments(mean, variance)) is Gamma


def test_rows_without_spread_add_their_mean_alone():
    rows = Normal.from_moments(np.array([1.0, 2.0, 3.0]), np.array([0.0, 0.0, 4.0]))
    found = sum_groups(rows.mean(), rows, np.array([0, 0, 1]), [np.array([0, 0, 0])], (0.5,))
    np.testing.assert_allclose(found.mean(), [3.0, 3.0])
    np.testing.assert_allclose(found.std(), [0.0, 2.0])
    assert found.ppf([0.1, 0.9])[0].tolist() == [3.0, 3.0]


LGB = {"num_leaves": 4, "num_threads": 1, "verbose": -1}
R_DAY, R_SHOP = 0.2, 0.15


def data(days, seed, objective="regression"):
    """Shops on days, whose means are steps of two features."""
    levels, rng = nested(days, 10), np.random.default_rng(seed)
    day, department = levels.values()
    X = rng.integers(0, 2, (len(day), 2)).astype(float)
    z = math.sqrt(R_DAY) * rng.normal(size=day.max() + 1)[day]
    z += math.sqrt(R_SHOP) * rng.normal(size=department.max() + 1)[department]
    z += math.sqrt(1.0 - R_DAY - R_SHOP) * rng.normal(size=len(day))
    if objective == "poisson":
        return X, stats.poisson.ppf(stats.norm.cdf(z), 1.0 + 2.0 * X[:, 0] + X[:, 1]), levels
    return X, 3.0 * X[:, 0] + (1.0 + X[:, 1]) * z, levels


@pytest.fixture(scope="module", params=["regression", "poisson"])
def joint(request):
    """A model that knows how rows err together, and its objective."""
    X, y, _ = data(800, 0, request.param)
    model = wrap(lgb.train({**LGB, "objective": request.param}, lgb.Dataset(X, y), 80), X, y, n_jobs=1)
    X, y, levels = data(400, 1, request.param)
    model.tune(X, y, distributions="normal" if request.param == "regression" else "poisson")
    model.correlate(X, y, levels)
    return model, request.param


def test_a_model_from_end_to_end(joint):
    model, objective = joint
    for r, error, truth in zip(*vars_of(model), (R_DAY, R_SHOP), strict=True):
        assert abs(r - truth) < 4 * error + 0.02
    X, y, levels = data(500, 2, objective)
    day = levels["day"]
    found = model.predict_total(X, day, levels)
    outcome = pd.Series(y).groupby(day, sort=False).sum()
    assert found.groups.tolist() == outcome.index.tolist()
    np.testing.assert_allclose(found.mean(), pd.Series(model.predict(X)).groupby(day, sort=False).sum(), rtol=1e-6)
    low, high = found.interval(0.9)
    # parameters are estimated, so that the band is a little wider than chance
    assert abs(np.mean((low <= outcome) & (outcome <= high)) - 0.9) < 0.06
    independent = np.bincount(np.unique(day, return_inverse=True)[1], model.predict_dist(X).var())
    assert found.var().sum() > 1.5 * independent.sum()
    samples = model.sample(X, 800, levels=levels, random_state=0)
    sums = pd.DataFrame(samples).groupby(day, sort=False).sum().to_numpy()
    np.testing.assert_allclose(sums.var(axis=1).mean() / found.var().mean(), 1.0, atol=0.03)
    within = pd.DataFrame(samples).groupby(levels["department"]).sum().sum()
    np.testing.assert_allclose(within, samples.sum(axis=0))  # departments add up to days, and days to the whole


def test_crossed_levels_and_residuals_from_end_to_end():
    """Skewed outcomes of shops on days, whose totals run over days and over shops that are new."""
    r = {"day": 0.2, "shop": 0.1}

    def crossed_data(seed):
        levels, rng = crossed(80, 80), np.random.default_rng(seed)
        X = rng.integers(0, 2, (6400, 2)).astype(float)
        z = math.sqrt(1.0 - sum(r.values())) * rng.normal(size=6400)
        for name, code in levels.items():
            z += math.sqrt(r[name]) * rng.normal(size=80)[code]
        noise = stats.gamma.ppf(stats.norm.cdf(z), 2.0) - 2.0
        return X, 3.0 * X[:, 0] + (1.0 + X[:, 1]) * noise, levels

    X, y, _ = crossed_data(0)
    model = wrap(lgb.train(LGB, lgb.Dataset(X, y), 60), X, y, n_jobs=1)
    X, y, levels = crossed_data(1)
    model.tune(X, y, distributions="empirical")
    found = model.correlate(X, y, levels)
    assert all(abs(a - b) < 4.0 * error for a, b, error in zip(found.r, r.values(), found.standard_error, strict=True))
    X, y, levels = crossed_data(2)
    for code in levels.values():
        low, high = model.predict_total(X, code, levels).interval(0.9)
        outcome = np.bincount(code, y)
        # r is known to 15 %, and what the training rows share moves the means of all totals
        assert abs(np.mean((low <= outcome) & (outcome <= high)) - 0.9) < 0.1


def vars_of(model):
    return model.chosen.correlation.r, model.chosen.correlation.standard_error


def test_groups_of_totals(joint):
    model, objective = joint
    X, _, levels = data(6, 3, objective)
    n = len(X)
    text = np.array(["b", "a", "c"])[np.arange(n) % 3]
    found = model.predict_total(X, text, levels)
    assert found.groups.tolist() == ["b", "a", "c"]
    assert repr(found).endswith("distribution of 3 groups>")
    assert found[1].groups.tolist() == ["a"]
    assert found[[2, 0]].groups.tolist() == ["c", "b"]
    assert model.predict_dist(X).groups is None
    both = model.predict_total(X, (text, levels["day"]), levels)
    assert both.groups[0] == ("b", levels["day"][0])
    np.testing.assert_allclose(np.sum(both.mean()), np.sum(found.mean()))
    alone = model.predict_total(X, np.arange(n), levels)
    np.testing.assert_allclose(alone.mean(), model.predict(X))
    np.testing.assert_allclose(alone.var(), model.predict_dist(X).var())
    assert len(model.predict_total(X, np.zeros(n), levels)) == 1


def test_new_groups_at_prediction_are_new_factors(joint):
    model, objective = joint
    X, _, levels = data(6, 3, objective)
    want = model.predict_total(X, levels["day"], levels).var()
    renamed = {name: [f"new {key}" for key in code] for name, code in levels.items()}
    np.testing.assert_array_equal(model.predict_total(X, levels["day"], renamed).var(), want)


def test_samples_of_a_model(joint, tmp_path):
    model, objective = joint
    X, _, levels = data(6, 3, objective)
    assert model.sample(X, levels=levels).shape == (len(X),)
    draws = model.sample(X, 3, levels=levels, random_state=5)
    assert draws.shape == model.predict_dist(X).rvs(3).shape == (len(X), 3)
    np.testing.assert_array_equal(draws, model.sample(X, 3, levels=levels, random_state=np.random.default_rng(5)))
    model.save(tmp_path / "m.pgbm")
    np.testing.assert_array_equal(draws, load(tmp_path / "m.pgbm").sample(X, 3, levels=levels, random_state=5))


def test_more_precise_rows_have_narrower_totals(joint):
    model, objective = joint
    X, _, levels = data(6, 3, objective)
    plain, precise = (
        model.predict_total(X, levels["day"], levels, sample_weight=w) for w in (None, np.full(len(X), 4.0))
    )
    np.testing.assert_allclose(precise.std(), plain.std() / (2.0 if objective == "regression" else 1.0))


def test_bad_input_is_refused(joint):
    model, objective = joint
    X, _, levels = data(6, 3, objective)
    day, department = levels.values()
    for call in (lambda levels: model.predict_total(X, day, levels), lambda levels: model.sample(X, 2, levels=levels)):
        with pytest.raises(ValueError, match="levels lacks department, which correlate measured"):
            call({"day": day})
        with pytest.raises(ValueError, match="levels has 'shop', and correlate measured day, department"):
            call({**levels, "shop": day})
        with pytest.raises(ValueError, match=r"levels\['department'\] has 3 keys, X has"):
            call({"day": day, "department": department[:3]})
        with pytest.raises(ValueError, match=r"levels\['day'\] has 1 missing keys"):
            call({"day": [None, *day[1:]], "department": department})
        with pytest.raises(TypeError, match=r"levels must be a dict such as {'day': column, 'department': column}"):
            call(day)
    for size in (-1, 2.5, (2, 3), True, "many"):
        with pytest.raises(ValueError, match="size must be a number of samples for each row"):
            model.sample(X, size, levels=levels)
    assert model.sample(X, 0, levels=levels).shape == (len(X), 0)
    with pytest.raises(TypeError, match="groups must be a column with a key for each row, not str"):
        model.predict_total(X, "day", levels)
    with pytest.raises(TypeError, match="one table in memory"):
        model.predict_total(iter([X]), day, levels)
    with pytest.raises(ValueError, match=r"groups has 3 keys, X has"):
        model.predict_total(X, day[:3], levels)
    with pytest.raises(ValueError, match=r"groups has 1 missing keys \(first at row 0\)"):
        model.predict_total(X, [np.nan, *day[1:]], levels)


def test_no_rows(joint):
    model, objective = joint
    X, _, _ = data(6, 3, objective)
    empty = {"day": [], "department": []}
    assert len(model.predict_total(X[:0], [], empty)) == 0
    assert model.sample(X[:0], 4, levels=empty).shape == (0, 4)
