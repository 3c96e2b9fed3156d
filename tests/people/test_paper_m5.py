"""The paper's hierarchical experiment: features of a store, the loss of sums, and scores of sums of samples."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from examples.paper import m5, table4
from pgbm_plugin.distributions import Normal
from pgbm_plugin.scores import crps_ensemble
from tests import DATA

START = np.datetime64("2014-06-01")


@pytest.fixture(scope="module")
def store():
    return m5.made_up_store(items=9)


@pytest.fixture(scope="module")
def items(store):
    return m5.rows(store, START)


def slow_features(store, item, start):
    """Some features of an item by pandas: (days, features) from `start` on."""
    sales = pd.Series(store.sales[item].astype(float))
    mates = pd.DataFrame(store.sales[store.department == store.department[item]].T.astype(float)).sum(axis=1)
    price = pd.Series(store.price[item].astype(float))
    date = pd.DatetimeIndex(store.date)
    out = {f"lag_{lag}": sales.shift(lag) for lag in (1, 7, 28, 364)}
    for lag in (1, 7, 28):
        out[f"lag_{lag}_mean_7"] = sales.shift(lag).rolling(7).mean()
        out[f"lag_{lag}_mean_56"] = sales.shift(lag).rolling(56).mean()
    week = out["lag_1_mean_7"]
    out["short_trend"] = (1 + week) / (1 + sales.shift(1).rolling(28).mean()) - 1
    out["long_trend"] = (1 + week) / (1 + out["lag_28_mean_56"]) - 1
    out["year_trend"] = (1 + week) / (1 + week.shift(364)) - 1
    out["last_year_trend"] = (1 + week.shift(357)) / (1 + week.shift(364)) - 1
    of_mates = mates.shift(1).rolling(7).mean()
    out["department_long_trend"] = (1 + of_mates) / (1 + mates.shift(1).rolling(91).mean()) - 1
    out["department_year_trend"] = (1 + of_mates) / (1 + of_mates.shift(364)) - 1
    out["price"] = price
    out["days_on_sale"] = price.notna().cumsum()
    out["price_to_usual"] = (price / price.expanding().mean().shift(1)).fillna(1.0)
    out["price_change"] = (price / price.shift(7) - 1).fillna(0.0)
    here = store.price[store.department == store.department[item]]
    out["price_to_department"] = price / pd.DataFrame(here).mean(axis=0)
    out["weekday_sin"] = pd.Series(np.sin(2 * np.pi * date.day_of_week / 7))
    out["day_cos"] = pd.Series(np.cos(2 * np.pi * (date.day - 1) / 31))
    out["week_sin"] = pd.Series(np.sin(2 * np.pi * ((date.day_of_year - 1) // 7) / 53))
    out["month_cos"] = pd.Series(np.cos(2 * np.pi * (date.month - 1) / 12))
    out["snap"] = pd.Series(store.snap)
    out["event_2"] = pd.Series(store.events[:, 2])
    return pd.DataFrame(out)[start:]


@pytest.mark.parametrize("item", [0, 5, 7])  # one that starts late, one alone in its department, one that is not
def test_features_are_those_of_pandas(store, item):
    late = replace(store, price=store.price.copy())
    start = int(np.searchsorted(store.date, START))
    late.price[0, : start + 30] = np.nan
    found = m5.rows(late, START)
    assert len(set(found.names)) == 46
    mine = found.X[:, found.names.index("item")] == item
    expected = slow_features(late, item, start)
    expected = expected[expected["price"].notna()]
    assert mine.sum() == len(expected) == len(late.date) - start - (30 if item == 0 else 0)
    np.testing.assert_array_equal(found.day[mine], expected.index)
    for name in expected:
        np.testing.assert_allclose(found.X[mine, found.names.index(name)], expected[name], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found.y[mine], late.sales[item, expected.index])


def test_features_know_nothing_of_their_day_or_later(store, items):
    day = int(np.searchsorted(store.date, START)) + 100
    later = replace(store, sales=store.sales.copy(), price=store.price.copy())
    later.sales[:, day:] += 50
    later.price[:, day + 1 :] *= 3.0
    found = m5.rows(later, START)
    np.testing.assert_array_equal(found.between(0, day + 1).X, items.between(0, day + 1).X)
    tomorrow = found.between(day + 1, day + 2).X != items.between(day + 1, day + 2).X
    changed = {found.names[j] for j in np.nonzero(tomorrow.any(axis=0))[0]}
    assert {"lag_1", "lag_1_mean_56", "price"} <= changed
    assert not {"lag_2", "lag_7_mean_7", "weekday_sin", "item"} & changed


def test_too_early_a_start_is_refused(store):
    with pytest.raises(ValueError, match="begin later"):
        m5.rows(store, store.date[370])
    m5.rows(store, store.date[371])


@pytest.mark.skipif(not (DATA.parent / "m5" / "m5_ca1.npz").exists(), reason=f"no M5 data at {DATA.parent}")
def test_the_store_has_the_papers_rows():
    store = m5.read_store(DATA.parent / "m5" / "m5_ca1.npz")
    start, end = int(np.searchsorted(store.date, m5.FIRST)), len(store.date)
    on_sale = ~np.isnan(store.price)
    bounds = [start, end - 2 * m5.MONTH, end - m5.MONTH, end]
    counts = [int(on_sale[:, lo:hi].sum()) for lo, hi in pairwise(bounds)]
    assert counts == [2_415_359, 85_372, 85_372]
    assert (store.department.max(), store.category.max()) == (6, 2)


def test_parts_follow_each_other(items):
    end = int(items.day[-1]) + 1
    key = {"window": 1, "seed": 1, "loss": "mse"}
    table4.all_rows.cache_clear()
    found = table4.compute(key, None, 3, 1)
    everything = table4.all_rows(None)
    last = int(everything.day[-1]) + 1 - m5.MONTH
    expected = [(everything.day < last - 56).sum(), *2 * [m5.MONTH * 24]]
    assert found["rows"] == expected
    part = items.between(end - 3, end - 1)
    assert set(part.day) == {end - 3, end - 2}


def test_the_weighted_loss_is_the_papers(items):
    pytest.importorskip("torch")
    part = items.between(int(items.day[-1]) - 4, int(items.day[-1]) + 1)
    days, departments, categories = 5, 7, 3
    objective = table4.weighted_mse(part, "diagonal")
    rng = np.random.default_rng(0)
    margin = rng.normal(size=len(part))

    def loss(pred):
        error = pred - part.y
        total = 0.25 * np.sum(error**2)
        for day in np.unique(part.day):
            today = part.day == day
            total += 0.25 / days * error[today].sum() ** 2
            for k in range(departments):
                total += 0.25 / (days * departments) * error[today & (part.department == k)].sum() ** 2
            for k in range(categories):
                total += 0.25 / (days * categories) * error[today & (part.category == k)].sum() ** 2
        return total

    g, h = objective.derivatives(margin, part.y)
    steps = np.eye(len(part))[:6]
    central = [(loss(margin + s) - loss(margin - s)) / 2.0 for s in steps]  # exact for a parabola
    second = [loss(margin + s) + loss(margin - s) - 2.0 * loss(margin) for s in steps]
    np.testing.assert_allclose(g[:6], central, rtol=1e-9)
    np.testing.assert_allclose(h[:6], second, rtol=1e-9)


def test_sums_of_samples_are_those_of_independent_items(items):
    test = items.between(int(items.day[-1]) - 2, int(items.day[-1]) + 1)
    rng = np.random.default_rng(0)
    forecast = Normal.from_moments(rng.uniform(0.0, 3.0, len(test)), rng.uniform(0.5, 2.0, len(test)))
    sums = {level: np.unique(group, return_inverse=True)[1] for level, group in table4.groups(test).items()}
    assert [group.max() + 1 for group in sums.values()] == [3 * 7, 3 * 3, 3]
    plain, clamped, item = table4.sampled(forecast, test, sums)
    for level, group in sums.items():
        exact = Normal.from_moments(np.bincount(group, forecast.mean()), np.bincount(group, forecast.var()))
        outcome = np.bincount(group, test.y)
        # 1,000 samples: a few per cent
        assert crps_ensemble(outcome, plain[level]) == pytest.approx(exact.crps(outcome).mean(), rel=0.06)
        assert np.all(clamped[level] >= plain[level])
    mean, sd = forecast.mean(), forecast.std()
    lifted = mean * forecast.sf(0.0) + sd * sd * forecast.pdf(0.0)  # E max(X, 0) of a Normal
    np.testing.assert_allclose(clamped["total"].mean(axis=1), np.bincount(sums["total"], lifted), rtol=0.03)
    assert item < forecast.crps(test.y).mean()  # no label is negative


def test_a_start_and_its_loss_reach_the_forecast(items):
    """Without the start, which LightGBM leaves out of predictions, sums would be far off."""
    pytest.importorskip("torch")
    for loss in ("mse", "wmse-rowsum"):
        booster, objective, start = table4.train(items, None, loss, 40, 1, 1)
        model = table4.with_spread(booster, objective, items, start)
        found = table4.score(model, items, start)
        assert start == pytest.approx(items.y.mean(), rel=0.05)
        assert found["rmse"]["item"] < 0.95 * items.y.std()
        daily = np.bincount(items.day - items.day[0], items.y)
        assert found["rmse"]["total"] < daily.std()


def test_ratios_are_of_the_same_window():
    def scores(*totals):
        return [{"window": window, "rmse": {"total": value}} for window, value in totals]

    ours, base = scores((0, 1.0), (0, 3.0), (1, 6.0), (2, 1.0)), scores((0, 4.0), (1, 2.0), (1, 4.0))
    assert table4.relative(ours, base, "rmse", "total") == {0: 0.5, 1: 2.0}
