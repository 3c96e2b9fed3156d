"""Tuning at its limits: training rows, few rows, rows without variance, bad input, progress."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest

from pgbm_plugin import partial_moments, wrap
from pgbm_plugin.distributions import Normal
from pgbm_plugin.predict.power_map import Calibration
from pgbm_plugin.predict.predictions import read_unlabelled
from tests.calibration.tuned import FEW, SCORES, heteroscedastic, train


def test_training_rows_warn_once(tunable):
    X, y = heteroscedastic(1200, 0)
    order = np.random.default_rng(0).permutation(len(y))
    for chosen in (slice(None), order):
        with pytest.warns(UserWarning, match=r"wrap has seen these rows.*held-out") as seen:
            tunable.tune(X[chosen], y[chosen], **FEW)
        assert len(seen) == 1
        assert seen[0].filename == __file__


def test_held_out_rows_do_not_warn(tunable):
    tunable.tune(*heteroscedastic(1200, 5), **FEW)  # as many as there were in training


@pytest.mark.parametrize("method", ["tune", "conformalize"])
@pytest.mark.parametrize("known", [True, False], ids=["wrapped with it", "never told"])
def test_a_forgotten_start_warns(method, known, tune_rows):
    """A spread around the wrong place is of no use, and nothing else would tell."""
    X, y = heteroscedastic(1200, 0)
    start = np.full(len(y), 40.0)
    params = {"num_leaves": 8, "num_threads": 1, "verbose": -1}
    booster = lgb.train(params, lgb.Dataset(X, y + 40.0, init_score=start), 20)
    if known:
        model = wrap(booster, X, y + 40.0, init_score=start)
    else:
        moments = partial_moments(booster, X, y + 40.0, init_score=start)
        model = wrap(booster, moments)
    given = FEW if method == "tune" else {}
    X_val, y_val = tune_rows[0], tune_rows[1] + 40.0
    match = "training had an init_score" if known else rf"that {method} got differ .* by \+\d.* init_score"
    with pytest.warns(UserWarning, match=match) as seen:
        getattr(model, method)(X_val, y_val, **given)
    assert len(seen) == 1
    assert seen[0].filename == __file__
    getattr(model, method)(X_val, y_val, init_score=np.full(len(y_val), 40.0), **given)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_a_handful_of_rows(n, tunable, tune_rows):
    with pytest.raises(ValueError, match=f"at least 6 .*rows, it got {n}"):
        tunable.tune(tune_rows[0][:n], tune_rows[1][:n])
    assert tunable.distribution == "normal"  # and nothing was set


def test_six_rows_are_enough(tunable, tune_rows):
    assert np.isfinite(tunable.tune(tune_rows[0][:6], tune_rows[1][:6]).best.score)


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"y_val": np.full(500, np.nan)}, ValueError, "y.* has 500 NaN"),
        ({"y_val": np.zeros(3)}, ValueError, "y.* has 3 values, X has 500 rows"),
        ({"y_val": None}, TypeError, r"model\.tune\(X"),
        ({"score": "mae"}, ValueError, "score must be 'auto', 'crps' or 'nll', not 'mae'"),
        ({"rho": 1.5}, ValueError, r"rho must lie in \[-1, 1\]"),
        ({"rho": [0.1, np.nan]}, ValueError, r"rho must lie in \[-1, 1\]"),
        ({"rho": []}, ValueError, "rho must"),
        ({"distributions": ["cauchy"]}, ValueError, "unknown distribution 'cauchy'; known"),
        ({"distributions": []}, ValueError, "distributions"),
        ({"distributions": ["conformal"]}, ValueError, "conformal"),
        ({"sample_weight": np.zeros(500)}, ValueError, "sample_weight must not be"),
        ({"sample_weight": np.ones(4)}, ValueError, "sample_weight has 4 values"),
        ({"sample_weight": np.arange(500) < 5}, ValueError, "at least 6 rows with a positive weight, it got 5"),
    ],
)
def test_bad_input(given, error, match, tunable, tune_rows):
    before = (tunable.rho, tunable.distribution, tunable.calibration)
    with pytest.raises(error, match=match):
        tunable.tune(**{"X_val": tune_rows[0], "y_val": tune_rows[1], **given})
    assert (tunable.rho, tunable.distribution, tunable.calibration) == before


@pytest.mark.parametrize("score", ["crps", "nll"])
def test_leaves_of_one_row(score):
    """Fully grown trees have no spread at all: a result or an error that says so, but never half a result."""
    X, y = heteroscedastic(60, 0)
    grown = {"num_leaves": 60, "min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 0.0}
    model = wrap(train("lightgbm", X, y, 3, **grown), X, y)
    X, y = heteroscedastic(100, 1)
    assert np.all(model.predict_var(X) == 0)
    try:
        result = model.tune(X, y, score=score)
    except ValueError as error:
        assert "varian" in str(error)  # noqa: PT017 - either is fine
        return
    # rows are scored by a scale and by residuals that left them out, and the model has seen all of them
    assert SCORES[score](y, model.predict_dist(X)) == pytest.approx(result.best.score, rel=0.1)


def test_a_model_without_errors(tunable, tune_rows):
    result = tunable.tune(
        tune_rows[0], tunable.predict(tune_rows[0]), distributions=["normal", "empirical"], rho=[0.0, 0.1]
    )
    assert 0 <= result.best.score < 1e-3 * result.before.score


def test_progress(tunable, tune_rows, capsys):
    tunable.tune(*tune_rows, **FEW)
    assert capsys.readouterr().err == ""
    tunable.tune(*tune_rows, progress=True, **FEW)
    assert "families" in capsys.readouterr().err


def test_tuning_takes_conformal_back(tunable, tune_rows):
    tunable.conformalize(*heteroscedastic(300, 9))
    assert tunable.distribution == "conformal"
    tunable.tune(*tune_rows, **FEW)
    assert tunable.distribution in FEW["distributions"]
    assert "conformal" not in repr(tunable)


def test_families_that_cannot_have_the_labels_are_left_out():
    """The CRPS does not mind an outcome without density, and an interval of such a family would never hold it."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 3.0, (1500, 2))
    y = rng.poisson(np.exp(0.5 * X[:, 0]))
    y = np.where(y > 0, rng.gamma(2.0 * y + 1e-9), 0.0)
    params = {"objective": "tweedie", "verbose": -1, "num_threads": 1}
    model = wrap(lgb.train(params, lgb.Dataset(X[:1000], y[:1000]), 20), X[:1000], y[:1000])
    found = model.tune(X[1000:], y[1000:], distributions=["normal", "gamma", "weibull", "lognormal"])
    zeros = int(np.sum(y[1000:] == 0.0))
    assert zeros > 50
    assert set(found.failed) == {"gamma", "weibull", "lognormal"}
    assert all(
        f"{zeros} of {len(y) - 1000} labels are outside its support" in reason for reason in found.failed.values()
    )
    assert model.distribution == "normal"


def test_rows_of_tune_are_known_in_any_order(tunable, tune_rows):
    tunable.tune(*tune_rows, **FEW)
    with pytest.warns(UserWarning, match="tune has seen these rows"):
        tunable.conformalize(tune_rows[0][::-1], tune_rows[1][::-1])


def test_labels_in_another_order_warn(tunable, tune_rows):
    """Rows are taken by their place, as the boosters do; an index in another order is more likely a mistake."""
    X, y = pd.DataFrame(tune_rows[0]), pd.Series(tune_rows[1])
    with pytest.warns(UserWarning, match=r"another order.*give y\.loc\[X\.index\]"):
        tunable.conformalize(X, y.sample(frac=1.0, random_state=0))
    tunable.conformalize(X, y)
    tunable.conformalize(X, y.set_axis(y.index + 1))  # an index of its own says nothing


def test_settings_that_change_meanwhile(tunable, tune_rows, monkeypatch):
    """Another thread tunes: predictions use the settings before or after, never a mix of both."""
    X = tune_rows[0]
    want = tunable.predict_dist(X).std()

    def tuned_meanwhile(*given):
        tunable.rho, tunable.calibration, tunable.distribution = -0.2, Calibration(0.5, 9.0), "laplace"
        return read_unlabelled(*given)

    monkeypatch.setattr("pgbm_plugin.model.read_unlabelled", tuned_meanwhile)
    found = tunable.predict_dist(X)
    assert isinstance(found, Normal)
    assert np.array_equal(found.std(), want)
    assert not np.array_equal(tunable.predict_dist(X).std(), want)
