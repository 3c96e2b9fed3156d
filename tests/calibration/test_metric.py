"""The score "auto": CRPS, or CRPS in units of the spread where the largest rows would decide alone."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import wrap
from pgbm_plugin.calibration.metric import choose_metric
from tests.calibration.tuned import LGB, XGB, heteroscedastic, train


def claims(n, seed):
    """Counts with exposures from 1 to 10,000, and with skewed noise where they are large; as (X, y, log exposure)."""
    rng = np.random.default_rng(seed)
    X, start = rng.normal(size=(n, 3)), rng.uniform(0.0, np.log(1e4), n)
    mean = 0.1 * np.exp(start + 0.4 * X[:, 0] - 0.3 * X[:, 1])
    noise = np.maximum(1.0 + 0.25 * (rng.gumbel(size=n) - np.euler_gamma), 0.05)
    return X, rng.poisson(mean * noise).astype(float), start


def wrapped_claims(kind):
    X, y, start = claims(1500, 0)
    if kind == "lightgbm":
        booster = lgb.train({**LGB, "objective": "poisson"}, lgb.Dataset(X, y, init_score=start), 300)
    else:
        booster = xgb.train({**XGB, "objective": "count:poisson"}, xgb.DMatrix(X, y, base_margin=start), 60)
    return wrap(booster, X, y, init_score=start)


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
def test_small_exposures_count(kind):
    """A normal is wrong for small counts: the CRPS in the unit of y hardly sees it, relative to the spread it does."""
    model = wrapped_claims(kind)
    X, y, start = claims(600, 1)
    X_new, y_new, start_new = claims(4000, 2)
    size = np.digitize(start_new, np.log([10.0, 100.0, 1000.0]))
    lead = {}
    for score, metric in (("crps", "crps"), ("auto", "relative crps")):
        result = model.tune(X, y, init_score=start, score=score)
        assert (result.metric, result.best.distribution) == (metric, "negativebinomial")
        normal = next(candidate for candidate in result.candidates if candidate.distribution == "normal")
        lead[score] = normal.score / result.best.score
    assert lead["crps"] < 1.03
    assert lead["auto"] > 1.08
    low, high = model.predict_interval(X_new, 0.9, init_score=start_new).T
    inside = (low <= y_new) & (y_new <= high)
    assert min(inside[size == k].mean() for k in range(4)) > 0.85


def test_the_unit_is_common_to_all_candidates():
    """Mean scores are those of predictions, divided by a power of the mean that does not depend on the candidate."""
    model = wrapped_claims("lightgbm")
    X, y, start = claims(600, 1)
    result = model.tune(X, y, init_score=start, distributions=["normal", "laplace"], rho=[0.0], variance="pgbm")
    prediction = model.predict(X, init_score=start)
    ratios = []
    for line in result.candidates:
        model.calibration = line.calibration
        ratios.append(model.predict_dist(X, line.distribution, line.rho, init_score=start).crps(y))
    unit = choose_metric("auto", y, _Margins(model, prediction), np.full(600, 1 / 600))[1]
    np.testing.assert_allclose([np.mean(crps / unit) for crps in ratios], [c.score for c in result.candidates])
    spread = np.abs(y - prediction)
    for part in np.array_split(np.argsort(prediction), 4):  # the unit is about the residual, small or large
        assert 0.3 < np.mean(spread[part]) / np.mean(unit[part]) < 2.0


class _Margins:
    def __init__(self, model, prediction):
        self.forest, self.prediction = model.forest, prediction


@pytest.mark.parametrize("score", ["auto", "crps", "nll"])
def test_other_labels_keep_the_unit_of_y(score, tunable, tune_rows):
    result = tunable.tune(*tune_rows, score=score, distributions="normal")
    assert result.metric == ("nll" if score == "nll" else "crps")
    same = tunable.tune(*tune_rows, score="crps", distributions="normal")
    assert (result.best == same.best) == (score != "nll")


@pytest.mark.parametrize(("factor", "metric"), [(0.3, "crps"), (1.6, "relative crps")])
def test_counts_of_an_identity_link(factor, metric):
    """Whole numbers are relative only if predictions span orders of magnitude."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(2000, 2))
    y = rng.poisson(np.exp(3.0 + factor * 1.5 * X[:, 0])).astype(float)
    booster = train("lightgbm", X[:1200], y[:1200], 80)
    for labels, expected in ((y[1200:], metric), (y[1200:] + 0.5, "crps")):
        assert wrap(booster, X[:1200], y[:1200]).tune(X[1200:], labels, distributions="normal").metric == expected


def test_variance_without_a_word(tune_booster):
    """`tune` chooses the source of the variance, unless `wrap` was told one, or there is no map."""
    rows, held_out = heteroscedastic(1200, 0), heteroscedastic(500, 1)
    model = wrap(tune_booster, *rows)
    assert (model.variance, model.training_scale) == ("auto", None)
    assert model.tune(*held_out, distributions="normal").variance == "boosted"
    assert model.tune(*held_out, distributions="normal", calibrate=False).variance == "pgbm"
    for told in ("pgbm", "boosted"):
        assert wrap(tune_booster, *rows, variance=told).tune(*held_out, distributions="normal").variance == told
