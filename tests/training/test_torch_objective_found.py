"""How wrap finds a torch_objective again, which no booster stores, and takes the variance from it."""

from __future__ import annotations

import gc

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import UnsupportedModelError, torch_objective, wrap
from pgbm_plugin.losses.torch_objective import remembered
from tests.training.torch_losses import LGB, LOSSES, XGB, squared


@pytest.mark.parametrize("booster", ["lightgbm", "xgboost"])
def test_wrap_finds_it_while_it_lives(booster, numeric):
    X, y = numeric

    def train():
        objective = torch_objective(LOSSES["log-cosh"])
        if booster == "lightgbm":
            return lgb.train({**LGB, "objective": objective}, lgb.Dataset(X, y), 6), objective
        return xgb.train({**XGB, "base_score": 0.5}, xgb.DMatrix(X, y), 6, obj=objective), objective

    model, objective = train()
    found = wrap(model, X, y)
    assert found.certificate.status == "certified"
    assert "custom" in repr(found)
    given = wrap(model, X, y, objective=objective)
    np.testing.assert_array_equal(found.moments.gg, given.moments.gg)
    del found, given, objective
    gc.collect()
    if booster == "lightgbm":
        with pytest.raises(UnsupportedModelError, match="torch_objective"):
            wrap(model, X, y)
    else:  # XGBoost says that it was squared error; the certificate knows better
        with pytest.warns(UserWarning, match="not certified"):
            wrap(model, X, y)


def test_a_living_objective_is_not_forced_on_other_models(numeric):
    X, y = numeric
    objective = torch_objective(LOSSES["log-cosh"])
    xgb.train({**XGB, "base_score": 0.5}, xgb.DMatrix(X, y), 3, obj=objective)
    plain = wrap(xgb.train(XGB, xgb.DMatrix(X, y), 3), X, y)
    assert plain.certificate.status == "certified"
    assert plain.spec.objective.gradients is None


def test_variance_comes_from_the_diagonal(numeric):
    X, y = numeric
    levels = [(None, 1.0), (np.arange(len(y)) // 10, 0.2)]
    by_rowsum = torch_objective(squared, levels=levels, hessian="rowsum")
    booster = lgb.train({**LGB, "objective": by_rowsum}, lgb.Dataset(X, y), 6)
    model = wrap(booster, X, y)
    assert model.certificate.status == "certified"  # by the row sums, which stepped the trees
    np.testing.assert_allclose(model.moments.h_mean[model.moments.count > 0], 1.2, rtol=1e-6)


def test_init_reaches_wrap(numeric):
    X, y = numeric
    objective = torch_objective(LOSSES["pseudohuber"])
    start = np.full(len(y), objective.init(y))
    data = lgb.Dataset(X, y, init_score=start, free_raw_data=False)
    booster = lgb.train({**LGB, "objective": objective}, data, 6)
    assert wrap(booster, data).certificate.status == "certified"
    model = wrap(booster, X, y, init_score=start)
    assert model.certificate.status == "certified"
    np.testing.assert_allclose(model.predict(X, init_score=start), booster.predict(X) + start)
    xmodel = xgb.train({**XGB, "base_score": objective.init(y)}, xgb.DMatrix(X, y), 6, obj=objective)
    assert wrap(xmodel, X, y).certificate.status == "certified"


def test_objectives_of_other_models_do_not_disturb(numeric):
    """They saw the same labels and still live: a loss of levels knows no weights, and the newest is tried first."""
    X, y = numeric
    weight = np.linspace(0.5, 2.0, len(y))
    plain = xgb.train({**XGB, "subsample": 0.7}, xgb.DMatrix(X, y, weight=weight), 3)
    older, newer = (torch_objective(squared) for _ in range(2))
    levels = torch_objective(squared, levels=[(None, 0.5), (np.zeros(len(y)), 0.1)], hessian="rowsum")
    for objective in (newer, levels, older):
        xgb.train(XGB, xgb.DMatrix(X, y), 2, obj=objective)
    with pytest.warns(UserWarning, match="subsampled"):
        wrap(plain, X, y, sample_weight=weight)
    own = {older, newer, levels}  # those of other tests may still live
    assert [objective for objective in remembered(y, weighted=False) if objective in own] == [levels, newer, older]
    assert [objective for objective in remembered(y, weighted=True) if objective in own] == [newer, older]
