"""What PGBMRegressor warns of and refuses, and what it needs."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pgbm_plugin import wrap
from pgbm_plugin.boosters import booster_of_estimator
from pgbm_plugin.sklearn import PGBMRegressor
from tests.people.regressors import REGRESSORS


def test_warnings_that_tell_something(regressor, numeric):
    X, y = numeric
    regressor.set_params(subsample=0.5, random_state=0)
    if isinstance(regressor, lgb.LGBMRegressor):
        regressor.set_params(subsample_freq=1)
    outer = PGBMRegressor(regressor).fit(X, y)  # asked for, so no warning
    assert outer.model_.certificate.status == "subsampled"
    objective = "l1" if isinstance(regressor, lgb.LGBMRegressor) else "reg:absoluteerror"
    with pytest.warns(UserWarning, match="not certified: approximate"):
        outer.set_params(estimator__objective=objective, estimator__subsample=1.0).fit(X, y)
    frame = pd.DataFrame(X, columns=list("abcd"))
    outer = PGBMRegressor(clone(REGRESSORS["xgboost"])).fit(frame, y)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        outer.predict(X)


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({"estimator": RandomForestRegressor()}, TypeError, r"\(LGBMRegressor, XGBRegressor.*\), not RandomForestReg"),
        ({"estimator": lgb.LGBMRegressor}, TypeError, "not <class 'lightgbm"),
        ({"estimator": xgb.XGBClassifier()}, TypeError, "not XGBClassifier"),
        ({"estimator": make_pipeline(StandardScaler(), lgb.LGBMRegressor())}, TypeError, "make_pipeline"),
        ({"estimator": FrozenEstimator(lgb.LGBMRegressor())}, ValueError, "not fitted"),
        ({"estimator": FrozenEstimator(RandomForestRegressor())}, TypeError, "the estimator of the FrozenEstimator is"),
        ({"rho": 2.0}, ValueError, r"rho must lie in \[-1, 1\]"),
        ({"distribution": "cauchy"}, ValueError, "unknown distribution 'cauchy'; known"),
        ({"distribution": "conformal", "conformal_fraction": 0.5}, ValueError, "is set by conformal_fraction"),
        ({"distribution": "empirical", "cv": None}, ValueError, "set cv or tune_fraction"),
        ({"cv": 1}, ValueError, "cv must be at least 2 folds"),
        ({"cv": "five"}, TypeError, "cv must be a number of folds"),
        ({"tune_fraction": 1.0}, ValueError, "tune_fraction must lie strictly between 0 and 1"),
        ({"conformal_fraction": 20}, ValueError, "conformal_fraction must lie strictly between 0 and 1"),
        ({"tune_fraction": 0.01}, ValueError, "tune_fraction=0.01 of 400 rows is 4, but 6 are needed"),
        ({"tune_fraction": 0.5, "conformal_fraction": 0.5}, ValueError, "2 rows to train on, not 0"),
    ],
)
def test_errors_before_training(settings, error, match, numeric, given_to_steps):
    with pytest.raises(error, match=match):
        PGBMRegressor(**{"estimator": lgb.LGBMRegressor(), **settings}).fit(*numeric)
    assert not given_to_steps


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"y": np.array(["a"] * 400)}, TypeError, "y must be a column of numbers"),
        ({"y": np.ones(399)}, ValueError, "y has 399 values, X has 400 rows"),
        ({"sample_weight": -np.ones(400)}, ValueError, "sample_weight must not be negative"),
        ({"X": pd.DataFrame({"a": [1.0]}), "y": [1.0]}, ValueError, r"not 1 sample\(s\)"),
    ],
)
def test_bad_data(regressor, change, error, match, numeric, given_to_steps):
    with pytest.raises(error, match=match):
        PGBMRegressor(regressor).fit(**{"X": numeric[0], "y": numeric[1], **change})
    assert not given_to_steps


def test_one_kind_of_prediction(regressor, numeric):
    X, y = numeric
    outer = PGBMRegressor(regressor, cv=None, rho=0.1).fit(X, y)
    with pytest.raises(TypeError, match="return_std=True and coverage=, which ask for different results"):
        outer.predict(X, return_std=True, coverage=0.9)
    with pytest.raises(ValueError, match="coverage must lie strictly between 0 and 1"):
        outer.predict(X, coverage=90)
    frozen = PGBMRegressor(FrozenEstimator(outer.estimator_), cv=None)
    with pytest.raises(TypeError, match="fit got 'verbose', but a FrozenEstimator is not trained"):
        frozen.fit(X, y, verbose=1)


@pytest.mark.parametrize("name", ["base_margin", "offset"])
def test_other_names_of_init_scores(regressor, name, numeric, given_to_steps):
    X, y = numeric
    hint = f"{name}= is called init_score= here: the margin that each row starts from"
    model = PGBMRegressor(regressor, cv=None)
    if booster_of_estimator(regressor).init_score != name:
        with pytest.raises(TypeError, match=hint):
            model.fit(X, y, **{name: y})
        assert given_to_steps == {}
    model.fit(X, y)
    for call in (model.predict, model.predict_dist, model.model_.predict_interval, partial(wrap, model.estimator_)):
        with pytest.raises(TypeError, match=hint):
            call(X, **{name: y})


def test_the_booster_that_is_installed(numeric, monkeypatch):
    X, y = (part[:50] for part in numeric)
    assert type(PGBMRegressor().fit(X, y).estimator_) is lgb.LGBMRegressor
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert type(PGBMRegressor().fit(X, y).estimator_) is xgb.XGBRegressor
    monkeypatch.setitem(sys.modules, "xgboost", None)
    monkeypatch.setitem(sys.modules, "catboost", None)
    assert type(PGBMRegressor().fit(X, y).estimator_) is HistGradientBoostingRegressor


def test_without_scikit_learn():
    code = "import sys; sys.modules['sklearn'] = None; import pgbm_plugin; import pgbm_plugin.sklearn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'pgbm-plugin[sklearn]'" in done.stderr
