"""Moments inside an XGBoost model: found after saving and loading, refused where the trees are others."""

from __future__ import annotations

import json
import subprocess
import sys

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import UnsupportedModelError, embed, load, record, wrap
from tests.saving.saved import said

PARAMS = {"max_depth": 3, "nthread": 1, "eta": 0.17, "lambda": 0.4}


@pytest.fixture
def booster(mixed):
    X, y = mixed
    return xgb.train(PARAMS, xgb.DMatrix(X[:200], y[:200], enable_categorical=True), 8)


@pytest.fixture
def model(booster, mixed):
    X, y = mixed
    model = wrap(booster, X[:200], y[:200])
    model.tune(X[200:300], y[200:300])
    return model.conformalize(X[300:], y[300:])


@pytest.mark.parametrize("suffix", ["ubj", "json"])
def test_a_saved_booster_brings_its_model(suffix, booster, model, mixed, tmp_path):
    X, _ = mixed
    embed(booster, model)
    path = tmp_path / f"m.{suffix}"
    booster.save_model(path)
    for again in (booster, xgb.Booster(model_file=path), path, booster.copy()):
        found = wrap(again, n_jobs=1)
        assert said(found, X) == said(model, X)
        assert found.certificate == model.certificate
        assert np.array_equal(found.spec.alpha, model.spec.alpha)  # which the file itself has lost
    wrap(path).save(tmp_path / "m.pgbm")
    assert said(load(tmp_path / "m.pgbm"), X) == said(model, X)


def test_without_xgboost(booster, model, tmp_path):
    embed(booster, model)
    booster.save_model(tmp_path / "m.ubj")
    code = "import sys; sys.modules['xgboost'] = None; import pgbm_plugin; print(pgbm_plugin.wrap('m.ubj'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == repr(model)


@pytest.mark.filterwarnings("ignore:the model stopped early")
def test_an_estimator(numeric, tmp_path):
    X, y = numeric
    own = xgb.XGBRegressor(n_estimators=30, early_stopping_rounds=2, learning_rate=1.0, n_jobs=1)
    own.fit(X[:200], y[:200], eval_set=[(X[200:], y[200:])], verbose=False)
    model = wrap(own, X[:200], y[:200])
    assert model.forest.n_trees < own.get_booster().num_boosted_rounds()
    embed(own, model)
    own.save_model(tmp_path / "m.ubj")
    again = xgb.XGBRegressor()
    again.load_model(tmp_path / "m.ubj")
    assert said(wrap(again), X) == said(model, X)
    with pytest.raises(ValueError, match=r"made for \d+ trees.*an estimator stops"):
        wrap(own.get_booster())
    with pytest.raises(ValueError, match=r"cannot be embedded in this booster.*trees"):
        embed(own.get_booster(), model)


def test_after_record(numeric, tmp_path):
    X, y = numeric
    train = xgb.DMatrix(X, y)
    booster = xgb.train(PARAMS, train, 5, callbacks=[record(train)])
    embed(booster)
    booster.save_model(tmp_path / "m.ubj")
    assert np.array_equal(wrap(tmp_path / "m.ubj").predict_var(X), wrap(booster).predict_var(X))


def test_changed_models_are_refused(booster, model, mixed, tmp_path):
    X, y = mixed
    embed(booster, model)
    train = xgb.DMatrix(X[:200], y[:200], enable_categorical=True)
    longer = xgb.train(PARAMS, train, 2, xgb_model=booster)
    with pytest.raises(ValueError, match=r"made for 8 trees, and there are 10: .*call wrap\(booster, X, y\)"):
        wrap(longer)
    with pytest.raises(ValueError, match="made for 8 trees, and there are 4"):
        wrap(booster[:4])
    booster.save_model(tmp_path / "m.json")
    document = json.loads((tmp_path / "m.json").read_text())
    document["learner"]["gradient_booster"]["model"]["trees"][3]["split_conditions"][-1] += 0.01
    (tmp_path / "m.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match="tree 3 is not the one"):
        wrap(tmp_path / "m.json")
    assert wrap(longer, X[:200], y[:200]).forest.n_trees == 10  # rows overrule


def test_damage_is_refused(booster, model):
    embed(booster, model)
    text = booster.attr("pgbm_plugin")

    def with_another(i):
        return text[:i] + ("B" if text[i] == "A" else "A") + text[i + 1 :]

    for damaged in ("%%%", text[:-4], with_another(100), with_another(len(text) - 8)):
        booster.set_attr(pgbm_plugin=damaged)
        with pytest.raises(ValueError, match=r"embedded in this model.*call wrap"):
            wrap(booster)


def test_refusals(booster, model, numeric, tmp_path):
    X, y = numeric
    own = lgb.train({"verbose": -1}, lgb.Dataset(X, y), 3)
    for lightgbm in (own, lgb.LGBMRegressor(n_estimators=2, verbose=-1).fit(X, y)):
        with pytest.raises(UnsupportedModelError, match=r"LightGBM drops.*model\.save\(path\)"):
            embed(lightgbm, wrap(own, X, y))
    with pytest.raises(ValueError, match="cannot be embedded"):
        embed(booster, wrap(own, X, y))
    with pytest.raises(TypeError, match="not in a str"):
        embed("m.ubj", model)
    with pytest.raises(TypeError, match="model must be what wrap"):
        embed(booster, booster)
    with pytest.raises(TypeError, match="neither moments nor training data"):
        embed(booster)
    assert booster.attr("pgbm_plugin") is None
    embed(booster, model)
    with pytest.raises(TypeError, match="leave it out"):
        wrap(booster, sample_weight=np.ones(200))
    with pytest.raises(ValueError, match="mean='booster'"):
        wrap(booster, mean="pgbm")
