"""Where boosting starts (init_score, base_margin) and where prediction stops (early stopping)."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import load, wrap
from pgbm_plugin.boosters import read_model
from pgbm_plugin.leaves.base_score import LabelSums, settle_base_score
from pgbm_plugin.leaves.certificate import certify
from pgbm_plugin.leaves.gather import leaf_moments
from pgbm_plugin.tables.labelled import LabelledRows
from pgbm_plugin.tables.rows import read_rows

LGB = {"num_leaves": 8, "min_data_in_leaf": 10, "learning_rate": 0.5, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 3, "eta": 0.5, "nthread": 1}


@pytest.fixture(scope="module")
def score(numeric):
    return np.random.default_rng(4).normal(1.0, 0.3, len(numeric[1]))


@pytest.mark.parametrize("learning_rate", [0.1, 1.0])
@pytest.mark.parametrize("objective", ["regression", "huber", "poisson"])
def test_lightgbm_init_score(objective, learning_rate, numeric, score):
    X, y = numeric
    params = {**LGB, "objective": objective, "learning_rate": learning_rate}
    booster = lgb.train(params, lgb.Dataset(X, y, init_score=score), 6)
    model = wrap(booster, X, y, init_score=score)
    assert model.certificate.status == "certified"
    # LightGBM's predict leaves the score out, unless the user adds it
    assert np.array_equal(model.predict(X), booster.predict(X))
    link = np.exp if objective == "poisson" else np.asarray
    np.testing.assert_allclose(
        model.predict(X, init_score=score), link(booster.predict(X, raw_score=True) + score), rtol=1e-13
    )
    mean, std = model.predict(X, return_std=True, init_score=score)
    assert np.array_equal(mean, model.predict(X, init_score=score))
    assert np.array_equal(std, np.sqrt(model.predict_var(X, init_score=score)))
    assert np.array_equal(mean, model.predict_dist(X, init_score=score).mean())


def test_a_forgotten_init_score_at_prediction(numeric, score, tmp_path):
    """A warning wherever a distribution is asked for; not from `predict`, which is what the booster's says."""
    X, y = numeric
    model = wrap(lgb.train(LGB, lgb.Dataset(X, y, init_score=score), 6), X, y, init_score=score)
    model.save(tmp_path / "model.pgbm")
    for again in (model, load(tmp_path / "model.pgbm"), copy.deepcopy(model)):
        again.predict(X)
        again.predict_dist(X, init_score=score)
        for ask in (again.predict_dist, again.predict_var, again.predict_interval):
            with pytest.warns(UserWarning, match="training had an init_score"):
                ask(X)
    wrap(lgb.train(LGB, lgb.Dataset(X, y), 6), X, y).predict_dist(X)


@pytest.mark.parametrize("objective", ["reg:squarederror", "reg:pseudohubererror", "count:poisson", "reg:gamma"])
def test_xgboost_base_margin(objective, numeric, score):
    """base_margin replaces base_score, in training and in prediction."""
    X, y = numeric
    data = xgb.DMatrix(X, y, base_margin=score)
    booster = xgb.train({**XGB, "objective": objective}, data, 6)
    model = wrap(booster, X, y, init_score=score)
    assert model.certificate.status == "certified"
    assert np.array_equal(model.predict(X), booster.predict(xgb.DMatrix(X)))
    assert np.array_equal(model.predict(X, init_score=score), booster.predict(data))
    assert np.array_equal(model.predict(data), booster.predict(data))  # a DMatrix brings its own
    assert wrap(booster, data).certificate == model.certificate


def test_a_wrong_or_forgotten_start_is_seen(numeric, score):
    X, y = numeric
    booster = lgb.train(LGB, lgb.Dataset(X, y, init_score=score), 6)
    with pytest.warns(UserWarning, match="init_score"):
        assert wrap(booster, X, y).certificate.status == "approximate"
    booster = xgb.train(XGB, xgb.DMatrix(X, y, base_margin=score), 6)
    with pytest.warns(UserWarning, match="init_score"):
        assert wrap(booster, X, y).certificate.status == "approximate"
    with pytest.raises(ValueError, match=r"trained without init_score.*leave init_score= out"):
        wrap(lgb.train(LGB, lgb.Dataset(X, y), 6), X, y, init_score=score)


def split(X, y):
    return (X[:250], y[:250]), (X[250:], y[250:])


def test_lightgbm_early_stopping(numeric):
    train, valid = split(*numeric)
    X = numeric[0]
    dataset = lgb.Dataset(*train)
    stop = [lgb.early_stopping(3, verbose=False)]
    for keep in (False, True):
        booster = lgb.train(
            LGB, dataset, 60, [lgb.Dataset(*valid, reference=dataset)], callbacks=stop, keep_training_booster=keep
        )
        assert 0 < booster.best_iteration < 50
        model = wrap(booster, *train)
        assert model.certificate.status == "certified"
        assert np.array_equal(model.predict(X), booster.predict(X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LightGBM 4.7 would have eval_set called eval_X and eval_y
        estimator = lgb.LGBMRegressor(n_estimators=60, **LGB).fit(*train, eval_set=[valid], callbacks=stop)
    model = wrap(estimator, *train)
    assert estimator.best_iteration_ < 50
    assert np.array_equal(model.predict(X), estimator.predict(X))


def test_lightgbm_early_stopping_saved(numeric, tmp_path):
    train, valid = split(*numeric)
    booster = lgb.train(
        LGB, lgb.Dataset(*train), 60, [lgb.Dataset(*valid)], callbacks=[lgb.early_stopping(3, verbose=False)]
    )
    booster.save_model(tmp_path / "m.txt")
    loaded = lgb.Booster(model_file=tmp_path / "m.txt")
    assert np.array_equal(wrap(tmp_path / "m.txt", *train).predict(numeric[0]), loaded.predict(numeric[0]))


def test_xgboost_early_stopping(numeric, tmp_path):
    """A Booster predicts with all its trees, an estimator with those up to the best: so do their wrapped models."""
    train, valid = split(*numeric)
    X = numeric[0]
    booster = xgb.train(
        XGB, xgb.DMatrix(*train), 60, evals=[(xgb.DMatrix(*valid), "v")], early_stopping_rounds=3, verbose_eval=False
    )
    assert booster.best_iteration + 1 < booster.num_boosted_rounds() < 60
    rounds, best = booster.num_boosted_rounds(), booster.best_iteration + 1
    booster.save_model(tmp_path / "m.json")
    for all_trees in (booster, tmp_path / "m.json"):
        with pytest.warns(UserWarning, match=rf"stopped early, at iteration {best} of {rounds}.*booster\[:{best}\]"):
            model = wrap(all_trees, *train)
        assert model.forest.n_trees == rounds
        assert np.array_equal(model.predict(X), booster.predict(xgb.DMatrix(X)))
    model = wrap(booster[:best], *train)
    assert np.array_equal(model.predict(X), booster.predict(xgb.DMatrix(X), iteration_range=(0, best)))

    estimator = xgb.XGBRegressor(n_estimators=60, early_stopping_rounds=3, num_parallel_tree=2, **XGB)
    estimator.fit(*train, eval_set=[valid], verbose=False)
    model = wrap(estimator, *train)
    assert model.certificate.status == "certified"
    assert model.forest.n_trees == 2 * (estimator.best_iteration + 1) < 100
    assert np.array_equal(model.predict(X), estimator.predict(X))
    with pytest.warns(UserWarning, match="stopped early"):  # as Spark's models are had
        wrap(estimator.get_booster(), *train)


@pytest.mark.parametrize("objective", ["regression", "huber", "poisson", "gamma"])
def test_a_start_that_is_no_mean_label(objective, numeric):
    """Several machines start at the mean of their means. A constant init_score in the first tree plays that here."""
    X, y = numeric
    start = (np.log(y.mean()) if objective in ("poisson", "gamma") else y.mean()) + 0.02
    params = {**LGB, "objective": objective}
    booster = lgb.train(params, lgb.Dataset(X, y, init_score=np.full(len(y), start)), 4)
    forest, spec = read_model(booster)
    first = np.arange(forest.n_leaves) < forest.leaf_start[1]
    forest = replace(forest, leaf_value=forest.leaf_value + np.where(first, start, 0.0))
    spec = replace(spec, folded=np.arange(4) == 0, start_is_mean=True, start=0.0)
    data = LabelledRows(read_rows(X, forest.features), spec.margin_labels(y), None, None)
    sums = LabelSums.of_model(spec, forest).add(data.y, None)
    assert abs(sums.base_score(spec, forest) - start) > 0.01

    def first_moments(spec):
        return leaf_moments(forest.first_trees(1), spec, data)

    settled = settle_base_score(forest, spec, sums, first_moments)
    # gradients are float32, so that steps smaller than that of the largest are lost
    assert settled.start == pytest.approx(start, abs=1e-6)
    assert certify(forest, settled, leaf_moments(forest, settled, data)).status == "certified"
    alone = forest.first_trees(1)  # one tree cannot tell labels that are all off by the same from another start
    of_tree = spec.first_trees(1, alone.n_leaves)
    assert settle_base_score(alone, of_tree, sums, first_moments).start == sums.base_score(spec, forest)
