"""The paper's data sets: tuning lowers the test CRPS. Skipped where they are not at hand."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest

from pgbm_plugin import wrap
from pgbm_plugin.scores import crps
from tests import DATA

SETS = ("yacht", "boston", "energy", "concrete", "wine-red", "kin8nm", "power", "naval", "protein")
# The paper's settings, with a larger step and fewer trees; small sets have more splits, as they are noisier.
PARAMS = {"num_leaves": 16, "learning_rate": 0.2, "lambda_l2": 1.0, "max_bin": 64, "num_threads": 1, "verbose": -1}
MAX_ROWS = 6_000


def split_scores(data, split):
    """Test CRPS of the paper's default and of the tuned model, which were trained on the same rows."""
    X, y, test = data["X"], data["y"], data[f"test_{split}"]
    rng = np.random.default_rng(split)
    rest = rng.permutation(np.setdiff1d(np.arange(len(y)), test))[:MAX_ROWS]
    validation, train = np.split(rest, [len(rest) // 5])
    watch = lgb.Dataset(X[validation], y[validation])
    booster = lgb.train(
        {**PARAMS, "min_data_in_leaf": 1 if len(y) < 2_000 else 20},
        lgb.Dataset(X[train], y[train]),
        150,
        valid_sets=[watch],
        callbacks=[lgb.early_stopping(20, verbose=False)],
    )
    model = wrap(booster, X[train], y[train])
    default = crps(y[test], model.predict_dist(X[test]))
    model.tune(X[validation], y[validation])
    return default, crps(y[test], model.predict_dist(X[test]))


@pytest.mark.skipif(
    not all((DATA / f"{name}.npz").exists() for name in SETS), reason=f"no UCI data at {DATA}; set PGBM_PLUGIN_DATA"
)
def test_tuning_lowers_the_test_score():
    better = {}
    for name in SETS:
        with np.load(DATA / f"{name}.npz") as data:
            splits = 4 if len(data["y"]) < 2_000 else 1
            default, tuned = np.mean([split_scores(data, split) for split in range(splits)], axis=0)
        better[name] = tuned / default
    assert sum(ratio < 1.0 for ratio in better.values()) >= 7, better
