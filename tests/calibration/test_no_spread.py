"""Rows without spread: leaves whose labels are all equal, such as tips that are exactly 0 if paid in cash."""

from __future__ import annotations

import copy

import lightgbm as lgb
import numpy as np
import pytest

from pgbm_plugin import wrap
from pgbm_plugin.distributions import FAMILIES
from pgbm_plugin.predict.power_map import FLOOR
from pgbm_plugin.scores import coverage
from tests.calibration.conformalized import tips


@pytest.fixture(scope="module")
def booster():
    params = {"num_leaves": 8, "num_threads": 1, "verbose": -1, "min_data_in_leaf": 5, "learning_rate": 0.5}
    return lgb.train(params, lgb.Dataset(*tips(1500, 0)), 8)


@pytest.fixture(params=["pgbm", "boosted", "auto"])
def model(request, booster):
    return wrap(booster, *tips(1500, 0), variance=request.param, n_jobs=1)


def test_untuned_rows_are_points(booster):
    """The paper's spread of such a row is 0, and nothing has been calibrated."""
    model = wrap(booster, *tips(1500, 0))
    X, _ = tips(200, 4)
    cash = X[:, 0] == 0
    assert 20 < cash.sum() < 180
    assert np.array_equal(model.predict_var(X) == 0, cash)
    assert model.calibration.floor == 0.0


@pytest.mark.parametrize("tuned", [True, False])
def test_conformal_intervals_of_other_rows_stay(tuned, model):
    """One calibration row in ten thousand that contradicts a leaf of equal labels must not widen all intervals."""
    X, y = tips(800, 4)
    cash = X[:, 0] == 0
    if tuned:
        model.tune(*tips(600, 1))
    wide = np.diff(np.quantile(y[~cash] - model.predict(X[~cash]), [0.05, 0.95]))[0]
    model.conformalize(*tips(600, 2))
    interval = model.predict_interval(X, 0.9)
    assert np.mean(np.diff(interval)[~cash]) < 2.0 * wide
    assert coverage(y, interval) > 0.87
    assert model.predict_dist(X).crps(y).mean() < wide
    assert np.all(model.predict(X, return_std=True)[1] > 0)


@pytest.mark.parametrize("score", ["crps", "nll"])
@pytest.mark.parametrize("calibrate", [True, False])
def test_tune(score, calibrate, model):
    if not calibrate and model.variance != "pgbm":
        pytest.skip("a scale is a calibration itself")
    X, y = tips(800, 4)
    result = model.tune(*tips(600, 1), score=score, calibrate=calibrate)
    assert np.isfinite(result.scores).all()
    assert all(np.isfinite(candidate.score) for candidate in result.candidates)
    assert np.isfinite(result.residuals).all()
    assert np.abs(result.residuals).max() < 1e3
    for name in set(FAMILIES) - {"conformal", *result.failed}:
        d = model.predict_dist(X, name)
        assert np.isfinite(d.crps(y)).all()
        assert (d.std() > 0).all()
    if score == "nll":
        assert np.isfinite(model.predict_dist(X).nll(y)).all()


def test_the_floor_is_a_tenth_of_a_typical_spread(booster):
    model = wrap(booster, *tips(1500, 0))
    model.tune(*tips(600, 1), distributions="normal", variance="pgbm")
    X, _ = tips(800, 4)
    cash, std = X[:, 0] == 0, model.predict(X, return_std=True)[1]
    assert np.all(std[cash] == std[cash][0])
    assert std[cash][0] == pytest.approx(FLOOR * np.median(std[~cash]), rel=0.3)
    assert std[~cash].min() > std[cash][0]


@pytest.mark.parametrize("tuned", [True, False])
def test_the_floor_does_not_depend_on_calibration_rows(tuned, model):
    """Otherwise calibration rows and new rows would not be exchangeable."""
    if tuned:
        model.tune(*tips(600, 1), distributions="normal")
    floors = {copy.copy(model).conformalize(*tips(n, seed)).calibration for n, seed in ((50, 2), (600, 3), (600, 5))}
    assert len(floors) == 1
    assert next(iter(floors)).floor > 0.0


def test_scores_without_any_spread_can_be_squared():
    """Every leaf holds one row: all intervals have one width, and the standard deviation is finite."""
    X, y = tips(60, 0)
    X = np.random.default_rng(0).normal(size=X.shape)
    params = {"num_leaves": 60, "min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 0.0, "verbose": -1, "num_threads": 1}
    model = wrap(lgb.train(params, lgb.Dataset(X, y), 3), X, y)
    X, y = tips(200, 1)
    model.conformalize(X[:100], y[:100])
    std = model.predict(X[100:], return_std=True)[1]
    np.testing.assert_allclose(std, np.std(y[:100] - model.predict(X[:100])), rtol=1e-6)
    assert coverage(y[100:], model.predict_interval(X[100:], 0.9)) > 0.75


@pytest.mark.parametrize("score", ["crps", "nll"])
def test_no_worse_than_one_spread(score):
    """Most leaves have equal labels, but new labels do not: one spread for all rows is then the best map."""
    X = np.repeat(np.arange(8.0), 50)[:, None]
    y = np.repeat(np.arange(8.0) ** 2, 50)
    params = {"learning_rate": 1.0, "num_leaves": 7, "min_data_in_leaf": 5, "num_threads": 1, "verbose": -1}
    model = wrap(lgb.train(params, lgb.Dataset(X, y), 5), X, y)
    result = model.tune(X[::2], y[::2] + np.random.default_rng(5).normal(size=200), score=score)
    assert result.best.score <= result.constant.score * (1 + 1e-6)
