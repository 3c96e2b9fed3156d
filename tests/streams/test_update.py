"""model.update: more rows without retraining; a decay that forgets; nothing half done."""

from __future__ import annotations

from dataclasses import replace

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from hypothesis import given
from hypothesis import strategies as st

from pgbm_plugin import LeafMoments, load, partial_moments, torch_objective, wrap
from pgbm_plugin.predict.power_map import Calibration
from pgbm_plugin.scores import coverage
from tests.same import assert_same_model, assert_same_moments
from tests.streams.streamed import LGB, XGB, cut, smooth

pytestmark = pytest.mark.filterwarnings("ignore:not certified:UserWarning")


@pytest.fixture(params=["lightgbm", "xgboost"])
def trained(request, make_data):
    """A model wrapped with half of its rows, and all of them."""
    X, y = make_data("nan", n=1200)
    params = {**LGB, "objective": "poisson"}
    booster = lgb.train(params, lgb.Dataset(X, y), 4) if request.param == "lightgbm" else None
    booster = booster or xgb.train({**XGB, "objective": "reg:gamma"}, xgb.DMatrix(X, y), 4)
    return booster, wrap(booster, X[:600], y[:600]), X, y


def test_two_halves_make_the_whole(trained):
    booster, model, X, y = trained
    whole = wrap(booster, X, y)
    assert model.certificate.status == "held-out"
    assert model.update(X[600:], y[600:]) is model
    assert model.certificate.status == whole.certificate.status == "certified"
    assert (model.rho, model.moments.rows) == (whole.rho, 1200)
    # but for the start, which half of the rows do not tell to more than 1e-9
    np.testing.assert_allclose(model.predict_var(X), whole.predict_var(X), rtol=1e-6)
    assert np.array_equal(model.predict(X), whole.predict(X))


def test_every_kind_of_rows(trained, tmp_path):
    booster, model, X, y = trained
    more = slice(600, 1200)
    frame = pd.DataFrame(X[more], columns=list("abcd")).assign(y=y[more])
    frame.to_parquet(tmp_path / "d.parquet")
    want = model.moments.merge(partial_moments(model, X[more], y[more]))
    kinds = {
        "table": lambda m: m.update(X[more], y[more]),
        "iterator": lambda m: m.update((X[more][rows], y[more][rows]) for rows in cut(600)),
        "file": lambda m: m.update(tmp_path / "d.parquet", label="y"),
        "data set": lambda m: m.update(lgb.Dataset(X[more], y[more], free_raw_data=False).construct()),
        "moments": lambda m: m.update(partial_moments(m, X[more], y[more])),
    }
    for kind, update in kinds.items():
        fresh = wrap(booster, X[:600], y[:600])
        assert_same_moments(want, update(fresh).moments)
        assert fresh.moments.rows == 1200, kind


def naive(values, counts):
    """Weighted mean, and the unbiased variance of values that count differently: divisor W - sum w^2 / W."""
    total = counts.sum()
    mean = counts @ values / total
    return mean, counts @ (values - mean) ** 2 / (total - (counts**2).sum() / total)


@given(
    parts=st.lists(st.lists(st.floats(-100, 100, width=32), max_size=6), min_size=1, max_size=6),
    decay=st.sampled_from([0.1, 0.5, 0.9, 1.0]),
)
def test_decay_is_a_count_per_row(parts, decay):
    """In slow loops: a row of k updates ago counts decay^k; means and variances are those of such counts."""
    moments = LeafMoments.of_nothing(1)
    for part in parts:
        g, n = np.array(part), len(part)
        fresh = LeafMoments.of_nothing(1)
        if n:
            mean = g.mean()
            sums = (np.array([value]) for value in (mean, 1.0, ((g - mean) ** 2).sum(), 0.0, 0.0))
            fresh = LeafMoments(n, np.array([n]), *sums)
        moments = moments.faded(decay).merge(fresh)
    values = np.array([value for part in parts for value in part])
    if not len(values):
        assert moments.count[0] == 0
        return
    counts = np.array([decay ** (len(parts) - 1 - k) for k, part in enumerate(parts) for _ in part])
    mean, variance = naive(values, counts) if len(values) > 1 else (values[0], 0.0)
    scale = np.abs(values).max() + 1e-300
    assert moments.count[0] == pytest.approx(counts.sum(), rel=1e-12)
    assert moments.rows == pytest.approx(counts.sum(), rel=1e-12)
    assert moments.size[0] == pytest.approx(counts.sum() ** 2 / (counts**2).sum(), rel=1e-9)
    assert moments.g_mean[0] == pytest.approx(mean, rel=1e-12, abs=1e-12 * scale)
    assert moments.var_g[0] == pytest.approx(variance, rel=1e-9, abs=1e-9 * scale**2)


def test_no_decay_is_the_plain_variance(trained):
    _, model, X, y = trained
    count = model.moments.count.copy()
    model.update(X[600:], y[600:], decay=1.0)
    assert model.moments.count.dtype == np.int64
    assert model.moments.freedom is None
    assert np.all(model.moments.count >= count)


def test_leaves_without_fresh_rows_keep_their_spread(trained):
    """However often: the others follow the new rows."""
    _, model, X, y = trained
    before = model.weights.variance.copy()
    for _ in range(2000):
        model.state = replace(model.state, moments=model.moments.faded(0.5))
    few = model.update(X[600:620], y[600:620], decay=0.5)
    fresh = partial_moments(few, X[600:620], y[600:620])
    same = fresh.count == 0
    assert 0 < same.sum() < len(same)
    np.testing.assert_allclose(few.weights.variance[same], before[same], rtol=1e-9)
    alone = fresh.count > 1
    np.testing.assert_allclose(few.moments.var_g[alone], fresh.var_g[alone], rtol=1e-9)


def test_forgetting_all(trained):
    _, model, X, y = trained
    model.update(X[600:], y[600:], decay=0)
    assert_same_moments(partial_moments(model, X[600:], y[600:]), model.moments)
    assert model.moments.rows == 600


def test_weighted_moments(make_data):
    """Weights are in the moments: no one is asked to give them."""
    X, y = make_data("numeric", n=600)
    weight = np.linspace(0.5, 2.0, 600)
    model = wrap(xgb.train(XGB, xgb.DMatrix(X, y, weight=weight), 4), X, y, sample_weight=weight)
    model.update(partial_moments(model, X, y, sample_weight=weight))
    assert model.certificate.status == "held-out"
    assert "sample_weight" not in str(model.certificate)


def test_rho_follows_unless_set(trained):
    _, model, X, y = trained
    model.update(X[600:], y[600:])
    assert model.rho == model.default_rho == np.log10(1200) / 100
    model.rho = 0.25
    model.update(X[600:], y[600:], decay=0.5)
    assert model.rho == 0.25
    assert model.default_rho == np.log10(1200) / 100  # 0.5 * 1200 + 600
    assert "rows seen:    1200 (effective, after decay)\n" in repr(model)
    assert model.certificate.status == "held-out"
    assert "not just those of training: update brought the last 600 rows" in str(model.certificate)


def test_tune_stays_and_conformal_goes(make_data, tmp_path):
    X, y = make_data("numeric", n=3000)
    model = wrap(lgb.train(LGB, lgb.Dataset(X[:500], y[:500]), 4), X[:500], y[:500])
    model.tune(X[500:1000], y[500:1000], variance="pgbm")
    chosen = model.rho, model.distribution, model.calibration.b
    model.update(X[1000:1500], y[1000:1500])
    assert (model.rho, model.distribution, model.calibration.b) == chosen
    model.conformalize(X[1500:2000], y[1500:2000])
    model.update(X[2000:2500], y[2000:2500])
    with pytest.raises(ValueError, match=r"update removed them: call model.conformalize"):
        model.predict_interval(X)
    # what it is conformal around stays, in a file too
    model.save(tmp_path / "model.pgbm")
    assert chosen[1] != "normal"  # the default would show nothing
    for again in (load(tmp_path / "model.pgbm"), model):
        for _ in range(2):
            again.conformalize(X[1500:2000], y[1500:2000])
            assert f"conformal on 500 rows around {chosen[1]}" in repr(again)
    assert coverage(y[2500:], model.predict_interval(X[2500:], 0.9)) > 0.8


@pytest.mark.parametrize("floor", [0.0, 1e3])
@pytest.mark.parametrize("b", [0.0, 0.5, 1.0, 3.0])
def test_the_map_on_the_variance_moves_along(b, floor, make_data):
    """Four times the variance in every leaf is four times the variance of every row, whatever the exponent."""
    X, y = make_data("numeric", n=500)
    model = wrap(lgb.train(LGB, lgb.Dataset(X, y), 4), X, y)
    model.calibration = Calibration(b, 2.0, floor)
    before = model.predict_var(X)
    model.update(replace(model.moments, gg=4.0 * model.moments.gg), decay=0.0)
    np.testing.assert_allclose(model.predict_var(X), 4.0 * before, rtol=1e-9)


def test_the_papers_mean_follows(make_data):
    X, y = make_data("numeric", n=1000)
    booster = xgb.train({**XGB, "objective": "reg:gamma"}, xgb.DMatrix(X[:500], y[:500]), 4)
    model = wrap(booster, X[:500], y[:500], mean="pgbm")
    before = model.predict(X)
    model.update(X[500:], y[500:])
    assert not np.array_equal(model.predict(X), before)
    np.testing.assert_allclose(model.predict(X), wrap(booster, X, y, mean="pgbm").predict(X), rtol=1e-12)


def test_custom_objectives(make_data):
    """A torch objective takes the weights of the rows at hand; a plain function is called on them all."""
    pytest.importorskip("torch")
    X, y = make_data("numeric", n=1000)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 1000)
    objective = torch_objective(smooth)
    booster = xgb.train(XGB, xgb.DMatrix(X, y, weight=weight), 4, obj=objective)
    whole = wrap(booster, X, y, sample_weight=weight, objective=objective)
    half = slice(0, 600), slice(600, 1000)
    for batches in (False, True):
        model = wrap(booster, X[half[0]], y[half[0]], sample_weight=weight[half[0]], objective=objective)
        rest = X[half[1]], y[half[1]], weight[half[1]]
        model.update(iter([rest])) if batches else model.update(*rest[:2], sample_weight=rest[2])
        assert_same_model(model, whole, X)

    def plain(margin, y):
        return np.tanh(margin - y), 1 - np.tanh(margin - y) ** 2 + 1e-3

    booster = xgb.train(XGB, xgb.DMatrix(X, y), 4, obj=lambda p, d: plain(p, d.get_label()))
    whole, model = wrap(booster, X, y, objective=plain), wrap(booster, X[:600], y[:600], objective=plain)
    with pytest.raises(ValueError, match="plain may couple rows"):
        model.update(iter([(X[600:], y[600:])]))
    assert_same_model(model.update(X[600:], y[600:]), whole, X)


def test_init_scores(make_data):
    X, y = make_data("numeric", n=1000)
    score = np.random.default_rng(0).normal(size=1000)
    booster = lgb.train(LGB, lgb.Dataset(X, y, init_score=score), 4)
    model = wrap(booster, X[:600], y[:600], init_score=score[:600])
    for forgotten in (
        lambda: model.update(X[600:], y[600:]),
        lambda: model.update([(X[600:], y[600:])]),
        lambda: partial_moments(model, X[600:], y[600:]),
    ):
        with pytest.raises(ValueError, match="training had an init_score"):
            forgotten()
    model.update(X[600:], y[600:], init_score=score[600:])
    assert_same_model(model, wrap(booster, X, y, init_score=score), X, score)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda m, X, y: m.update(X, y, decay=1.5), ValueError, r"decay must lie in \[0, 1\], not 1.5"),
        (lambda m, X, y: m.update(X, y, decay=np.nan), ValueError, "decay must lie"),
        (lambda m, X, y: m.update(X), TypeError, r"update needs labels: model.update\(X, y\)"),
        (lambda m, X, y: m.update(None), TypeError, "update needs rows"),
        (lambda m, X, y: m.update(X[:, :2], y), ValueError, "X has 2 columns"),
        (lambda m, X, y: m.update(X, -y), ValueError, "domain of objective"),
        (lambda m, X, y: m.update([(X, y), (X, y * np.nan)]), ValueError, "batch 1: y has 1200 NaN"),
        (lambda m, X, y: m.update(iter([])), ValueError, "no batches"),
        (lambda m, X, y: m.update(failing(X, y)), ConnectionError, "half-way"),
        (lambda m, X, y: m.update(LeafMoments.of_nothing(3)), ValueError, "moments have 3 leaves"),
    ],
)
def test_nothing_is_half_updated(call, error, match, trained):
    _, model, X, y = trained
    before = vars(model).copy()
    with pytest.raises(error, match=match):
        call(model, X, y)
    assert all(vars(model)[name] is value for name, value in before.items())


def failing(X, y):
    yield X, y
    raise ConnectionError("half-way")
