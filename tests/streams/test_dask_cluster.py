"""Dask on a real cluster of processes: models trained by both Dask interfaces, and a worker that dies in mid-pass."""

from __future__ import annotations

import os
from functools import partial

import dask.array as da
import dask.dataframe as dd
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
import xgboost.dask
from distributed import Client, LocalCluster

from pgbm_plugin import dask as pgbm_dask
from pgbm_plugin import wrap
from tests.same import assert_same_model
from tests.streams.streamed import LGB

# both boosters' own Dask code, and sockets that die with a killed worker
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def rows(make_data):
    return make_data("nan", n=2000)


def lazily(X, y):
    return da.from_array(X, chunks=(300, 4)), da.from_array(y, chunks=300)


def test_lightgbm_on_frames_with_categories(client, make_data):
    """Its machines start from the mean of their own mean labels, which none of the rows tell."""
    X, y = make_data("mixed", n=2000)
    dX, dy = dd.from_pandas(X, npartitions=4), dd.from_pandas(pd.Series(y), npartitions=4)
    model = lgb.DaskLGBMRegressor(n_estimators=5, num_leaves=8, verbose=-1, client=client).fit(dX, dy)
    lazy = pgbm_dask.wrap(model, dX, dy)
    whole = wrap(model.booster_, X, y)
    assert whole.certificate.status == "certified"
    assert_same_model(lazy.model, whole, X)
    found = lazy.predict_dist(dX, quantiles=[0.05, 0.95]).compute()
    assert np.array_equal(found["mean"], model.to_local().predict(X))
    assert np.array_equal(found["q95"], lazy.model.predict_quantiles(X, 0.95)[:, 0])


def test_xgboost_on_arrays(client, rows):
    X, y = rows
    dX, dy = lazily(X, y)
    out = xgboost.dask.train(client, {"max_depth": 3}, xgboost.dask.DaskDMatrix(client, dX, dy), num_boost_round=5)
    estimator = xgboost.dask.DaskXGBRegressor(n_estimators=5, max_depth=3)
    estimator.client = client
    estimator.fit(dX, dy)
    for model, booster in ((out, out["booster"]), (estimator, estimator.get_booster())):
        whole = wrap(booster, X, y)
        assert whole.certificate.status == "certified"
        lazy = pgbm_dask.wrap(model, dX, dy)
        assert_same_model(lazy.model, whole, X)
        assert np.array_equal(lazy.predict(dX).compute(), booster.predict(xgb.DMatrix(X)))


def read_or_die(part, flag):
    """Rows of a partition; the first to ask for this one loses its worker, and what that had done."""
    if flag is not None:
        try:
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            os._exit(1)
    return part


def test_a_worker_that_dies_is_not_counted_twice(client, rows, tmp_path):
    X, y = rows
    booster = lgb.train(LGB, lgb.Dataset(X, y), 5)
    whole = wrap(booster, X, y)
    parts = [
        partial(read_or_die, X[lo : lo + 100], str(tmp_path / "died") if lo == 1300 else None)
        for lo in range(0, len(y), 100)
    ]
    frame = dd.from_map(lambda part: pd.DataFrame(part()), parts, meta=pd.DataFrame(X[:0]))
    lazy = pgbm_dask.wrap(booster, frame, da.from_array(y, chunks=100))
    assert (tmp_path / "died").exists()
    assert_same_model(lazy.model, whole, X)
    assert lazy.model.moments.rows == 2000
