"""How much rows err together: pair by pair, from known correlations, and what is refused."""

from __future__ import annotations

import warnings

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pgbm_plugin import load, wrap
from pgbm_plugin.calibration.correlate import _level, _limited, _sums, measure, within_limits
from pgbm_plugin.distributions import Normal
from pgbm_plugin.distributions.normal_scores import expected_scores, score_variances
from pgbm_plugin.predict.correlation import Correlation
from pgbm_plugin.predict.power_map import Calibration
from pgbm_plugin.predict.shared import pair_sums_within
from tests.calibration.factors import correlation, crossed, distributions, nested, simulated, slow_pair_sum

LGB = {"num_leaves": 6, "num_threads": 1, "verbose": -1}


def measured(levels, rows, y, weight=None):
    codes = [np.unique(code, return_inverse=True)[1] for code in levels.values()]
    return measure(tuple(levels), codes, rows, y, np.ones(len(y)) if weight is None else weight)


def test_pair_sums_are_those_of_all_pairs():
    levels, rng = nested(6, 5), np.random.default_rng(0)
    day, department = levels.values()
    values, other = rng.normal(size=len(day)), rng.integers(0, 4, len(day))
    for codes in ([], [day], [other], [day, other], [day, department, other]):
        found = pair_sums_within(day, codes, values)
        for group in range(6):
            own = day == group
            want = slow_pair_sum([code[own] for code in codes], values[own])
            assert found[group] == pytest.approx(want, abs=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["normal", "poisson"])
def test_moments_are_those_of_all_pairs(kind, weighted, monkeypatch):
    """In expectation, a product of scores is the shared r times both variances; pairs count by their deviations."""
    monkeypatch.setattr("pgbm_plugin.calibration.correlate._LIMIT", 1e3)
    levels = {**nested(12, 6), "weekday": nested(12, 6)["day"] % 4}
    n = len(levels["day"])
    rows, rng = distributions(kind, n), np.random.default_rng(3)
    y = simulated(rows, correlation(levels, (0.2, 0.1, 0.1)), 1, 4)[:, 0]
    weight = rng.uniform(0.5, 1.5, n) if weighted else np.ones(n)
    counts = weight * rows.std()
    score, variance = counts * expected_scores(rows, y), counts * score_variances(rows)
    matrix, sums = np.zeros((3, 3)), np.zeros(3)
    for i in range(n):
        for j in range(n):
            shared = np.array([i != j and code[i] == code[j] for code in levels.values()], float)
            matrix += np.outer(shared, shared) * variance[i] * variance[j]
            sums += shared * score[i] * score[j]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few rows may differ by chance
        _, _, found = measured(levels, rows, y, weight)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, sums), rtol=1e-9)


@pytest.mark.parametrize("design", [nested, crossed])
@pytest.mark.parametrize("kind", ["normal", "poisson", "negativebinomial", "empirical"])
def test_known_correlations_are_found(kind, design):
    """Over 20 repetitions: without bias, and as far off as the standard errors say."""
    levels, r = design(), np.array([0.12, 0.08])
    rows = distributions(kind, len(levels["day"]))
    draws = simulated(rows, correlation(levels, r), 20, 5)
    fits = [measured(levels, rows, y) for y in draws.T]
    found, errors = (np.array([fit[k] for fit in fits]) for k in (2, 1))
    error = errors.mean(axis=0)
    # coarse counts have a bias of second order in r
    bias = 0.0 if kind in ("normal", "empirical") else 0.01
    assert np.all(np.abs(found.mean(axis=0) - r) < 4.0 * error / np.sqrt(20) + bias)
    # a deviation of 20 is known to 16 %
    assert np.all(np.abs(np.log(found.std(axis=0) / error)) < 0.6)


@pytest.mark.parametrize("kind", ["normal", "poisson"])
def test_one_strange_day_does_not_decide(kind, monkeypatch):
    """The store is closed on one of 28 days."""
    day = np.repeat(np.arange(28), 100)
    levels, rows = {"day": day}, distributions(kind, len(day))
    y = simulated(rows, correlation(levels, (0.02,)), 1, 3)[:, 0]
    y = np.where(day == 9, np.maximum(y - 1.5 * rows.std(), 0.0 if kind == "poisson" else -9.0), y)
    usual = day != 9
    without = measured({"day": day[usual]}, rows[usual], y[usual])[0][0]
    r, error, _ = measured(levels, rows, y)
    assert abs(without - 0.02) < 0.015
    assert abs(r[0] - without) < 2.0 * error[0]
    monkeypatch.setattr("pgbm_plugin.calibration.correlate._LIMIT", 1e3)
    assert measured(levels, rows, y)[0][0] > 2.0 * r[0]


def slow_around(weight, variance, score):
    """Sum of squares around the mean score of a group, and what independent rows would have."""
    mean = weight @ score / np.sum(weight**2)
    projection = np.eye(len(score)) - np.outer(weight, weight) / np.sum(weight**2)
    return np.sum((score - mean * weight) ** 2), np.trace(projection @ np.diag(weight**2 * variance))


@pytest.mark.parametrize("strange", [0, 2])
def test_groups_noisier_than_their_model_says(strange, monkeypatch):
    """The spread is far too large on some days and half of the true one on others, and perhaps a shop is closed."""
    day, r, rng = np.repeat(np.arange(300), 20), 0.1, np.random.default_rng(0)
    noise = np.array([0.3, 1.0, 2.0])[np.arange(300) % 3][day]
    found, with_one_limit = [], []
    for _ in range(5):
        z = np.sqrt(r) * rng.normal(size=300)[day] + np.sqrt(1.0 - r) * rng.normal(size=len(day))
        z[day < strange] -= 3.0
        y = noise / np.sqrt(np.mean(noise**2)) * z
        rows = Normal.from_moments(np.zeros(len(y)), np.ones(len(y)))
        found.append(measured({"day": day}, rows, y)[0][0])
        with monkeypatch.context() as patch:
            patch.setattr("pgbm_plugin.calibration.correlate._PRIOR", 1e9)
            with_one_limit.append(measured({"day": day}, rows, y)[0][0])
    assert np.mean(found) == pytest.approx(r, abs=0.02)
    assert np.mean(with_one_limit) < np.mean(found) - 0.015


def test_limited_sums():
    """Group by group: normal sums end at 2.5 deviations, and are enlarged to have the same mean square.

    The deviation is that of the group, from the scatter around its mean and ten rows of the scatter of all.
    """
    levels = nested(30, 6)
    codes = [np.unique(code, return_inverse=True)[1] for code in levels.values()]
    rng, n = np.random.default_rng(0), len(codes[0])
    weight, variance = rng.uniform(0.5, 1.5, n), rng.choice([0.5, 1.0], n, p=[0.01, 0.99])
    score, r = weight * rng.standard_t(3, n), np.array([0.1, 0.2])
    expected = [_level(code, codes, variance, weight) for code in codes]
    scatter = np.sum(score**2) / np.sum(weight**2 * variance)
    kept = stats.norm.expect(lambda z: min(abs(z), 2.5) ** 2)
    found = _limited(expected, [_sums(code, weight, score / weight) for code in codes], r)
    for code, (totals, squares, _) in zip(codes, found, strict=True):
        parts = [code == group for group in range(code.max() + 1)]
        around = [slow_around(weight[part], variance[part], score[part]) for part in parts]
        typical = sum(pair[0] for pair in around) / sum(pair[1] for pair in around)
        for group in range(code.max() + 1):
            rows = code == group
            v = (weight * variance)[rows]
            shared = correlation({name: key[rows] for name, key in levels.items()}, r)
            np.fill_diagonal(shared, 0.0)
            sd = np.sqrt(scatter * np.sum(weight[rows] * v) + v @ shared @ v)
            total = abs(score[rows].sum())
            free = np.sum(weight[rows] ** 2) ** 2 / np.sum(weight[rows] ** 4) - 1.0
            ratio = around[group][0] / (typical * around[group][1]) if free > 1e-9 else 1.0
            sd *= np.sqrt((free * ratio + 10.0) / (free + 10.0))
            want = total if np.any(variance[rows] < 0.9) else min(total, 2.5 * sd) / np.sqrt(kept)
            assert abs(totals[group]) == pytest.approx(want)
            assert squares[group] == pytest.approx(np.sum(score[rows] ** 2))


def test_independent_rows_have_none():
    levels = nested()
    rows = distributions("poisson", len(levels["day"]))
    r, error, found = measured(levels, rows, simulated(rows, np.eye(len(rows)), 1, 6)[:, 0])
    assert np.all(np.abs(found) < 4 * error)
    assert np.all(r >= 0.0)


def test_limits():
    """Against a fine grid of all allowed pairs."""
    information, measured = np.array([[4.0, 1.5], [1.5, 1.0]]), np.array([0.3, -0.2])
    grid = np.linspace(0.0, 0.6, 601)
    fits = [((a, 0.0) - measured) @ information @ ((a, 0.0) - measured) for a in grid]
    np.testing.assert_allclose(within_limits(information, measured), [grid[np.argmin(fits)], 0.0], atol=1e-3)
    np.testing.assert_allclose(within_limits(information, np.array([0.2, 0.1])), [0.2, 0.1])
    np.testing.assert_allclose(within_limits(information, np.array([0.9, 0.6])), [0.594, 0.396])


def test_what_factors_cannot_express_is_said():
    day = np.repeat(np.arange(200), 2)
    rows, rng = Normal(loc=np.zeros(400), scale=1.0), np.random.default_rng(8)
    opposite = np.stack([z := rng.normal(size=200), -z], axis=1).ravel()
    with pytest.warns(UserWarning, match=r"level 'day' differ more than independent rows would .* r is set to 0"):
        r, _, found = measured({"day": day}, rows, opposite)
    assert r[0] == 0.0
    assert found[0] < -0.8
    with pytest.warns(UserWarning, match=r"almost copies of each other .*shrunk to 0\.99"):
        r, _, found = measured({"day": day}, rows, np.repeat(1.05 * rng.normal(size=200), 2))
    assert r[0] == pytest.approx(0.99)
    with pytest.warns(UserWarning, match="scatter 3 times as much as the model predicts"):
        measured({"day": day // 20}, rows, 3.0 * rng.normal(size=400))


def data(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, (n, 2)).astype(float)
    day = np.arange(n) // 8
    z = 0.5 * rng.normal(size=n // 8 + 1)[day] + np.sqrt(0.75) * rng.normal(size=n)
    return X, 3.0 * X[:, 0] + (1.0 + X[:, 1]) * z, day


@pytest.fixture(scope="module")
def booster():
    X, y, _ = data(4000, 0)
    return lgb.train(LGB, lgb.Dataset(X, y), 60)


@pytest.fixture
def model(booster):
    model = wrap(booster, *data(4000, 0)[:2], n_jobs=1)
    model.tune(*data(1600, 1)[:2], distributions="normal")
    return model


@pytest.fixture(scope="module")
def held_out():
    return data(1600, 1)


def test_of_a_model(model, held_out, tmp_path):
    X, y, day = held_out
    before = model.predict_dist(X).ppf([0.1, 0.9])
    found = model.correlate(X, y, {"day": day})
    assert found is model.chosen.correlation
    assert found.levels == ("day",)
    assert found.groups == (200,)
    assert found.rows == 1600
    assert abs(found.r[0] - 0.25) < 3 * found.standard_error[0]
    assert repr(found).splitlines()[2].split()[:2] == ["day", "200"]
    np.testing.assert_array_equal(model.predict_dist(X).ppf([0.1, 0.9]), before)
    model.save(tmp_path / "m.pgbm")
    assert load(tmp_path / "m.pgbm").chosen.correlation == found


def test_keys_of_any_kind(model, held_out):
    X, y, day = held_out
    want = model.correlate(X, y, {"day": day}).r
    text = [f"day {k}" for k in day]
    date = np.datetime64("2020-01-01") + day
    for keys in (text, np.array(text), pd.Series(date), pd.Categorical(text), pd.Series(day, dtype="Int64"), day - 0.5):
        assert model.correlate(X, y, {"day": keys}).r == want
    week = (day // 7, day % 7)
    assert model.correlate(X, y, {"day": week}).r == want


def test_weights_and_rows_left_out(model, held_out):
    X, y, day = held_out
    kept = np.arange(len(y)) % 5 > 0
    some = model.correlate(X[kept], y[kept], {"day": day[kept]})
    assert model.correlate(X, y, {"day": day}, sample_weight=kept.astype(float)) == some
    oof = np.where(kept, model.predict(X) + 0.01, np.nan)
    near = model.correlate(X, y, {"day": day}, out_of_fold=oof)
    assert near.rows == some.rows
    assert near.r != some.r
    assert near.r == pytest.approx(some.r, abs=0.01)


def test_settings_that_change(model, held_out):
    X, y, day = held_out

    def total():
        return model.predict_total(X, day, {"day": day})

    with pytest.raises(ValueError, match=r"first call model\.correlate"):
        total()
    found = model.correlate(X, y, {"day": day})
    assert len(total()) == 200
    rho, model.rho = model.rho, 0.9
    with pytest.raises(ValueError, match=r"changed after correlate: call model\.correlate again"):
        total()
    model.rho, model.distribution = rho, "laplace"
    with pytest.raises(ValueError, match="changed after correlate"):
        total()
    model.distribution = "normal"
    assert model.chosen.correlation is found
    assert len(total()) == 200
    for change in (
        lambda: model.conformalize(*data(400, 5)[:2]),
        lambda: model.update(*data(400, 6)[:2]),
        lambda: model.tune(X, y, distributions="normal", rho=0.01),
    ):
        change()
        with pytest.raises(ValueError, match=r"first call model\.correlate"):
            total()
        if model.distribution == "conformal" and model.chosen.conformal is None:
            model.distribution = "normal"  # update removed the scores
        model.correlate(X, y, {"day": day})


def halves(day):
    """Levels that join the rows of every other day; together they join the same rows as the day."""
    alone = -1 - np.arange(len(day))
    return {"even": np.where(day % 2, alone, day), "odd": np.where(day % 2, day, alone)}


REFUSED = {
    "no dict": (lambda day: day, "levels must be a dict", TypeError),
    "empty": (lambda day: {}, "levels is empty: name at least one", ValueError),
    "many": (lambda day: dict.fromkeys("abcdefg", day), "at most 6", ValueError),
    "name": (lambda day: {1: day}, "names of levels must be text, not 1", TypeError),
    "length": (lambda day: {"day": day[1:]}, r"levels\['day'\] has 1599 keys, X has 1600 rows", ValueError),
    "shape": (lambda day: {"day": np.tile(day, (2, 1))}, "must have one dimension", ValueError),
    "NaN": (lambda day: {"day": np.where(day > 3, day, np.nan)}, r"32 missing keys \(first at row 0\)", ValueError),
    "None": (lambda day: {"day": [*day[:-1], None]}, r"1 missing keys \(first at row 1599\)", ValueError),
    "NaN in a list": (lambda day: {"day": ["a", float("nan")] * 800}, "800 missing keys", ValueError),
    "NaT": (
        lambda day: {"day": np.where(day > 3, np.datetime64("2020-01-01"), np.datetime64("NaT", "D"))},
        "32 missing",
    ),
    "NA": (lambda day: {"day": pd.Series([*day[:-1], pd.NA], dtype="Int64")}, "1 missing keys"),
    "in a tuple": (lambda day: {"day": (day, np.where(day > 3, day, np.nan))}, r"levels\['day'\]\[1\] has 32 missing"),
    "empty tuple": (lambda day: {"day": ()}, "empty tuple"),
    "a word": (lambda day: {"day": "day"}, r"levels\['day'\] must be a column .* not str", TypeError),
    "unhashable": (lambda day: {"day": [[1]] * 1600}, "cannot be told apart", TypeError),
    "one group": (lambda day: {"day": day * 0}, "all rows are in one group of the level 'day'"),
    "groups of one": (lambda day: {"row": np.arange(len(day))}, "every row is a group of its own in the level 'row'"),
    "twice": (lambda day: {"day": day, "date": day + 7}, "the levels 'day' and 'date' put the same pairs"),
    "parts of a level": (lambda day: {"day": day, **halves(day)}, "'day' and 'even' and 'odd' put the same pairs"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_levels_are_refused(case, model, held_out):
    X, y, day = held_out
    make, words, kind = (*REFUSED[case], ValueError)[:3]
    with pytest.raises(kind, match=words):
        model.correlate(X, y, make(day))
    assert model.chosen.correlation is None


def test_too_few_rows(model, held_out):
    X, y, day = held_out
    with pytest.raises(ValueError, match="correlate needs at least 20 rows, it got 16"):
        model.correlate(X[:16], y[:16], {"day": day[:16]})


@pytest.mark.parametrize("r", [(-0.1, 0.2), (0.6, 0.4), (np.nan, 0.1)])
def test_an_impossible_correlation_is_refused(r):
    with pytest.raises(ValueError, match="not be negative, and add up to less than 1"):
        Correlation(("a", "b"), r, (0.1, 0.1), (0.1, 0.1), (5, 5), 100, 0.0, Calibration(), "normal")
