"""Custom objectives: given again through objective=, run tree by tree on all rows."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import UnsupportedModelError, wrap

LGB = {"num_leaves": 8, "min_data_in_leaf": 10, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 3, "nthread": 1}


def log_cosh(margin, y):
    t = np.tanh(margin - y)
    return t, np.maximum(1 - t * t, 1e-3)


def coupled(margin, y):
    """Squared error of each row and of the total of its group of ten: a row's gradient depends on other rows."""
    group = np.arange(len(y)) // 10
    error = margin - y
    total = np.bincount(group, error)[group]
    return error + 0.1 * total, np.full(len(y), 1.1)


def native(objective):
    """The objective as lgb.train and xgb.train call it."""
    return lambda margin, data: objective(margin, data.get_label())


def sklearn(objective):
    """The objective as the estimators call it."""
    return lambda y, margin: objective(margin, y)


@pytest.mark.parametrize("objective", [log_cosh, coupled])
def test_lightgbm(objective, numeric, tmp_path):
    X, y = numeric
    booster = lgb.train({**LGB, "objective": native(objective)}, lgb.Dataset(X, y), 6)
    booster.save_model(tmp_path / "m.txt")
    estimator = lgb.LGBMRegressor(n_estimators=6, objective=sklearn(objective), **LGB).fit(X, y)
    for model in (booster, estimator, tmp_path / "m.txt"):
        wrapped = wrap(model, X, y, objective=objective)
        assert wrapped.certificate.status == "certified"
        assert wrapped.certificate.error < 1e-12
        assert np.array_equal(wrapped.predict(X), booster.predict(X))


@pytest.mark.parametrize("objective", [log_cosh, coupled])
def test_xgboost(objective, numeric, tmp_path):
    X, y = numeric
    booster = xgb.train(XGB, xgb.DMatrix(X, y), 6, obj=native(objective))
    booster.save_model(tmp_path / "m.ubj")
    estimator = xgb.XGBRegressor(n_estimators=6, objective=sklearn(objective), **XGB).fit(X, y)
    for model in (booster, estimator, tmp_path / "m.ubj"):
        wrapped = wrap(model, X, y, objective=objective)
        assert wrapped.certificate.status == "certified"
        assert np.array_equal(wrapped.predict(X), booster.predict(xgb.DMatrix(X)))


def test_coupled_rows_in_several_chunks(make_data):
    """More rows than a chunk of the thread pool, and any number of threads: the objective still sees all at once."""
    X, y = make_data("numeric", n=20_000)
    booster = lgb.train({**LGB, "objective": native(coupled)}, lgb.Dataset(X, y), 3)
    one, two = (wrap(booster, X, y, objective=coupled, n_jobs=n) for n in (1, 2))
    assert one.certificate.status == "certified"
    assert np.array_equal(one.moments.gg, two.moments.gg)


def test_weights_are_the_objectives_own(numeric):
    """Neither booster multiplies custom g and h by the weights; an objective that weights does so itself."""
    X, y = numeric
    weight = np.random.default_rng(0).uniform(0.5, 2, len(y))

    def weighted(margin, y):
        g, h = log_cosh(margin, y)
        return weight * g, weight * h

    booster = xgb.train(XGB, xgb.DMatrix(X, y, weight=weight), 6, obj=native(weighted))
    assert wrap(booster, X, y, objective=weighted).certificate.status == "certified"
    train = xgb.DMatrix(X, y, weight=weight)
    booster = xgb.train(XGB, train, 6, obj=native(log_cosh))
    assert wrap(booster, train, objective=log_cosh).certificate.status == "certified"
    with pytest.raises(ValueError, match="multiply g and h by the weights in objective"):
        wrap(booster, X, y, sample_weight=weight, objective=log_cosh)


def test_the_built_in_one_given_as_custom(numeric):
    """XGBoost stores a custom objective as reg:squarederror, so objective= must be able to stand for that."""
    X, y = numeric
    booster = xgb.train(XGB, xgb.DMatrix(X, y), 6)
    as_custom = wrap(booster, X, y, objective=lambda margin, y: (margin - y, np.ones_like(y)))
    # the same gradients up to float32: margins are float32 either way
    np.testing.assert_allclose(as_custom.predict_var(X), wrap(booster, X, y).predict_var(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("objective", "error", "match"),
    [
        ("huber", TypeError, "function"),
        (lambda margin, y: margin, TypeError, r"pair \(g, h\)"),
        (lambda margin, y: (margin[:-1], margin), ValueError, r"\d+ values of g for 400 rows"),
        (lambda margin, y: (margin, margin[:3]), ValueError, "3 values of h for 400 rows"),
        (lambda margin, y: (margin * np.nan, margin), ValueError, "NaN or inf in g"),
        (lambda margin, y: (margin, margin + np.inf), ValueError, "NaN or inf in h"),
    ],
)
def test_bad_objectives(objective, error, match, numeric):
    X, y = numeric
    booster = lgb.train({**LGB, "objective": native(log_cosh)}, lgb.Dataset(X, y), 2)
    with pytest.raises(error, match=match):
        wrap(booster, X, y, objective=objective)


def test_forgotten_or_superfluous(numeric):
    X, y = numeric
    booster = lgb.train({**LGB, "objective": native(log_cosh)}, lgb.Dataset(X, y), 2)
    with pytest.raises(UnsupportedModelError, match=r"custom objective.*objective=f"):
        wrap(booster, X, y)
    booster = lgb.train({**LGB, "objective": "poisson"}, lgb.Dataset(X, y), 2)
    with pytest.raises(ValueError, match=r"'poisson'.*leave objective= out"):
        wrap(booster, X, y, objective=log_cosh)


def test_the_objective_cannot_change_the_margins(numeric):
    """It gets a copy: an objective that works in place does no harm."""
    X, y = numeric

    def in_place(margin, y):
        margin -= y
        return margin, np.ones_like(y)

    booster = xgb.train(XGB, xgb.DMatrix(X, y), 6)
    assert wrap(booster, X, y, objective=in_place).certificate.status == "certified"
