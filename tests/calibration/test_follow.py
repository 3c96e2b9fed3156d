"""update of calibrated models: variances follow the residuals of new rows, and not what new rows do to the moments."""

from __future__ import annotations

import copy
from dataclasses import replace

import lightgbm as lgb
import numpy as np
import pytest

from pgbm_plugin import load, wrap
from pgbm_plugin.predict.log_scale import LogScale
from pgbm_plugin.predict.power_map import Calibration
from tests.same import assert_same_model

pytestmark = pytest.mark.filterwarnings("ignore:not certified:UserWarning")

LGB = {"num_leaves": 31, "min_data_in_leaf": 10, "verbose": -1, "num_threads": 1}


def make_rows(n, seed, noise=1.0):
    """Rows whose noise is `noise` times as large in one half of them, the half with a positive second feature."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 3))
    sigma = 0.5 * np.where(X[:, 1] > 0, noise, 1.0)
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + sigma * rng.normal(size=n)


@pytest.fixture(scope="module")
def over_fitted():
    """A booster whose training residuals are far smaller than those of new rows, and its training rows."""
    X, y = make_rows(1500, 0)
    return lgb.train(LGB, lgb.Dataset(X, y), 100), X, y


@pytest.fixture(scope="module", params=["pgbm", "boosted", "auto"])
def tuned(over_fitted, request):
    model = wrap(*over_fitted, variance=request.param)
    model.tune(*make_rows(600, 1), distributions="normal")
    return model


@pytest.mark.parametrize("floor", [0.0, 1e3])
@pytest.mark.parametrize("b", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 1.7])
def test_every_mix_moves_along(power, b, floor, make_data):
    """Four times the variance in every leaf is four times the variance of every row."""
    X, y = make_data("numeric", n=500)
    model = wrap(lgb.train(LGB, lgb.Dataset(X, y), 4), X, y)
    step = np.random.default_rng(0).normal(0.0, 0.3, model.forest.n_leaves)
    scale = LogScale(step, 0.7, power, 0.5 * model.state.typical_variance())  # some rows are below the floor
    chosen = replace(model.chosen, scale=scale, calibration=Calibration(b, 2.0, floor))
    model.state = replace(model.state, chosen=chosen, training_scale=LogScale(step, 0.2))
    before = model.predict_var(X)
    model.update(replace(model.moments, gg=4.0 * model.moments.gg), decay=0.0)
    np.testing.assert_allclose(model.predict_var(X), 4.0 * before, rtol=1e-9)
    assert model.training_scale.start == pytest.approx(0.2 + np.log(4.0))
    # half as many rows as before, with 7 times the variance: (1 + 7 / 2) / (1 + 1 / 2), but for the degrees of freedom
    half = replace(model.moments, gg=7.0 * model.moments.gg)
    model.update(half.faded(0.5), decay=1.0)
    np.testing.assert_allclose(model.predict_var(X), 3.0 * 4.0 * before, rtol=0.1)


def test_the_same_noise_changes_little(tuned):
    """New rows have larger residuals than training rows, for which `tune` has corrected already."""
    model, X = copy.copy(tuned), make_rows(3000, 2)[0]
    before, leaves = model.predict_var(X), model.weights.variance.mean()
    model.update(*make_rows(1500, 3), decay=0.5)
    assert model.weights.variance.mean() > 1.5 * leaves
    assert np.median(model.predict_var(X) / before) == pytest.approx(1.0, abs=0.15)


def test_noise_that_doubles_in_one_region(tuned):
    X, y = make_rows(4000, 4, noise=2.0)
    noisy, model = X[:, 1] > 0, copy.copy(tuned)

    def gap():
        """How much too large the variance is, in logarithms, where noise doubled and elsewhere; and the score."""
        d = model.predict_dist(X)
        squared, variance = (y - d.mean()) ** 2, d.var()
        logs = [np.log(variance[part].mean() / squared[part].mean()) for part in (noisy, ~noisy)]
        return *logs, d.crps(y).mean()

    noisy_before, _, score_before = gap()
    for seed in range(3):
        model.update(*make_rows(1500, 5 + seed, noise=2.0), decay=0.5)
    noisy_after, rest_after, score_after = gap()
    assert noisy_before < -0.9
    assert abs(noisy_after) < 0.6 * abs(noisy_before)
    assert score_after < score_before
    if model.chosen.scale is not None:  # its steps tell the region from the rest
        assert abs(rest_after) < 0.3


def test_residuals_have_the_size_that_tune_saw(over_fitted):
    """A normal that is tuned for the CRPS on heavy tails does not have residuals of mean square 1, and need not."""

    def heavy(n, seed):
        X, y = make_rows(n, seed)
        return X, y + 0.7 * np.random.default_rng(seed).standard_t(2.2, size=n)

    booster = lgb.train(LGB, lgb.Dataset(*heavy(1500, 0)), 20)
    model = wrap(booster, *heavy(1500, 0), variance="boosted")
    X_val, y_val = heavy(3000, 1)
    model.tune(X_val, y_val, distributions="normal")
    assert np.mean(model.chosen.residuals**2) > 1.5
    before = model.predict_var(X_val)
    model.update(*heavy(3000, 2), decay=0.0)
    assert np.median(model.predict_var(X_val) / before) == pytest.approx(1.0, abs=0.25)


def test_an_untuned_scale_expects_normal_residuals(over_fitted):
    model = wrap(*over_fitted, variance="boosted")
    X = make_rows(1500, 3)[0]
    before, prediction = model.predict_var(X), model.predict(X)
    model.update(X, prediction + 3.0 * np.sqrt(before) * np.random.default_rng(0).normal(size=len(X)), decay=0.0)
    assert np.median(model.predict_var(X) / before) == pytest.approx(9.0, rel=0.1)


def test_what_the_user_set_is_not_compared(tuned):
    """Wider than `tune` found is wider on purpose: the moments alone change it."""
    model = copy.copy(tuned)
    model.calibration = Calibration(1.0, 9.0)
    rows = make_rows(1500, 3)
    by_moments = copy.copy(model).update(iter([rows]), decay=0.5)
    assert_same_model(model.update(*rows, decay=0.5), by_moments, rows[0])


def test_training_rows_are_not_new_rows(over_fitted):
    """Their residuals are too small."""
    booster, X, y = over_fitted
    model = wrap(booster, X[:700], y[:700], variance="boosted")
    model.tune(*make_rows(600, 1), distributions="normal")
    by_moments = copy.copy(model).update(iter([(X[700:], y[700:])]))
    assert by_moments.certificate.status == "certified"
    assert_same_model(model.update(X[700:], y[700:]), by_moments, X)


def test_perfect_predictions_leave_it_to_the_moments(tuned):
    model, X = copy.copy(tuned), make_rows(1500, 3)[0]
    y = model.predict(X)
    by_moments = copy.copy(model).update(iter([(X, y)]), decay=0.5)
    assert_same_model(model.update(X, y, decay=0.5), by_moments, X)


def test_weights_count(tuned):
    """A row of weight 0 has no say."""
    X, y = make_rows(1500, 3)
    weight = np.ones(1500)
    weight[500:] = 0.0
    wild = np.where(weight > 0, y, 50.0)
    some, all_rows = copy.copy(tuned), copy.copy(tuned)
    some.update(X[:500], y[:500])
    all_rows.update(X, wild, sample_weight=weight)
    np.testing.assert_allclose(all_rows.predict_var(X), some.predict_var(X), rtol=0.02)


def test_an_updated_scale_is_saved(tuned, tmp_path):
    model = copy.copy(tuned).update(*make_rows(300, 3), decay=0.5)
    model.save(tmp_path / "m.pgbm")
    again = load(tmp_path / "m.pgbm")
    assert_same_model(again, model, make_rows(50, 4)[0])
    more = make_rows(300, 5)
    assert_same_model(again.update(*more), model.update(*more), more[0])
