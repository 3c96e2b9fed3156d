"""Where a variance comes from: against Shapley's own sum over subsets, LightGBM's pred_contrib, and the variance."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import wrap
from pgbm_plugin.predict.explain import add_shapley, leaf_paths
from pgbm_plugin.predict.log_scale import LogScale
from pgbm_plugin.predict.power_map import Calibration
from pgbm_plugin.predict.predictions import predict_margins
from pgbm_plugin.predict.recursion import margins_and_variances
from pgbm_plugin.tables.rows import read_rows
from pgbm_plugin.trees.forest import CATEGORICAL, DEFAULT_LEFT, ZERO_BOUND, ZERO_IS_MISSING
from tests.quiet import quiet_wrap

LGB = {"num_leaves": 9, "min_data_in_leaf": 5, "min_data_per_group": 5, "verbose": -1, "num_threads": 1}
XGB = {"max_depth": 4, "nthread": 1}


def goes_left(forest, node, x):
    if math.isnan(x) or (node["flags"] & ZERO_IS_MISSING and abs(x) <= ZERO_BOUND):
        return bool(node["flags"] & DEFAULT_LEFT)
    if node["flags"] & CATEGORICAL:
        words = forest.category_bits[slice(*forest.category_start[node["category_set"] + [0, 1]])]
        return node["threshold"] < x < 32 * len(words) and bool(words[int(x) // 32] >> int(x) % 32 & 1)
    return x <= node["threshold"]


def expectation(forest, count, value, k, row, known):
    """(rows, mean value) below k for a row of which some features are known: others go both ways."""
    if k < 0:
        return count[~k], value[~k]
    node = forest.nodes[k]
    sides = [expectation(forest, count, value, node[side], row, known) for side in ("left", "right")]
    rows = sides[0][0] + sides[1][0]
    if node["feature"] in known:
        return rows, sides[0 if goes_left(forest, node, row[node["feature"]]) else 1][1]
    shares = [side[0] / rows if rows else 0.5 for side in sides]
    return rows, sum(share * side[1] for share, side in zip(shares, sides, strict=True))


def shapley(forest, count, value, root, row):
    """Shapley's formula: (features,) values, the expectation without any feature, and the row's own value."""
    features = range(forest.features.count)
    subsets = [set(s) for size in range(len(row) + 1) for s in combinations(features, size)]
    worth = {frozenset(s): expectation(forest, count, value, root, row, s)[1] for s in subsets}
    out, d = np.zeros(len(row)), len(row)
    for j in features:
        for s in (s for s in subsets if j not in s):
            weight = math.factorial(len(s)) * math.factorial(d - len(s) - 1) / math.factorial(d)
            out[j] += weight * (worth[frozenset(s | {j})] - worth[frozenset(s)])
    return out, worth[frozenset()], worth[frozenset(features)]


def explained(model, row):
    """The definition of explain_variance, tree by tree."""
    forest, rho, square, scale = model.forest, model.rho, model.weights.sd**2, model.chosen.scale
    parts, v, base = np.zeros(forest.features.count), 0.0, 0.0
    steps, step, mean_step = 0.0, 0.0, 0.0
    for root in forest.root:
        phi, mean, own = shapley(forest, model.moments.count, square, root, row)
        s, s_mean = math.sqrt(own), math.sqrt(mean)
        sigmas, sds = math.sqrt(v) + math.sqrt(base), s + s_mean
        before = parts * (1 - rho * sds / sigmas) if sigmas else parts
        parts = before + (phi * (1 - rho * sigmas / sds) if sds else 0.0)
        # eq. 12 as a sum of squares: elsewhere it cancels
        v = (math.sqrt(v) - rho * s) ** 2 + s**2 * (1 - rho**2)
        base = (math.sqrt(base) - rho * s_mean) ** 2 + mean * (1 - rho**2)
        if scale:
            phi, mean, own = shapley(forest, model.moments.count, scale.step, root, row)
            steps, step, mean_step = steps + phi, step + own, mean_step + mean
    if scale:  # the parts of the logarithm, each between its own ends
        ends = [scale.power * math.log(max(end, scale.floor)) for end in (v, base)]
        parts = parts * (ends[0] - ends[1]) / (v - base) + steps
        log_v, log_base = scale.start + ends[0] + step, scale.start + ends[1] + mean_step
        own, mean = (model.calibration(math.exp(end)) for end in (log_v, log_base))
        return np.array([*parts * (own - mean) / (log_v - log_base), mean])
    slope = (model.calibration(v) - model.calibration(base)) / (v - base)
    return np.array([*parts * slope, model.calibration(base)])


def with_scale(model, power, share_of_floor=0.01):
    """Give the model a boosted scale with arbitrary steps."""
    step = np.random.default_rng(1).normal(0.0, 0.3, model.forest.n_leaves)
    scale = LogScale(step, 0.4, power, share_of_floor * model.state.typical_variance())
    model.state = replace(model.state, chosen=replace(model.chosen, scale=scale))
    return model


def train(booster, X, y, **params):
    if booster == "lightgbm":
        return lgb.train({**LGB, **params}, lgb.Dataset(X, y), 6)
    return xgb.train({**XGB, **params}, xgb.DMatrix(X, y, enable_categorical=True), 6)


@pytest.mark.parametrize("rho", [0.0, 0.1, -0.6, 0.97])
@pytest.mark.parametrize("kind", ["nan", "mixed"])
@pytest.mark.parametrize("booster", ["lightgbm", "xgboost"])
def test_definition(booster, kind, rho, make_data):
    X, y = make_data(kind)
    held_out = slice(300, None)  # few rows: some leaves have none
    model = quiet_wrap(train(booster, X[:300], y[:300]), X[held_out], y[held_out])
    assert (model.moments.count == 0).any()
    model.rho, model.calibration = rho, Calibration(0.7, 1.9)
    got = model.explain_variance(X[:6])
    matrix = read_rows(X[:6], model.forest.features).converted()
    ((_, _, block),) = matrix.blocks(0, 6)
    want = np.array([explained(model, row) for row in block.astype(float)])
    # slopes of secants between variances that nearly agree lose digits, in the oracle too
    np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-9 * np.abs(want).max())


@pytest.mark.parametrize("share_of_floor", [0.01, 1.0])  # no row is below the floor, or many rows are
@pytest.mark.parametrize("power", [0.0, 0.4, 1.0, 1.7])
def test_definition_of_a_boosted_scale(power, share_of_floor, make_data):
    X, y = make_data("nan", n=300)
    model = quiet_wrap(train("lightgbm", X, y), X, y)
    model.rho, model.calibration = 0.3, Calibration(0.7, 1.9)
    got = with_scale(model, power, share_of_floor).explain_variance(X[:20])
    want = np.array([explained(model, row) for row in X[:20]])
    np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-9 * np.abs(want).max())


def test_a_scale_without_steps_is_the_power_map(make_data):
    """Two ways to say the same variance give the same parts: slopes of lines multiply."""
    X, y = make_data("nan", n=300)
    model = quiet_wrap(train("xgboost", X, y), X, y)
    model.calibration = Calibration(0.6, 2.5)
    want = model.explain_variance(X)
    scale = LogScale(np.zeros(model.forest.n_leaves), math.log(2.5), 0.6, 1e-12)
    model.state = replace(model.state, chosen=replace(model.chosen, scale=scale, calibration=Calibration()))
    np.testing.assert_allclose(model.explain_variance(X), want, rtol=1e-8, atol=1e-10 * np.abs(want).max())


@pytest.mark.parametrize("variance", ["boosted", "auto"])
@pytest.mark.parametrize("params", [{}, {"objective": "poisson"}, {"min_data_in_leaf": 1, "num_leaves": 90}], ids=str)
def test_a_tuned_scale_sums_to_the_variance(params, variance, mixed):
    X, y = mixed
    model = quiet_wrap(train("lightgbm", X[:250], y[:250], **params), X[:250], y[:250], variance=variance)
    model.tune(X[250:], y[250:], distributions="normal")
    if model.chosen.scale is None:
        with_scale(model, 0.5)
    got, state = model.explain_variance(X), model.state
    rows = read_rows(X, model.forest.features)
    want = model.calibration(predict_margins(state, rows, None, model.rho, state.chosen.scale, 1).variance)
    np.testing.assert_allclose(got.sum(axis=1), want, rtol=1e-9)
    assert np.ptp(got[:, -1]) == 0.0


def test_lightgbm_agrees(make_data):
    """Explaining leaf values in place of variances gives LightGBM's own pred_contrib."""
    X, y = make_data("nan")
    X[:, 3] = np.random.default_rng(0).integers(0, 9, len(X))
    booster = lgb.train({**LGB, "num_leaves": 31}, lgb.Dataset(X, y, categorical_feature=[3]), 20)
    model = wrap(booster, X, y)
    out = np.zeros((len(X), 5))
    paths = leaf_paths(model.forest, model.moments.count)
    add_shapley(model.forest, X, paths, model.forest.leaf_value, np.ones((len(X), 20)), out)
    want = booster.predict(X, pred_contrib=True)
    np.testing.assert_allclose(out[:, :4], want[:, :4], rtol=1e-10, atol=1e-13)
    # what is left over is the mean, the same for every row
    np.testing.assert_allclose(model.predict(X) - out.sum(axis=1), want[:, 4], rtol=1e-12)


@pytest.mark.parametrize("calibration", [Calibration(), Calibration(0.4, 2.0), Calibration(0.0, 3.0)])
@pytest.mark.parametrize("rho", [0.0, None, 0.9, -1.0, 1.0])
@pytest.mark.parametrize(
    ("booster", "params"),
    [
        ("lightgbm", {}),
        ("lightgbm", {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}),
        ("lightgbm", {"objective": "poisson"}),
        ("lightgbm", {"min_data_in_leaf": 1, "num_leaves": 300}),  # leaves of one row, without variance
        ("lightgbm", {"zero_as_missing": True}),
        ("xgboost", {}),
        ("xgboost", {"num_parallel_tree": 3, "objective": "reg:gamma"}),
    ],
    ids=str,
)
def test_sums_to_the_variance(booster, params, rho, calibration, mixed):
    X, y = mixed
    model = quiet_wrap(train(booster, X, y, **params), X, y)
    model.rho, model.calibration = model.rho if rho is None else rho, calibration
    got = model.explain_variance(X)
    rows = read_rows(X, model.forest.features)
    want = calibration(
        margins_and_variances(model.forest, rows, model.forest.leaf_value, model.weights.sd, model.rho)[1]
    )
    assert got.shape == (len(X), X.shape[1] + 1)
    np.testing.assert_allclose(got.sum(axis=1), want, rtol=1e-9, atol=1e-12 * want.max())
    assert np.ptp(got[:, -1]) == 0.0
    if calibration.b == 0.0:
        assert not got[:, :-1].any()


def test_the_feature_that_spreads():
    """The labels' spread depends on one feature, their mean on another."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 4))
    y = 0.3 * X[:, 0] + np.where(X[:, 1] > 0, 2.0, 0.2) * rng.normal(size=4000)
    model = wrap(lgb.train({**LGB, "min_data_in_leaf": 100}, lgb.Dataset(X, y), 30), X, y)
    size = np.abs(model.explain_variance(X[:500])[:, :-1]).mean(axis=0)
    assert size.argmax() == 1
    assert (model.explain_variance(X[:500])[:, 1] > 0).mean() == pytest.approx((X[:500, 1] > 0).mean(), abs=0.02)


def test_rows_and_threads(mixed):
    X, y = mixed
    model = wrap(train("lightgbm", X, y), X, y, n_jobs=1)
    whole = model.explain_variance(X)
    model.n_jobs = 2
    assert np.array_equal(model.explain_variance(X), whole)
    assert np.array_equal(model.explain_variance(X.iloc[7:8]), whole[7:8])


def test_a_model_without_splits():
    X = np.zeros((40, 3))
    model = quiet_wrap(lgb.train(LGB, lgb.Dataset(X, np.arange(40.0)), 3), X, np.arange(40.0))
    got = model.explain_variance(X)
    assert not got[:, :-1].any()
    np.testing.assert_allclose(got[:, -1], model.predict_var(X), rtol=1e-12)


def test_parts_have_names_and_are_read_as_an_array(mixed):
    X, y = mixed
    model = wrap(train("lightgbm", X, y), X, y)
    parts = model.explain_variance(X[:20])
    assert parts.names == tuple(X.columns)
    assert np.asarray(parts) is parts.parts
    assert parts.shape == (20, X.shape[1] + 1) == np.array(parts, np.float32, copy=True).shape
    np.testing.assert_array_equal(parts.values, parts[:, :-1])
    np.testing.assert_array_equal(parts.sum(axis=1), parts.parts.sum(axis=1))
    (name, part), *_ = parts.largest(3)
    assert abs(part) == np.abs(parts.values[3]).max() == abs(parts.values[3, list(X.columns).index(name)])
    assert repr(parts).startswith("VarianceParts of 20 rows; mean absolute part in the variance: ")


def test_parts_of_the_standard_deviation(mixed):
    X, y = mixed
    model = wrap(train("lightgbm", X, y), X, y)
    parts = model.explain_variance(X[:20])
    std = parts.std()
    np.testing.assert_allclose(std.sum(axis=1), np.sqrt(parts.sum(axis=1)), rtol=1e-12)
    np.testing.assert_allclose(std.base, np.sqrt(parts.base), rtol=1e-15)
    assert (np.sign(std.values) == np.sign(parts.values)).all()  # a feature that adds to one adds to the other
    assert std.std() is std
    assert parts.unit == "variance"


def test_parts_for_shap(mixed):
    shap = pytest.importorskip("shap")
    X, y = mixed
    parts = wrap(train("lightgbm", X, y), X, y).explain_variance(X[:5])
    explanation = parts.to_shap()
    assert isinstance(explanation, shap.Explanation)
    assert explanation.feature_names == list(X.columns)
    np.testing.assert_array_equal(explanation.values, parts.values)
