"""partial_moments, merging and bytes: any engine can gather the moments, in any order; hostile bytes are refused."""

from __future__ import annotations

import struct
import zlib
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial, reduce
from itertools import pairwise
from multiprocessing import get_context

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from hypothesis import given, settings
from hypothesis import strategies as st

from pgbm_plugin import LeafMoments, UnsupportedModelError, partial_moments, torch_objective, wrap
from tests.same import assert_same_model, assert_same_moments
from tests.streams.streamed import LGB, XGB, cut, smooth


@pytest.fixture(scope="module", params=["lightgbm", "poisson", "xgboost", "offset"])
def trained(request, make_data):
    X, y = make_data("nan", n=1500)
    if request.param == "xgboost":
        booster = xgb.train({**XGB, "objective": "reg:gamma"}, xgb.DMatrix(X, y), 4)
    else:
        y = y + 1e6 if request.param == "offset" else y
        objective = "poisson" if request.param == "poisson" else "regression"
        booster = lgb.train({**LGB, "objective": objective}, lgb.Dataset(X, y), 4)
    model = wrap(booster, X, y)
    assert model.certificate.status == "certified"
    return booster, model, X, y


@given(seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(0, 1500), max_size=6), data=st.data())
@settings(max_examples=25)
def test_any_partition_order_and_merge_tree(trained, seed, cuts, data):
    """Empty parts included; each part has been bytes on its way."""
    booster, model, X, y = trained
    order = np.random.default_rng(seed).permutation(len(y))
    parts = []
    for a, b in pairwise([0, *sorted(cuts), len(y)]):
        part = partial_moments(booster, X[order[a:b]], y[order[a:b]], start=model.spec.start)
        parts.append(LeafMoments.from_bytes(part.to_bytes()))
    while len(parts) > 1:
        one = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
        j = data.draw(st.integers(0, len(parts) - 1))
        parts[j] = one.merge(parts[j])
    assert_same_moments(model.moments, parts[0])
    assert_same_model(wrap(booster, parts[0]), model, X)


def test_without_a_start(trained):
    """The model's leaves tell the mean label to 1e-9 or so of the labels' spread; float32 gradients hide the rest."""
    booster, model, X, y = trained
    parts = [partial_moments(booster, X[rows], y[rows]) for rows in cut(len(y))]
    merged = wrap(booster, reduce(LeafMoments.merge, parts))
    assert merged.certificate.status == "certified"
    np.testing.assert_allclose(merged.predict_var(X), model.predict_var(X), rtol=1e-6)
    with_model = [partial_moments(model, X[rows], y[rows]) for rows in cut(len(y))]
    assert_same_moments(model.moments, reduce(LeafMoments.merge, with_model))


def test_huber_needs_the_mean_label(make_data):
    """Its clipped gradients do not sum to zero at the start, so that the leaves do not tell it."""
    X, y = make_data("numeric", n=1000)
    booster = lgb.train({**LGB, "objective": "huber", "alpha": 0.3}, lgb.Dataset(X, y), 4)
    whole = wrap(booster, X, y)
    parts = [partial_moments(booster, X[rows], y[rows], start=whole.spec.start) for rows in cut(1000)]
    assert_same_model(wrap(booster, reduce(LeafMoments.merge, parts)), whole, X)


def test_weights_scores_and_objectives(make_data):
    pytest.importorskip("torch")
    X, y = make_data("numeric", n=1000)
    rng = np.random.default_rng(0)
    weight, score = rng.uniform(0.5, 2.0, 1000), rng.normal(size=1000)
    booster = lgb.train(LGB, lgb.Dataset(X, y, weight=weight, init_score=score), 4)
    whole = wrap(booster, X, y, sample_weight=weight, init_score=score)
    parts = [
        partial_moments(booster, X[rows], y[rows], sample_weight=weight[rows], init_score=score[rows])
        for rows in cut(1000)
    ]
    assert_same_model(wrap(booster, reduce(LeafMoments.merge, parts)), whole, X, score)
    booster = xgb.train(XGB, xgb.DMatrix(X, y), 4, obj=(objective := torch_objective(smooth)))
    whole = wrap(booster, X, y, objective=objective)
    parts = [partial_moments(booster, X[rows], y[rows], objective=objective) for rows in cut(1000)]
    assert_same_model(wrap(booster, reduce(LeafMoments.merge, parts)), whole, X)
    with pytest.raises(UnsupportedModelError, match="may couple rows"):
        partial_moments(booster, X, y, objective=lambda margin, y: (margin - y, np.ones(len(y))))


def test_data_sets_bring_their_labels(make_data):
    X, y = make_data("numeric", n=300)
    booster = xgb.train(XGB, xgb.DMatrix(X, y), 3)
    assert_same_moments(partial_moments(booster, X, y), partial_moments(booster, xgb.DMatrix(X, y)))


def on_a_worker(path, start, X, y):
    return partial_moments(path, X, y, start=start).to_bytes()


def test_processes(make_data, tmp_path):
    """Any engine can do it: rows go to the workers, bytes come back."""
    X, y = make_data("numeric", n=1000)
    booster = lgb.train(LGB, lgb.Dataset(X, y), 4)
    booster.save_model(tmp_path / "m.txt")
    task = partial(on_a_worker, str(tmp_path / "m.txt"), y.astype(np.float32).mean(dtype=np.float64))
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        parts = pool.map(task, np.array_split(X, 3), np.array_split(y, 3))
        merged = reduce(LeafMoments.merge, map(LeafMoments.from_bytes, parts))
    assert_same_model(wrap(tmp_path / "m.txt", merged), wrap(booster, X, y), X)


def test_moments_of_another_model_are_refused(make_data):
    X, y = make_data("numeric", n=500)
    one, other = (lgb.train(LGB, lgb.Dataset(X, label), 2) for label in (y, -(y**2)))
    larger = lgb.train({**LGB, "num_leaves": 4}, lgb.Dataset(X, y), 3)
    moments = partial_moments(one, X, y)
    with pytest.raises(ValueError, match="moments have 16 leaves, the model has 12"):
        wrap(larger, moments)
    with pytest.raises(ValueError, match="do not merge"):
        moments.merge(partial_moments(larger, X, y))
    with pytest.warns(UserWarning, match="not certified"):
        assert wrap(other, moments).certificate.status != "certified"
    lost = replace(moments, count=np.maximum(moments.count - 1, 0))
    with pytest.raises(ValueError, match="hold all rows"):
        wrap(one, lost)
    with pytest.raises(ValueError, match="moments have no rows"):
        wrap(one, partial_moments(one, X[:0], y[:0]))
    with pytest.raises(TypeError, match=r"objective was given, but moments are complete"):
        wrap(one, moments, objective=lambda margin, y: (margin, y))


some = LeafMoments(3, np.array([3, 0]), *np.array([[1.0, 0], [2, 0], [3, 0], [4, 0], [-2, 0]]))


@pytest.mark.parametrize("moments", [some, some.faded(0.3), some.faded(0.3).merge(some)])
def test_bytes_keep_every_bit(moments):
    back = LeafMoments.from_bytes(moments.to_bytes())
    assert (back.rows, type(back.rows)) == (moments.rows, type(moments.rows))
    assert back.arrays().keys() == moments.arrays().keys()
    for name, values in moments.arrays().items():
        assert getattr(back, name).dtype == values.dtype
        assert np.array_equal(getattr(back, name), values)
    back.count[0] = 1  # one's own arrays, not a view of the bytes


def signed(body):
    return body + struct.pack("<I", zlib.crc32(body))


def written(offset, kind, value):
    """The bytes of `some` with one number replaced, and a checksum that fits."""
    body = bytearray(some.to_bytes()[:-4])
    struct.pack_into(kind, body, offset, value)
    return signed(bytes(body))


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        (b"", "not moments"),
        (b"\x80\x04K\x01.", "not moments"),
        (some.to_bytes()[:-1], "damaged moments: .* bytes"),
        (some.to_bytes() + b"\0", "damaged moments: .* bytes"),
        (some.to_bytes()[:-9] + b"\xff" + some.to_bytes()[-8:], "checksum"),
        (written(8, "<H", 3), "format 3; this version of pgbm_plugin reads up to 2"),
        (written(8, "<H", 2), "end before the ranges"),
        (written(10, "<H", 6), "unknown flags 6"),
        (written(12, "<Q", 2**63), "damaged moments: .* bytes"),
        (written(20, "<d", np.nan), "not finite"),
        (written(20, "<d", np.inf), "not finite"),
        (written(20, "<d", 2.5), "number of rows is impossible"),
        (written(20, "<d", -3.0), "number of rows is impossible"),
        (written(28, "<q", -1), "out of range"),
        (written(28, "<q", 4), "out of range"),
        (written(44, "<d", np.nan), "not finite"),
        (written(76, "<d", -1.0), "out of range"),
        (written(52, "<d", 1.0), "without rows has moments"),
    ],
)
def test_hostile_bytes(raw, match):
    with pytest.raises(ValueError, match=match):
        LeafMoments.from_bytes(raw)


@given(raw=st.binary(max_size=200) | st.binary(max_size=90).map(lambda b: some.to_bytes()[:28] + b).map(signed))
def test_random_bytes(raw):
    with pytest.raises(ValueError, match="moments"):
        LeafMoments.from_bytes(raw)


def test_bytes_of_the_wrong_type():
    with pytest.raises(TypeError, match="from bytes, not from str"):
        LeafMoments.from_bytes("moments")
