"""Files as older and newer boosters write them: those of the installed ones, less or more what is in them."""

from __future__ import annotations

import json
import re

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import UnsupportedModelError, wrap

LGB = {"num_leaves": 8, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 3, "eta": 0.13, "nthread": 1}


@pytest.fixture
def data(make_data):
    return make_data("nan")


def check(path, booster, X, y):
    model = wrap(path, X, y)
    assert model.certificate.status == "certified"
    assert np.array_equal(model.predict(X), booster.predict(X if isinstance(booster, lgb.Booster) else xgb.DMatrix(X)))


def lightgbm_file(booster, path, *changes):
    """The file with each (pattern, replacement) made, and without the sizes of trees, which then differ."""
    text = re.sub(r"^tree_sizes=.*\n", "", booster.model_to_string(), flags=re.MULTILINE)
    for pattern, replacement in changes:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    path.write_text(text)
    return path


def xgboost_file(booster, path, attributes=None, parallel=None):
    """The file without the bounds of iterations, and with so many trees in each, if it says."""
    booster.save_model(path)
    content = json.loads(path.read_text())
    model = content["learner"]["gradient_booster"]["model"]
    model.pop("iteration_indptr", None)
    del model["gbtree_model_param"]["num_parallel_tree"]
    if parallel is not None:
        model["gbtree_model_param"]["num_parallel_tree"] = parallel
    content["learner"]["attributes"] = attributes or {}
    path.write_text(json.dumps(content))
    return path


def test_rows_of_a_single_leaf_are_not_counted(data, tmp_path):
    """Before LightGBM 4.6."""
    X, y = data
    uncounted = (r"^num_leaves=1$([\s\S]*?)^leaf_count=.*$", r"num_leaves=1\1leaf_count=")
    booster = lgb.train({**LGB, "min_data_in_leaf": 300}, lgb.Dataset(X, y), 3)
    check(lightgbm_file(booster, tmp_path / "m.txt", uncounted), booster, X, y)
    with pytest.warns(UserWarning, match="not certified"):
        wrap(tmp_path / "m.txt", X[:300], y[:300])


def test_goss_is_not_told(data, tmp_path):
    """In LightGBM 4.0 and 4.1."""
    X, y = data
    goss = lgb.train({**LGB, "data_sample_strategy": "goss", "learning_rate": 0.5}, lgb.Dataset(X, y), 6)
    untold = (r"^\[data_sample_strategy: .*\]$\n", "")
    with pytest.warns(UserWarning, match="not certified: subsampled"):
        wrap(lightgbm_file(goss, tmp_path / "m.txt", untold), X, y)
    booster = lgb.train(LGB, lgb.Dataset(X, y), 6)
    check(lightgbm_file(booster, tmp_path / "m.txt", untold), booster, X, y)
    with pytest.warns(UserWarning, match="not certified: held-out"):
        wrap(tmp_path / "m.txt", X[:300], y[:300])


@pytest.mark.parametrize("objective", ["regression", "poisson", "huber"])
def test_leaves_without_hessians(objective, data, tmp_path):
    """Before LightGBM 2.3; in a later file they are lost."""
    X, y = data
    booster = lgb.train({**LGB, "objective": objective}, lgb.Dataset(X, y), 6)
    lost = (r"^leaf_weight=.*\n", "")
    check(lightgbm_file(booster, tmp_path / "m.txt", lost, (r"^version=.*$", "version=v2")), booster, X, y)
    with pytest.raises(ValueError, match="damaged LightGBM model: 'leaf_weight'"):
        wrap(lightgbm_file(booster, tmp_path / "m.txt", lost), X, y)


def test_parallel_trees(data, tmp_path):
    """Stored since XGBoost 1.6, and told by the best iteration since 1.4."""
    X, y = data
    booster = xgb.train({**XGB, "num_parallel_tree": 3, "colsample_bynode": 0.5}, xgb.DMatrix(X, y), 5)
    check(xgboost_file(booster, tmp_path / "m.json", parallel="3"), booster, X, y)
    told = {"best_iteration": "4", "best_ntree_limit": "15"}
    check(xgboost_file(booster, tmp_path / "m.json", told), booster, X, y)
    with pytest.warns(UserWarning, match="not certified: approximate"):
        wrap(xgboost_file(booster, tmp_path / "m.json"), X, y)


def test_trees_after_the_best_iteration(data, tmp_path):
    X, y = data
    booster = xgb.train(XGB, xgb.DMatrix(X, y), 5)
    with pytest.warns(UserWarning, match="stopped early, at iteration 3 of 5"):
        wrap(xgboost_file(booster, tmp_path / "m.json", {"best_iteration": "2"}), X, y)


def test_binary_files_of_xgboost(tmp_path):
    (tmp_path / "m.model").write_bytes(b"binf" + bytes(200))
    with pytest.raises(ValueError, match=r"as \.json or \.ubj"):
        wrap(tmp_path / "m.model", np.zeros((3, 1)), np.zeros(3))


@pytest.mark.parametrize("version", ["", "version=v2\n"])
def test_lightgbm_before_2_2(version, data, tmp_path):
    """It did not write parameters, and a newer LightGBM that loads such a file has none to write."""
    X, y = data
    head = (r"^(version|tree_sizes)=.*\n", ""), (r"^num_class=", rf"{version}num_class="), (r"^leaf_weight=.*\n", "")
    end = (r"^end of trees[\s\S]*", "feature importances:\nColumn_0=1\n")
    path = lightgbm_file(lgb.train(LGB, lgb.Dataset(X, y), 3), tmp_path / "m.txt", *head, end)
    for model in (path, lgb.Booster(model_file=path)):
        with pytest.raises(UnsupportedModelError, match=r"does not store the parameters.*since 2\.2"):
            wrap(model, X, y)
