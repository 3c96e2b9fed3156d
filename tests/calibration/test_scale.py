"""The boosted scale: steps and variances against slow loops over the boosters' own leaves, and what it must not do."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import load, wrap
from pgbm_plugin.calibration import blend
from pgbm_plugin.calibration import boosted_scale as scale
from pgbm_plugin.calibration.boosted_scale import boost_scale, held_out_scale, leaf_leverage
from pgbm_plugin.predict.chosen import Chosen
from pgbm_plugin.predict.log_scale import LogScale
from pgbm_plugin.predict.recursion import leaf_sums
from pgbm_plugin.routes import choose as route
from pgbm_plugin.tables.rows import read_rows

LGB = {"num_leaves": 8, "verbose": -1, "num_threads": 1, "min_data_in_leaf": 5}
XGB = {"max_leaves": 8, "max_depth": 0, "grow_policy": "lossguide", "eta": 0.1, "nthread": 1}
RATE, PRIOR = 0.2, 20.0


def rows(n=400, seed=0):
    """Rows whose noise follows the second feature, which the mean does not."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    return X, X[:, 0] + np.exp(0.8 * X[:, 1]) * rng.normal(size=n)


def train(booster, X, y, trees=30, **params):
    if booster == "lightgbm":
        return lgb.train({**LGB, **params}, lgb.Dataset(X, y), trees)
    return xgb.train({**XGB, **params}, xgb.DMatrix(X, y), trees)


def leaves(booster, forest, X):
    """(n, T) each row's leaves, numbered through the forest, by the booster's own word."""
    own = booster.predict(X, pred_leaf=True) if isinstance(booster, lgb.Booster) else None
    own = booster.predict(xgb.DMatrix(X), pred_leaf=True) if own is None else own
    own = own.reshape(len(X), -1)
    out = np.empty(own.shape, int)
    for t in range(forest.n_trees):
        first, end = forest.leaf_start[t], forest.leaf_start[t + 1]
        number = {int(label): first + j for j, label in enumerate(forest.leaf_label[first:end])}
        out[:, t] = [number[int(label)] for label in own[:, t]]
    return out


def naive_steps(forest, leaf, ratio, learns):
    """One model's steps, in loops: the rate times the log of a leaf's mean ratio, shrunk to 1."""
    steps, log_scale = np.zeros(forest.n_leaves), [0.0] * len(ratio)
    for t in range(forest.n_trees):
        for j in range(forest.leaf_start[t], forest.leaf_start[t + 1]):
            inside = [i for i in range(len(ratio)) if leaf[i, t] == j and learns[i]]
            total = sum(ratio[i] * math.exp(-log_scale[i]) for i in inside)
            steps[j] = RATE * math.log((total + PRIOR) / (len(inside) + PRIOR))
        for i in range(len(ratio)):
            log_scale[i] += steps[leaf[i, t]]
    return steps, np.array(log_scale)


@pytest.fixture(scope="module", params=["lightgbm", "xgboost"])
def trained(request):
    X, y = rows()
    return train(request.param, X, y), X, y


def test_steps_are_those_of_slow_loops(trained):
    booster, X, _ = trained
    forest = wrap(*trained).forest
    rng = np.random.default_rng(1)
    ratio, fold = rng.chisquare(1, len(X)), rng.integers(0, 3, len(X)).astype(np.int8)
    found, own = boost_scale(forest, read_rows(X, forest.features), ratio, np.ones(len(X)), fold, 3, RATE, 1)
    leaf = leaves(booster, forest, X)
    for k in range(3):
        steps, log_scale = naive_steps(forest, leaf, ratio, fold != k)
        np.testing.assert_allclose(found[k], steps, rtol=1e-9, atol=1e-12)  # products in place of sums of logarithms
        np.testing.assert_allclose(own[fold == k], log_scale[fold == k], rtol=1e-9, atol=1e-12)


def test_a_row_does_not_vouch_for_itself(trained):
    """A residual as large as may be moves the row's own log-variance by no bit, and others'."""
    _, X, _ = trained
    forest = wrap(*trained).forest
    table, weight, zero = read_rows(X, forest.features), np.ones(len(X)), np.zeros(len(X))
    flat, squared = LogScale(np.zeros(forest.n_leaves), 0.0), np.random.default_rng(2).chisquare(1, len(X))
    _, before = held_out_scale(forest, table, squared, weight, flat, zero, 0.05, 1)
    squared[7] *= 1e6
    _, after = held_out_scale(forest, table, squared, weight, flat, zero, 0.05, 1)
    assert after[7] == before[7]
    assert np.count_nonzero(after != before) > len(X) / 2


@pytest.mark.parametrize("booster", ["lightgbm", "xgboost"])
def test_residuals_are_those_of_rows_left_out(booster):
    """Exactly so for one tree of full steps: take a row out of its leaf's mean, and look at its residual."""
    X, y = rows(60)
    full = {"learning_rate": 1.0, "lambda_l2": 2.0} if booster == "lightgbm" else {"eta": 1.0, "lambda": 2.0}
    trained = train(booster, X, y, 1, **full)
    model = wrap(trained, X, y)
    leaf = leaves(trained, model.forest, X)[:, 0]
    left_out = np.empty(len(y))
    for i in range(len(y)):
        others = (leaf == leaf[i]) & (np.arange(len(y)) != i)
        left_out[i] = y[i] - model.spec.start - np.sum(y[others] - model.spec.start) / (others.sum() + 2.0)
    leverage = leaf_sums(
        model.forest, read_rows(X, model.forest.features), leaf_leverage(model.forest, model.spec, model.moments)
    )
    np.testing.assert_allclose((y - model.predict(X)) * np.exp(leverage), left_out, rtol=1e-4, atol=1e-6)


def test_rows_that_training_did_not_see_keep_their_residuals(trained, monkeypatch):
    booster, *_ = trained
    monkeypatch.setattr(scale, "leaf_leverage", lambda *given: pytest.fail("these rows have no leverage"))
    with pytest.warns(UserWarning, match="held-out"):
        assert wrap(booster, *rows(300, seed=5), variance="boosted").training_scale is not None


def test_variances_are_those_of_the_formula(trained):
    booster, X, _ = trained
    model = wrap(*trained, variance="auto")
    model.tune(*rows(300, seed=1), distributions="normal")
    # with power 0, which tune may choose, the recursion would not be in it
    scale_, calibration = replace(model.chosen.scale, power=0.5), model.calibration
    model.state = replace(model.state, chosen=replace(model.chosen, scale=scale_))
    recursion = model.predict_dist(X, "normal").var()
    plain = copy.copy(model)
    plain.state = replace(plain.state, chosen=Chosen(model.rho))
    steps = scale_.step[leaves(booster, model.forest, X)].sum(axis=1)
    expected = np.exp(scale_.start + steps) * np.maximum(plain.predict_var(X), scale_.floor) ** scale_.power
    np.testing.assert_allclose(recursion, calibration(expected), rtol=1e-9)
    assert np.array_equal(model.predict(X), plain.predict(X))


def test_both_routes_have_the_same_bits(trained, monkeypatch):
    _, X, _ = trained
    model = wrap(*trained, variance="auto")
    model.tune(*rows(300, seed=1), distributions="normal")
    found = {}
    for way in ("walk", "replay"):
        monkeypatch.setattr(route, "forced", way)
        found[way] = model.predict_dist(X).std(), model.predict_dist(X[:1]).std(), wrap(*trained, variance="boosted")
    for walked, replayed in zip(found["walk"][:2], found["replay"][:2], strict=True):
        assert np.array_equal(walked, replayed)
    assert np.array_equal(found["walk"][2].predict_var(X), found["replay"][2].predict_var(X))


def test_it_sees_noise_that_the_recursion_does_not(trained):
    """On rows that nothing has seen."""
    held_out, new = rows(600, seed=1), rows(2000, seed=2)
    crps = {}
    for variance in ("pgbm", "boosted", "auto"):
        model = wrap(*trained, variance=variance)
        result = model.tune(*held_out, distributions="normal")
        assert result.variance == ("pgbm" if variance == "pgbm" else "boosted")
        crps[variance] = model.predict_dist(new[0]).crps(new[1]).mean()
        if variance == "auto":
            assert "scale boosted" in str(result)
    assert crps["boosted"] < crps["pgbm"]
    assert crps["auto"] < crps["pgbm"]
    plain = wrap(*trained)
    plain.tune(*held_out, distributions="normal", variance="auto")  # without the training rows
    assert plain.predict_dist(new[0]).crps(new[1]).mean() < crps["pgbm"]


@pytest.mark.parametrize("seed", [0, 1])
def test_auto_is_not_worse_than_the_recursion(seed):
    """On its own validation rows. Exposures from 0.1 to 1000 make residuals that no leaf explains."""
    rng = np.random.default_rng(seed)
    X, exposure = rng.normal(size=(4000, 4)), rng.uniform(np.log(0.1), np.log(1000.0), 4000)
    y = rng.poisson(np.exp(exposure + 0.5 * X[:, 0] - 0.3 * X[:, 1])).astype(float)
    first, second = slice(0, 2000), slice(2000, None)
    params = {**LGB, "objective": "poisson", "num_leaves": 15, "learning_rate": 0.05}
    booster = lgb.train(params, lgb.Dataset(X[first], y[first], init_score=exposure[first]), 100)
    best = {}
    for variance in ("pgbm", "boosted", "auto"):
        model = wrap(booster, X[first], y[first], init_score=exposure[first], variance=variance)
        names = ["normal", "negativebinomial"]
        result = model.tune(X[second], y[second], init_score=exposure[second], distributions=names)
        best[variance] = result.best.score
        assert (model.chosen.scale is None) == (result.variance == "pgbm")
    assert best["boosted"] > best["pgbm"]  # else this would show nothing
    assert best["auto"] <= best["pgbm"]


def test_without_validation_rows(trained):
    """`wrap(variance="boosted")` is a spread at once, and "auto" is the recursion until it is tuned."""
    X_new, y_new = rows(2000, seed=2)
    boosted = wrap(*trained, variance="boosted")
    sd = boosted.predict(X_new, return_std=True)[1]
    assert 0.5 < np.mean((y_new - boosted.predict(X_new)) ** 2 / sd**2) < 2.0
    assert np.array_equal(wrap(*trained, variance="auto").predict_var(X_new), wrap(*trained).predict_var(X_new))
    assert "boosted" in repr(boosted)


def test_a_correlation_without_effect_is_refused(trained):
    """A scale without the recursion has none; of its own rho it says nothing else."""
    X = trained[1]
    boosted, blended = wrap(*trained, variance="boosted"), wrap(*trained)
    before = boosted.predict_var(X)
    for attempt in (lambda: boosted.predict_dist(X, rho=0.5), lambda: setattr(boosted, "rho", 0.5)):
        with pytest.raises(ValueError, match=r"no effect.*variance='pgbm' or 'auto'"):
            attempt()
    with pytest.raises(AttributeError):
        boosted.variance = "pgbm"
    assert np.array_equal(boosted.predict_dist(X, rho=boosted.rho).var(), before)
    blended.tune(*rows(300, seed=1), distributions="normal", variance="auto")
    assert blended.chosen.scale.power > 0
    assert not np.array_equal(blended.predict_dist(X, rho=0.5).var(), blended.predict_var(X))


def test_tuning_again_starts_anew(trained):
    held_out, X_new = rows(300, seed=1), rows(50, seed=2)[0]
    model, plain = wrap(*trained, variance="auto"), wrap(*trained)
    model.tune(*held_out, distributions="normal")
    first = model.predict_dist(X_new).std()
    model.tune(*held_out, distributions="normal")
    assert np.array_equal(model.predict_dist(X_new).std(), first)
    model.tune(*held_out, distributions="normal", variance="pgbm")
    plain.tune(*held_out, distributions="normal", variance="pgbm")
    assert np.array_equal(model.predict_dist(X_new).std(), plain.predict_dist(X_new).std())


def test_files_and_copies(trained, tmp_path):
    X_new = rows(50, seed=2)[0]
    model = wrap(*trained, variance="auto")
    model.tune(*rows(300, seed=1), distributions="normal")
    model.conformalize(*rows(200, seed=3))
    model.save(tmp_path / "model.pgbm")
    loaded = load(tmp_path / "model.pgbm")
    for other in (loaded, copy.deepcopy(model)):
        assert np.array_equal(other.predict_interval(X_new), model.predict_interval(X_new))
        other.tune(*rows(300, seed=4), distributions="normal")  # from the training rows' scale, which comes along
        again = copy.copy(model)
        again.tune(*rows(300, seed=4), distributions="normal")
        assert np.array_equal(other.predict_dist(X_new).std(), again.predict_dist(X_new).std())
    assert loaded.variance == "auto"


def test_many_rows_are_sampled(trained, monkeypatch):
    monkeypatch.setattr(scale, "MAX_ROWS", 100)
    monkeypatch.setattr(blend, "MAX_ROWS", 100)
    seen = []
    monkeypatch.setattr(scale, "boost_scale", lambda *given: seen.append(len(given[2])) or boost_scale(*given))
    model = wrap(*trained, variance="boosted")
    result = model.tune(*rows(300, seed=1), distributions="normal")
    assert seen == [100, 100]
    assert result.rows == 100


def test_equal_weights_change_nothing(trained):
    held_out, X_new = rows(300, seed=1), rows(50, seed=2)[0]
    spreads = []
    for weight in (None, np.full(300, 3.0)):
        model = wrap(*trained, variance="auto")
        model.tune(*held_out, sample_weight=weight)
        spreads.append(model.predict_dist(X_new).std())
    np.testing.assert_allclose(*spreads, rtol=1e-9)  # sums of weights are rounded


@pytest.mark.parametrize(
    "params",
    [
        {"objective": "poisson"},
        {"reg_sqrt": True},
        {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7},
        {"min_data_in_leaf": 1, "num_leaves": 300, "learning_rate": 1.0, "lambda_l2": 0.0},
    ],
)
@pytest.mark.filterwarnings("ignore:not certified")
def test_other_models(params):
    """Links, averages, and trees that leave no residual at all."""
    X, y = rows()
    y = np.floor(np.exp(0.3 * y)) if params.get("objective") else y
    model = wrap(train("lightgbm", X, y, **params), X, y, variance="boosted")
    assert np.isfinite(model.predict_dist(X).std()).all()
    X_val, y_val = rows(300, seed=1)
    model.tune(X_val, np.floor(np.exp(0.3 * y_val)) if params.get("objective") else y_val, variance="auto")
    std = model.predict_dist(X).std()
    assert np.isfinite(std).all()
    assert (std > 0).all()


def test_perfect_predictions_have_no_scale():
    X = rows()[0]
    with pytest.warns(UserWarning, match="no scale was boosted"):
        model = wrap(train("lightgbm", X, np.zeros(len(X))), X, np.zeros(len(X)), variance="boosted")
    assert model.training_scale is None
    assert np.all(model.predict_var(X) == 0.0)


def test_refusals(trained):
    booster, X, y = trained
    with pytest.raises(ValueError, match="'pgbm', 'boosted' or 'auto', not 'best'"):
        wrap(*trained, variance="best")
    model = wrap(*trained, variance="boosted")
    with pytest.raises(ValueError, match="variance must be"):
        model.tune(X, y, variance="best")
    with pytest.raises(ValueError, match="needs calibrate=True"):
        model.tune(*rows(300, seed=1), calibrate=False)
    with pytest.raises(TypeError, match="in one table"):
        wrap(booster, iter([(X, y)]), variance="boosted")
    streamed = wrap(booster, iter([(X, y)]), variance="auto")
    assert streamed.training_scale is None
    assert streamed.tune(*rows(300, seed=1), distributions="normal").variance == "boosted"
