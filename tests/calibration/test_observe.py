"""model.observe: labels as they arrive keep the cover, in one map for all levels, and nothing else changes."""

from __future__ import annotations

import copy
import pickle

import lightgbm as lgb
import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor

from pgbm_plugin import load, wrap
from pgbm_plugin.predict.observed import _LEVELS, Observed
from pgbm_plugin.saving.model_bytes import to_bytes
from pgbm_plugin.scores import coverage
from tests.calibration import shaped
from tests.calibration.conformalized import data, train

LEVELS = np.linspace(0.02, 0.98, 49)


@pytest.fixture(scope="module")
def conformal():
    return train(*data(600, 0)).conformalize(*data(300, 1))


@pytest.fixture
def model(conformal):
    return copy.copy(conformal)


def stream(n, seed, noise):
    """Rows whose noise is multiplied row by row."""
    X, y = data(n, seed)
    mean = 2 * X[:, 0]
    return X, mean + noise * (y - mean)


def follow(model, X, y, batch, coverages=(0.9,)):
    """Observe batch by batch; return whether each row lay inside the interval that was predicted before."""
    inside = []
    for start in range(0, len(y), batch):
        rows = slice(start, start + batch)
        ends = [model.predict_interval(X[rows], level) for level in coverages]
        inside.append([(low <= y[rows]) & (y[rows] <= high) for low, high in (end.T for end in ends)])
        model.observe(X[rows], y[rows])
    return np.concatenate(inside, axis=1)


def test_cover_under_a_jump_of_the_noise(model):
    """Exact bands are not known here: the static model is far outside of these."""
    noise = np.where((np.arange(4000) > 1500) & (np.arange(4000) < 2800), 3.0, 1.0)
    X, y = stream(4000, 2, noise)
    static = model.predict_interval(X)
    before = model.predict(X)
    inside = follow(model, X, y, 20, (0.5, 0.8, 0.9, 0.95))
    np.testing.assert_allclose(inside.mean(1), [0.5, 0.8, 0.9, 0.95], atol=0.02)
    assert min(part.mean() for part in np.array_split(inside[2], 10)) > 0.8
    assert min(coverage(*part) for part in zip(np.array_split(y, 10), np.array_split(static, 10), strict=True)) < 0.65
    assert model.observed.cover == pytest.approx(dict(zip((0.5, 0.8, 0.9, 0.95), inside.mean(1), strict=True)))
    assert model.observed.recent_cover[0.9] == pytest.approx(inside[2, -1000:].mean())
    assert "4,000 rows observed" in repr(model.observed)
    assert "adapted to 4000 rows" in repr(model)
    assert np.array_equal(model.predict(X), before)


def test_a_shift_moves_both_ends(model):
    """More outcomes above than below move the upper end out and the lower one in."""
    X, y = stream(1500, 3, 1.0)
    before = model.predict_interval(X[:50])
    follow(model, X, y + 2.0, 10)
    after = model.predict_interval(X[:50])
    assert np.all(after > before)


def test_quantiles_stay_in_order_and_agree(model):
    X, y = stream(600, 4, 2.0)
    follow(model, X, y, 7)
    new = data(40, 5)[0]
    quantiles, distribution = model.predict_quantiles(new, LEVELS), model.predict_dist(new)
    assert np.all(np.diff(quantiles, axis=1) >= 0.0)
    assert np.array_equal(distribution.ppf(LEVELS), quantiles)
    assert np.array_equal(np.stack(distribution.interval(0.9), 1), model.predict_interval(new, 0.9))
    np.testing.assert_allclose(distribution.cdf(quantiles), np.broadcast_to(LEVELS, quantiles.shape), atol=0.01)
    draws = distribution.rvs(4000, random_state=0)
    np.testing.assert_allclose((draws <= quantiles[:, [24]]).mean(1), 0.5, atol=0.05)
    assert np.all(np.diff(model.predict_interval(new, 0.95)) > np.diff(model.predict_interval(new, 0.8)))


def test_the_map_takes_calibration_to_the_window():
    rng = np.random.default_rng(0)
    calibration, window = rng.normal(size=999), 3.0 + 2.0 * rng.standard_t(4, size=999)
    observed = Observed(0, 1000, 0.02, 0.0, 0.0, (0,) * 4, window, np.empty(0, np.uint8))
    ranks = np.round(1000 * _LEVELS).astype(int) - 1
    moved = observed.adapted(np.sort(calibration), calibration, None)
    np.testing.assert_allclose(moved[ranks], np.sort(window)[ranks], rtol=1e-12)
    assert np.all(np.diff(moved) > 0.0)
    # a weight of 2 is a residual that comes twice, and rows may come in any order
    twice = observed.adapted(moved, np.repeat(calibration, 2), None)
    weighted = observed.adapted(moved, calibration[::-1], np.full(999, 2.0))
    np.testing.assert_allclose(weighted, twice, rtol=1e-12)
    equal = observed.adapted(np.zeros(5), np.zeros(5), None)
    assert np.all(np.isfinite(equal))


def test_batches(model):
    """The rows of a batch arrive together, in any order; the window is bounded."""
    X, y = stream(400, 6, 2.0)
    other, order = copy.copy(model), np.random.default_rng(1).permutation(400)
    model.observe(X, y, window=100)
    other.observe(X[order], y[order], window=100)
    assert np.array_equal(model.observed.residuals, other.observed.residuals)
    assert np.array_equal(model.predict_interval(X), other.predict_interval(X))
    assert len(model.observed.residuals) == len(model.observed.inside) == 100
    assert model.observed.rows == 400
    # what a large batch leaves in the window is no selection by size
    whole = (y - model.predict(X)) / model.predict_dist(X, "normal").std()
    assert 0.7 < np.abs(model.observed.residuals).mean() / np.abs(whole).mean() < 1.4
    model.observe(X[:3], y[:3], step=0.5)
    assert (model.observed.window, model.observed.step) == (100, 0.5)


def test_late_labels_are_compared_with_the_model_of_now(model):
    X, y = stream(800, 7, 3.0)
    follow(model, X[100:], y[100:], 50)
    now = coverage(y[:100], model.predict_interval(X[:100]))
    before = model.observed.covered[2]
    model.observe(X[:100], y[:100])
    assert model.observed.covered[2] - before == round(100 * now)
    assert now > 0.8


def test_an_end_moves_only_by_its_own_misses(model):
    """A miss above moves the upper factor by step (1 - 1/20), and the lower one by -step/20."""
    X, y = stream(1, 8, 1.0)
    model.observe(X, y + 100.0, step=0.1)
    assert model.observed.upper == pytest.approx(0.1 * 0.95)
    assert model.observed.lower == pytest.approx(-0.1 * 0.05)


def test_bins_keep_their_differences():
    model = shaped.model("skewed")
    model.tune(*shaped.rows("skewed", 600, 1), distributions="empirical(by='mean', bins=3)", variance="pgbm")
    model.conformalize(*shaped.rows("skewed", 900, 2))
    assert model.chosen.residual_bin is not None
    X, y = shaped.rows("skewed", 400, 3)
    follow(model, X, y, 40)
    residuals = model.predict_dist(X).residuals
    assert len(residuals) == 900
    assert np.all(np.diff(model.predict_quantiles(X, LEVELS), axis=1) >= 0.0)


def test_saved_pickled_and_gone_on(model, tmp_path):
    X, y = stream(300, 9, 2.0)
    follow(model, X, y, 30)
    model.save(tmp_path / "m.pgbm")
    others = [load(tmp_path / "m.pgbm"), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]  # noqa: S301
    more = stream(100, 10, 2.0)
    expected = model.predict_interval(X)
    gone_on = model.observe(*more).predict_interval(X)
    for other in others:
        assert np.array_equal(other.predict_interval(X), expected)
        assert not other.observed.residuals.flags.writeable
        assert np.array_equal(other.observe(*more).predict_interval(X), gone_on)
        assert repr(other.observed) == repr(model.observed)


def test_without_observe_nothing_changes(conformal):
    assert conformal.observed is None
    assert b"observed" not in to_bytes(conformal.state)
    assert "observed" not in repr(conformal)


def test_a_tuned_model(tunable, tune_rows):
    tunable.tune(*tune_rows)
    assert tunable.observe(tune_rows[0][:50], tune_rows[1][:50] + 0.1) is tunable
    assert tunable.distribution == "conformal"
    assert np.all(np.isfinite(tunable.predict_interval(tune_rows[0])))
    tunable.tune(*tune_rows)
    assert tunable.observed is None


def test_conformalize_starts_anew(model):
    X, y = stream(200, 11, 3.0)
    fresh = model.predict_interval(X)
    model.observe(X, y)
    assert not np.array_equal(model.predict_interval(X), fresh)
    model.conformalize(*data(300, 1))
    assert model.observed is None
    assert np.array_equal(model.predict_interval(X), fresh)


def test_update_keeps_the_record_in_the_new_unit(model):
    """Moments of rows with thrice the noise widen the spread; the intervals must not widen once more."""
    X, y = stream(2000, 12, 3.0)
    follow(model, X[:1000], y[:1000], 50)
    before, spread = model.predict_interval(X), model.predict_dist(X, "normal").std()
    model.update(X[1000:], y[1000:], decay=0.2)
    assert np.median(model.predict_dist(X, "normal").std() / spread) > 1.5
    ratio = np.median(np.diff(model.predict_interval(X)) / np.diff(before))
    assert 0.7 < ratio < 1.4
    assert model.observed.rows == 1000
    model.observe(X[:20], y[:20])
    assert model.observed.rows == 1020


def test_rows_that_come_again(model, conformal):
    X, y = data(300, 1)
    with pytest.raises(ValueError, match="calibrated on these 300 rows"):
        model.observe(X[::-1], y[::-1])
    new = stream(30, 13, 1.0)
    model.observe(*new)
    with pytest.raises(ValueError, match="these 30 rows were observed in the last call already"):
        model.observe(new[0][::-1], new[1][::-1])
    assert model.observed.rows == 30
    model.observe(new[0][:3], new[1][:3])
    model.observe(new[0][:3], new[1][:3])  # so few may be equal by chance
    assert model.observed.rows == 36


def test_bad_input(model, conformal, tunable, tune_rows):
    X, y = data(20, 14)
    refusals = [
        (lambda: model.observe(X, None), TypeError, "observe needs labels"),
        (lambda: model.observe(X[:0], y[:0]), ValueError, "at least 1 row"),
        (lambda: model.observe(X, y[:19]), ValueError, "y has 19 values, X has 20 rows"),
        (lambda: model.observe(X, np.where(y == y[3], np.nan, y)), ValueError, "NaN.*first at row 3"),
        (lambda: model.observe(X, y, window=49), ValueError, "window must lie between 50 and"),
        (lambda: model.observe(X, y, window=99.5), TypeError, "window must be a whole number"),
        (lambda: model.observe(X, y, step=0.0), ValueError, "step must lie above 0"),
        (lambda: model.observe(X, y, step=np.nan), ValueError, "step must lie above 0"),
        (lambda: model.observe(X, y, step="fast"), TypeError, "step must be a number"),
        (lambda: model.observe(iter([X]), y), TypeError, "one table in memory"),
        (lambda: tunable.observe(X, y), ValueError, "first call model.conformalize"),
        (lambda: setattr(model, "observed", None), AttributeError, "read-only"),
    ]
    for call, error, words in refusals:
        with pytest.raises(error, match=words):
            call()
    assert model.observed is None
    assert model.state is conformal.state
    model.observe(X[:1], y[:1])
    model.rho = 0.5
    with pytest.raises(ValueError, match=r"call model\.conformalize again"):
        model.observe(X, y)
    tunable.tune(*tune_rows)
    tunable.rho = 0.5
    with pytest.raises(ValueError, match="update, rho or calibration has changed it"):
        tunable.observe(*tune_rows)


def test_a_record_without_rows_has_no_cover():
    """As a file may hold one."""
    empty = Observed(0, 50, 0.1, 0.0, 0.0, (0, 0, 0, 0), np.zeros(9), np.empty(0, np.uint8))
    assert np.isnan([*empty.cover.values(), *empty.recent_cover.values()]).all()
    assert repr(empty).startswith("0 rows observed")


def test_few_calibration_rows():
    """Intervals that need more calibration rows are infinite: they say nothing, and nobody asked for them."""
    model = train(*data(600, 0)).conformalize(*data(6, 1))
    follow_up = stream(60, 15, 1.0)
    model.observe(*follow_up)
    assert model.observed.cover[0.9] == 1.0
    assert (model.observed.lower, model.observed.upper) == (0.0, 0.0)
    assert np.all(np.isfinite(model.predict_interval(follow_up[0], 0.5)))


@pytest.mark.parametrize("kind", ["log link", "transformed target"])
def test_other_scales_of_the_outcome(kind):
    """Counts, whose lower ends lie on 0, and outcomes whose logarithm was trained on."""
    rng = np.random.default_rng(0)

    def rows(n, noise):
        X = rng.normal(size=(n, 3))
        error = np.exp(0.5 * X[:, 0] + noise * rng.normal(size=n))
        return X, rng.poisson(error).astype(float) if kind == "log link" else error

    X, y = rows(600, 0.4)
    if kind == "log link":
        model = train(X, y, objective="poisson")
    else:
        regressor = lgb.LGBMRegressor(n_estimators=20, num_leaves=8, n_jobs=1, verbose=-1)
        model = wrap(TransformedTargetRegressor(regressor, func=np.log, inverse_func=np.exp).fit(X, y), X, y, n_jobs=1)
    model.conformalize(*rows(300, 0.4))
    X, y = rows(2500, 1.0)
    inside = follow(model, X, y, 25)
    assert abs(inside.mean() - 0.9) < 0.02
    assert model.observed.covered[2] == inside.sum()
    assert np.all(model.predict_quantiles(X[:50], LEVELS) >= 0.0)
