"""PGBMRegressor inside scikit-learn: its estimator checks, searches, pipelines; and equal to wrapping by hand."""

from __future__ import annotations

import pickle
import subprocess
import sys

import joblib
import lightgbm as lgb
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
import xgboost as xgb
from scipy.sparse import csc_array, csr_matrix
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from pgbm_plugin import ProbabilisticModel, wrap
from pgbm_plugin.scores import Scorer, crps
from pgbm_plugin.sklearn import PGBMRegressor

# leaves of few rows: the checks' data sets are small
BOOSTERS = {
    "lightgbm": lgb.LGBMRegressor(n_estimators=8, num_leaves=8, min_child_samples=2, n_jobs=1, verbose=-1),
    "xgboost": xgb.XGBRegressor(n_estimators=8, max_depth=3, n_jobs=1),
}
COUNTS = "to LightGBM a row of weight 2 is not the same as two rows: bins and min_child_samples count rows"
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": COUNTS,
    "check_sample_weight_equivalence_on_sparse_data": COUNTS,
}


@pytest.fixture(params=BOOSTERS)
def booster(request):
    return clone(BOOSTERS[request.param])


@parametrize_with_checks(
    [PGBMRegressor(estimator) for estimator in BOOSTERS.values()],
    expected_failed_checks=lambda outer: EXPECTED_FAILURES if isinstance(outer.estimator, lgb.LGBMRegressor) else {},
)
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("check", EXPECTED_FAILURES)
def test_lightgbm_fails_the_same_checks(check):
    for estimator in (BOOSTERS["lightgbm"], PGBMRegressor(BOOSTERS["lightgbm"])):
        with pytest.raises(AssertionError, match="not equivalent to fitting with removed or repeated"):
            getattr(estimator_checks, check)(type(estimator).__name__, estimator)


def test_equals_wrapping_by_hand(booster, numeric):
    X, y = numeric
    outer = PGBMRegressor(booster, rho=0.03, distribution="laplace").fit(X, y)
    model = wrap(clone(booster).fit(X, y), X, y)
    model.rho, model.distribution = 0.03, "laplace"
    assert outer.model_.certificate.status == "certified"
    assert outer.model_.n_jobs == booster.n_jobs == 1
    assert np.array_equal(outer.predict(X), outer.estimator_.predict(X))
    for found, expected in zip(outer.predict(X, return_std=True), model.predict(X, return_std=True), strict=True):
        assert np.array_equal(found, expected)
    assert np.array_equal(outer.predict_interval(X, 0.8), model.predict_interval(X, 0.8))
    assert np.array_equal(outer.predict_quantiles(X, [0.1, 0.6]), model.predict_quantiles(X, [0.1, 0.6]))
    assert np.array_equal(outer.predict_dist(X).crps(y), model.predict_dist(X).crps(y))
    assert outer.score(X, y) == r2_score(y, booster.fit(X, y).predict(X))
    assert PGBMRegressor(booster).fit(X, y).model_.rho == model.default_rho


def test_fit_leaves_the_estimator_alone(booster, numeric):
    outer = PGBMRegressor(booster).fit(*numeric)
    assert outer.estimator is booster
    assert outer.estimator_ is not booster
    assert not booster.__sklearn_is_fitted__()


def test_parameters_and_clones(booster):
    outer = PGBMRegressor(booster, rho=0.1, tune_fraction=0.3)
    outer.set_params(estimator__learning_rate=0.02, distribution="gamma")
    copy = clone(outer)
    assert copy.get_params()["estimator__learning_rate"] == booster.learning_rate == 0.02
    assert (copy.rho, copy.distribution, copy.tune_fraction) == (0.1, "gamma", 0.3)
    assert copy.estimator is not booster
    with pytest.raises(NotFittedError):
        copy.predict_interval(np.zeros((2, 2)))


def test_search_over_inner_and_outer_parameters(booster, numeric):
    X, y = numeric
    grid = {"estimator__n_estimators": [2, 30], "distribution": ["normal", "lognormal"], "rho": [None, 0.9]}
    search = GridSearchCV(PGBMRegressor(booster), grid, scoring=Scorer(crps), cv=2).fit(X, y)
    assert len(set(search.cv_results_["mean_test_score"])) == 8  # each parameter matters
    assert search.best_params_["estimator__n_estimators"] == 30
    assert search.best_estimator_.model_.distribution == search.best_params_["distribution"]
    assert search.score(X, y) == -crps(y, search.best_estimator_.predict_dist(X))


def test_pipeline(booster, numeric):
    X, y = numeric
    pipeline = make_pipeline(StandardScaler(), PGBMRegressor(booster)).fit(X, y)
    Z = StandardScaler().fit_transform(X)
    alone = PGBMRegressor(booster).fit(Z, y)
    assert np.array_equal(pipeline.predict(X), alone.predict(Z))
    assert np.array_equal(pipeline.predict(X, return_std=True), alone.predict(Z, return_std=True))
    assert np.array_equal(pipeline[-1].predict_interval(pipeline[:-1].transform(X)), alone.predict_interval(Z))
    pipeline.set_params(pgbmregressor__estimator__n_estimators=2).fit(X, y)
    assert pipeline[-1].model_.forest.n_trees == 2


def test_cross_val_predict(booster, numeric):
    X, y = numeric
    half = np.arange(200)
    folds = [(half, half + 200), (half + 200, half)]
    found = cross_val_predict(PGBMRegressor(booster), X, y, cv=folds)
    for train, test in folds:
        assert np.array_equal(found[test], PGBMRegressor(booster).fit(X[train], y[train]).predict(X[test]))


def test_sample_weights(booster, numeric):
    X, y = numeric
    weight = np.random.default_rng(1).uniform(0.5, 3, len(y))
    expected = wrap(clone(booster).fit(X, y, sample_weight=weight), X, y, sample_weight=weight)
    for given in (weight, weight.tolist(), pd.Series(weight, index=range(7, 407))):
        outer = PGBMRegressor(booster).fit(X, y, given)
        assert outer.model_.certificate.status == "certified"
        assert np.array_equal(outer.predict(X, return_std=True), expected.predict(X, return_std=True))
    assert not np.array_equal(outer.predict(X), PGBMRegressor(booster).fit(X, y).predict(X))


def test_routed_sample_weights(booster, numeric):
    X, y = numeric
    weight = np.linspace(0.1, 3, len(y))
    with sklearn.config_context(enable_metadata_routing=True):
        outer = PGBMRegressor(booster).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(outer, {"rho": [0.1]}, cv=2).fit(X, y, sample_weight=weight)
    assert np.array_equal(search.predict(X), PGBMRegressor(booster).fit(X, y, weight).predict(X))


def test_categories_reach_the_booster(booster, mixed):
    X, y = mixed
    if isinstance(booster, xgb.XGBRegressor):
        booster.set_params(enable_categorical=True)
    outer = PGBMRegressor(booster, tune_fraction=0.2, conformal_fraction=0.2, random_state=0).fit(X, y)
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
def test_tables_of_all_kinds(booster, table, numeric):
    X, y = numeric
    X = np.where(np.abs(X) < 0.5, 0.0, X)
    given = table(X)
    if hasattr(given, "tocsr") and isinstance(booster, xgb.XGBRegressor):
        X = np.where(X == 0.0, np.nan, X)  # what is not stored is missing to XGBoost
    outer = PGBMRegressor(booster, tune_fraction=0.2, conformal_fraction=0.2, random_state=0)
    found = clone(outer).fit(given, y)
    assert found.model_.certificate.status == "certified"
    assert np.array_equal(found.predict_interval(given), outer.fit(X, y).predict_interval(X))


@pytest.mark.parametrize("copy", ["pickle", "joblib"])
def test_pickles(booster, copy, numeric, tmp_path):
    X, y = numeric
    outer = PGBMRegressor(booster, tune_fraction=0.2, conformal_fraction=0.2, random_state=0).fit(X, y)
    if copy == "pickle":
        again = pickle.loads(pickle.dumps(outer))  # noqa: S301
    else:
        joblib.dump(outer, tmp_path / "model")
        again = joblib.load(tmp_path / "model")
    assert np.array_equal(again.predict(X), outer.predict(X))
    assert np.array_equal(again.predict_interval(X), outer.predict_interval(X))
    assert str(again.tune_result_) == str(outer.tune_result_)


@pytest.fixture
def seen(monkeypatch):
    """What each step is given: X, y and options, by the name of its method."""
    given = {}

    def recorded(name, method):
        def record(self, X, y, **options):
            given[name] = X, y, options
            return method(self, X, y, **options)

        return record

    steps = [(lgb.LGBMRegressor, "fit"), (xgb.XGBRegressor, "fit")]
    for cls, name in [*steps, (ProbabilisticModel, "tune"), (ProbabilisticModel, "conformalize")]:
        monkeypatch.setattr(cls, name, recorded(name, getattr(cls, name)))
    return given


@pytest.mark.parametrize("frame", [False, True])
def test_held_out_rows_are_not_trained_on(booster, frame, numeric, seen):
    X, y = numeric
    weight = np.linspace(1, 2, 400)
    table = pd.DataFrame(X, columns=list("abcd"), index=range(1000, 1400)) if frame else X
    outer = PGBMRegressor(booster, distribution=None, tune_fraction=0.25, conformal_fraction=0.1, random_state=3)
    outer.fit(table, pd.Series(y, index=range(400)), weight)
    number, parts = {row.tobytes(): i for i, row in enumerate(X)}, {}
    for name, (rows, labels, options) in seen.items():
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
    fitted = clone(booster).fit(X[train], y[train], sample_weight=weight[train])
    model = wrap(fitted, X[train], y[train], sample_weight=weight[train])
    result = model.tune(X[tune], y[tune], sample_weight=weight[tune])
    model.conformalize(X[apart], y[apart])
    assert outer.tune_result_.best == result.best
    assert np.array_equal(outer.predict_interval(table), model.predict_interval(X))


def test_what_is_tuned(booster, numeric):
    X, y = numeric
    outer = PGBMRegressor(booster, tune_fraction=0.3, random_state=0)
    best = outer.fit(X, y).tune_result_.best
    assert best.distribution == outer.model_.distribution == "normal"
    assert outer.model_.rho == best.rho != outer.model_.default_rho
    assert len(outer.set_params(distribution=None).fit(X, y).tune_result_.candidates) > 3
    outer.set_params(distribution="studentt(df=5)", rho=0.2).fit(X, y)
    assert (outer.model_.distribution, outer.model_.rho) == ("studentt(df=5)", 0.2)
    assert outer.set_params(distribution="empirical").fit(X, y).model_.distribution == "empirical"
    outer.set_params(tune_fraction=None, distribution=None).fit(X, y)
    assert outer.tune_result_ is None
    assert outer.model_.distribution == "normal"


def test_the_seed(booster, numeric):
    X, y = numeric

    def ends(seed):
        return PGBMRegressor(booster, conformal_fraction=0.5, random_state=seed).fit(X, y).predict_interval(X)

    assert np.array_equal(ends(0), ends(0))
    assert not np.array_equal(ends(0), ends(1))


def test_conformal_intervals_hold(booster, make_data):
    """Of 2,000 rows; the standard error is near 0.7 %, and 1,000 calibration rows add as much."""
    X, y = make_data("numeric", n=4000)
    outer = PGBMRegressor(booster, conformal_fraction=0.5, random_state=0).fit(X[:2000], y[:2000])
    low, high = outer.predict_interval(X[2000:], coverage=0.9).T
    assert np.mean((low <= y[2000:]) & (y[2000:] <= high)) == pytest.approx(0.9, abs=0.03)


def test_starts_of_rows(booster, numeric, seen):
    X, y = numeric
    name = "init_score" if isinstance(booster, lgb.LGBMRegressor) else "base_margin"
    outer = PGBMRegressor(booster, tune_fraction=0.2, conformal_fraction=0.2).fit(X, y, **{name: 2 * X[:, 0]})
    assert outer.model_.certificate.status == "certified"
    for step, (rows, _, options) in seen.items():
        assert np.array_equal(options[name if step == "fit" else "init_score"], 2 * rows[:, 0])


def test_early_stopping(booster, numeric):
    X, y = numeric
    booster.set_params(n_estimators=200, learning_rate=0.5)
    if isinstance(booster, lgb.LGBMRegressor):
        options = {"callbacks": [lgb.early_stopping(3, verbose=False)], "eval_X": X[300:], "eval_y": y[300:]}
    else:
        options = {"eval_set": [(X[300:], y[300:])], "verbose": False}
        booster.set_params(early_stopping_rounds=3)
    outer = PGBMRegressor(booster).fit(X[:300], y[:300], **options)
    assert outer.model_.forest.n_trees < 100
    assert np.array_equal(outer.predict(X), outer.estimator_.predict(X))


def log_cosh(y, margin):
    t = np.tanh(margin - y)
    return t, np.maximum(1 - t * t, 1e-3)


def test_custom_objective(booster, numeric):
    X, y = numeric
    outer = PGBMRegressor(booster.set_params(objective=log_cosh)).fit(X, y)
    assert outer.model_.certificate.status == "certified"
    again = pickle.loads(pickle.dumps(outer))  # noqa: S301
    assert np.array_equal(again.predict_interval(X), outer.predict_interval(X))
    with pytest.raises(ValueError, match="sample_weight with a custom objective"):
        outer.fit(X, y, np.ones(len(y)))


def test_warnings_that_tell_something(booster, numeric):
    X, y = numeric
    booster.set_params(subsample=0.5, random_state=0)
    if isinstance(booster, lgb.LGBMRegressor):
        booster.set_params(subsample_freq=1)
    outer = PGBMRegressor(booster).fit(X, y)  # asked for, so no warning
    assert outer.model_.certificate.status == "subsampled"
    objective = "l1" if isinstance(booster, lgb.LGBMRegressor) else "reg:absoluteerror"
    with pytest.warns(UserWarning, match="not certified: approximate"):
        outer.set_params(estimator__objective=objective, estimator__subsample=1.0).fit(X, y)
    frame = pd.DataFrame(X, columns=list("abcd"))
    outer = PGBMRegressor(clone(BOOSTERS["xgboost"])).fit(frame, y)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        outer.predict(X)


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({"estimator": RandomForestRegressor()}, TypeError, "LGBMRegressor or an XGBRegressor, not RandomForestReg"),
        ({"estimator": lgb.LGBMRegressor}, TypeError, "not <class 'lightgbm"),
        ({"estimator": xgb.XGBClassifier()}, TypeError, "not XGBClassifier"),
        ({"estimator": make_pipeline(StandardScaler(), lgb.LGBMRegressor())}, TypeError, "make_pipeline"),
        ({"rho": 2.0}, ValueError, r"rho must lie in \[-1, 1\]"),
        ({"distribution": "cauchy"}, ValueError, "unknown distribution 'cauchy'; known"),
        ({"distribution": "conformal", "conformal_fraction": 0.5}, ValueError, "what conformal_fraction makes"),
        ({"distribution": "empirical"}, ValueError, "set tune_fraction"),
        ({"tune_fraction": 1.0}, ValueError, "tune_fraction must lie strictly between 0 and 1"),
        ({"conformal_fraction": 20}, ValueError, "conformal_fraction must lie strictly between 0 and 1"),
        ({"tune_fraction": 0.01}, ValueError, "tune_fraction=0.01 of 400 rows is 4, and 6 are needed"),
        ({"tune_fraction": 0.5, "conformal_fraction": 0.5}, ValueError, "2 rows to train on, not 0"),
    ],
)
def test_errors_before_training(settings, error, match, numeric, seen):
    with pytest.raises(error, match=match):
        PGBMRegressor(**{"estimator": lgb.LGBMRegressor(), **settings}).fit(*numeric)
    assert not seen


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"y": np.array(["a"] * 400)}, TypeError, "y must be a column of numbers"),
        ({"y": np.ones(399)}, ValueError, "y has 399 values, X has 400 rows"),
        ({"sample_weight": -np.ones(400)}, ValueError, "sample_weight must not be negative"),
        ({"X": pd.DataFrame({"a": [1.0]}), "y": [1.0]}, ValueError, r"not 1 sample\(s\)"),
    ],
)
def test_bad_data(booster, change, error, match, numeric, seen):
    with pytest.raises(error, match=match):
        PGBMRegressor(booster).fit(**{"X": numeric[0], "y": numeric[1], **change})
    assert not seen


def test_the_booster_that_is_installed(numeric, monkeypatch):
    X, y = (part[:50] for part in numeric)
    assert type(PGBMRegressor().fit(X, y).estimator_) is lgb.LGBMRegressor
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert type(PGBMRegressor().fit(X, y).estimator_) is xgb.XGBRegressor
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ImportError, match=r"pgbm-plugin\[lightgbm\]"):
        PGBMRegressor().fit(X, y)


def test_without_scikit_learn():
    code = "import sys; sys.modules['sklearn'] = None; import pgbm_plugin; import pgbm_plugin.sklearn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'pgbm-plugin[sklearn]'" in done.stderr
