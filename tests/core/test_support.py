"""predict_support: the share of a row's own label in its prediction, on any route, for any moments."""

from __future__ import annotations

import warnings

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from pgbm_plugin import partial_moments, record, wrap
from pgbm_plugin.leaves.leverage import MAX_LEVERAGE
from tests.small import LGB, XGB, train


@pytest.mark.parametrize("rounds", [1, 20])
def test_rows_are_the_inverse_share_of_the_own_label(rounds, numeric):
    """LightGBM fits the leaves of fixed trees anew, after one label has moved.

    Later trees take back some of it, because the other rows of a leaf have moved with this one.
    """
    if rounds == 1 and lgb.__version__ == "4.0.0":
        pytest.skip("LightGBM 4.0 cannot refit a single tree")
    X, y = numeric
    params = LGB | {"boost_from_average": False, "learning_rate": 0.3}
    booster = lgb.train(params, lgb.Dataset(X, y), rounds)
    support = wrap(booster, X, y).predict_support(X)

    def refitted(labels):
        return booster.refit(X, labels, decay_rate=0.0).predict(X)

    before = refitted(y)
    for i in (3, 77, 300):
        moved = y.copy()
        moved[i] += 1.0
        share = refitted(moved)[i] - before[i]
        assert 0.5 / support.rows[i] < share < (1.0 + 1e-5) / support.rows[i]
        if rounds == 1:
            np.testing.assert_allclose(share, 1.0 / support.rows[i], rtol=1e-5)


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
def test_rows_follow_from_the_sizes_of_leaves(kind, numeric):
    X, y = numeric
    booster = train(kind, X, y, {"learning_rate": 0.2, "lambda": 0.7}, rounds=5)
    model = wrap(booster, X, y)
    leaves = (
        booster.predict(X, pred_leaf=True) if kind == "lightgbm" else booster.predict(xgb.DMatrix(X), pred_leaf=True)
    )
    stay = np.ones(len(y))
    for column in leaves.astype(int).T:
        stay *= 1.0 - 0.2 / (np.bincount(column)[column] + 0.7)
    for part in (slice(None), slice(7)):  # replayed, and walked
        np.testing.assert_allclose(model.predict_support(X[part]).rows, 1.0 / (1.0 - stay[part]), rtol=1e-5)


def test_weights_and_decay_count(numeric):
    """Equal weights count as none, and rows of weight 0 are not there; unequal weights count for fewer rows."""
    X, y = numeric
    kept = np.arange(400) % 4 > 0

    def rows_with(weight):
        booster = lgb.train(LGB | {"boost_from_average": False}, lgb.Dataset(X[kept], y[kept]), 4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # weights are not those of training
            return wrap(booster, X, y, sample_weight=weight).predict_support(X).rows

    plain = rows_with(kept.astype(float))
    np.testing.assert_allclose(rows_with(7.0 * kept), plain)
    assert plain.max() <= 300.0
    unequal = rows_with(np.where(np.arange(400) % 4 == 1, 9.0, 1.0) * kept)
    assert np.all(unequal < plain)
    model = wrap(train("lightgbm", X, y), X, y)
    before = model.predict_support(X).rows
    after = model.update(X, y, decay=0.5).predict_support(X).rows
    few = before < 300.0
    np.testing.assert_allclose(after[few] / before[few], 1.8, rtol=0.02)  # (1 + 1/2)^2 / (1 + 1/4) of the rows


def test_a_leaf_without_rows_counts_as_one_with_a_row(numeric):
    X, y = numeric
    booster = train("lightgbm", X, y, rounds=1)
    part = X[:, 0] > 0
    with pytest.warns(UserWarning, match="not certified"):
        model = wrap(booster, X[part], y[part])
    leaf = booster.predict(X, pred_leaf=True).reshape(len(X), -1)[:, 0]
    count = np.bincount(leaf[part], minlength=leaf.max() + 1)[leaf]
    assert (count == 0).any()
    share = np.minimum(0.1 / np.maximum(count, 1), 1.0 - np.exp(-MAX_LEVERAGE))
    np.testing.assert_allclose(model.predict_support(X).rows, np.minimum(1.0 / share, part.sum()), rtol=1e-6)


def test_a_forest_without_splits_rests_on_all_rows():
    X, y = np.zeros((50, 2)), np.arange(50.0)
    model = wrap(lgb.train({"verbose": -1}, lgb.Dataset(X, y), 3), X, y)
    assert np.all(model.predict_support(X).rows >= 25.0)
    assert np.all(model.predict_support(X).rows <= 50.0)


def test_summary(numeric):
    X, y = numeric
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = wrap(train("lightgbm", frame, y), frame, y)
    assert "no value lies outside of what training saw" in repr(model.predict_support(frame))
    new = frame.iloc[:5].copy()
    new.loc[1, ["b", "d"]] = 99.0
    new.loc[4, "d"] = np.nan
    support = model.predict_support(new)
    assert support.outside == ((), ("b", "d"), (), (), ("d",))
    assert support.n_outside.tolist() == [0, 2, 0, 0, 1]
    assert "values outside of what training saw in 2 rows: d in 2, b in 1" in repr(support)
    assert "effective training rows behind a prediction" in repr(support)
    assert support.least(2).tolist() == [1, 4]
    assert support.columns()["outside"].tolist() == ["", "b, d", "", "", "d"]
    assert len(support) == 5
    none = model.predict_support(frame.iloc[:0])
    assert none.outside == ()
    assert "0 rows" in repr(none)


def test_moments_alone_tell_what_is_known(numeric):
    """Recorded trainings have no rows of features; partial moments bring what theirs had."""
    X, y = numeric
    booster = lgb.train(LGB, lgb.Dataset(X, y), 3, callbacks=[record()])
    recorded, whole = wrap(booster), wrap(booster, X, y)
    support = recorded.predict_support(X)
    assert np.array_equal(support.rows, whole.predict_support(X).rows)
    assert support.outside is None
    assert support.n_outside is None
    assert support.columns().keys() == {"support"}
    assert "is not known, because the model was made from moments, a recorded training" in repr(support)
    assert support.least(3).tolist() == np.argsort(support.rows, kind="stable")[:3].tolist()
    gathered = wrap(booster, partial_moments(booster, X, y, start=whole.spec.start))
    assert gathered.predict_support(X + 10.0).outside == whole.predict_support(X + 10.0).outside
    recorded.update(X, y)  # of the rows before, nothing is known
    assert recorded.predict_support(X).outside is None
    recorded.update(X, y, decay=0.0)  # they are forgotten
    assert recorded.predict_support(X).outside == whole.predict_support(X).outside


def test_features_have_the_names_that_reach_the_booster():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=200), "shop": rng.choice(["a", "b"], 200)})
    steps = ColumnTransformer([("one", OneHotEncoder(handle_unknown="ignore"), ["shop"])], remainder="passthrough")
    steps.set_output(transform="default")
    model = wrap(make_pipeline(steps, lgb.LGBMRegressor(n_estimators=3, verbose=-1)).fit(X, X.x), X, X.x)
    new = X.iloc[:2].copy()
    new.loc[1, "x"] = 9.0
    (none, (name,)) = model.predict_support(new).outside
    assert none == ()
    assert name == model.forest.features.shown_names[2]


def test_xgboost_compares_in_its_own_precision(numeric):
    """A number that XGBoost rounds to the largest one of training is not outside."""
    X, y = numeric
    X = X.astype(np.float32)
    model = wrap(xgb.train(XGB, xgb.DMatrix(X, y), 3), X, y)
    top = float(X[:, 0].max())
    rows = np.repeat(X[:1].astype(np.float64), 2, axis=0)
    rows[:, 0] = top * (1 + 1e-9), top * (1 + 1e-6)
    assert model.predict_support(rows).outside == ((), (model.forest.features.shown_names[0],))
