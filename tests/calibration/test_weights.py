"""Weights: rows that count more in `tune` and `conformalize`, and rows that are measured better in predictions."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from scipy import stats

from pgbm_plugin.distributions import Conformal, Empirical
from pgbm_plugin.scores import coverage
from tests.calibration.conformalized import data, train

LEVELS = [0.03, 0.1, 0.35, 0.5, 0.8, 0.97]


@pytest.fixture(scope="module")
def trained():
    return train(*data(600, 0))


@pytest.fixture
def model(trained):
    return copy.copy(trained)


def whole_weights(n, seed=5):
    """Weights 0 to 3, and the rows that they stand for."""
    weight = np.random.default_rng(seed).integers(0, 4, n)
    return weight, np.repeat(np.arange(n), weight)


@pytest.mark.parametrize("lower", [-np.inf, 0.0])
@pytest.mark.parametrize("family", [Empirical, Conformal])
def test_a_whole_weight_is_a_row_that_comes_so_often(family, lower):
    rng = np.random.default_rng(0)
    residuals, loc, scale, y = rng.normal(size=40), rng.normal(2, 1, 9), rng.uniform(1, 3, 9), rng.normal(2, 3, 9)
    weight, repeated = whole_weights(40)
    some = weight > 0
    weighted = family(residuals=residuals[some], weights=weight[some], lower=lower, loc=loc, scale=scale)
    plain = family(residuals=residuals[repeated], lower=lower, loc=loc, scale=scale)
    np.testing.assert_allclose(weighted.ppf(LEVELS), plain.ppf(LEVELS), rtol=1e-12)
    for name in ("mean", "std"):
        np.testing.assert_allclose(getattr(weighted, name)(), getattr(plain, name)(), rtol=1e-12)
    for name in ("cdf", "crps"):
        np.testing.assert_allclose(getattr(weighted, name)(y), getattr(plain, name)(y), rtol=1e-9, atol=1e-12)
    for name in ("ppf", "cdf"):  # equal weights change no bit
        given = LEVELS if name == "ppf" else y
        ones = family(residuals=residuals, weights=np.ones(40), lower=lower, loc=loc, scale=scale)
        none = family(residuals=residuals, lower=lower, loc=loc, scale=scale)
        assert np.array_equal(getattr(ones, name)(given), getattr(none, name)(given))
    draws = weighted[:1].rvs(20_000, random_state=0)
    assert stats.ks_2samp(draws[0], plain[:1].rvs(20_000, random_state=1)[0]).pvalue > 1e-4
    again = pickle.loads(pickle.dumps(weighted))  # noqa: S301
    assert np.array_equal(again.ppf(LEVELS), weighted.ppf(LEVELS))
    assert not again.weights.flags.writeable


@pytest.mark.parametrize("weights", [[1.0, 0.0, 1.0], [1.0, -1.0, 1.0], [1.0, np.inf, 1.0], [1.0, 1.0]])
def test_bad_weights_of_residuals(weights):
    with pytest.raises(ValueError, match="a positive, finite weight for each residual"):
        Empirical(residuals=[0.0, 1.0, 2.0], weights=weights, loc=0.0, scale=1.0)


def test_conformalize_with_whole_weights(model):
    X, y = data(150, 3)
    weight, repeated = whole_weights(150)
    new = data(50, 4)[0]
    weighted = copy.copy(model).conformalize(X, y, sample_weight=weight)
    plain = copy.copy(model).conformalize(X[repeated], y[repeated])
    np.testing.assert_allclose(weighted.predict_quantiles(new, LEVELS), plain.predict_quantiles(new, LEVELS))
    dropped = copy.copy(model).conformalize(X, y, sample_weight=(weight > 0).astype(float))
    only = copy.copy(model).conformalize(X[weight > 0], y[weight > 0])
    assert np.array_equal(dropped.predict_quantiles(new, LEVELS), only.predict_quantiles(new, LEVELS))


def test_importance_weights_hold_where_new_rows_are_others(model):
    """New rows are noisier than calibration rows, by their features alone: plain intervals fail, weighted ones hold."""
    new = np.random.default_rng(9)
    share = lambda X: 1.0 / (1.0 + np.exp(-2.0 * X[:, 1]))  # noqa: E731, how likely a new row is kept
    X, y = data(8000, 7)
    kept = new.random(len(y)) < share(X)
    X, y = X[kept], y[kept]
    X_cal, y_cal = data(2000, 3)
    flat = copy.copy(model)
    flat.calibration = type(flat.calibration)(0.0, 1.0)  # a spread that does not follow the noise
    plain, weighted = copy.copy(flat), copy.copy(flat)
    plain.conformalize(X_cal, y_cal)
    weighted.conformalize(X_cal, y_cal, sample_weight=share(X_cal) / share(X_cal).mean())
    assert coverage(y, plain.predict_interval(X, 0.9)) < 0.87
    assert coverage(y, weighted.predict_interval(X, 0.9)) == pytest.approx(0.9, abs=0.015)


def test_too_little_weight(model):
    X, y = data(150, 3)
    model.conformalize(X, y, sample_weight=np.full(150, 0.1))
    with pytest.warns(UserWarning, match=r"150 calibration rows of total weight 15 are too few.*14/16"):
        assert np.all(model.predict_interval(X, 0.9) == [-np.inf, np.inf])
    with pytest.raises(ValueError, match="at least 2 rows with a positive weight, it got 1"):
        model.conformalize(X, y, sample_weight=np.arange(150) == 7)


@pytest.mark.parametrize("method", ["tune", "conformalize"])
@pytest.mark.parametrize(
    ("weight", "error"), [(-1.0, "must not be negative"), (np.nan, "150 NaN"), (0.0, "must not be zero")]
)
def test_bad_weights(method, weight, error, model):
    with pytest.raises(ValueError, match=error):
        getattr(model, method)(*data(150, 3), sample_weight=np.full(150, weight))


def test_tune_with_whole_weights(model):
    """In the power map, and in the shape of the empirical family, as well as in the score."""
    X, y = data(300, 3)
    weight, repeated = whole_weights(300)
    given = {"distributions": ["normal"], "rho": [0.0, 0.05], "variance": "pgbm"}
    new, plain = data(50, 4)[0], copy.copy(model)
    model.tune(X, y, sample_weight=weight, **given)
    plain.tune(X[repeated], y[repeated], **given)
    np.testing.assert_allclose(model.predict_var(new), plain.predict_var(new), rtol=1e-3)
    shapes = [m.predict_dist(new, "empirical").ppf(LEVELS) for m in (model, plain)]
    np.testing.assert_allclose(*shapes, rtol=1e-2, atol=1e-2)


def test_the_empirical_shape_follows_the_weights(model):
    """Rows with positive errors count ten times: most of the empirical distribution lies above the prediction."""
    X, y = data(500, 3)
    weight = np.where(y > model.predict(X), 10.0, 1.0)
    model.tune(X, y, sample_weight=weight, distributions="empirical", rho=0.0)
    d = model.predict_dist(X)
    assert d.cdf(model.predict(X)).mean() == pytest.approx(1 / 11, abs=0.05)


@pytest.mark.parametrize("objective", ["regression", "gamma"])
def test_the_weight_of_a_prediction_divides_its_variance(objective):
    X, y = data(600, 0)
    model = train(X, np.exp(0.3 * np.clip(y, -9, 9)) if objective == "gamma" else y, objective=objective)
    new = data(40, 4)[0]
    weight = np.random.default_rng(0).uniform(0.2, 9.0, 40)
    mean, std = model.predict(new, return_std=True)
    weighted_mean, weighted_std = model.predict(new, return_std=True, sample_weight=weight)
    assert np.array_equal(weighted_mean, mean)
    np.testing.assert_allclose(weighted_std, std / np.sqrt(weight), rtol=1e-12)
    np.testing.assert_allclose(model.predict_var(new, sample_weight=weight), std**2 / weight, rtol=1e-12)
    d = model.predict_dist(new, sample_weight=weight)
    np.testing.assert_allclose(d.std(), std / np.sqrt(weight), rtol=1e-12)
    assert np.array_equal(model.predict_interval(new, 0.8, sample_weight=weight), np.stack(d.interval(0.8), 1))
    assert np.array_equal(model.predict_quantiles(new, LEVELS, sample_weight=weight), d.ppf(LEVELS))
    assert np.array_equal(model.predict_var(new, sample_weight=np.ones(40)), model.predict_var(new))
    assert np.array_equal(model.predict(new, sample_weight=weight), mean)


def test_the_weight_comes_after_calibration(model):
    """Means of four measurements have half the standard deviation of single ones, whatever the power map."""
    model.tune(*data(300, 3))
    new = data(40, 4)[0]
    half = model.predict_dist(new, "normal", sample_weight=np.full(40, 4.0)).std()
    np.testing.assert_allclose(half, model.predict_dist(new, "normal").std() / 2.0, rtol=1e-12)


def test_bad_weights_of_predictions(model):
    new = data(40, 4)[0]
    for weight, words in ((np.zeros(40), "must be positive"), (np.ones(3), "has 3 values, X has 40 rows")):
        with pytest.raises(ValueError, match=f"sample_weight.*{words}"):
            model.predict_var(new, sample_weight=weight)
    with pytest.raises(TypeError, match="sample_weight belongs to one table"):
        model.predict_dist(iter([new]), sample_weight=np.ones(40))
    model.conformalize(*data(150, 3))
    with pytest.warns(UserWarning, match="coverage is not guaranteed"):
        model.predict_interval(new, sample_weight=np.full(40, 2.0))


@pytest.mark.parametrize("scaled", ["own weight", "largest", "none"])
def test_likelihood_ratios_hold_their_promise(scaled):
    """Of new rows, 3 in 4 are noisy, and of calibration rows 1 in 2; the spread does not tell which.

    Relative to the own weight of each new row, the coverage lies in the band of weighted conformal prediction. Relative
    to the largest, it is at least as much. Without weights it is far below.
    """
    rng, m, new, level, times = np.random.default_rng(0), 150, 40, 0.9, 400
    ratio, noise, share = np.array([0.5, 1.5]), np.array([1.0, 3.0]), np.array([0.25, 0.75])
    cover = np.empty(times)
    for split in range(times):
        kind = rng.integers(0, 2, m)
        residuals = noise[kind] * rng.standard_normal(m)
        held = []
        for of_new in (0, 1):
            weights = {"own weight": ratio[kind] / ratio[of_new], "largest": ratio[kind] / ratio.max(), "none": None}
            d = Conformal(residuals=residuals, weights=weights[scaled], loc=0.0, scale=1.0)
            low, high = d.interval(level)
            y = noise[of_new] * rng.standard_normal(new)
            held.append(np.mean((low <= y) & (y <= high)))
        cover[split] = share @ held
    mean, error = cover.mean(), cover.std() / np.sqrt(times)
    if scaled == "none":
        assert mean < level - 0.02 - 5.0 * error
        return
    # a step of the running weights is at most 1.5 of a total of about m, on each side
    most = level + 2.0 * 2.0 * ratio.max() / m
    assert level - 5.0 * error < mean < most + 5.0 * error
