"""Train with crps_callback, and score every iteration from the start to compare."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import xgboost as xgb

from pgbm_plugin import wrap
from pgbm_plugin.scores import crps

LGB = {"num_leaves": 8, "min_data_in_leaf": 10, "learning_rate": 0.3, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 3, "eta": 0.3, "nthread": 1, "verbosity": 0}
ROUNDS = 6


def split(X, y, n=300):
    cut = (lambda part: X.iloc[part]) if hasattr(X, "iloc") else (lambda part: X[part])
    return (cut(slice(0, n)), y[:n]), (cut(slice(n, None)), y[n:])


def run_lightgbm(params, callback, X, y, rounds=ROUNDS, callbacks=(), init_model=None, **dataset):
    """Return the booster and the scores that it recorded."""
    seen = {}
    data = lgb.Dataset(X, y, **dataset)
    callbacks = [lgb.record_evaluation(seen), *callbacks, callback]  # LightGBM sorts them
    booster = lgb.train({**LGB, **params}, data, rounds, callbacks=callbacks, init_model=init_model)
    return booster, seen["valid"]["crps"]


def run_xgboost(params, callback, X, y, rounds=ROUNDS, callbacks=(), xgb_model=None, obj=None, **dmatrix):
    seen = {}
    data = xgb.DMatrix(X, y, enable_categorical=True, **dmatrix)
    booster = xgb.train(
        {**XGB, **params},
        data,
        rounds,
        callbacks=[*callbacks, callback],
        evals_result=seen,
        verbose_eval=False,
        xgb_model=xgb_model,
        obj=obj,
    )
    return booster, seen["valid"]["crps"]


RUN = {"lightgbm": run_lightgbm, "xgboost": run_xgboost}


def brute(booster, train, valid, iterations=None, sample_weight_val=None, init_score_val=None, **options):
    """Return the score after each number of iterations: truncate, wrap, predict and score from the start."""
    family = {key: options.pop(key) for key in ("distribution", "rho") if key in options}
    out = []
    for k in iterations or range(1, ROUNDS + 1):
        if isinstance(booster, xgb.Booster):
            part = booster[:k]
        else:
            part = lgb.Booster(model_str=booster.model_to_string(num_iteration=k))
        distribution = wrap(part, *train, **options).predict_dist(valid[0], init_score=init_score_val, **family)
        out.append(crps(valid[1], distribution, sample_weight_val))
    return out


def assert_same_scores(scores, want, rtol=1e-12):
    assert len(scores) == len(want)
    np.testing.assert_allclose(scores, want, rtol=rtol)
    assert len(set(want)) == len(want)  # every tree has changed it
