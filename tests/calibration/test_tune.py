"""Tuning after training: what it returns, what it sets, what it costs nothing, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import wrap
from pgbm_plugin.calibration.search import DEFAULT_RHO, SEARCH_ROWS
from pgbm_plugin.distributions import FAMILIES, Empirical
from pgbm_plugin.predict.power_map import Calibration
from pgbm_plugin.scores import crps, nll
from pgbm_plugin.tables.rows import some_rows
from tests.calibration.tuned import FEW, SCORES, heteroscedastic, train

LOG_LINK = [
    ("lightgbm", "poisson"),
    ("lightgbm", "gamma"),
    ("lightgbm", "tweedie"),
    ("xgboost", "count:poisson"),
    ("xgboost", "reg:gamma"),
    ("xgboost", "reg:tweedie"),
]


def counts(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, rng.negative_binomial(3.0, 3.0 / (3.0 + np.exp(1.0 + 0.6 * X[:, 0]))).astype(float)


def test_result(tunable, tune_rows):
    result = tunable.tune(*tune_rows)
    fitting = {"normal", "studentt", "logistic", "laplace", "gumbel", "empirical", *Empirical.variants}
    assert (result.metric, result.rows) == ("crps", 500)
    assert set(result.distributions) == fitting
    assert set(result.failed) == {"lognormal", "gamma", "weibull", "poisson", "negativebinomial", "tweedie"}
    assert fitting | set(result.failed) == {*FAMILIES, *Empirical.variants} - {"conformal"}
    assert np.array_equal(result.rho, DEFAULT_RHO)
    assert len(result.rho) == 40
    assert result.scores.shape == (10, 40)
    assert len(result.calibrations) == 40
    assert result.best.score <= result.scores.min() < result.before.score
    assert (result.before.distribution, result.before.rho) == ("normal", np.log10(1200) / 100)
    assert result.residuals.shape == (500,)
    assert (tunable.rho, tunable.distribution) == (result.best.rho, result.best.distribution)
    assert tunable.calibration == result.best.calibration != Calibration()
    for word in (str(tunable.chosen), "variance^"):
        assert word in repr(tunable)


def test_table_and_words(tunable, tune_rows):
    result = tunable.tune(*tune_rows)
    table = result.to_pandas()
    assert list(table.columns) == ["distribution", "rho", "b", "c", "floor", "crps"]
    assert len(table) == 10 * 40
    for line in (table.iloc[0], table.iloc[133]):
        f, r = result.distributions.index(line.distribution), np.flatnonzero(result.rho == line.rho)[0]
        assert line.crps == result.scores[f, r]
        assert Calibration(line.b, line.c, line.floor) == result.calibrations[r]
    text = str(result)
    for word in ("500 rows", "crps", "-> ", "rho", *result.distributions, *result.failed, "name it"):
        assert word in text
    assert len(text) < 3000
    assert "500" in repr(result)
    assert "edge" not in text
    edge = replace(result, candidates=(replace(result.best, rho=float(result.rho[-1])), *result.candidates[1:]))
    assert "rho is at the edge of the search; " in f"{edge}\n"
    assert len(repr(result)) < 3000  # for people, not for printing arrays of thousands


@pytest.mark.parametrize("score", ["crps", "nll"])
@pytest.mark.parametrize("calibrate", [True, False])
def test_scores_are_those_of_the_predictions(score, calibrate, tunable, tune_rows):
    X, y = tune_rows
    result = tunable.tune(X, y, score=score, calibrate=calibrate, distributions=["studentt(df=5)", "laplace", "gumbel"])
    assert SCORES[score](y, tunable.predict_dist(X)) == pytest.approx(result.best.score, rel=1e-12)
    before = tunable.predict_dist  # the table too, line by line
    for f, name in enumerate(result.distributions):
        for r in (0, 17, 39):
            tunable.calibration = result.calibrations[r]
            assert SCORES[score](y, before(X, name, result.rho[r])) == pytest.approx(result.scores[f, r], rel=1e-12)
    tunable.calibration = Calibration()
    assert SCORES[score](y, before(X, "normal", tunable.default_rho)) == pytest.approx(result.before.score, rel=1e-12)


@pytest.mark.parametrize("score", ["crps", "nll"])
def test_brute_force(score, tunable, tune_rows):
    X, y = tune_rows
    grid, names = [-0.05, 0.0, 0.05, 0.2], ["normal", "logistic", "studentt"]
    result = tunable.tune(X, y, score=score, distributions=names, rho=grid, calibrate=False)
    table = [[SCORES[score](y, model_at(tunable, X, name, rho)) for rho in grid] for name in names]
    np.testing.assert_allclose(result.scores, table, rtol=1e-12)
    f, r = np.unravel_index(np.argmin(table), (3, 4))
    # the grid is refined between the best point's neighbours, for the best family
    fine = np.linspace(grid[max(r - 1, 0)], grid[min(r + 1, 3)], 101)
    best = min(SCORES[score](y, model_at(tunable, X, names[f], rho)) for rho in fine)
    assert result.best.distribution == names[f]
    assert best - 1e-12 <= result.best.score <= np.min(table) + 1e-12
    assert result.best.score - best < 0.005 * abs(best)
    assert replace(result.best.calibration, floor=0.0) == Calibration()


def model_at(model, X, name, rho):
    model.calibration = Calibration()
    return model.predict_dist(X, name, rho)


@pytest.mark.parametrize("score", ["crps", "nll"])
def test_the_power_map_is_the_best_one(score, tunable, tune_rows):
    """No map on a grid of (b, c) is better than the one found, for the family and rho that were chosen."""
    X, y = tune_rows
    best = tunable.tune(X, y, score=score, distributions=["normal"], rho=0.05).best
    assert best.rho == 0.05
    for b in np.linspace(0.0, 3.0, 13):
        for c in np.geomspace(0.05, 20.0, 40):
            tunable.calibration = Calibration(b, c)
            assert SCORES[score](y, tunable.predict_dist(X)) > best.score - 1e-4 * abs(best.score)


@pytest.mark.parametrize("score", ["crps", "nll"])
@pytest.mark.parametrize("families", [["normal", "laplace"], ["empirical"]])
def test_weights_of_0_and_1_drop_rows(score, families, tunable, tune_rows):
    if score == "nll" and families == ["empirical"]:
        pytest.skip("it has no density")
    X, y = tune_rows
    keep = np.random.default_rng(2).random(len(y)) < 0.6
    given = {"score": score, "distributions": families, "rho": [0.0, 0.05, 0.3]}
    weighted = tunable.tune(X, y, sample_weight=keep, **given)
    dropped = tunable.tune(X[keep], y[keep], **given)
    # an optimiser stops within 1e-6 of its best
    np.testing.assert_allclose(weighted.scores, dropped.scores, rtol=1e-5)
    assert weighted.best.score == pytest.approx(dropped.best.score, rel=1e-4)


def test_weights_matter(tunable, tune_rows):
    X, y = tune_rows
    flat = tunable.tune(X, y, **FEW)
    steep = tunable.tune(X, y, sample_weight=np.exp(X[:, 2]), **FEW)
    assert steep.best.score > 1.5 * flat.best.score  # the noisy rows count for more
    tripled = tunable.tune(X, y, sample_weight=np.full(500, 3.0), **FEW)
    np.testing.assert_allclose(tripled.scores, flat.scores, rtol=1e-9)


def test_families_and_correlations_given(tunable, tune_rows):
    result = tunable.tune(*tune_rows, distributions=("studentt(df=4)", "normal"), rho=0.25)
    assert result.distributions == ("studentt(df=4)", "normal")
    assert result.scores.shape == (2, 1)
    assert tunable.rho == 0.25
    result = tunable.tune(*tune_rows, distributions=["normal"], rho=[0.3, 0.1, 0.2])
    assert result.rho.tolist() == [0.1, 0.2, 0.3]
    assert 0.1 <= tunable.rho <= 0.3


def test_heteroscedastic_rows():
    """An over-fitted model, fresh rows: the tuned spread is better by far."""
    X, y = heteroscedastic(1200, 0)
    model = wrap(train("lightgbm", X, y, 100, num_leaves=31, min_data_in_leaf=5), X, y)
    X, y = heteroscedastic(3000, 7)
    tunable = model.predict_dist(X)
    model.tune(*heteroscedastic(1500, 1), score="nll")
    assert nll(y, model.predict_dist(X)) < nll(y, tunable) - 0.8
    model.tune(*heteroscedastic(1500, 1), score="crps")
    assert crps(y, model.predict_dist(X)) < 0.97 * crps(y, tunable)


def test_families_that_do_not_fit(tunable, tune_rows):
    X, y = tune_rows
    positive, counting = ["lognormal", "gamma", "weibull"], ["poisson", "negativebinomial"]
    failed = tunable.tune(X, y).failed
    for name in positive:
        assert "may predict 0 or less" in failed[name]  # if not here, then for other rows
    for name in counting:
        assert "whole numbers" in failed[name]  # to name them would not help
    failed = tunable.tune(X, y, distributions=["normal", *positive, *counting]).failed
    for name in positive:
        assert "mean > 0" in failed[name]
    for name in counting:
        assert "whole numbers" in failed[name]
    failed = tunable.tune(X, y, score="nll").failed
    assert "no density" in failed["empirical"]
    failed = tunable.tune(X, y, distributions=["studentt(df=1)", "normal"]).failed
    assert "more than 2" in failed["studentt(df=1)"]


@pytest.mark.parametrize("score", ["crps", "nll"])
def test_negative_labels_under_positive_predictions(score):
    """Means fit a gamma, a label below 0 does not."""
    X, y = counts(600, 0)
    model = wrap(train("lightgbm", X, y + 5.0), X, y + 5.0)
    X, y = counts(200, 1)
    y = y + 5.0
    y[[3, 8]] = -1.0
    failed = model.tune(X, y, score=score).failed
    for name in ("gamma", "lognormal", "weibull", "poisson", "negativebinomial"):
        assert " labels are outside its support" in failed[name]
        assert failed[name].startswith("2 of ")


@pytest.mark.parametrize("variance", ["pgbm", "auto"])
def test_grid_and_candidates_have_the_same_families(variance):
    """A label that the search has not drawn, and that a family cannot have, takes the family out of both."""
    X, y = counts(600, 0)
    model = wrap(train("lightgbm", X, y + 5.0), X, y + 5.0)
    X, y = counts(SEARCH_ROWS + 500, 1)
    y = y + 5.0
    y[np.setdiff1d(np.arange(len(y)), some_rows(len(y), SEARCH_ROWS))[0]] = -1.0
    result = model.tune(X, y, distributions=["gamma", "normal", "laplace"], rho=[0.0, 0.1], variance=variance)
    assert set(result.failed) == {"gamma"}
    assert set(result.distributions) == {candidate.distribution for candidate in result.candidates}
    assert result.scores.shape == (2, 2)
    assert set(result.to_pandas()["distribution"]) == set(result.distributions)


def test_nothing_fits(tunable, tune_rows):
    with pytest.raises(ValueError, match=r"(?s)no distribution fits.*gamma.*mean > 0.*poisson.*whole numbers"):
        tunable.tune(*tune_rows, distributions=["gamma", "poisson"])


@pytest.mark.parametrize(("kind", "objective"), LOG_LINK)
def test_log_link(kind, objective):
    X, y = counts(800, 0)
    y = np.maximum(y, 1.0) if "gamma" in objective else y
    model = wrap(train(kind, X, y, 30, objective=objective), X, y)
    margin_variance = model.predict_var(X) / model.predict(X).astype(float) ** 2  # delta method
    lognormal = model.predict_dist(X, "lognormal")
    np.testing.assert_allclose(lognormal.params["s"] ** 2, margin_variance, rtol=1e-9)
    np.testing.assert_allclose(lognormal.mean(), model.predict(X), rtol=1e-12)

    X, y = counts(400, 1)
    y = np.maximum(y, 1.0) if "gamma" in objective else y
    result = model.tune(X, y, score="nll", variance="pgbm")
    assert {"poisson", "negativebinomial"} <= set(result.distributions)
    assert result.best.score < result.before.score
    for name in ("poisson", "negativebinomial", "gamma", "lognormal", "weibull"):
        assert model.predict_dist(X, name).ppf([1e-6, 0.5]).min() >= 0.0
    assert nll(y, model.predict_dist(X)) == pytest.approx(result.best.score, rel=1e-9)
    result = model.tune(X, y)
    assert result.best.score < 0.99 * result.before.score
    assert "negativebinomial" in result.distributions


@pytest.mark.parametrize("score", ["crps", "nll"])
@pytest.mark.parametrize(("kind", "objective"), [("lightgbm", "poisson"), ("xgboost", "reg:tweedie")])
def test_no_family_alone_is_better_than_the_chosen_one(score, kind, objective):
    """Each family deserves its own map before families are compared; these counts are negative binomial."""
    X, y = counts(800, 0)
    model = wrap(train(kind, X, y, 30, objective=objective), X, y)
    X, y = counts(400, 1)
    names = ["normal", "studentt", "gumbel", "poisson", "negativebinomial"]
    chosen = model.tune(X, y, score=score, distributions=names, rho=[0.0, 0.1]).best
    for name in names:
        alone = model.tune(X, y, score=score, distributions=[name], rho=[0.0, 0.1]).best
        assert chosen.score <= alone.score + 0.005 * abs(alone.score), name


def test_square_root_link(tune_rows):
    X, y = heteroscedastic(800, 0)
    model = wrap(train("lightgbm", X, y, objective="regression", reg_sqrt=True), X, y)
    X, y = tune_rows
    result = model.tune(X, y, score="nll")
    assert result.best.score < result.before.score
    assert nll(y, model.predict_dist(X)) == pytest.approx(result.best.score, rel=1e-9)
    assert np.all(model.predict_dist(X).std() > 0)


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
def test_predictions_of_the_mean_stay(kind, tune_rows):
    X, y = heteroscedastic(600, 0)
    booster = train(kind, X, y)
    model = wrap(booster, X, y)
    model.tune(*tune_rows, **FEW)
    expected = booster.predict(tune_rows[0] if kind == "lightgbm" else xgb.DMatrix(tune_rows[0]))
    assert np.array_equal(model.predict(tune_rows[0]), expected)
    assert np.array_equal(model.predict(tune_rows[0], return_std=True)[0], expected)


def test_the_same_again(tune_booster, tunable, tune_rows):
    first = tunable.tune(*tune_rows)
    again = tunable.tune(*tune_rows)
    other = wrap(tune_booster, *heteroscedastic(1200, 0), variance="pgbm", n_jobs=2).tune(*tune_rows)
    for result in (again, other):
        assert np.array_equal(result.scores, first.scores)
        assert (result.best, result.before) == (first.best, first.before)


def test_before_is_the_papers_default_whatever_was_set(tunable, tune_rows):
    first = tunable.tune(*tune_rows, **FEW)
    tunable.rho, tunable.distribution, tunable.calibration = 0.5, "laplace", Calibration(0.3, 7.0)
    assert tunable.tune(*tune_rows, **FEW).before == first.before
