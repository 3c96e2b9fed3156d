"""A boosted scale is told wherever a model is shown: nothing about the recursion may pass for what it predicts."""

from __future__ import annotations

import json
import re

import lightgbm as lgb
import matplotlib as mpl
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import embed, plot, wrap
from pgbm_plugin.cli import main
from pgbm_plugin.report import report

mpl.use("Agg")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    return X, X[:, 0] + np.exp(0.5 * X[:, 1]) * rng.normal(size=600)


TRAIN, VAL, TEST = slice(0, 300), slice(300, 450), slice(450, 600)


@pytest.fixture(scope="module")
def tuned(data):
    X, y = data
    params = {"num_leaves": 4, "verbose": -1, "num_threads": 1}
    model = wrap(lgb.train(params, lgb.Dataset(X[TRAIN], y[TRAIN]), 5), X[TRAIN], y[TRAIN], variance="boosted")
    assert "untuned boosted variance" in repr(model)
    result = model.tune(X[VAL], y[VAL], distributions=["normal"])
    return model, result


def test_in_words(tuned, tmp_path, capsys):
    model, _ = tuned
    assert f"boosted variance -> {model.calibration}" in repr(model)
    model.save(tmp_path / "m.pgbm")
    assert main(["inspect", str(tmp_path / "m.pgbm")]) == 0
    assert re.search(r"variance: +boosted", capsys.readouterr().out)
    assert main(["inspect", str(tmp_path / "m.pgbm"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["variance"], found["boosted"]) == ("boosted", True)


def test_in_plots(tuned, data):
    model, result = tuned
    assert "without the boosted scale" in plot.variance_by_tree(model, data[0][TEST]).get_ylabel()
    shown = [text.get_text() for text in plot.tuning(result).get_legend().get_texts()]
    assert "chosen, with a boosted scale" in shown


def test_in_the_report(tuned, data):
    model, result = tuned
    X, y = data
    page = report(model, X[TEST], y[TEST], tuning=result)
    assert "too deep" not in page
    assert "matters most, with a share of" in page
    assert "there is no growth to show" in page
    assert "around a boosted spread" in page
    assert page.count("<svg") == 4  # that of the growth is missing


def test_an_embedded_model_does_not_take_another(data):
    X, y = data
    booster = xgb.train({"max_depth": 2, "nthread": 1}, xgb.DMatrix(X[TRAIN], y[TRAIN]), 3)
    for own, other in (("pgbm", "boosted"), ("auto", "boosted"), ("boosted", "auto")):
        embed(booster, wrap(booster, X[TRAIN], y[TRAIN], variance=own))
        with pytest.raises(ValueError, match=f"embedded model has variance='{own}'.*variance='{other}'"):
            wrap(booster, variance=other)
        assert wrap(booster, variance=own).variance == wrap(booster).variance == own


def test_no_scale_is_said(data):
    """Nothing is left of the residuals: the variance is the paper's, and not in silence."""
    X, _ = data
    booster = lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(X, np.ones(len(X))), 2)
    with pytest.warns(UserWarning, match="no scale was boosted, and the variance is the paper's"):
        assert wrap(booster, X, np.ones(len(X)), variance="boosted").training_scale is None
