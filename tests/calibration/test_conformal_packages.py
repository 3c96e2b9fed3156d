"""Packages for conformal prediction take the model as their estimator."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin

from pgbm_plugin.scores import coverage
from tests.calibration.conformalized import POOL, data, train


class Estimator(RegressorMixin, BaseEstimator):
    """What MAPIE and skpro ask of an estimator beyond `predict(X, return_std=True)`: fit, and parameters to clone."""

    def fit(self, X, y):
        self.model_ = train(np.asarray(X), np.asarray(y))
        self.n_features_in_ = np.shape(X)[1]
        return self

    def predict(self, X, return_std=False):
        return self.model_.predict(np.asarray(X), return_std=return_std)


def test_mapie_on_a_fitted_model(conformal_rows):
    regression = pytest.importorskip("mapie.regression")
    scores = pytest.importorskip("mapie.conformity_scores")
    if not hasattr(scores, "StdConformityScore"):
        pytest.skip("this MAPIE has no score that asks for the standard deviation")
    estimator, (X, y) = Estimator().fit(*data(600, 0)), data(POOL, 1)
    split = regression.SplitConformalRegressor(
        estimator, confidence_level=0.9, conformity_score=scores.StdConformityScore(sym=False), prefit=True
    )
    split.conformalize(*conformal_rows)
    mean, interval = split.predict_interval(X)
    assert np.array_equal(mean, estimator.predict(X))
    assert coverage(y, interval[:, :, 0]) > 0.83
    # theirs is the same construction, up to how each rounds a rank
    ours = estimator.model_.conformalize(*conformal_rows)
    std = np.abs(ours.predict_interval(X, 0.9) - interval[:, :, 0]) / ours.predict_dist(X, "normal").std()[:, None]
    assert std.max() < 0.5


def test_mapie_by_cross_validation():
    regression = pytest.importorskip("mapie.regression")
    scores = pytest.importorskip("mapie.conformity_scores")
    if not hasattr(scores, "StdConformityScore"):
        pytest.skip("this MAPIE has no score that asks for the standard deviation")
    cross = regression.CrossConformalRegressor(
        Estimator(), confidence_level=0.9, conformity_score=scores.StdConformityScore(), method="plus", cv=3
    )
    X, y = data(POOL, 1)
    _, interval = cross.fit_conformalize(*data(600, 0)).predict_interval(X)
    assert coverage(y, interval[:, :, 0]) > 0.83


@pytest.mark.filterwarnings("ignore")  # skpro's own
def test_skpro():
    adapters = pytest.importorskip("skpro.regression.adapters.sklearn")
    X, y = (pd.DataFrame(part) for part in data(600, 0))
    X.columns, y.columns = list("abc"), ["y"]
    new = pd.DataFrame(data(POOL, 1)[0], columns=list("abc"))
    regressor = adapters.SklearnProbaReg(Estimator(), inner_type="np.ndarray").fit(X, y)
    own = Estimator().fit(X, y["y"]).model_.predict_dist(new.to_numpy())
    np.testing.assert_allclose(regressor.predict_var(new).to_numpy()[:, 0], own.var(), rtol=1e-9)
    d = regressor.predict_proba(new)
    np.testing.assert_allclose(d.mean().to_numpy()[:, 0], own.mean(), rtol=1e-9)
    np.testing.assert_allclose(d.ppf(0.9).to_numpy()[:, 0], own.ppf(0.9), rtol=1e-9)
    interval = regressor.predict_interval(new, coverage=0.9).to_numpy()
    np.testing.assert_allclose(interval, np.stack(own.interval(0.9), 1), rtol=1e-9)
