"""Models that were trained on a GPU are wrapped like any other: their files differ by a word. No GPU is needed."""

from __future__ import annotations

import json

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import wrap


@pytest.mark.parametrize("device", ["cuda", "gpu"])
def test_lightgbm(device, numeric, tmp_path):
    X, y = numeric
    booster = lgb.train({"verbose": -1, "num_leaves": 8}, lgb.Dataset(X, y), 5)
    text = booster.model_to_string()
    assert "[device_type: cpu]" in text
    (tmp_path / "model.txt").write_text(text.replace("[device_type: cpu]", f"[device_type: {device}]"))
    model = wrap(tmp_path / "model.txt", X, y)
    assert model.certificate.status == "certified"
    np.testing.assert_array_equal(model.predict(X), booster.predict(X))


@pytest.mark.parametrize("tree_method", ["hist", "gpu_hist"])
def test_xgboost(tree_method, numeric, tmp_path):
    """Files of XGBoost 1.x name the updater; those of today only say what a pickle's configuration does."""
    X, y = numeric
    booster = xgb.train({"max_depth": 3}, xgb.DMatrix(X, y), 5)
    booster.save_model(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text())
    content["learner"]["attributes"]["device"] = "cuda:0"
    content["learner"]["gradient_booster"]["gbtree_train_param"] = {
        "tree_method": tree_method,
        "updater": "grow_gpu_hist",
    }
    (tmp_path / "model.json").write_text(json.dumps(content))
    model = wrap(tmp_path / "model.json", X, y)
    assert model.certificate.status == "certified"
    np.testing.assert_array_equal(model.predict(X), booster.predict(xgb.DMatrix(X)))


@pytest.mark.filterwarnings("ignore:Exception ignored on calling ctypes", "ignore:.*No visible GPU")
def test_estimators_that_say_cuda(numeric):
    """Set after training, because there may be no GPU: wrapping and predicting use none."""
    X, y = numeric
    for estimator, word in (
        (lgb.LGBMRegressor(n_estimators=5, verbose=-1), {"device_type": "cuda"}),
        (xgb.XGBRegressor(n_estimators=5), {"device": "cuda"}),
    ):
        expected = estimator.fit(X, y).predict(X)
        model = wrap(estimator.set_params(**word), X, y)
        assert model.certificate.status == "certified"
        np.testing.assert_array_equal(model.predict(X), expected)
