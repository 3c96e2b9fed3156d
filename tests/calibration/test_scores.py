"""Scores against plain loops, and inside scikit-learn."""

from __future__ import annotations

import copy
import math
import pickle

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import LinearRegression
from sklearn.metrics import make_scorer, mean_pinball_loss
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pgbm_plugin import wrap
from pgbm_plugin.distributions import Gamma, Normal
from pgbm_plugin.scores import Scorer, coverage, crps, crps_ensemble, interval_score, nll, pinball

N = 30
rng = np.random.default_rng(11)
Y = rng.gamma(2.0, size=N)
DISTRIBUTION = Gamma.from_moments(rng.uniform(1, 3, N), rng.uniform(0.5, 4, N))
POINTS = rng.gamma(2.0, size=N)
INTERVALS = np.sort(rng.gamma(2.0, size=(N, 2)), axis=1)
SAMPLES = rng.gamma(2.0, size=(N, 13))
WEIGHTS = rng.uniform(0, 3, N)


def loop_interval_score(y, low, high, level):
    alpha = 1 - level
    score = high - low
    if y < low:
        score += 2 / alpha * (low - y)
    if y > high:
        score += 2 / alpha * (y - high)
    return score


def loop_ensemble(y, sample):
    """E|X - y| - E|X - X'| / 2 over all pairs."""
    m = len(sample)
    return sum(abs(x - y) for x in sample) / m - sum(abs(a - b) for a in sample for b in sample) / (2 * m * m)


# a score of (y, sample_weight), and its value for row i by itself
CASES = {
    "crps": (lambda y, w: crps(y, DISTRIBUTION, w), lambda i: DISTRIBUTION[i].crps(Y[i])[0]),
    "nll": (lambda y, w: nll(y, DISTRIBUTION, w), lambda i: -DISTRIBUTION[i].to_scipy().logpdf(Y[i])[0]),
    "pinball": (
        lambda y, w: pinball(y, POINTS, 0.3, w),
        lambda i: 0.3 * (Y[i] - POINTS[i]) if Y[i] > POINTS[i] else 0.7 * (POINTS[i] - Y[i]),
    ),
    "interval_score": (
        lambda y, w: interval_score(y, INTERVALS, 0.8, w),
        lambda i: loop_interval_score(Y[i], *INTERVALS[i], 0.8),
    ),
    "coverage": (lambda y, w: coverage(y, INTERVALS, w), lambda i: float(INTERVALS[i, 0] <= Y[i] <= INTERVALS[i, 1])),
    "crps_ensemble": (lambda y, w: crps_ensemble(y, SAMPLES, w), lambda i: loop_ensemble(Y[i], SAMPLES[i])),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def test_the_mean_over_rows(case):
    score, row = case
    value = score(Y, None)
    assert type(value) is float
    assert value == pytest.approx(math.fsum(row(i) for i in range(N)) / N, rel=1e-12)


def test_weights(case):
    score, row = case
    expected = math.fsum(WEIGHTS[i] * row(i) for i in range(N)) / math.fsum(WEIGHTS)
    assert score(Y, WEIGHTS) == pytest.approx(expected, rel=1e-12)
    assert score(Y, np.eye(N)[7]) == pytest.approx(row(7), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("kind", [list, pd.Series, lambda y: y[:, None], lambda y: pd.DataFrame({"y": y})])
def test_columns_of_all_kinds(case, kind):
    score, _ = case
    assert score(kind(Y), kind(WEIGHTS)) == score(Y, WEIGHTS)


@pytest.mark.parametrize(
    ("y", "weight", "error", "match"),
    [
        (Y[:-1], None, ValueError, "y_true has 29 values"),
        (np.where(np.arange(N) == 3, np.nan, Y), None, ValueError, r"y_true has 1 NaN.*row 3"),
        (np.stack([Y, Y], 1), None, ValueError, "y_true must have one dimension"),
        (["a"] * N, None, TypeError, "y_true must be a column of numbers"),
        (None, None, TypeError, "y_true"),
        (Y, WEIGHTS[:4], ValueError, "sample_weight has 4 values"),
        (Y, -WEIGHTS, ValueError, "sample_weight must not be negative"),
        (Y, 0 * WEIGHTS, ValueError, "sample_weight must not be .*zero"),
    ],
)
def test_bad_columns(case, y, weight, error, match):
    with pytest.raises(error, match=match):
        case[0](y, weight)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.2, 90, np.nan])
def test_bad_levels(level):
    with pytest.raises(ValueError, match="q must lie strictly between 0 and 1"):
        pinball(Y, POINTS, level)
    with pytest.raises(ValueError, match="coverage must lie strictly between 0 and 1"):
        interval_score(Y, INTERVALS, level)


@pytest.mark.parametrize("bad", [INTERVALS.T, INTERVALS[:, 0], INTERVALS[:, :1], INTERVALS[None]])
def test_bad_intervals(bad):
    for score in (coverage, interval_score):
        with pytest.raises(ValueError, match=r"interval must have shape \(n, 2\)"):
            score(Y, bad)


def test_pinball_is_scikit_learns():
    for q in (0.05, 0.5, 0.9):
        assert pinball(Y, POINTS, q, WEIGHTS) == pytest.approx(
            mean_pinball_loss(Y, POINTS, sample_weight=WEIGHTS, alpha=q)
        )


def test_ends_of_an_interval_are_inside():
    assert coverage([1.0, 2.0, 0.999], [[1.0, 2.0]] * 3) == pytest.approx(2 / 3)
    assert coverage([1.0], [[-np.inf, np.inf]]) == 1.0


def test_pinball_over_levels_is_half_the_crps():
    """CRPS is twice the integral of the quantile loss over the levels."""
    levels = (np.arange(2000) + 0.5) / 2000
    quantiles = DISTRIBUTION.ppf(levels)
    total = np.mean([pinball(Y, quantiles[:, k], q) for k, q in enumerate(levels)])
    assert 2 * total == pytest.approx(crps(Y, DISTRIBUTION), rel=1e-3)


@given(
    sample=st.lists(st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6)), min_size=1, max_size=12),
    y=st.one_of(st.integers(-4, 4).map(float), st.floats(-1e7, 1e7)),
)
def test_ensemble_is_its_definition(sample, y):
    """With ties, one member, and y among the members."""
    assert crps_ensemble([y], [sample]) == pytest.approx(loop_ensemble(y, sample), rel=1e-9, abs=1e-9)


def test_ensemble_does_not_sort_the_callers_array():
    samples = SAMPLES.copy()
    crps_ensemble(Y, samples)
    assert np.array_equal(samples, SAMPLES)


def test_ensemble_of_draws_is_near_the_closed_form():
    d = Normal.from_moments(np.zeros(50), np.ones(50))
    y = d.rvs(random_state=1)
    # the mean of 50 rows with 2,000 draws each has a standard error near 0.002
    assert crps_ensemble(y, d.rvs(2000, random_state=2)) == pytest.approx(crps(y, d), abs=0.01)


@pytest.mark.parametrize("bad", [np.zeros(N), np.zeros((N, 0)), np.zeros((N - 1, 3))])
def test_bad_ensembles(bad):
    with pytest.raises(ValueError, match=r"samples|y_true|shape"):
        crps_ensemble(Y, bad)


class Boosted(RegressorMixin, BaseEstimator):
    """The least that scikit-learn and `Scorer` need."""

    def __init__(self, rounds=10):
        self.rounds = rounds

    def fit(self, X, y):
        params = {"num_leaves": 8, "num_threads": 1, "verbose": -1}
        self.model_ = wrap(lgb.train(params, lgb.Dataset(X, y), self.rounds), X, y)
        return self

    def predict(self, X):
        return self.model_.predict(X)

    def predict_dist(self, X):
        return self.model_.predict_dist(X)

    def predict_interval(self, X, coverage=0.9):
        return self.model_.predict_interval(X, coverage)

    def predict_quantiles(self, X, q):
        return self.model_.predict_quantiles(X, q)


@pytest.mark.parametrize("score", [crps, nll])
def test_scorer_in_cross_validation(score, numeric):
    X, y = numeric
    folds = [(np.arange(100, 400), np.arange(100)), (np.arange(300), np.arange(300, 400))]
    found = cross_val_score(Boosted(), X, y, cv=folds, scoring=Scorer(score))
    expected = [-score(y[test], Boosted().fit(X[train], y[train]).predict_dist(X[test])) for train, test in folds]
    assert np.array_equal(found, expected)


def test_scorer_in_a_search(numeric):
    X, y = numeric
    search = GridSearchCV(
        Boosted(), {"rounds": [1, 40]}, scoring={"crps": Scorer(crps), "nll": Scorer(nll)}, refit="crps", cv=3
    )
    search.fit(X, y)
    assert search.best_params_ == {"rounds": 40}
    assert np.all(search.cv_results_["mean_test_crps"] < 0)
    assert search.score(X, y) == -crps(y, search.best_estimator_.predict_dist(X))


def test_scorer_goes_through_pipelines_and_searches(numeric):
    X, y = numeric
    pipeline = make_pipeline(StandardScaler(), Boosted()).fit(X, y)
    expected = -crps(y, pipeline[-1].predict_dist(StandardScaler().fit_transform(X)))
    assert Scorer(crps)(pipeline, X, y) == expected
    search = GridSearchCV(pipeline, {"boosted__rounds": [1, 40]}, scoring=Scorer(crps), cv=3).fit(X, y)
    assert search.best_params_ == {"boosted__rounds": 40}
    assert Scorer(crps)(search, X, y) == search.score(X, y)
    assert Scorer(crps)(make_pipeline(Boosted()).fit(X, y), X, y) == Scorer(crps)(Boosted().fit(X, y), X, y)
    with pytest.raises(TypeError, match=r"StandardScaler has no predict_dist; give a PGBMRegressor"):
        Scorer(crps)(StandardScaler(), X, y)


def test_scorer_weights_and_copies(numeric):
    X, y = numeric
    estimator = Boosted().fit(X, y)
    weight = np.linspace(0, 1, len(y))
    expected = -crps(y, estimator.predict_dist(X), weight)
    for scorer in (Scorer(crps), copy.deepcopy(Scorer(crps)), pickle.loads(pickle.dumps(Scorer(crps)))):  # noqa: S301
        assert scorer(estimator, X, y, sample_weight=weight) == expected


def test_scorer_under_metadata_routing(numeric):
    """Refuse weights that were not requested, as scikit-learn's own scorers do, instead of dropping them."""
    X, y = numeric
    weight, seen = np.arange(len(y), dtype=float), []

    def spy(y, distribution, sample_weight=None):
        seen.append(sample_weight)
        return crps(y, distribution, sample_weight)

    def run(scorer, **params):
        seen.clear()
        return cross_validate(Boosted(), X, y, scoring=scorer, params=params, cv=2, error_score="raise")["test_score"]

    with config_context(enable_metadata_routing=True):
        with pytest.raises(UnsetMetadataPassedError, match="set_score_request"):
            run(Scorer(spy), sample_weight=weight)
        run(Scorer(spy).set_score_request(sample_weight=True), sample_weight=weight)
        assert np.array_equal(np.concatenate(seen), weight)
        run(Scorer(spy).set_score_request(sample_weight="w"), w=weight)
        assert np.array_equal(np.concatenate(seen), weight)
        unweighted = {"a": Scorer(spy).set_score_request(sample_weight=False), "b": Scorer(crps)}
        unweighted["b"] = unweighted["b"].set_score_request(sample_weight=True)
        seen.clear()
        cross_validate(Boosted(), X, y, scoring=unweighted, params={"sample_weight": weight}, cv=2)
        assert seen == [None, None]
    assert copy.deepcopy(Scorer(crps).set_score_request(sample_weight=True)).weight_request is True


def test_scorers_of_intervals_and_quantiles(numeric):
    """Greater is better for each of them: a loss changes its sign, a coverage does not."""
    X, y = numeric
    estimator = Boosted().fit(X, y)
    interval = estimator.predict_interval(X, 0.8)
    given = {"coverage": 0.8}
    assert Scorer(interval_score, "predict_interval", given)(estimator, X, y) == -interval_score(y, interval, 0.8)
    assert Scorer(coverage, "predict_interval", given)(estimator, X, y) == coverage(y, interval)
    upper = estimator.predict_quantiles(X, 0.95)
    assert upper.shape == (400, 1)
    assert Scorer(pinball, "predict_quantiles", {"q": 0.95})(estimator, X, y) == -pinball(y, upper[:, 0], 0.95)
    # a distribution's own interval is a pair of ends
    pair = estimator.predict_dist(X).interval(0.8)
    assert coverage(y, pair) == coverage(y, interval)


@pytest.mark.parametrize("score", [crps, nll])
def test_no_distribution(score):
    with pytest.raises(TypeError, match=r"model.predict_dist\(X\), not a ndarray"):
        score(Y, POINTS)


def test_one_level_at_a_time():
    for bad in (SAMPLES, POINTS[:, None, None]):
        with pytest.raises(ValueError, match="one level"):
            pinball(Y, bad, 0.5)


def test_pinball_as_a_scikit_learn_scorer(numeric):
    X, y = numeric
    estimator = Boosted().fit(X, y)
    scorer = make_scorer(pinball, greater_is_better=False, q=0.2)
    assert scorer(estimator, X, y) == -pinball(y, estimator.predict(X), 0.2)


def test_infinite_scores():
    """One impossible outcome makes the mean infinite, also beside point masses that are hit."""
    points = Normal.from_moments(np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.0, 1.0]))
    outcomes = np.array([0.0, 5.0, 2.0])
    assert nll(outcomes, points) == np.inf
    assert nll(outcomes, points, [1.0, 0.0, 0.0]) == -np.inf
    assert np.isfinite(nll(outcomes, points, [0.0, 0.0, 1.0]))


@pytest.mark.parametrize("score", [crps, nll, pinball, interval_score, coverage, crps_ensemble])
def test_a_score_in_place_of_a_scorer(score, numeric):
    X, y = numeric
    with pytest.raises(TypeError, match=rf"scoring=Scorer\({score.__name__}\)"):
        score(LinearRegression(), X, y)
