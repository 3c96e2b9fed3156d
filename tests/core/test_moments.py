"""Leaf moments: whatever the batches, the order, the threads; and variances that are finite and never negative."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import pairwise

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pgbm_plugin import wrap
from pgbm_plugin.leaves.gather import leaf_moments
from pgbm_plugin.leaves.moments import LeafMoments
from pgbm_plugin.leaves.weights import leaf_weights
from pgbm_plugin.tables.labelled import LabelledRows
from pgbm_plugin.tables.rows import read_rows
from tests.same import MOMENTS, assert_same_moments

LGB = {"num_leaves": 8, "min_data_in_leaf": 2, "min_sum_hessian_in_leaf": 0.0, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 3, "nthread": 1, "min_child_weight": 0.0}


def moments_of(model, X, y, rows):
    label = model.spec.margin_labels(y[rows])
    table = read_rows(X[rows], model.forest.features)
    return leaf_moments(model.forest, model.spec, LabelledRows(table, label, None, None), n_jobs=1)


@pytest.fixture(scope="module", params=["lightgbm", "xgboost", "offset"])
def trained(request, make_data):
    """A log link, whose hessians vary; or labels so far from 0 that plain sums of squares would lose their digits."""
    X, y = make_data("nan", n=4000)
    if request.param == "offset":
        y = y + 1e6
        return wrap(lgb.train(LGB, lgb.Dataset(X, y), 4), X, y), X, y
    if request.param == "lightgbm":
        return wrap(lgb.train({**LGB, "objective": "poisson"}, lgb.Dataset(X, y), 4), X, y), X, y
    return wrap(xgb.train({**XGB, "objective": "reg:gamma"}, xgb.DMatrix(X, y), 4), X, y), X, y


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_row_order(trained, seed):
    model, X, y = trained
    order = np.random.default_rng(seed).permutation(len(y))
    assert_same_moments(model.moments, moments_of(model, X, y, order))


@given(cuts=st.lists(st.integers(0, 4000), max_size=6), data=st.data())
@settings(max_examples=25)
def test_any_partition_in_any_merge_tree(trained, cuts, data):
    model, X, y = trained
    bounds = [0, *sorted(cuts), len(y)]
    parts = [moments_of(model, X, y, slice(a, b)) for a, b in pairwise(bounds) if a < b]
    while len(parts) > 1:
        i = data.draw(st.integers(0, len(parts) - 1))
        one = parts.pop(i)
        j = data.draw(st.integers(0, len(parts) - 1))
        parts[j] = one.merge(parts[j])
    assert_same_moments(model.moments, parts[0])


@pytest.mark.parametrize("size", [1, 7, 512, 3999])
def test_batch_size(trained, size):
    model, X, y = trained
    n = min(len(y), 200 * size)
    whole = moments_of(model, X, y, slice(0, n))
    parts = [moments_of(model, X, y, slice(lo, min(lo + size, n))) for lo in range(0, n, size)]
    assert_same_moments(whole, reduce(LeafMoments.merge, parts))


def test_threads_do_not_change_a_bit(make_data):
    X, y = make_data("nan", n=40_000)  # more than two chunks
    booster = lgb.train({**LGB, "objective": "poisson", "num_leaves": 31}, lgb.Dataset(X, y), 3)
    models = [wrap(booster, X, y, n_jobs=n) for n in (1, 2, 5, -1, None)]
    for model in models[1:]:
        for name in ("count", *MOMENTS):
            assert np.array_equal(getattr(model.moments, name), getattr(models[0].moments, name))
        assert np.array_equal(model.predict_var(X), models[0].predict_var(X))


def test_the_offset_of_labels_costs_nothing(make_data, leaf_labels):
    """With y offset by 1e6, raw sums of squares lose var_g to 1e-2; float32 labels alone are 0.06 apart there."""
    X, y = make_data("numeric", n=2000)
    y = np.round(16 * y) / 16  # so that y + 1e6 is a float32, and the residuals are the same numbers
    near, far = (wrap(lgb.train(LGB, lgb.Dataset(X, label), 1), X, label) for label in (y, y + 1e6))
    assert np.array_equal(near.moments.count, far.moments.count)
    # the start, a mean near 1e6, is itself only good to 1e-10, and g is rounded to float32
    np.testing.assert_allclose(far.moments.var_g, near.moments.var_g, rtol=1e-6)
    leaf = leaf_labels(far, X)[:, 0]
    exact = [np.var((y + 1e6)[leaf == j], ddof=1) for j in range(far.forest.n_leaves)]
    np.testing.assert_allclose(far.moments.var_g, exact, rtol=1e-6)


def test_merge_with_nothing():
    nothing = LeafMoments(0, np.zeros(2, np.int64), *np.zeros((5, 2)))
    some = LeafMoments(3, np.array([3, 0]), *np.array([[1.0, 0], [2, 0], [3, 0], [4, 0], [5, 0]]))
    for merged in (some.merge(nothing), nothing.merge(some)):
        assert merged.rows == 3
        for name in ("count", *MOMENTS):
            assert np.array_equal(getattr(merged, name), getattr(some, name))


def test_one_row_has_no_variance():
    one = LeafMoments(1, np.array([1]), *np.array([[1.5], [2.0], [0.0], [0.0], [0.0]]))
    assert (one.var_g[0], one.var_h[0], one.cov_gh[0]) == (0.0, 0.0, 0.0)


def test_a_variance_that_is_not_finite_becomes_that_of_its_tree(numeric):
    X, y = numeric
    model = wrap(lgb.train(LGB, lgb.Dataset(X, y), 2), X, y)
    leaves = int(model.forest.leaf_start[1])
    gg = model.moments.gg.copy()
    gg[0] = np.inf
    weights = leaf_weights(model.forest, model.spec, replace(model.moments, gg=gg))
    others = slice(1, leaves)
    mean = np.average(model.weights.variance[others], weights=model.moments.count[others])
    np.testing.assert_allclose(weights.variance, [mean, *model.weights.variance[1:]], rtol=1e-12)


features = st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, np.nan])
labels = st.floats(-100, 100, width=32) | st.sampled_from([0.0, 1.0, 1e6, 1e6 + 1])


@given(
    X=hnp.arrays(np.float64, st.tuples(st.integers(1, 30), st.just(2)), elements=features),
    new=hnp.arrays(np.float64, (5, 2), elements=st.floats()),
    rho=st.floats(-1, 1),
    kind=st.sampled_from(["lightgbm", "xgboost", "poisson"]),
    data=st.data(),
)
@settings(max_examples=120)
@pytest.mark.filterwarnings("ignore:not certified:UserWarning")  # extreme labels: the question here is the variance
def test_variance_is_finite_and_not_negative(X, new, rho, kind, data):
    y = data.draw(hnp.arrays(np.float64, len(X), elements=labels.map(abs) if kind == "poisson" else labels))
    if kind == "xgboost":
        X = np.where(np.isinf(X), np.nan, X)  # which its DMatrix refuses
        booster = xgb.train({**XGB, "lambda": 0.0}, xgb.DMatrix(X, y), 4)
    else:
        assume(kind == "lightgbm" or y.sum() > 0)  # LightGBM refuses to start from log(0)
        params = {**LGB, "objective": "poisson" if kind == "poisson" else "regression", "feature_pre_filter": False}
        params |= {"min_data_in_bin": 1, "min_data_in_leaf": 1}
        booster = lgb.train(params, lgb.Dataset(X, y), 4)
    model = wrap(booster, X, y)
    model.rho = rho
    for rows in (X, new):
        with np.errstate(over="ignore"):
            variance = model.predict_var(rows)
        assert np.all(np.isfinite(variance))
        assert np.all(variance >= 0.0)


@pytest.mark.parametrize("rho", [-1.0, 0.0, 0.3, 1.0])
def test_rho_is_the_papers(rho, numeric, leaf_labels):
    """With two trees eq. 12 is the variance of a sum of two variables with correlation -rho."""
    X, y = numeric
    model = wrap(lgb.train(LGB, lgb.Dataset(X, y), 2), X, y)
    leaf = leaf_labels(model, X) + model.forest.leaf_start[:-1]
    first, second = (np.sqrt(model.weights.variance) * model.spec.alpha[0])[leaf].T
    want = first**2 + second**2 - 2 * rho * first * second
    np.testing.assert_allclose(model.predict_dist(X, rho=rho).var(), want, rtol=1e-9, atol=1e-18)
