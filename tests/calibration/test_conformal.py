"""Conformal intervals hold: exactly as often as exchangeability says, for any model, any errors, any number of rows."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
from scipy import stats

from pgbm_plugin import wrap
from pgbm_plugin.distributions import Conformal, Normal
from pgbm_plugin.predict.power_map import Calibration
from pgbm_plugin.scores import coverage
from tests.calibration.conformalized import POOL, data, tips, train

LEVELS = np.array([0.5, 0.8, 0.9, 0.95])
QUANTILES = np.array([0.02, 0.1, 0.35, 0.5, 0.65, 0.9, 0.98])
SPLITS = 200
# Each band below is checked with this probability of a false alarm.
ALARM = 1e-6


def plain():
    return train(*data(600, 0)), data(POOL, 1)


def over_fitted():
    """Residuals of training rows are a tenth of those of new rows, and some rows meet leaves of one row only."""
    X, y = data(300, 0)
    model = train(X, y, 40, num_leaves=120, min_data_in_leaf=1, learning_rate=0.3)
    assert np.std(y - model.predict(X)) < 0.1 * np.std(data(POOL, 1)[1] - model.predict(data(POOL, 1)[0]))
    return model, data(POOL, 1)


def heavy_tailed():
    return train(*data(600, 0, "cauchy")), data(POOL, 1, "cauchy")


def log_link():
    def positive(X, y):
        return X, np.exp(0.3 * np.clip(y, -9, 9))

    return train(*positive(*data(600, 0)), objective="gamma"), positive(*data(POOL, 1))


def tuned():
    model, pool = plain()
    model.tune(*data(400, 2))
    return model, pool


def without_spread():
    """Two rows in five meet only leaves of equal labels, and differ from them by chance."""
    X, y = tips(POOL, 1)
    model = train(*tips(600, 0), 8, learning_rate=0.5)
    assert np.array_equal(model.predict_var(X) == 0, X[:, 0] == 0)
    return model, (X, y + 0.01 * np.random.default_rng(0).normal(size=len(y)))


KINDS = {f.__name__: f for f in (plain, over_fitted, heavy_tailed, log_link, tuned, without_spread)}


@pytest.fixture(scope="module", params=KINDS)
def subject(request):
    return KINDS[request.param]()


@pytest.fixture
def model():
    return plain()[0]


def expected(share, m, t):
    """Mean and standard error, over the splits, of the share of t new rows in some of the m + 1 gaps between residuals.

    In a random order of m + t rows, the number of new rows in g of the m + 1 gaps is beta-binomial(t, g, m + 1 - g).
    """
    gaps = share * (m + 1)
    law = stats.betabinom(t, gaps, m + 1 - gaps)
    return law.mean() / t, law.std() / t / np.sqrt(SPLITS)


@pytest.mark.parametrize("m", [15, 150])
@pytest.mark.filterwarnings("ignore:.*calibration rows are too few")
def test_coverage(subject, m):
    """The theoretical band holds on both sides: intervals are neither too narrow nor wider than they must be."""
    model, (X, y) = subject
    rng = np.random.default_rng(0)
    t = len(y) - m
    inside, below = np.empty((SPLITS, len(LEVELS))), np.empty((SPLITS, len(QUANTILES)))
    for split in range(SPLITS):
        order = rng.permutation(len(y))
        cal, new = order[:m], order[m:]
        d = model.conformalize(X[cal], y[cal]).predict_dist(X[new])
        inside[split] = [coverage(y[new], np.stack(d.interval(level), 1)) for level in LEVELS]
        below[split] = (y[new][:, None] <= d.ppf(QUANTILES)).mean(axis=0)
    width = stats.norm.isf(ALARM / 2)

    ends = np.floor((m + 1) * (1 - LEVELS) / 2 + 1e-9), np.ceil((m + 1) * (1 + LEVELS) / 2 - 1e-9)
    for k, (low, high) in enumerate(zip(*ends, strict=True)):
        share = (high - low) / (m + 1)
        assert LEVELS[k] - 1e-12 <= share <= min(LEVELS[k] + 2 / (m + 1), 1.0)
        if share == 1.0:
            assert np.all(inside[:, k] == 1.0)
            continue
        mean, error = expected(share, m, t)
        assert abs(inside[:, k].mean() - mean) < width * error

    for k, q in enumerate(QUANTILES):  # below the middle at most q, above it at least q
        rank = np.floor((m + 1) * q + 1e-9) if q < 0.5 else np.ceil((m + 1) * q - 1e-9)
        if 0 < rank < m + 1:
            mean, error = expected(rank / (m + 1), m, t)
            assert abs(below[:, k].mean() - mean) < width * error
        else:
            assert np.all(below[:, k] == (q > 0.5))


def test_the_plain_normal_does_not_hold():
    """What the above would see if nothing were done."""
    model, (X, y) = over_fitted()
    assert coverage(y, model.predict_interval(X, 0.9)) < 0.7


@pytest.mark.parametrize(("m", "finite"), [(2, []), (5, [0.5]), (10, [0.5, 0.8]), (19, [0.5, 0.8, 0.9]), (39, LEVELS)])
def test_few_rows_give_infinite_bounds(m, finite, model, conformal_rows):
    X, y = conformal_rows
    model.conformalize(X[:m], y[:m])
    for level in LEVELS:
        if level in finite:
            assert np.all(np.isfinite(model.predict_interval(X, level)))
            continue
        with pytest.warns(UserWarning, match=f"{m} calibration rows are too few"):
            interval = model.predict_interval(X, level)
        assert np.all(interval == [-np.inf, np.inf])


@pytest.mark.parametrize("m", [2, 10])
def test_few_rows_and_a_log_link(m):
    model, (X, y) = log_link()
    model.conformalize(X[:m], y[:m])
    with pytest.warns(UserWarning, match="too few"):
        interval = model.predict_interval(X, 0.95)
    assert np.all(interval == [0.0, np.inf])


def test_log_link_intervals_are_not_below_zero():
    model, (X, y) = log_link()
    model.conformalize(X[:250], y[:250])
    for level in LEVELS:
        assert model.predict_interval(X, level).min() >= 0.0
    assert model.predict_quantiles(X, [0.01, 0.3]).min() >= 0.0


def test_intervals_follow_the_spread(model, conformal_rows):
    """Normalised: a row with twice the spread has an interval twice as wide."""
    X, y = conformal_rows
    sd = model.predict(X, return_std=True)[1]
    interval = model.conformalize(X, y).predict_interval(X, 0.9)
    ratio = (interval[:, 1] - interval[:, 0]) / sd
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-9)
    assert sd.max() > 2 * sd.min()


def test_methods_agree(model, conformal_rows):
    X, y = conformal_rows
    assert model.conformalize(X, y) is model
    d = model.predict_dist(X)
    assert isinstance(d, Conformal)
    assert np.array_equal(model.predict_interval(X, 0.8), np.stack(d.interval(0.8), 1))
    assert np.array_equal(model.predict_quantiles(X, [0.1, 0.9]), model.predict_interval(X, 0.8))
    levels = np.linspace(0.02, 0.98, 97)
    assert np.all(np.diff(d.ppf(levels), axis=1) >= 0)
    assert np.all(np.isfinite(d.crps(y)))
    mean, std = model.predict(X, return_std=True)
    assert np.array_equal(mean, model.predict(X))
    assert np.all(std > 0)


def test_says_so(model, conformal_rows):
    assert "conformal" not in repr(model)
    assert "conformal on 200 rows" in repr(model.conformalize(*conformal_rows))


def test_rows_of_training_or_tuning_warn(model, conformal_rows):
    """Their residuals are smaller than those of new rows, so that nothing is promised."""
    with pytest.warns(UserWarning, match="wrap has seen these rows"):
        model.conformalize(*data(600, 0))
    model.tune(*conformal_rows, distributions=["normal"], rho=0.0)
    with pytest.warns(UserWarning, match="tune has seen these rows"):
        model.conformalize(*conformal_rows)


def test_rows_of_a_held_out_wrap_warn(conformal_rows):
    """They made the spread, so that residuals in its unit are not exchangeable with new ones; tune may use them."""
    X, y = data(600, 0)
    booster = lgb.train({"num_leaves": 8, "num_threads": 1, "verbose": -1}, lgb.Dataset(X, y), 20)
    with pytest.warns(UserWarning, match="held-out"):
        model = wrap(booster, *conformal_rows)
    model.tune(*conformal_rows, distributions=["normal"], rho=0.0)
    model.tune(*data(300, 4), distributions=["normal"], rho=0.0)
    with pytest.warns(UserWarning, match="wrap has seen these rows, so coverage is not guaranteed"):
        model.conformalize(*conformal_rows)
    model.conformalize(*data(300, 5))


def test_a_family_by_name_is_the_plain_one(model, conformal_rows):
    X, y = conformal_rows
    before = model.predict_dist(X)
    model.conformalize(X, y)
    after = model.predict_dist(X, "normal")
    assert isinstance(after, Normal)
    assert np.array_equal(after.ppf([0.1, 0.7]), before.ppf([0.1, 0.7]))
    assert model.predict_dist(X, "empirical").name == "empirical"


def test_settings_may_not_change_afterwards(model, conformal_rows):
    X, y = conformal_rows
    expected = model.conformalize(X, y).predict_interval(X)
    rho = model.rho
    with pytest.raises(ValueError, match=r"changed after conformalize: call model\.conformalize again"):
        model.predict_dist(X, rho=rho + 0.1)
    assert np.array_equal(model.predict_dist(X, rho=rho).ppf(0.05), expected[:, 0])
    for name, value in (("rho", 0.3), ("calibration", Calibration(0.5, 2.0))):
        kept = getattr(model, name)
        setattr(model, name, value)
        with pytest.raises(ValueError, match=r"changed after conformalize: call model\.conformalize again"):
            model.predict_interval(X)
        model.predict_dist(X, "normal")  # which has nothing to do with it
        setattr(model, name, kept)
        assert np.array_equal(model.predict_interval(X), expected)
    model.rho = 0.3
    assert not np.array_equal(model.conformalize(X, y).predict_interval(X), expected)


def test_again_is_from_new(model, conformal_rows):
    X, y = conformal_rows
    first = model.conformalize(X, y).predict_interval(X)
    model.conformalize(X[:50], y[:50])
    assert np.array_equal(model.conformalize(X, y).predict_interval(X), first)


@pytest.mark.parametrize(
    ("y", "error", "match"),
    [
        (np.full(200, np.nan), ValueError, "y.* has 200 NaN"),
        (np.zeros(7), ValueError, "y.* has 7 values, X has 200 rows"),
        (None, TypeError, "conformalize needs labels"),
        (["a"] * 200, TypeError, "y.* must be a column of numbers"),
    ],
)
def test_bad_labels(y, error, match, model, conformal_rows):
    with pytest.raises(error, match=match):
        model.conformalize(conformal_rows[0], y)
    assert model.distribution == "normal"


def test_one_row(model, conformal_rows):
    with pytest.raises(ValueError, match="conformalize needs at least 2 rows"):
        model.conformalize(conformal_rows[0][:1], conformal_rows[1][:1])


def test_before_conformalize(model, conformal_rows):
    with pytest.raises(ValueError, match=r"call model.conformalize first"):
        model.predict_dist(conformal_rows[0], "conformal")


def test_a_family_that_was_set_promises_nothing_of_the_labels(conformal_rows):
    """Labels of both signs, and a family of positive numbers chosen before: half of the rows lie below 0."""
    model, (X, y) = plain()
    model.distribution = "gamma"
    model.conformalize(*conformal_rows)
    assert coverage(y, model.predict_interval(X, 0.9)) > 0.8


def test_an_outcome_at_the_end_is_inside():
    """Many labels are equal, as ratings are: one ulp would leave out a tenth of all rows, or half of them."""
    rng = np.random.default_rng(0)
    loc, scale = rng.normal(size=500), np.exp(rng.normal(size=500))
    y = rng.integers(-3, 4, 500).astype(float)
    for i in range(500):  # the residual of y, as conformalize computes it
        residual = (y[i] - loc[i]) / scale[i]
        d = Conformal(residuals=np.full(39, residual), loc=loc[i], scale=scale[i])
        low, high = d.interval(0.9)
        assert low[0] <= y[i] <= high[0]
        assert high[0] - low[0] < 1e-14 * (1.0 + abs(loc[i]))


def test_ends_on_the_bound_stay_there():
    """Rounded outwards, but not below the smallest outcome, nor away from it."""
    d = Conformal(residuals=np.linspace(-3, -1, 39), lower=0.0, loc=[1.0, 5.0], scale=[1.0, 1.0])
    low, high = d.interval(0.9)
    assert (low[0], high[0]) == (0.0, 0.0)
    assert low[1] == pytest.approx(2.0, abs=0.2)


def test_rows_without_errors(model, conformal_rows):
    X, _ = conformal_rows
    y = model.predict(X)
    interval = model.conformalize(X, y).predict_interval(X, 0.9)
    np.testing.assert_allclose(interval, np.stack([y, y], 1))


def test_rows_without_spread(conformal_rows):
    """Every leaf of training holds one row, so no row has a variance: intervals of one width are left."""
    X, y = data(60, 0)
    model = train(X, y, 3, num_leaves=60, min_data_in_leaf=1, min_sum_hessian_in_leaf=0.0)
    X, y = conformal_rows
    assert np.all(model.predict_var(X) == 0)
    interval = model.conformalize(X[:100], y[:100]).predict_interval(X[100:], 0.9)
    assert np.all(np.isfinite(interval))
    assert coverage(y[100:], interval) > 0.75
