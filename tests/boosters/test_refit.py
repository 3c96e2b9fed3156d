"""The training of a model, repeated: on the same rows it gives the same trees, bit for bit."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from scipy.sparse import csr_matrix

from pgbm_plugin import UnsupportedModelError, out_of_fold, wrap
from pgbm_plugin.boosters import read_model, refit
from pgbm_plugin.tables.labelled import RawRows, read_labelled


def squares(margin, y):
    return margin - y, np.ones(len(margin))


def of_dataset(margin, data):
    return squares(margin, data.get_label())


LGB, XGB = {"num_threads": 1, "verbose": -1}, {"nthread": 1}


def lgb_train(X, y, params, rounds=12, **columns):
    return lgb.train(LGB | params, lgb.Dataset(X, y, **columns), rounds)


def xgb_train(X, y, params, rounds=12, obj=None, **columns):
    return xgb.train(XGB | params, xgb.DMatrix(X, y, enable_categorical=True, **columns), rounds, obj=obj)


def stopped(X, y):
    model = xgb.XGBRegressor(n_estimators=200, early_stopping_rounds=3, learning_rate=1.0, n_jobs=1)
    return model.fit(X, y, eval_set=[(X, y[::-1])], verbose=False)


TRAININGS = {
    "LightGBM": lambda X, y: lgb_train(X, y, {"bagging_fraction": 0.5, "bagging_freq": 1, "seed": 3}),
    "LightGBM, poisson": lambda X, y: lgb_train(X, y, {"objective": "poisson", "eta": 0.07, "path_smooth": 0.1}),
    "LightGBM, huber": lambda X, y: lgb_train(X, y, {"objective": "huber", "alpha": 0.3, "max_bin": 15}),
    "LightGBM, random forest": lambda X, y: lgb.LGBMRegressor(
        n_estimators=6, boosting_type="rf", subsample=0.6, subsample_freq=1, n_jobs=1, verbose=-1
    ).fit(X, y),
    "LightGBM, estimator": lambda X, y: lgb.LGBMRegressor(n_estimators=9, num_leaves=5, n_jobs=1, verbose=-1).fit(X, y),
    "LightGBM, custom": lambda X, y: lgb_train(X, y, {"objective": of_dataset}),
    "XGBoost": lambda X, y: xgb_train(X, y, {"subsample": 0.5, "seed": 3, "eta": 0.1, "max_depth": 3}),
    "XGBoost, tweedie": lambda X, y: xgb_train(X, y, {"objective": "reg:tweedie", "tweedie_variance_power": 1.3}),
    "XGBoost, pseudo-Huber": lambda X, y: xgb_train(
        X, y, {"objective": "reg:pseudohubererror", "huber_slope": 0.4, "base_score": 0.7, "tree_method": "approx"}
    ),
    "XGBoost, estimator": lambda X, y: xgb.XGBRegressor(
        n_estimators=9, missing=-1.0, n_jobs=1, enable_categorical=True
    ).fit(X, y),
    "XGBoost, parallel trees": lambda X, y: xgb_train(X, y, {"num_parallel_tree": 3, "subsample": 0.7}, 4),
    "XGBoost, custom": lambda X, y: xgb_train(X, y, {"eta": 0.2}, obj=of_dataset),
}


def again(booster, X, y, objective=None, **columns):
    """Return the original forest, and that of the training repeated on all rows."""
    forest, spec = read_model(booster)
    data = read_labelled(RawRows(X, y, **columns), forest, spec)
    train = refit(booster, spec)
    y = y if objective is None else np.float64(np.float32(y))
    model = train(data.rows.training_table(), y, data.weight, data.init_score, objective)
    return forest, read_model(model)[0]


def same(a, b):
    assert np.array_equal(a.leaf_value, b.leaf_value)
    assert np.array_equal(a.nodes["threshold"], b.nodes["threshold"], equal_nan=True)


@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("kind", ["numeric", "mixed"])
def test_repeats_the_training(name, kind, make_data):
    X, y = make_data(kind)
    same(*again(TRAININGS[name](X, y), X, y, squares if "custom" in name else None))


def test_stops_where_the_model_stopped(numeric):
    X, y = numeric
    model = stopped(X, y)
    assert model.best_iteration < model.get_booster().num_boosted_rounds() - 1
    same(*again(model, X, y))


@pytest.mark.parametrize("name", ["LightGBM", "XGBoost"])
def test_weights_and_init_scores(name, numeric):
    X, y = numeric
    weight, start = np.linspace(0.5, 2.0, len(y)), 0.1 * X[:, 0]
    if name == "LightGBM":
        booster = lgb_train(X, y, {}, weight=weight, init_score=start)
    else:
        booster = xgb_train(X, y, {}, weight=weight, base_margin=start)
    same(*again(booster, X, y, sample_weight=weight, init_score=start))


@pytest.mark.parametrize("train", [lgb_train, xgb_train])
def test_sparse_rows(train, numeric):
    X, y = numeric
    X = csr_matrix(np.where(np.abs(X) < 0.7, 0.0, X))
    same(*again(train(X, y, {}), X, y))


def test_categories_given_by_number(numeric):
    """No frame tells these: LightGBM stores them among its parameters."""
    X, y = numeric
    X = np.column_stack([X, np.random.default_rng(0).integers(0, 9, len(y))])
    booster = lgb_train(X, y + (X[:, 4] % 2), {}, categorical_feature=[4])
    forest, repeated = again(booster, X, y + (X[:, 4] % 2))
    assert np.any(forest.nodes["category_set"] >= 0)
    same(forest, repeated)


def test_a_file_of_lightgbm_keeps_its_parameters(numeric, tmp_path):
    X, y = numeric
    booster = lgb_train(X, y, {"eta": 0.07, "num_leaves": 5, "min_data_in_leaf": 3})
    booster.save_model(tmp_path / "model.txt")
    same(*again(tmp_path / "model.txt", X, y))


def test_parameters_that_are_lost_are_refused_before_rows_are_read(numeric, tmp_path):
    X, y = numeric
    booster = xgb_train(X, y, {"eta": 0.1})
    path = tmp_path / "model.ubj"
    booster.save_model(path)
    for lost in (path, xgb.Booster(model_file=path)):
        for call in (wrap, out_of_fold):
            with pytest.raises(UnsupportedModelError, match=r"XGBoost does not store in files.*out_of_fold=p"):
                call(lost, pd.DataFrame(), None, cv=5)


def test_parameters_that_changed_after_training_are_refused(numeric):
    X, y = numeric
    booster = xgb_train(X, y, {"eta": 0.1, "num_parallel_tree": 2}, 4)
    booster.set_param({"eta": 0.9})
    with pytest.raises(UnsupportedModelError, match=r"has the learning rate 0\.45, but the trees have 0\.05.*=p\)"):
        wrap(booster, X, y, cv=5)


def test_a_schedule_is_refused(numeric):
    X, y = numeric
    rates = [0.1 * 0.9**i for i in range(12)]
    booster = lgb.train(LGB, lgb.Dataset(X, y), 12, callbacks=[lgb.reset_parameter(learning_rate=rates)])
    with pytest.raises(UnsupportedModelError, match="the learning rate changed from tree to tree"):
        wrap(booster, X, y, cv=5)
