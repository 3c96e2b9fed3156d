"""What a certificate must not be given for, and what it must not be refused for: units, clipped leaves, schedules."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import wrap
from tests.core.certified import LGB, XGB, certificate, train


@pytest.mark.parametrize("objective", ["reg:squarederror", "count:poisson"])
def test_fewer_rows_or_weights_are_not_only_called_a_sample(objective, numeric_4000):
    """XGBoost does not store whether it sampled; where trees are all of one size it did not."""
    X, y = numeric_4000
    params = {"objective": objective}
    fewer = certificate(train("xgboost", X[:3000], y[:3000], params), X, y)
    weighted = certificate(train("xgboost", X, y, params, weight=np.linspace(0.1, 0.9, len(y))), X, y)
    if objective == "reg:squarederror":
        assert (fewer.status, weighted.status) == ("held-out", "approximate")
    else:
        assert all("sample_weight=" in found.sentence for found in (fewer, weighted))
    sampled = certificate(train("xgboost", X, y, {**params, "subsample": 0.5}), X, y)
    assert sampled.status == "subsampled"
    assert "sample_weight" not in sampled.sentence


@pytest.mark.parametrize(
    "booster",
    [
        xgb.XGBRFRegressor(n_estimators=5, max_depth=4, subsample=1.0, n_jobs=1),
        xgb.XGBRegressor(n_estimators=1, max_depth=4, base_score=0.0, n_jobs=1),
    ],
    ids=["forest", "one tree"],
)
def test_labels_in_another_unit(booster, numeric_4000, tmp_path):
    """One iteration: a learning rate that is a thousandth would fit labels that are a thousandfold."""
    X, y = numeric_4000[0], numeric_4000[1] - numeric_4000[1].mean()
    booster.fit(X, y)
    booster.save_model(tmp_path / "model.ubj")
    for model in (booster, tmp_path / "model.ubj"):
        assert certificate(model, X, y).status == "certified"
        assert certificate(model, X, 1000.0 * y).status == "approximate"


def test_clipped_leaves_prove_nothing(numeric_4000):
    X, y = numeric_4000
    for kind in ("lightgbm", "xgboost"):
        model = train(kind, X, y, {"max_delta_step": 0.001})
        for label in (y, y.mean() + 2.0 * (y - y.mean())):
            with pytest.warns(UserWarning, match=r"approximate.*max_delta_step clipped"):
                wrap(model, X, label)
    assert certificate(train("lightgbm", X, y, {"max_delta_step": 0.5}), X, y).status == "certified"


def test_a_row_less_where_gradients_are_large(numeric_4000):
    """Its share of the leaf is within the tolerance; the leaf's size tells."""
    X, y = numeric_4000[0], 1000.0 + numeric_4000[1]
    model = train("xgboost", X, y, {"base_score": 0.5, "eta": 0.1})
    assert certificate(model, X, y).status == "certified"
    with pytest.warns(UserWarning, match="held-out"):
        wrap(model, X[1:], y[1:])


@pytest.mark.parametrize("leaves", [2, 8])
def test_learning_rates_that_change(leaves, numeric_4000):
    """With l1, and with trees of two leaves, which tell no more than one number each."""
    X, y = numeric_4000
    params = {"lambda_l1": 0.5, "num_leaves": leaves}
    rates = [0.3 * 0.9**i for i in range(10)]
    model = lgb.train({**LGB, **params}, lgb.Dataset(X, y), 10, callbacks=[lgb.reset_parameter(learning_rate=rates)])
    wrapped = wrap(model, X, y)
    assert wrapped.certificate.status == "certified"
    np.testing.assert_allclose(wrapped.spec.alpha, rates, rtol=1e-5)
    schedule = xgb.callback.LearningRateScheduler(rates.__getitem__)
    model = xgb.train({**XGB, "alpha": 0.5}, xgb.DMatrix(X, y), 10, callbacks=[schedule])
    wrapped = wrap(model, X, y)
    assert wrapped.certificate.status == "certified"
    np.testing.assert_allclose(wrapped.spec.alpha, [XGB["eta"], *rates[:-1]], rtol=1e-3)  # set after an iteration
