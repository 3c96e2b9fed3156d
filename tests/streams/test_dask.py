"""Dask without a cluster: any partitions give the moments of one machine; lazy predictions keep their word."""

from __future__ import annotations

import dask
import dask.array as da
import dask.dataframe as dd
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

from pgbm_plugin import UnsupportedModelError, torch_objective, wrap
from pgbm_plugin import dask as pgbm_dask
from tests.calibration import shaped
from tests.same import assert_same_model, assert_same_moments
from tests.streams.streamed import LGB, XGB, smooth


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module", params=["lightgbm", "huber", "xgboost"])
def trained(request, make_data):
    X, y = make_data("nan", n=1000)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    if request.param == "xgboost":
        booster = xgb.train({**XGB, "objective": "reg:gamma"}, xgb.DMatrix(X, y, weight=weight), 4)
    else:
        objective = "huber" if request.param == "huber" else "regression"
        booster = lgb.train({**LGB, "objective": objective}, lgb.Dataset(X, y, weight=weight), 4)
    return booster, wrap(booster, X, y, sample_weight=weight), X, y, weight


@pytest.mark.parametrize("chunks", [(1000, 4), (300, 2), (37, 4)])
def test_arrays(chunks, trained):
    """Columns in several blocks, labels and weights in other chunks than rows."""
    booster, whole, X, y, weight = trained
    dX, dy, dw = da.from_array(X, chunks=chunks), da.from_array(y, chunks=170), da.from_array(weight, chunks=400)
    assert_same_model(pgbm_dask.wrap(booster, dX, dy, sample_weight=dw).model, whole, X)


def test_unknown_chunks_and_empty_ones(trained):
    booster, whole, X, y, weight = trained
    dX = da.from_array(np.concatenate([np.full((300, 4), 99.0), X]), chunks=(100, 4))
    kept = dX[:, 0] != 99.0  # three blocks become empty
    dy, dw = (da.from_array(np.concatenate([np.ones(300), column]), chunks=100)[kept] for column in (y, weight))
    lazy = pgbm_dask.wrap(booster, dX[kept], dy, sample_weight=dw)
    assert_same_model(lazy.model, whole, X)
    for found, want in (
        (lazy.predict(dX[kept]), lazy.model.predict(X)),
        (lazy.predict_interval(dX[kept]), lazy.model.predict_interval(X)),
        (lazy.predict_dist(dX[kept])["mean"], lazy.model.predict(X)),
    ):
        assert found.dtype == want.dtype or found.dtype == np.float64
        assert np.array_equal(np.asarray(found.compute()), want)


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("known", [True, False])
def test_frames_with_categories(kind, known, mixed):
    X, y = mixed
    if kind == "lightgbm":
        booster = lgb.train(LGB, lgb.Dataset(X, y), 5)
    else:
        booster = xgb.train(XGB, xgb.DMatrix(X, y, enable_categorical=True), 5)
    dX = dd.from_pandas(X, npartitions=4)
    if not known:
        dX = dX.map_partitions(unused_dropped, meta=X.astype({"few": "category"})).assign(
            few=lambda f: f["few"].cat.as_unknown(), many=lambda f: f["many"].cat.as_unknown()
        )
        assert not dX["few"].cat.known
    dy = dd.from_pandas(pd.Series(y, X.index), npartitions=3)  # known divisions are aligned
    lazy = pgbm_dask.wrap(booster, dX, dy)
    assert_same_model(lazy.model, wrap(booster, X, y), X)
    assert np.array_equal(lazy.predict(dX).compute(), wrap(booster, X, y).predict(X))
    plain = wrap(booster, dX, dy)
    assert_same_moments(plain.moments, lazy.model.moments)


def unused_dropped(frame):
    return frame.assign(**{name: frame[name].cat.remove_unused_categories() for name in ("few", "many")})


def test_codes_alone_need_known_categories():
    rng = np.random.default_rng(0)
    codes, y = rng.integers(0, 3, (300, 1)).astype(float), rng.normal(size=300)
    data = xgb.DMatrix(codes, y + codes[:, 0], feature_types=["c"], feature_names=["c"], enable_categorical=True)
    booster = xgb.train(XGB, data, 3)
    frame = pd.DataFrame({"c": pd.Categorical.from_codes(codes[:, 0].astype(int), ["x", "y", "z"])})
    dX, dy = dd.from_pandas(frame, npartitions=2), dd.from_pandas(pd.Series(y + codes[:, 0]), npartitions=2)
    lazy = pgbm_dask.wrap(booster, dX, dy)
    assert lazy.model.certificate.status == "certified"
    unknown = dX.assign(c=dX["c"].cat.as_unknown())
    for call in (lambda: pgbm_dask.wrap(booster, unknown, dy), lambda: lazy.predict(unknown)):
        with pytest.raises(ValueError, match=r"column 'c' has categories that Dask does not know.*categorize\(\)"):
            call()


def test_predictions_of_frames(trained):
    """Meta, index and values; an empty partition among them."""
    _, whole, X, _, _ = trained
    frame = pd.DataFrame(X, columns=list("abcd"), index=np.arange(1000) + 10)
    dX = dd.from_pandas(frame, npartitions=5)
    dX = dX.map_partitions(lambda part: part[part.index > 210], meta=frame)
    rows, frame = X[201:], frame.iloc[201:]
    lazy = pgbm_dask.DaskModel(whole)
    mean, std = lazy.predict(dX, return_std=True)
    dist = lazy.predict_dist(dX, quantiles=[0.05, 0.5])
    quantiles, interval = lazy.predict_quantiles(dX, [0.1, 0.975]), lazy.predict_interval(dX, 0.8)
    for found, columns in (
        (dist, ["mean", "std", "q05", "q50"]),
        (quantiles, ["q10", "q97.5"]),
        (interval, ["lower", "upper"]),
    ):
        assert list(found.columns) == columns
        computed = found.compute()
        assert list(computed.columns) == columns
        assert (computed.dtypes == found.dtypes).all()
        assert computed.index.equals(frame.index)
    want = whole.predict_dist(rows)
    assert np.array_equal(dist.compute(), np.column_stack([want.mean(), want.std(), want.ppf([0.05, 0.5])]))
    assert np.array_equal(quantiles.compute(), want.ppf([0.1, 0.975]))
    assert np.array_equal(interval.compute(), whole.predict_interval(rows, 0.8))
    for found, values in (
        (mean, whole.predict(rows)),
        (std, want.std()),
        (lazy.predict_var(dX), want.var()),
    ):
        computed = found.compute()
        assert found.dtype == computed.dtype == values.dtype
        assert computed.index.equals(frame.index)
        assert np.array_equal(computed, values)


def test_predictions_are_lazy_and_of_their_time(trained):
    """Nothing is computed when asked; what the model becomes later does not matter."""
    booster, _, X, y, weight = trained
    dX = da.from_array(X, chunks=(250, 4))
    lazy = pgbm_dask.DaskModel(wrap(booster, X, y, sample_weight=weight))
    before = lazy.predict_var(dX)
    want = lazy.model.predict_var(X)
    lazy.model.rho = 0.5
    assert np.array_equal(before.compute(), want)
    assert np.array_equal(lazy.predict_var(dX).compute(), lazy.model.predict_var(X))
    assert np.all(lazy.model.predict_var(X) < want)


def test_the_model_is_in_the_graph_once(trained):
    _, whole, X, _, _ = trained
    dX = da.from_array(X, chunks=(50, 4))
    lazy = pgbm_dask.DaskModel(whole)
    for collection in (lazy.predict(dX), lazy.predict(dd.from_pandas(pd.DataFrame(X), npartitions=20))):
        graph = dict(collection.__dask_graph__())
        assert sum("ProbabilisticModel" in str(key) for key in graph) == 1
        assert len(graph) > 20


def test_update(trained):
    booster, _, X, y, weight = trained
    half = [da.from_array(column[500:], chunks=(100, 4)[: column.ndim]) for column in (X, y, weight)]
    lazy = pgbm_dask.DaskModel(wrap(booster, X, y, sample_weight=weight))
    want = wrap(booster, X, y, sample_weight=weight).update(X[500:], y[500:], 0.5, sample_weight=weight[500:])
    assert lazy.update(*half[:2], decay=0.5, sample_weight=half[2]) is lazy
    np.testing.assert_allclose(lazy.model.predict_var(X), want.predict_var(X), rtol=1e-10)
    assert lazy.model.moments.rows == want.moments.rows == 1000


def test_held_out_rows_keep_the_models_start(make_data):
    X, y = make_data("numeric", n=3000)
    booster = lgb.train(LGB, lgb.Dataset(X[:1000], y[:1000]), 4)
    dX, dy = da.from_array(X[1000:], chunks=(400, 4)), da.from_array(y[1000:], chunks=400)
    with pytest.warns(UserWarning, match="held-out"):
        whole = wrap(booster, X[1000:], y[1000:])
    with pytest.warns(UserWarning, match="held-out"):
        assert_same_model(pgbm_dask.wrap(booster, dX, dy).model, whole, X)


def test_init_scores_and_torch_objectives(make_data):
    pytest.importorskip("torch")
    X, y = make_data("numeric", n=600)
    score = np.random.default_rng(0).normal(size=600)
    dX, dy, ds = da.from_array(X, chunks=(100, 4)), da.from_array(y, chunks=100), da.from_array(score, chunks=100)
    booster = lgb.train(LGB, lgb.Dataset(X, y, init_score=score), 4)
    lazy = pgbm_dask.wrap(booster, dX, dy, init_score=ds)
    assert_same_model(lazy.model, wrap(booster, X, y, init_score=score), X, score)
    lazy.predict(dX)
    with pytest.warns(UserWarning, match="training had an init_score"):
        lazy.predict_dist(dX)
    booster = xgb.train(XGB, xgb.DMatrix(X, y), 4, obj=(objective := torch_objective(smooth)))
    lazy = pgbm_dask.wrap(booster, dX, dy, objective=objective)
    assert_same_model(lazy.model, wrap(booster, X, y, objective=objective), X)
    with pytest.raises(UnsupportedModelError, match="may couple rows"):
        pgbm_dask.wrap(booster, dX, dy, objective=lambda margin, y: (margin - y, np.ones(len(y))))


def with_nan(y, i):
    return np.where(np.arange(len(y)) == i, np.nan, y)


def collections(n=400):
    X = np.random.default_rng(0).normal(size=(n, 4))
    return X, X[:, 0].copy()


@pytest.mark.parametrize(
    ("give", "error", "match"),
    [
        (lambda X, y: (da.from_array(X, chunks=(100, 4)), y), TypeError, "y is a ndarray: give a Dask collection"),
        (lambda X, y: (da.from_array(X), None), TypeError, "needs labels"),
        (lambda X, y: (da.from_array(X), da.from_array(y[1:])), ValueError, "y has 399 values, X has 400 rows"),
        (
            lambda X, y: (da.from_array(X, chunks=(100, 4))[da.from_array(X[:, 0], chunks=100) < 9], da.from_array(y)),
            ValueError,
            "y has 1 partitions, X has 4.*repartition or rechunk",
        ),
        (
            lambda X, y: (
                da.from_array(X, chunks=(200, 4)),
                dd.from_pandas(pd.Series(y), npartitions=2).loc[:300],
            ),
            ValueError,
            "partition 1: y has 101 values, X has 200 rows",
        ),
        (
            lambda X, y: (da.from_array(X, chunks=(100, 4)), da.from_array(with_nan(y, 205), chunks=100)),
            ValueError,
            r"partition 2: y has 1 NaN.*row 5",
        ),
        (
            lambda X, y: (da.from_array(X[:, :3], chunks=(100, 3)), da.from_array(y, chunks=100)),
            ValueError,
            "X has 3 columns, the model was trained on 4",
        ),
        (
            lambda X, y: (da.from_array(X)[da.from_array(y) > 99], da.from_array(y)[da.from_array(y) > 99]),
            ValueError,
            "no rows",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
def test_refused(give, error, match, kind):
    X, y = collections()
    booster = lgb.train(LGB, lgb.Dataset(X, y), 2) if kind == "lightgbm" else xgb.train(XGB, xgb.DMatrix(X, y), 2)
    with pytest.raises(error, match=match):
        pgbm_dask.wrap(booster, *give(X, y))


def test_rows_in_memory(trained):
    """Results are the model's own: frames for frames, arrays for arrays, as for collections."""
    booster, whole, X, y, weight = trained
    frame = pd.DataFrame(X, columns=list("abcd"), index=np.arange(1000) + 10)
    both = pgbm_dask.wrap(booster, X, y, sample_weight=weight)
    assert_same_model(both.model, whole, X)
    for table in (X, frame):
        same = dd.from_pandas(table, npartitions=3) if table is frame else da.from_array(table, chunks=(400, 4))
        for predict in (
            both.predict,
            lambda table: both.predict(table, return_std=True)[1],
            both.predict_var,
            both.predict_interval,
            lambda table: both.predict_quantiles(table, [0.1, 0.9]),
            lambda table: both.predict_dist(table, [0.1, 0.9]),
        ):
            found, want = predict(table), predict(same).compute()
            assert type(found) is type(want)
            assert np.array_equal(found, want)
            if table is frame:
                assert found.index.equals(frame.index)
    with pytest.raises(ValueError, match="coverage must lie"):
        pgbm_dask.DaskModel(whole).predict_interval(da.from_array(X), 90)


VAL, CAL = slice(400, 800), slice(800, 1200)


def test_tuning_on_collections(make_data):
    """They are computed, and then treated like tables in memory: names, order and categories are checked."""
    X, y = make_data("mixed", n=1200)
    y = pd.Series(y, index=X.index)
    booster = lgb.train(LGB, lgb.Dataset(X[:400], y[:400]), 4)
    model, other = wrap(booster, X[:400], y[:400]), wrap(booster, X[:400], y[:400])
    weight = np.linspace(0.5, 2.0, 400)
    of_val, of_cal = ([dd.from_pandas(table[part], npartitions=3) for table in (X, y)] for part in (VAL, CAL))
    found = model.tune(*of_val, sample_weight=da.from_array(weight, chunks=100), rho=[0.0, 0.1])
    want = other.tune(X[VAL], y[VAL], sample_weight=weight, rho=[0.0, 0.1])
    assert found.candidates == want.candidates
    model.conformalize(*of_cal)
    other.conformalize(X[CAL], y[CAL])
    dX = of_cal[0]
    assert np.array_equal(model.predict_interval(dX), other.predict_interval(X[CAL]))
    with pytest.raises(ValueError, match="columns in another order"):
        model.predict(dX[list(X.columns)[::-1]])
    turned = dd.from_pandas(y[CAL][::-1], npartitions=1, sort=False)
    with pytest.warns(UserWarning, match="the index of y has the rows of X in another order"):
        model.conformalize(dX, turned)


@pytest.mark.parametrize("kind", shaped.KINDS)
def test_shapes_of_rows(kind):
    """Residuals in bins, bounds and a lattice: partitions predict what one machine does."""
    model = shaped.model(kind, 600)
    model.tune(*shaped.rows(kind, 400, 1), rho=[0.0, 0.05], lower=-1e6)
    X = shaped.rows(kind, 300, 2)[0]
    lazy, dX = pgbm_dask.DaskModel(model), da.from_array(X, chunks=(110, 3))
    assert np.array_equal(lazy.predict_quantiles(dX, [0.1, 0.9]).compute(), model.predict_quantiles(X, [0.1, 0.9]))
    assert np.array_equal(lazy.predict_interval(dX).compute(), model.predict_interval(X))
    assert np.array_equal(lazy.predict_var(dX).compute(), model.predict_var(X))
