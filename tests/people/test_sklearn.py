"""PGBMRegressor inside scikit-learn: its estimator checks, searches, pipelines; and equal to wrapping by hand."""

from __future__ import annotations

import pickle

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
import xgboost as xgb
from scipy.sparse import csc_array, csr_matrix
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from pgbm_plugin import wrap
from pgbm_plugin.scores import Scorer, crps
from pgbm_plugin.sklearn import PGBMRegressor
from tests.people.regressors import REGRESSORS


# a short search on three folds, because the checks fit hundreds of times
@parametrize_with_checks(
    [PGBMRegressor(estimator, rho=0.02, distribution="normal", cv=3) for estimator in REGRESSORS.values()]
)
def test_estimator_checks(estimator, check):
    check(estimator)


def test_equals_wrapping_by_hand(regressor, numeric):
    X, y = numeric
    outer = PGBMRegressor(regressor, rho=0.03, distribution="laplace", cv=None).fit(X, y)
    model = wrap(clone(regressor).fit(X, y), X, y)
    model.rho, model.distribution = 0.03, "laplace"
    assert outer.model_.certificate.status == "certified"
    assert outer.model_.n_jobs == regressor.n_jobs == 1
    assert np.array_equal(outer.predict(X), outer.estimator_.predict(X))
    for found, expected in zip(outer.predict(X, return_std=True), model.predict(X, return_std=True), strict=True):
        assert np.array_equal(found, expected)
    assert np.array_equal(outer.predict_interval(X, 0.8), model.predict_interval(X, 0.8))
    assert np.array_equal(outer.predict_quantiles(X, [0.1, 0.6]), model.predict_quantiles(X, [0.1, 0.6]))
    assert np.array_equal(outer.predict_dist(X).crps(y), model.predict_dist(X).crps(y))
    found, expected = outer.predict_support(2.0 * X), model.predict_support(2.0 * X)
    assert np.array_equal(found.rows, expected.rows)
    assert found.outside == expected.outside != ((),) * len(X)
    assert outer.score(X, y) == r2_score(y, regressor.fit(X, y).predict(X))
    assert PGBMRegressor(regressor, cv=None).fit(X, y).model_.rho == model.default_rho


def test_calibrated_on_folds_unless_told_otherwise(regressor, numeric):
    X, y = numeric
    outer = PGBMRegressor(regressor).fit(X, y)
    model = wrap(clone(regressor).fit(X, y), X, y, cv=5)
    assert outer.model_.chosen.tuned
    assert outer.tune_result_.rows == len(y)
    assert outer.model_.moments.rows == len(y)
    assert np.array_equal(outer.predict(X), outer.estimator_.predict(X))
    assert np.array_equal(outer.predict_interval(X), model.predict_interval(X))
    by_groups = PGBMRegressor(regressor, cv=KFold(3), conformal_fraction=0.2, random_state=0).fit(X, y)
    assert by_groups.model_.distribution == "conformal"
    assert by_groups.tune_result_.rows == by_groups.model_.moments.rows == 320
    assert PGBMRegressor(regressor, distribution="empirical").fit(X, y).model_.distribution == "empirical"


def test_fit_leaves_the_estimator_alone(regressor, numeric):
    outer = PGBMRegressor(regressor).fit(*numeric)
    assert outer.estimator is regressor
    assert outer.estimator_ is not regressor
    assert not regressor.__sklearn_is_fitted__()


def test_parameters_and_clones(regressor):
    outer = PGBMRegressor(regressor, rho=0.1, tune_fraction=0.3)
    outer.set_params(estimator__learning_rate=0.02, distribution="gamma")
    copy = clone(outer)
    assert copy.get_params()["estimator__learning_rate"] == regressor.learning_rate == 0.02
    assert (copy.rho, copy.distribution, copy.tune_fraction) == (0.1, "gamma", 0.3)
    assert copy.estimator is not regressor
    with pytest.raises(NotFittedError):
        copy.predict_interval(np.zeros((2, 2)))


def test_feature_importances_are_the_booster_s(regressor, numeric):
    X, y = numeric
    model = PGBMRegressor(regressor, cv=None)
    assert not hasattr(model, "feature_importances_")  # before it is fitted
    model.fit(X, y)
    assert hasattr(model, "feature_importances_") == hasattr(model.estimator_, "feature_importances_")
    if hasattr(model.estimator_, "feature_importances_"):
        assert np.array_equal(model.feature_importances_, model.estimator_.feature_importances_)
        assert SelectFromModel(model, prefit=True, threshold="median").transform(X).shape[1] < X.shape[1]


def test_search_over_inner_and_outer_parameters(regressor, numeric):
    X, y = numeric
    grid = {"estimator__n_estimators": [2, 30], "distribution": ["normal", "lognormal"], "rho": [None, 0.9]}
    search = GridSearchCV(PGBMRegressor(regressor, cv=None), grid, scoring=Scorer(crps), cv=2).fit(X, y)
    assert len(set(search.cv_results_["mean_test_score"])) == 8  # each parameter matters
    assert search.best_params_["estimator__n_estimators"] == 30
    assert search.best_estimator_.model_.distribution == search.best_params_["distribution"]
    assert search.score(X, y) == -crps(y, search.best_estimator_.predict_dist(X))


def test_pipeline(regressor, numeric):
    X, y = numeric
    pipeline = make_pipeline(StandardScaler(), PGBMRegressor(regressor)).fit(X, y)
    Z = StandardScaler().fit_transform(X)
    alone = PGBMRegressor(regressor).fit(Z, y)
    assert np.array_equal(pipeline.predict(X), alone.predict(Z))
    assert np.array_equal(pipeline.predict(X, return_std=True), alone.predict(Z, return_std=True))
    assert np.array_equal(pipeline[-1].predict_interval(pipeline[:-1].transform(X)), alone.predict_interval(Z))
    pipeline.set_params(pgbmregressor__estimator__n_estimators=2).fit(X, y)
    assert pipeline[-1].model_.forest.n_trees == 2


def test_arguments_of_predict_pass_through(regressor, numeric):
    X, y = numeric
    outer = PGBMRegressor(regressor, cv=None, rho=0.1)
    pipeline = make_pipeline(StandardScaler(), outer).fit(X, y)
    Z = StandardScaler().fit_transform(X)
    expected = clone(outer).fit(Z, y).predict_interval(Z, 0.8)
    assert np.array_equal(pipeline.predict(X, coverage=0.8), expected)
    search = GridSearchCV(make_pipeline(StandardScaler(), outer), {"pgbmregressor__rho": [0.1]}, cv=2).fit(X, y)
    assert np.array_equal(search.best_estimator_.predict(X, coverage=0.8), expected)
    logarithm = TransformedTargetRegressor(outer, func=np.log, inverse_func=np.exp).fit(Z, y)
    assert np.array_equal(logarithm.predict(Z, coverage=0.8), np.exp(logarithm.regressor_.predict_interval(Z, 0.8)))
    spread = pipeline.predict(X, return_std=True)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = make_pipeline(StandardScaler(), clone(outer).set_predict_request(coverage=True, return_std=True))
        assert np.array_equal(routed.fit(X, y).predict(X, coverage=0.8), expected)
        assert np.array_equal(routed.predict(X, return_std=True), spread)


def test_frozen(regressor, numeric, given_to_steps):
    """Nothing is trained: rows of training are calibrated on folds, other rows calibrate directly."""
    X, y = numeric
    train, rest = slice(0, 250), slice(250, 400)
    fitted = make_pipeline(StandardScaler(), regressor).fit(X[train], y[train])
    given_to_steps.clear()
    outer = PGBMRegressor(FrozenEstimator(fitted)).fit(X[rest], y[rest])
    assert set(given_to_steps) == {"tune"}
    assert outer.model_.certificate.status == "held-out"
    assert outer.tune_result_.rows == 150
    assert np.array_equal(outer.predict(X), fitted.predict(X))
    expected = wrap(fitted, X[train], y[train], cv=5)
    seen = clone(PGBMRegressor(FrozenEstimator(fitted))).fit(X[train], y[train])
    assert set(given_to_steps) == {"tune"}
    assert seen.model_.certificate.status == "certified"
    assert np.array_equal(seen.predict_interval(X), expected.predict_interval(X))


def test_cross_val_predict(regressor, numeric):
    X, y = numeric
    half = np.arange(200)
    folds = [(half, half + 200), (half + 200, half)]
    found = cross_val_predict(PGBMRegressor(regressor), X, y, cv=folds)
    for train, test in folds:
        assert np.array_equal(found[test], PGBMRegressor(regressor).fit(X[train], y[train]).predict(X[test]))


def test_sample_weights(regressor, numeric):
    X, y = numeric
    weight = np.random.default_rng(1).uniform(0.5, 3, len(y))
    expected = wrap(clone(regressor).fit(X, y, sample_weight=weight), X, y, sample_weight=weight)
    for given in (weight, weight.tolist(), pd.Series(weight, index=range(7, 407))):
        outer = PGBMRegressor(regressor, cv=None).fit(X, y, given)
        assert outer.model_.certificate.status == "certified"
        assert np.array_equal(outer.predict(X, return_std=True), expected.predict(X, return_std=True))
    assert not np.array_equal(outer.predict(X), PGBMRegressor(regressor).fit(X, y).predict(X))


def test_routed_sample_weights(regressor, numeric):
    X, y = numeric
    weight = np.linspace(0.1, 3, len(y))
    with sklearn.config_context(enable_metadata_routing=True):
        outer = PGBMRegressor(regressor).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(outer, {"rho": [0.1]}, cv=2).fit(X, y, sample_weight=weight)
    assert np.array_equal(search.predict(X), PGBMRegressor(regressor).fit(X, y, weight).predict(X))


def test_categories_reach_the_booster(regressor, mixed):
    X, y = mixed
    if isinstance(regressor, xgb.XGBRegressor):
        regressor.set_params(enable_categorical=True)
    outer = PGBMRegressor(regressor, tune_fraction=0.2, conformal_fraction=0.2, random_state=0).fit(X, y)
    assert outer.model_.certificate.status == "certified"
    assert outer.model_.forest.category_start[-1] > 0  # there are splits of categories
    assert list(outer.feature_names_in_) == list(X.columns)
    assert outer.n_features_in_ == 6
    assert np.array_equal(outer.predict(X), outer.estimator_.predict(X))
    with pytest.raises(ValueError, match="feature names"):
        outer.predict(X.rename(columns={"a": "z"}))


def polars(X):
    return pl.DataFrame(X, schema=list("abcd"))


@pytest.mark.parametrize("table", [polars, lambda X: polars(X).to_arrow(), csr_matrix, csc_array, np.ndarray.tolist])
def test_tables_of_all_kinds(regressor, table, numeric):
    X, y = numeric
    X = np.where(np.abs(X) < 0.5, 0.0, X)
    given = table(X)
    if hasattr(given, "tocsr") and isinstance(regressor, xgb.XGBRegressor):
        X = np.where(X == 0.0, np.nan, X)  # what is not stored is missing to XGBoost
    outer = PGBMRegressor(regressor, tune_fraction=0.2, conformal_fraction=0.2, random_state=0)
    found = clone(outer).fit(given, y)
    assert found.model_.certificate.status == "certified"
    assert np.array_equal(found.predict_interval(given), outer.fit(X, y).predict_interval(X))


@pytest.mark.parametrize("copy", ["pickle", "joblib"])
def test_pickles(regressor, copy, numeric, tmp_path):
    X, y = numeric
    outer = PGBMRegressor(regressor, tune_fraction=0.2, conformal_fraction=0.2, random_state=0).fit(X, y)
    if copy == "pickle":
        again = pickle.loads(pickle.dumps(outer))  # noqa: S301
    else:
        joblib.dump(outer, tmp_path / "model")
        again = joblib.load(tmp_path / "model")
    assert np.array_equal(again.predict(X), outer.predict(X))
    assert np.array_equal(again.predict_interval(X), outer.predict_interval(X))
    assert str(again.tune_result_) == str(outer.tune_result_)


def log_cosh(y, margin):
    t = np.tanh(margin - y)
    return t, np.maximum(1 - t * t, 1e-3)


def test_custom_objective(regressor, numeric):
    X, y = numeric
    outer = PGBMRegressor(regressor.set_params(objective=log_cosh)).fit(X, y)
    assert outer.model_.certificate.status == "certified"
    again = pickle.loads(pickle.dumps(outer))  # noqa: S301
    assert np.array_equal(again.predict_interval(X), outer.predict_interval(X))
    with pytest.raises(ValueError, match="sample_weight with a custom objective"):
        outer.fit(X, y, np.ones(len(y)))
