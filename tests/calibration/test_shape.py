"""What `tune` finds in the shape of labels: bins of residuals, bounds, a lattice; and bounds that users name."""

from __future__ import annotations

import copy
import pickle

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import wrap
from pgbm_plugin.calibration.shape import ROWS_PER_BIN, _is_better, find_bins
from pgbm_plugin.distributions import FAMILIES, Clipped, Empirical, Snapped
from pgbm_plugin.predict.response import Margins
from pgbm_plugin.predict.support import Support
from tests.calibration import shaped

RHO = {"rho": [0.0, 0.05]}


@pytest.fixture(scope="module")
def tuned_models():
    """A tuned model of each kind, its result, and rows that nothing has seen."""
    found = {}
    for kind in shaped.KINDS:
        model = shaped.model(kind)
        result = model.tune(*shaped.rows(kind, 900, 1), **RHO)
        found[kind] = model, result, shaped.rows(kind, 2000, 2)
    return found


def bins_of(key, weight, bins):
    margins = Margins(None, key, key, np.ones_like(key))
    return find_bins(margins, key, weight, by="mean", bins=bins)


def test_bins_have_equal_weight():
    rng = np.random.default_rng(0)
    key, weight = rng.normal(size=2000), rng.uniform(0.1, 3.0, 2000)
    place, edges = bins_of(key, weight, 10)
    share = np.bincount(place, weight) / weight.sum()
    np.testing.assert_allclose(share, 0.1, atol=2e-3)
    assert np.array_equal(place, np.searchsorted(edges, key))
    assert place.dtype == np.uint8


def test_ties_are_never_in_two_bins():
    key = np.repeat([1.0, 2.0, 3.0], [500, 40, 460])
    place, edges = bins_of(key, np.ones(1000), 10)
    assert [len(np.unique(place[key == value])) for value in (1.0, 2.0, 3.0)] == [1, 1, 1]
    assert edges.tolist() == [1.0, 2.0] or edges.tolist() == [1.0]
    with pytest.raises(ValueError, match="values that differ"):
        bins_of(np.ones(1000), np.ones(1000), 3)


def test_few_rows_make_fewer_bins():
    key = np.arange(100.0)
    place, _ = bins_of(key, np.ones(100), 10)
    assert np.bincount(place).min() >= ROWS_PER_BIN
    heavy = np.ones(100)
    heavy[:3] = 1e6  # three rows that count for all others are three rows
    with pytest.raises(ValueError, match="30 rows each"):
        bins_of(key, heavy, 3)
    with pytest.raises(ValueError, match="30 rows each"):
        bins_of(np.arange(ROWS_PER_BIN * 1.0), np.ones(ROWS_PER_BIN), 3)


def test_residuals_in_bins(tuned_models):
    model, result, (X, y) = tuned_models["skewed"]
    cls, options = Empirical, model.chosen.binned
    assert model.distribution.startswith("empirical(by='mean'")
    assert options["by"] == "mean"
    assert result.support is None
    assert "bins of the predicted mean" in repr(model)
    assert model.distribution in repr(result)
    d = model.predict_dist(X)
    assert isinstance(d, cls)
    plain = model.predict_dist(X, "empirical")
    assert "bin" not in plain.params
    assert d.crps(y).mean() < 0.985 * plain.crps(y).mean()
    # the shape follows the row: the tail is on the side of the mean
    skew = d.ppf(0.95) + d.ppf(0.05) - 2.0 * d.median()
    clear = np.abs(model.predict(X)) > 3.0
    assert np.mean((skew > 0.0) == (model.predict(X) > 0.0), where=clear) > 0.95
    for q in ([0.05, 0.95], [0.25, 0.75]):
        low, high = d.ppf(q).T
        assert abs(np.mean((low <= y) & (y <= high)) - (q[1] - q[0])) < 0.05


def test_other_bins_are_refused(tuned_models):
    model, _, (X, _) = tuned_models["skewed"]
    with pytest.raises(ValueError, match=r"no residuals in 7 bins of the predicted spread: name such a family"):
        model.predict_dist(X, "empirical(by='spread', bins=7)")
    twin = copy.copy(model)
    twin.distribution = "empirical(by='spread', bins=3)"
    with pytest.raises(ValueError, match="no residuals in 3 bins"):
        twin.predict_dist(X)
    twin.distribution = model.distribution
    assert np.array_equal(twin.predict_dist(X).ppf(0.9), model.predict_dist(X).ppf(0.9))


@pytest.mark.parametrize("by", ["mean", "spread"])
@pytest.mark.parametrize("weighted", [False, True])
def test_named_bins_are_used(by, weighted):
    model, (X, y) = shaped.model("skewed", 600), shaped.rows("skewed", 300, 1)
    weight = np.where(X[:, 1] > 0, 2.0, 1.0) if weighted else None
    model.tune(X, y, distributions=f"empirical(by='{by}', bins=4)", sample_weight=weight, **RHO)
    chosen = model.chosen
    assert len(chosen.bin_edges) == chosen.residual_bin.max() == 3
    assert (chosen.residual_weight is not None) == weighted
    d = model.predict_dist(X)
    key = model.predict(X) if by == "mean" else d.params["scale"]
    assert np.array_equal(d.params["bin"], np.searchsorted(chosen.bin_edges, key))


@pytest.mark.parametrize("by", ["mean", "spread"])
def test_a_weight_of_two_is_a_row_that_comes_twice_in_bins(by):
    X, y = shaped.rows("skewed", 300, 1)
    weight = np.where(X[:, 1] > 0, 2, 1)
    twice, predicted = np.repeat(np.arange(300), weight), []
    for rows, w in ((np.arange(300), weight), (twice, None)):
        model = shaped.model("skewed", 600)
        # a boosted scale would put both copies of a row into different parts
        settings = {"distributions": f"empirical(by='{by}', bins=4)", "variance": "pgbm", **RHO}
        model.tune(X[rows], y[rows], sample_weight=w, **settings)
        predicted.append(model.predict_dist(X))
    of_weights, of_copies = predicted
    assert np.array_equal(of_weights.params["bin"], of_copies.params["bin"])
    # the scale of the residuals is arbitrary, since distributions are made of the residuals themselves
    np.testing.assert_allclose(of_weights.std(), of_copies.std(), rtol=1e-3)


def test_a_bound_at_which_labels_pile_up(tuned_models):
    model, result, (X, y) = tuned_models["tips"]
    assert result.support.lower == 0.0
    assert "at least 0" in repr(model)
    assert "at least 0" in repr(result)
    d = model.predict_dist(X)
    assert d.ppf(0.001).min() == 0.0
    assert np.all(d.rvs(20, random_state=0) >= 0.0)
    assert np.all(d.cdf(-1e-9) == 0.0)
    assert d.cdf(0.0)[y == 0.0].mean() > d.cdf(0.0)[y > 0.0].mean() + 0.2
    assert np.all(d.mean() >= 0.0)
    # for a family that the user names, nothing is clipped unless bounds are named as well
    assert model.predict_dist(X, "normal").ppf(0.001).min() < 0.0


def test_a_lattice(tuned_models):
    model, result, (X, y) = tuned_models["ratings"]
    assert result.support.values.tolist() == [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    assert "on 6 values from 3 to 8" in repr(model)
    d = model.predict_dist(X)
    assert isinstance(d, Snapped)
    assert np.isin(d.ppf([0.1, 0.5, 0.9]), result.support.values).all()
    plain = model.predict_dist(X, "normal")
    assert d.crps(y).mean() < 0.98 * plain.crps(y).mean()
    assert not isinstance(model.predict_dist(X, model.distribution), Snapped)  # named: as it is
    twin = copy.copy(model)
    twin.distribution = "normal"
    assert not isinstance(twin.predict_dist(X), Snapped)


@pytest.mark.parametrize("kind", shaped.KINDS)
def test_nothing_is_found_for_families_that_were_named(kind):
    model = shaped.model(kind, 500)
    result = model.tune(*shaped.rows(kind, 400, 1), distributions=["normal", "empirical"], **RHO)
    assert result.support is None
    assert model.chosen.support is None
    assert result.bin_edges is None


def test_a_gain_within_a_standard_error_is_noise():
    """The paired difference decides, not the means: a small gain of every row counts, a large one of few does not."""
    rng, weight = np.random.default_rng(0), np.full(200, 1 / 200)
    scores = rng.exponential(size=200)
    lucky = scores.copy()
    lucky[:2] += [-5.0, 2.5]
    assert weight @ lucky < weight @ (scores - 0.01)
    assert not _is_better(lucky, scores, weight)
    assert _is_better(scores - 0.01, scores, weight)
    assert not _is_better(scores, scores, weight)
    assert not _is_better(scores + 0.01, scores, weight)


def test_no_bound_where_labels_just_end():
    """Labels above 0 that no distribution expects below it, and labels on both sides of it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 3))
    for shift in (100.0, 0.0):
        y = shift + X[:, 0] + 0.3 * rng.normal(size=1500)
        model = wrap(lgb.train(shaped.PARAMS, lgb.Dataset(X[:900], y[:900]), 30), X[:900], y[:900], n_jobs=1)
        assert model.tune(X[900:], y[900:], **RHO).support is None


@pytest.mark.parametrize("name", [*(name for name in FAMILIES if name not in ("conformal",)), "studentt(df=5)"])
def test_named_bounds_hold_for_every_family(name):
    X, y = shaped.rows("ratings", 1200, 0)
    model = wrap(lgb.train(shaped.PARAMS, lgb.Dataset(X, y), 20), X, y, n_jobs=1)
    before = model.predict(X)
    model.tune(*shaped.rows("ratings", 300, 1), distributions=["normal", "empirical"], lower=2.5, upper=8, **RHO)
    assert np.array_equal(model.predict(X), before)
    d = model.predict_dist(X[:200], name)
    ends = np.concatenate([d.ppf([1e-4, 1 - 1e-4]).ravel(), d.rvs(9, random_state=0).ravel(), *d.interval(0.999)])
    assert (ends.min(), ends.max()) == (2.5, 8.0)
    assert np.all(d.cdf(2.49) == 0.0)
    assert np.all(d.cdf(8.0) == 1.0)
    assert np.all((d.mean() > 2.5) & (d.mean() < 8.0) & (d.std() < 2.75))
    assert np.all(d.crps(y[:200]) <= np.maximum(y[:200] - 2.5, 8.0 - y[:200]) + 1e-9)
    assert "from 2.5 to 8" in repr(model)


def test_bounds_of_tune_stay_for_conformalize():
    model = shaped.model("tips", 600)
    X, y = shaped.rows("tips", 500, 2)
    model.tune(*shaped.rows("tips", 300, 1), distributions="normal", lower=0.0, **RHO)
    model.conformalize(X, y)
    assert model.predict_interval(X, 0.95).min() == 0.0
    model.conformalize(X, y, upper=50.0)
    assert (model.chosen.bounds.lower, model.chosen.bounds.upper) == (0.0, 50.0)
    model.conformalize(X, y, lower=-np.inf)
    assert (model.chosen.bounds.lower, model.chosen.bounds.upper) == (-np.inf, 50.0)
    model.tune(*shaped.rows("tips", 300, 1), distributions="normal", **RHO)
    assert model.chosen.bounds is None


@pytest.mark.parametrize("method", ["tune", "conformalize"])
def test_a_label_beyond_a_bound_is_named_by_its_row(method):
    """Also if rows before it are left out; a row that is left out may lie anywhere."""
    model, (X, y) = shaped.model("tips", 400), shaped.rows("tips", 100, 1)
    y, weight = y.copy(), np.where(np.arange(100) < 10, 0.0, 1.0)
    y[3] = -1.0
    getattr(model, method)(X, y, sample_weight=weight, lower=0.0)
    y[17] = -1.0
    with pytest.raises(ValueError, match=r"1 of 100 labels are below the bound 0 \(first: y_...\[17\] = -1\)"):
        getattr(model, method)(X, y, sample_weight=weight, lower=0.0)


@pytest.mark.parametrize(
    ("bounds", "error", "match"),
    [
        ({"lower": 1.0, "upper": 1.0}, ValueError, "lower must be less than upper"),
        ({"lower": 2.0, "upper": -1.0}, ValueError, "lower must be less than upper"),
        ({"lower": np.nan}, ValueError, "lower must be a number, not NaN"),
        ({"upper": "high"}, TypeError, "upper must be a number, not 'high'"),
        ({"upper": 10**400}, TypeError, "upper must be a number, not 1000"),
        ({"lower": np.inf}, ValueError, "lower must be less than upper"),
        (
            {"lower": 0.5},
            ValueError,
            r"labels are below the bound 0\.5 \(first: y_.*\[\d+\] = 0\): leave the bound out",
        ),
        ({"upper": 1.0}, ValueError, "labels are above the bound 1"),
    ],
)
@pytest.mark.parametrize("method", ["tune", "conformalize"])
def test_bounds_that_cannot_be(method, bounds, error, match):
    model, (X, y) = shaped.model("tips", 400), shaped.rows("tips", 100, 1)
    before = model.chosen
    with pytest.raises(error, match=match):
        getattr(model, method)(X, y, **bounds)
    assert model.chosen is before


@pytest.mark.parametrize("n", [6, 20, 59, 61])
def test_few_rows(n):
    for kind in shaped.KINDS:
        model, (X, y) = shaped.model(kind, 400), shaped.rows(kind, n, 1)
        model.tune(X, y, **RHO)
        assert np.isfinite(model.predict_dist(X[:1]).ppf([0.1, 0.9])).all()
        assert n >= 2 * ROWS_PER_BIN or model.chosen.residual_bin is None


def test_conformal_quantiles_hold_in_every_bin(tuned_models):
    """A hundred rows a bin: each bin has its own quantiles, of the edges that `tune` chose."""
    model = copy.copy(tuned_models["skewed"][0])
    bins = len(model.chosen.bin_edges) + 1
    model.conformalize(*shaped.rows("skewed", 400 * bins, 7))
    assert model.chosen.residual_bin is not None
    X, y = shaped.rows("skewed", 6000, 8)
    ends, place = model.predict_interval(X, 0.8), np.searchsorted(model.chosen.bin_edges, model.predict(X))
    inside = (ends[:, 0] <= y) & (y <= ends[:, 1])
    for k in range(bins):
        assert 0.72 < inside[place == k].mean() < 0.88
    with pytest.warns(UserWarning, match="too few"):
        model.predict_interval(X, 0.999)
    again = model.predict_dist(X, model.chosen.around)  # the family of `tune`, made of the new residuals
    assert "bin" in again.params
    model.conformalize(*shaped.rows("skewed", 50 * bins, 9))
    assert model.chosen.residual_bin is None
    assert "bin" not in model.predict_dist(X).params
    with pytest.raises(ValueError, match="no residuals in"):
        model.predict_dist(X, model.chosen.around)


def test_a_lattice_is_not_conformal(tuned_models):
    model = copy.copy(tuned_models["ratings"][0])
    model.conformalize(*shaped.rows("ratings", 400, 7))
    assert model.chosen.support is None
    assert not isinstance(model.predict_dist(shaped.rows("ratings", 9, 8)[0]), Snapped)


@pytest.mark.parametrize("kind", shaped.KINDS)
def test_batches_pickles_and_rows_are_equal(tuned_models, kind):
    model, _, (X, _) = tuned_models[kind]
    d, q = model.predict_dist(X), [0.05, 0.5, 0.95]
    parts = [part.ppf(q) for part in model.predict_dist(iter([X[:700], X[700:]]))]
    assert np.array_equal(np.concatenate(parts), d.ppf(q))
    assert np.array_equal(np.concatenate([model.predict_dist(X[i : i + 1]).ppf(q) for i in range(5)]), d.ppf(q)[:5])
    twin = pickle.loads(pickle.dumps(model))  # noqa: S301 - made here
    assert np.array_equal(twin.predict_dist(X).ppf(q), d.ppf(q))
    assert np.array_equal(pickle.loads(pickle.dumps(d)).std(), d.std())  # noqa: S301
    columns = model.predict_columns(X, quantiles=q)
    assert np.array_equal(columns["mean"], model.predict(X))
    assert np.array_equal(columns["q95"], d.ppf(0.95))


@pytest.mark.parametrize("booster", ["lightgbm", "xgboost"])
def test_tweedie_models_offer_their_power(booster):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1500, 3))
    mean = np.exp(0.5 * X[:, 0])
    y = rng.gamma(0.5 * rng.poisson(2.0 * mean)) / 1.0
    if booster == "lightgbm":
        params = {**shaped.PARAMS, "objective": "tweedie", "tweedie_variance_power": 1.7}
        own = lgb.train(params, lgb.Dataset(X[:1000], y[:1000]), 20)
    else:
        params = {"objective": "reg:tweedie", "tweedie_variance_power": 1.7, "max_depth": 3, "nthread": 1}
        own = xgb.train(params, xgb.DMatrix(X[:1000], y[:1000]), 20)
    model = wrap(own, X[:1000], y[:1000], n_jobs=1)
    result = model.tune(X[1000:], y[1000:], **RHO)
    assert "tweedie(power=1.7)" in result.distributions
    d = model.predict_dist(X, "tweedie(power=1.7)")
    assert np.all(d.cdf(0.0) > 0.0)
    np.testing.assert_allclose(d.mean(), model.predict(X), rtol=1e-6)
    assert "tweedie(power=1.7)" in model.tune(X[1000:], y[1000:] + 1.0, **RHO).failed  # no label is 0
    assert "tweedie(power=1.7)" in model.tune(X[1000:], y[1000:], score="nll", **RHO).failed
    assert model.tune(X[1000:], y[1000:], score="nll", distributions="tweedie", **RHO).best.score < np.inf


def test_update_moves_the_edges_of_spreads():
    model, (X, y) = shaped.model("skewed", 600), shaped.rows("skewed", 300, 1)
    model.tune(X, y, distributions="empirical(by='spread', bins=3)", **RHO)
    place = model.predict_dist(X).params["bin"]
    wide = shaped.rows("skewed", 600, 0)
    model.update(wide[0], model.predict(wide[0]) + 10.0 * (wide[1] - model.predict(wide[0])), decay=0.0)
    assert np.mean(model.predict_dist(X).params["bin"] == place) > 0.6


def test_supports():
    assert str(Support(upper=3.0)) == "at most 3"
    assert Support(0.0).within(Support(-1.0, 5.0)).upper == 5.0
    for bad in (np.array([1.0]), np.array([2.0, 1.0]), np.arange(300.0), np.array([0.0, np.inf])):
        with pytest.raises(ValueError, match="2 to 200"):
            Support(values=bad)
    assert isinstance(Support(0.0).limit(FAMILIES["normal"].from_moments(np.ones(1), np.ones(1))), Clipped)
