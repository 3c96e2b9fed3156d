"""Models of several kinds and their reports, made once a process."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import lightgbm as lgb
import numpy as np
import xgboost as xgb

import pgbm_plugin
from pgbm_plugin import wrap
from pgbm_plugin.report import report

HOSTILE = "<script>alert('x')</script>"


NAMES = ["tuned", "narrow", "conformal", "empirical", "poisson", "loaded"]
LGB = {"num_leaves": 8, "verbose": -1, "num_threads": 1}


@cache
def made_data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2400, 4))
    y = 2 * X[:, 0] + np.exp(0.5 * X[:, 1]) * rng.normal(size=2400)
    counts = rng.poisson(np.exp(0.2 + 0.5 * X[:, 0])).astype(float)
    return X, y, counts


TRAIN, VAL, CAL, TEST = slice(0, 800), slice(800, 1300), slice(1300, 1600), slice(1600, 2400)


@cache
def made_cases():
    """Name -> (model, outcomes, what tune found)."""
    X, y, counts = made_data()
    names = [HOSTILE, "a\"b'c&d", "plain", "$\\frac"]
    frame = lgb.Dataset(X[TRAIN], y[TRAIN], feature_name=[name.replace('"', "") for name in names])
    tuned = wrap(lgb.train(LGB, frame, 40), X[TRAIN], y[TRAIN])
    result = tuned.tune(X[VAL], y[VAL], variance="pgbm")
    sharp = {**LGB, "num_leaves": 60, "min_data_in_leaf": 2}
    narrow = wrap(lgb.train(sharp, lgb.Dataset(X[TRAIN], y[TRAIN]), 100), X[TRAIN], y[TRAIN])
    conformal = wrap(xgb.train({"max_depth": 3, "nthread": 1}, xgb.DMatrix(X[TRAIN], y[TRAIN]), 20), X[TRAIN], y[TRAIN])
    conformal.conformalize(X[CAL], y[CAL])
    empirical = wrap(lgb.train(LGB, lgb.Dataset(X[TRAIN], y[TRAIN]), 20), X[TRAIN], y[TRAIN])
    empirical.tune(X[VAL], y[VAL], distributions="empirical")
    poisson = wrap(
        lgb.train({**LGB, "objective": "poisson"}, lgb.Dataset(X[TRAIN], counts[TRAIN]), 40), X[TRAIN], counts[TRAIN]
    )
    of_counts = poisson.tune(X[VAL], counts[VAL], distributions=["poisson"])
    with tempfile.TemporaryDirectory() as folder:
        tuned.save(Path(folder) / "model.pgbm")
        loaded = pgbm_plugin.load(Path(folder) / "model.pgbm")
    return {
        "tuned": (tuned, y[TEST], result),
        "narrow": (narrow, y[TEST], None),
        "conformal": (conformal, y[TEST], None),
        "empirical": (empirical, y[TEST], None),
        "poisson": (poisson, counts[TEST], of_counts),
        "loaded": (loaded, y[TEST], None),
    }


@cache
def made_pages():
    X = made_data()[0][TEST]
    return {
        name: report(model, X, y, title=f"{name} {HOSTILE}", tuning=result)
        for name, (model, y, result) in made_cases().items()
    }
