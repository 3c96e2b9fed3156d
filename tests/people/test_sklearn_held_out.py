"""PGBMRegressor and the rows that it keeps from training: to tune, to conformalize, to stop on."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict

from pgbm_plugin import wrap
from pgbm_plugin.sklearn import PGBMRegressor


@pytest.mark.parametrize("frame", [False, True])
def test_held_out_rows_are_not_trained_on(regressor, frame, numeric, given_to_steps):
    X, y = numeric
    weight = np.linspace(1, 2, 400)
    table = pd.DataFrame(X, columns=list("abcd"), index=range(1000, 1400)) if frame else X
    outer = PGBMRegressor(regressor, distribution=None, tune_fraction=0.25, conformal_fraction=0.1, random_state=3)
    outer.fit(table, pd.Series(y, index=range(400)), weight)
    number, parts = {row.tobytes(): i for i, row in enumerate(X)}, {}
    for name, (rows, labels, options) in given_to_steps.items():
        assert type(rows) is type(table)
        parts[name] = part = np.array([number[row.tobytes()] for row in np.asarray(rows)])
        assert np.array_equal(labels, y[part])
        assert name == "conformalize" or np.array_equal(options["sample_weight"], weight[part])
    assert {name: len(part) for name, part in parts.items()} == {"fit": 260, "tune": 100, "conformalize": 40}
    assert sorted(np.concatenate(list(parts.values()))) == list(range(400))
    assert outer.model_.certificate.status == "certified"
    assert outer.model_.moments.rows == 260

    # and by hand
    train, tune, apart = parts["fit"], parts["tune"], parts["conformalize"]
    fitted = clone(regressor).fit(X[train], y[train], sample_weight=weight[train])
    model = wrap(fitted, X[train], y[train], sample_weight=weight[train], variance=outer.variance)
    result = model.tune(X[tune], y[tune], sample_weight=weight[tune])
    model.conformalize(X[apart], y[apart])
    assert outer.tune_result_.best == result.best
    assert np.array_equal(outer.predict_interval(table), model.predict_interval(X))


def test_what_is_tuned(regressor, numeric):
    X, y = numeric
    options = {"variance": "pgbm", "tune_fraction": 0.3, "random_state": 0}
    outer = PGBMRegressor(regressor, distribution="normal", **options)
    best = outer.fit(X, y).tune_result_.best
    assert best.distribution == outer.model_.distribution == "normal"
    assert outer.model_.rho == best.rho != outer.model_.default_rho
    assert len(outer.set_params(distribution=None).fit(X, y).tune_result_.candidates) > 3
    outer.set_params(distribution="studentt(df=5)", rho=0.2).fit(X, y)
    assert (outer.model_.distribution, outer.model_.rho) == ("studentt(df=5)", 0.2)
    assert outer.set_params(distribution="empirical").fit(X, y).model_.distribution == "empirical"
    outer.set_params(tune_fraction=None, cv=None, distribution=None).fit(X, y)
    assert outer.tune_result_ is None
    assert outer.model_.distribution == "normal"


def test_the_seed(regressor, numeric):
    X, y = numeric

    def ends(seed):
        return PGBMRegressor(regressor, conformal_fraction=0.5, random_state=seed).fit(X, y).predict_interval(X)

    assert np.array_equal(ends(0), ends(0))
    assert not np.array_equal(ends(0), ends(1))


def test_conformal_intervals_hold(regressor, make_data):
    """The standard error of 2,000 rows is near 0.7 %, and 1,000 calibration rows add as much."""
    X, y = make_data("numeric", n=4000)
    outer = PGBMRegressor(regressor, conformal_fraction=0.5, random_state=0).fit(X[:2000], y[:2000])
    low, high = outer.predict_interval(X[2000:], coverage=0.9).T
    assert np.mean((low <= y[2000:]) & (y[2000:] <= high)) == pytest.approx(0.9, abs=0.03)


def test_rows_in_order(regressor, numeric, given_to_steps):
    """With rows in the order of time, the last are held out, and the very last are for conformalizing."""
    X, y = numeric
    PGBMRegressor(regressor, tune_fraction=0.25, conformal_fraction=0.1, shuffle=False, random_state=3).fit(X, y)
    parts = {name: (rows, labels) for name, (rows, labels, _) in given_to_steps.items()}
    for name, part in {"fit": slice(260), "tune": slice(260, 360), "conformalize": slice(360, None)}.items():
        assert np.array_equal(parts[name][0], X[part])
        assert np.array_equal(parts[name][1], y[part])


def test_starts_of_rows(regressor, numeric, given_to_steps):
    X, y = numeric
    name = "init_score" if isinstance(regressor, lgb.LGBMRegressor) else "base_margin"
    outer = PGBMRegressor(regressor, tune_fraction=0.2, conformal_fraction=0.2).fit(X, y, **{name: 2 * X[:, 0]})
    assert outer.model_.certificate.status == "certified"
    for step, (rows, _, options) in given_to_steps.items():
        assert np.array_equal(options[name if step == "fit" else "init_score"], 2 * rows[:, 0])
    start = 2 * X[:, 0]
    for ask, given in (("predict", ()), ("predict_interval", ()), ("predict_quantiles", ([0.1],))):
        got, want = (getattr(of, ask)(X, *given, init_score=start) for of in (outer, outer.model_))
        assert np.array_equal(got, want)
    assert np.array_equal(
        outer.predict_dist(X, init_score=start).std(), outer.model_.predict_var(X, init_score=start) ** 0.5
    )


def test_starts_of_rows_under_one_name(regressor, numeric):
    """`init_score` is the name for all boosters, so that scikit-learn can route it."""
    X, y = numeric
    name = "init_score" if isinstance(regressor, lgb.LGBMRegressor) else "base_margin"
    start = 2 * X[:, 0]
    want = PGBMRegressor(regressor).fit(X, y, **{name: start}).predict(X, init_score=start)
    assert np.array_equal(PGBMRegressor(regressor).fit(X, y, init_score=start).predict(X, init_score=start), want)
    if name != "init_score":
        with pytest.raises(TypeError, match="both init_score and base_margin"):
            PGBMRegressor(regressor).fit(X, y, init_score=start, base_margin=start)
    with config_context(enable_metadata_routing=True):
        routed = PGBMRegressor(regressor).set_fit_request(init_score=True)
        found = cross_val_predict(routed, X, y, params={"init_score": start}, cv=2)
        parts = [(slice(200, None), slice(200)), (slice(200), slice(200, None))]
        fits = [PGBMRegressor(regressor).fit(X[a], y[a], init_score=start[a]) for a, _ in parts]
        want = [fit.predict(X[b]) for fit, (_, b) in zip(fits, parts, strict=True)]
        assert np.array_equal(found, np.concatenate(want))


def test_early_stopping(regressor, numeric):
    X, y = numeric
    regressor.set_params(n_estimators=200, learning_rate=0.5)
    if isinstance(regressor, lgb.LGBMRegressor):
        options = {"callbacks": [lgb.early_stopping(3, verbose=False)], "eval_X": X[300:], "eval_y": y[300:]}
    else:
        options = {"eval_set": [(X[300:], y[300:])], "verbose": False}
        regressor.set_params(early_stopping_rounds=3)
    outer = PGBMRegressor(regressor).fit(X[:300], y[:300], **options)
    assert outer.model_.forest.n_trees < 100
    assert np.array_equal(outer.predict(X), outer.estimator_.predict(X))
