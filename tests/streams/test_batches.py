"""wrap over batches: the moments, certificate and spread of all rows at once, from one pass."""

from __future__ import annotations

import gc
import re
import tracemalloc

import lightgbm as lgb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import xgboost as xgb

from pgbm_plugin import UnsupportedModelError, torch_objective, wrap
from tests.same import assert_same_model
from tests.streams.streamed import LGB, XGB, cut, parts_of, smooth

CASES = {
    "regression": (LGB, {}),
    "offset": (LGB, {"offset": 1e6}),
    "huber": ({**LGB, "objective": "huber", "alpha": 0.5}, {}),
    "fair": ({**LGB, "objective": "fair"}, {}),
    "poisson": ({**LGB, "objective": "poisson"}, {}),
    "l1": ({**LGB, "objective": "l1"}, {}),
    "sqrt": ({**LGB, "reg_sqrt": True}, {}),
    "weighted": (LGB, {"weighted": True}),
    "weighted offset": (LGB, {"weighted": True, "offset": 1e5}),
    "one leaf": ({**LGB, "min_data_in_leaf": 3000}, {}),
    "lambda and l1": ({**LGB, "lambda_l2": 3.0, "lambda_l1": 0.1}, {}),
    "xgboost": (XGB, {"xgb": True}),
    "xgboost weighted": ({**XGB, "objective": "reg:gamma"}, {"xgb": True, "weighted": True}),
}


@pytest.fixture(params=CASES)
def trained(request, make_data):
    params, how = CASES[request.param]
    X, y = make_data("nan", n=2000)
    y = y + how.get("offset", 0.0)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y)) if how.get("weighted") else None
    if how.get("xgb"):
        return xgb.train(params, xgb.DMatrix(X, y, weight=weight), 5), X, y, weight
    return lgb.train(params, lgb.Dataset(X, y, weight=weight), 5), X, y, weight


@pytest.mark.filterwarnings("ignore:not certified:UserWarning")  # l1 is approximate, in memory as well
def test_iterators_give_what_memory_gives(trained):
    booster, X, y, weight = trained
    whole = wrap(booster, X, y, sample_weight=weight)
    columns = (X, y) if weight is None else (X, y, weight)
    batches = (tuple(column[rows] for column in columns) for rows in cut(len(y)))
    assert_same_model(wrap(booster, batches), whole, X)


@pytest.mark.filterwarnings("ignore:not certified:UserWarning")
@pytest.mark.parametrize("boosting", ["gbdt", "rf"])
def test_samples_of_rows_and_random_forests(boosting, make_data):
    X, y = make_data("numeric", n=2000)
    params = {**LGB, "boosting": boosting, "bagging_freq": 1, "bagging_fraction": 0.6}
    booster = lgb.train(params, lgb.Dataset(X, y), 4)
    whole = wrap(booster, X, y)
    assert whole.certificate.status == "subsampled"
    assert_same_model(wrap(booster, [(X[rows], y[rows]) for rows in cut(len(y))]), whole, X)


def test_held_out_rows_keep_the_models_start(make_data):
    X, y = make_data("numeric", n=3000)
    booster = lgb.train(LGB, lgb.Dataset(X[:1000], y[:1000]), 4)
    with pytest.warns(UserWarning, match="held-out"):
        whole = wrap(booster, X[1000:], y[1000:])
    with pytest.warns(UserWarning, match="held-out"):
        streamed = wrap(booster, ((X[1000:][rows], y[1000:][rows]) for rows in cut(2000)))
    assert_same_model(streamed, whole, X)


def test_rates_are_solved_from_the_moments(make_data, tmp_path):
    """A file of XGBoost has lost eta and lambda; too few trees to tell them without rows."""
    X, y = make_data("numeric", n=2000)
    xgb.train({**XGB, "eta": 0.37, "lambda": 2.5}, xgb.DMatrix(X, y), 6).save_model(tmp_path / "m.ubj")
    whole = wrap(tmp_path / "m.ubj", X, y)
    streamed = wrap(tmp_path / "m.ubj", [(X[rows], y[rows]) for rows in cut(len(y))])
    np.testing.assert_allclose(streamed.spec.alpha, whole.spec.alpha, rtol=1e-9)
    assert_same_model(streamed, whole, X)


@pytest.mark.parametrize("size", [1, 100, 70_000])
def test_batches_of_any_size(size, make_data, monkeypatch):
    """Small ones are put together; large ones stay as they are."""
    monkeypatch.setattr("pgbm_plugin.streams.batches._MOST_ROWS", 1 << 10)
    X, y = make_data("nan", n=3000)
    booster = lgb.train(LGB, lgb.Dataset(X, y), 3)
    n = min(len(y), 60 * size)
    whole = wrap(booster, X, y)
    batches = [(X[i : i + size], y[i : i + size]) for i in range(0, n, size)]
    if n < len(y):
        batches.append((X[n:], y[n:]))
    assert_same_model(wrap(booster, iter(batches)), whole, X)


def test_batches_in_one_array(make_data):
    """A loader may fill the same arrays again and again."""
    X, y = make_data("numeric", n=1000)
    booster = lgb.train(LGB, lgb.Dataset(X, y), 3)

    def batches():
        rows, labels = np.empty((100, 4)), np.empty(100)
        for i in range(0, 1000, 100):
            rows[:], labels[:] = X[i : i + 100], y[i : i + 100]
            yield rows, labels

    assert_same_model(wrap(booster, batches()), wrap(booster, X, y), X)


def test_first_trees_on_disk(make_data, monkeypatch):
    monkeypatch.setattr("pgbm_plugin.leaves.first_trees._IN_MEMORY", 1000)
    monkeypatch.setattr("pgbm_plugin.leaves.first_trees._CHUNK", 128)
    X, y = make_data("numeric", n=2000)
    booster = lgb.train(LGB, lgb.Dataset(X, y), 3)
    assert_same_model(wrap(booster, [(X[rows], y[rows]) for rows in cut(2000, 40)]), wrap(booster, X, y), X)


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("chunks", ["pandas", "polars", "arrow", "reader", "tuples"])
def test_frames_with_categories(kind, chunks, mixed):
    """Chunks see only some categories, and bring the label among their columns."""
    X, y = mixed
    if kind == "lightgbm":
        booster = lgb.train(LGB, lgb.Dataset(X, y), 5)
    else:
        booster = xgb.train(XGB, xgb.DMatrix(X, y, enable_categorical=True), 5)
    whole = wrap(booster, X, y)
    frame = X.assign(target=y, other=1)
    frame = frame[["target", "other", *X.columns[::-1]]]  # columns are found by name
    parts = [frame.iloc[rows].copy() for rows in cut(len(y))]
    for part in parts:
        part["many"] = part["many"].cat.remove_unused_categories()
    if chunks == "tuples":
        streamed = wrap(booster, [(part[list(X.columns)], part["target"]) for part in parts])
    elif chunks == "reader":
        tables = [pa.Table.from_pandas(frame.iloc[rows], preserve_index=False) for rows in cut(len(y))]
        streamed = wrap(booster, pa.concat_tables(tables).to_reader(), label="target")
    else:
        convert = {"pandas": lambda part: part, "polars": pl.from_pandas, "arrow": pa.Table.from_pandas}[chunks]
        streamed = wrap(booster, iter([convert(part) for part in parts]), label="target")
    assert_same_model(streamed, whole, X)


def test_a_loader_that_is_no_iterator(make_data):
    """Batches of torch's DataLoader are lists of tensors."""
    torch = pytest.importorskip("torch")
    X, y = make_data("numeric", n=1000)
    booster = xgb.train(XGB, xgb.DMatrix(X, y), 3)
    data = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(y))
    loader = torch.utils.data.DataLoader(data, batch_size=128)
    assert_same_model(wrap(booster, loader), wrap(booster, X, y), X)


def test_read_once_and_one_at_a_time(make_data):
    """No batch is kept: each is garbage by the time that the next but one is asked for."""
    booster = lgb.train(LGB, lgb.Dataset(*make_data("numeric", n=500)), 3)
    peak = {}

    def batches(n):
        rng = np.random.default_rng(0)
        for _ in range(n):
            yield rng.normal(size=(70_000, 4)), rng.normal(size=70_000)

    for n in (2, 2, 12):  # the first compiles
        gc.collect()
        tracemalloc.start()
        with pytest.warns(UserWarning, match="held-out"):
            wrap(booster, batches(n), n_jobs=1)
        peak[n] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak[12] < 1.3 * peak[2] + 12 * 70_000 * 6  # the first tree's rows wait in memory up to 64 MB


def test_progress(make_data, capsys):
    X, y = make_data("numeric", n=400)
    booster = xgb.train(XGB, xgb.DMatrix(X, y), 3)
    parts = [(X[rows], y[rows]) for rows in cut(400)]
    wrap(booster, parts, progress=True)
    known = capsys.readouterr().err
    assert "400/400" in known
    assert re.search(r"rows/s|s/ rows", known)
    wrap(booster, iter(parts), progress=True)
    assert "400 rows" in capsys.readouterr().err


def test_torch_objectives_of_single_rows(make_data):
    pytest.importorskip("torch")
    X, y = make_data("numeric", n=1000)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    objective = torch_objective(smooth)
    booster = xgb.train(XGB, xgb.DMatrix(X, y, weight=weight), 4, obj=objective)
    whole = wrap(booster, X, y, sample_weight=weight, objective=objective)
    parts = [(X[rows], y[rows], weight[rows]) for rows in cut(len(y))]
    streamed = wrap(booster, parts, objective=objective)
    assert whole.certificate.status == "certified"
    assert_same_model(streamed, whole, X)


@pytest.mark.filterwarnings("ignore:.*second derivatives are:UserWarning")
def test_objectives_that_need_all_rows_are_refused(make_data):
    pytest.importorskip("torch")
    X, y = make_data("numeric", n=400)

    def never():
        raise AssertionError("rows were read")
        yield

    def log_cosh(margin, y):
        t = np.tanh(margin - y)
        return t, 1 - t * t

    booster = lgb.train({**LGB, "objective": lambda p, d: log_cosh(p, d.get_label())}, lgb.Dataset(X, y), 3)
    with pytest.raises(UnsupportedModelError, match=r"log_cosh may couple rows.*torch_objective.*wrap\(booster, X, y"):
        wrap(booster, never(), objective=log_cosh)
    with pytest.raises(UnsupportedModelError, match=r"custom objective.*give objective="):
        wrap(booster, never())
    levels = torch_objective(smooth, levels=[(np.arange(400) // 10, 1.0)])
    for coupled in (levels, torch_objective(smooth, hessian="rowsum")):
        with pytest.raises(UnsupportedModelError, match=r"torch_objective.*couples rows.*needs all rows at once"):
            wrap(booster, never(), objective=coupled)
    hidden = torch_objective(lambda pred, true: (pred - true) ** 2 + pred.var())
    with pytest.raises(UnsupportedModelError, match="couples rows"):
        wrap(booster, [(X, y)], objective=hidden)
    bent = torch_objective(lambda pred, true: ((pred - true) ** 2 + 1).log())
    with pytest.raises(ValueError, match=r"not positive.*all rows"):
        wrap(booster, [(X, 10 * y)], objective=bent)


def test_predict_over_batches(make_data):
    parts, X, y = parts_of(make_data)
    model = wrap(lgb.train(LGB, lgb.Dataset(X, y), 3), X, y)
    whole = model.predict_dist(X)
    for source in (iter([X[:0], *(part[0] for part in parts)]), iter(parts)):
        found = list(model.predict_dist(source))
        assert len(found) == 4
        assert np.array_equal(np.concatenate([d.mean() for d in found]), whole.mean())
        assert np.array_equal(np.concatenate([d.std() for d in found]), whole.std())
    with pytest.raises(ValueError, match="batch 1: X has 2 columns"):
        list(model.predict_dist(iter([X, X[:, :2]])))
    with pytest.raises(TypeError, match="init_score belongs to one table"):
        model.predict_dist(iter([X]), init_score=y)
