"""Sample weights: moments are weighted ones of the g and h of single rows, on every way to them."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import partial_moments, wrap
from pgbm_plugin.leaves.moments import LeafMoments
from tests.same import assert_same_moments

LGB = {"num_leaves": 15, "num_threads": 1, "verbose": -1}
XGB = {"max_leaves": 15, "grow_policy": "lossguide", "eta": 0.1, "nthread": 1}


def train(kind, X, y, weight=None, rounds=20, **params):
    if kind == "lightgbm":
        return lgb.train({**LGB, **params}, lgb.Dataset(X, y, weight=weight), rounds)
    return xgb.train({**XGB, **params}, xgb.DMatrix(X, y, weight=weight), rounds)


def poisson(kind):
    return {"objective": "poisson" if kind == "lightgbm" else "count:poisson"}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    return X, rng.poisson(np.exp(1.0 + 0.3 * X[:, 0])).astype(float), rng.gamma(1.0, 1.0, 4000)


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("log", [False, True])
def test_rows_of_weight_0_are_as_if_left_out(kind, log, data):
    X, y, weight = data
    weight = np.where(np.arange(len(y)) % 3 == 0, weight, 0.0)
    model = train(kind, X, y, weight, **(poisson(kind) if log else {}))
    kept = weight > 0
    all_rows, some = wrap(model, X, y, sample_weight=weight), wrap(model, X[kept], y[kept], sample_weight=weight[kept])
    assert all_rows.certificate.status == some.certificate.status == "certified"
    assert all_rows.rho == some.rho
    np.testing.assert_allclose(all_rows.predict_var(X), some.predict_var(X), rtol=1e-12)


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
def test_weights_that_say_nothing_of_y(kind, data):
    """Heavy rows pull the trees towards them, so that their residuals, which count most, are smaller: by a tenth.

    Moments of w * g were 58 to 77 % wider.
    """
    X, _, _ = data
    rng = np.random.default_rng(1)
    y, weight = 2 * X[:, 0] + rng.normal(size=len(X)), rng.gamma(0.25, 4.0, len(X))  # coefficient of variation 2
    spread = [
        np.median(wrap(train(kind, X, y, w, 50), X, y, sample_weight=w).predict(X, return_std=True)[1])
        for w in (None, weight)
    ]
    assert 0.85 < spread[1] / spread[0] < 1.0


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("weight", [0.125, 8.0])
def test_one_weight_for_all_rows(kind, weight, data):
    """Without regularisation, the unit of weights means nothing."""
    X, y, _ = data
    weights = np.full(len(y), weight)
    model = train(kind, X, y, weights, min_child_weight=0.0, reg_lambda=0.0)
    plain, weighted = wrap_quietly(model, X, y), wrap(model, X, y, sample_weight=weights)
    assert weighted.certificate.status == "certified"
    np.testing.assert_allclose(weighted.predict_var(X), plain.predict_var(X), rtol=1e-6)


def wrap_quietly(*arguments, **options):
    with pytest.warns(UserWarning, match="sample_weight="):
        return wrap(*arguments, **options)


def test_lambda_is_divided_by_the_sum_of_weights(data):
    X, y, weight = data
    model = wrap(train("lightgbm", X, y, weight, rounds=1, lambda_l2=50.0), X, y, sample_weight=weight)
    moments = model.moments
    assert model.spec.lambda_[0] == 50.0
    d = moments.h_mean + 50.0 / moments.weight
    np.testing.assert_allclose(model.weights.variance, moments.var_g / d**2, rtol=1e-12)  # hessians are 1


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
def test_any_partition(kind, data):
    X, y, weight = data
    weight = np.where(np.arange(len(y)) % 5 == 0, 0.0, weight)
    booster = train(kind, X, y, weight, **poisson(kind))
    whole = wrap(booster, X, y, sample_weight=weight)
    cuts = [0, 1, 700, 701, 2500, len(y)]
    batches = [(X[a:b], y[a:b], weight[a:b]) for a, b in pairwise(cuts)]
    streamed = wrap(booster, iter(batches))
    assert streamed.certificate.status == "certified"
    assert_same_moments(whole.moments, streamed.moments)
    parts = [partial_moments(whole, X_, y_, sample_weight=w).to_bytes() for X_, y_, w in batches]
    merged = reduce(LeafMoments.merge, map(LeafMoments.from_bytes, parts))
    assert_same_moments(whole.moments, merged)
    assert merged.rows == np.count_nonzero(weight)
    assert wrap(booster, merged).certificate.status == "certified"


def test_a_tiny_weight_beside_a_large_one():
    """W - sum w^2 / W would cancel; the sum over pairs does not."""
    x, y = np.zeros((2, 1)), np.array([0.0, 1.0])
    weight = np.array([1.0, 1e-20])
    booster = train("xgboost", x, y, weight, rounds=1, base_score=0.0, **{"lambda": 0.0, "min_child_weight": 0.0})
    moments = wrap(booster, x, y, sample_weight=weight).moments
    np.testing.assert_allclose(moments.var_g, 0.5, rtol=1e-6)  # 1 / (w1 + w2) * w1 w2 / (2 w1 w2 / W)


def test_weights_and_decay(data, tmp_path):
    """Rows that are forgotten at once leave the new ones alone; lambda is divided by what is left of the weights."""
    X, y, weight = data
    old, new = slice(0, 2000), slice(2000, None)
    booster = train("lightgbm", X[old], y[old], weight[old], lambda_l2=1.0)
    model = wrap(booster, X[old], y[old], sample_weight=weight[old])
    fresh = partial_moments(model, X[new], y[new], sample_weight=weight[new])
    model.update(X[new], y[new], sample_weight=weight[new], decay=1e-13)
    np.testing.assert_allclose(model.moments.var_g, fresh.var_g, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(model.moments.size, fresh.weight, rtol=1e-6)
    assert model.moments.rows == pytest.approx(2000)
    raw = LeafMoments.from_bytes(model.moments.to_bytes())
    assert all(np.array_equal(array, raw.arrays()[name]) for name, array in model.moments.arrays().items())
    model.save(tmp_path / "model.pgbm")


def test_weights_join_rows_without():
    none, some = LeafMoments.of_nothing(1), np.array([[0.5], [1.0], [2.0], [0.0], [0.0]])
    plain = LeafMoments(4, np.array([4]), *some)
    ones = LeafMoments(4, np.array([4]), *some, weight=np.array([4.0]), freedom=np.array([3.0]))
    for merged in (plain.merge(ones), ones.merge(plain), none.merge(ones).merge(plain)):
        assert (merged.mass[0], merged.freedom[0], merged.var_g[0]) == (8.0, 7.0, 4.0 / 7.0)
        assert merged.size[0] == 8.0
    faded = plain.faded(0.5).merge(ones)  # (4 * .5 + 4)^2 / (4 * .25 + 4)
    assert faded.size[0] == pytest.approx(7.2)
    assert ones.faded(0.5).merge(plain).size[0] == pytest.approx(7.2)


def test_a_repr_knows_weights_from_decay(data):
    X, y, weight = data
    assert "decay" not in repr(wrap(train("lightgbm", X, y, weight), X, y, sample_weight=weight))


def test_weights_that_float32_does_not_hold(data):
    X, y, _ = data
    with pytest.raises(ValueError, match="zero for every row"):
        wrap(train("xgboost", X, y), X, y, sample_weight=np.full(len(y), 5e-324))
