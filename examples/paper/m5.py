"""Store CA_1 of the M5 competition as rows: an item on a day that it was on sale, and what was known the day before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FIRST = np.datetime64("2014-01-01")
"""The first day to train on: then every lag and window lies inside the data."""
MONTH = 28
"""Days of a validation or test part."""
LAGS = (1, 2, 3, 4, 5, 6, 7, 28, 56, 364)
WINDOWS = (7, 28, 56)
_HISTORY = 364 + 7


@dataclass(frozen=True)
class Store:
    """Daily sales; I items, D days.

    Attributes
    ----------
    sales : (I, D) units.
    price : (I, D) in USD, NaN on days when an item was not on sale.
    department, category : (I,) codes.
    date : (D,) days.
    events : (D, 4) codes of the two events' names and types, 0 for none.
    snap : (D,) 1 where food stamps could be spent.
    """

    sales: Array
    price: Array
    department: Array
    category: Array
    date: Array
    events: Array
    snap: Array


@dataclass(frozen=True)
class Rows:
    """Items on days, by day and then by item; n rows.

    Attributes
    ----------
    X : (n, F) float32 features.
    names : of the features.
    y : (n,) units.
    day : (n,) number of the day in the store's dates.
    department, category : (n,) codes.
    """

    X: Array
    names: tuple[str, ...]
    y: Array
    day: Array
    department: Array
    category: Array

    def between(self, first: int, end: int) -> Rows:
        """Those of the days first to end - 1; views, as days rise."""
        lo, hi = np.searchsorted(self.day, [first, end])
        parts = (getattr(self, name)[lo:hi] for name in ("y", "day", "department", "category"))
        return Rows(self.X[lo:hi], self.names, *parts)

    def __len__(self) -> int:
        return len(self.y)


def read_store(path: Path) -> Store:
    """The store of a file with the arrays that README.md lists."""
    with np.load(path) as data:
        days = data["sales"].shape[1]
        codes = [np.unique(data[name], return_inverse=True)[1] for name in ("dept_id", "cat_id")]
        named = ("event_name_1", "event_type_1", "event_name_2", "event_type_2")
        events = np.stack([np.unique(data[name], return_inverse=True)[1] for name in named], axis=1)
        price = data["sell_price"][:, data["day_to_week"][:days]]
        return Store(data["sales"], price, *codes, data["date"][:days], events[:days], data["snap_CA"][:days])


def made_up_store(items: int = 24, days: int = 800) -> Store:
    """A store in which some items start late, prices change, and all items share good and bad days."""
    rng = np.random.default_rng(0)
    day = np.arange(days)
    shared = 1.0 + 0.3 * np.sin(day * 2.0 * np.pi / 7.0) + 0.2 * rng.normal(size=days).clip(-2.0, 2.0)
    price = np.repeat(rng.uniform(1.0, 9.0, (items, -(-days // 70))), 70, axis=1)[:, :days]
    rate = rng.gamma(1.5, 1.0, (items, 1)) * shared / price**0.3
    price[:3, :400] = np.nan
    sales = np.where(np.isnan(price), 0, rng.poisson(rate)).astype(np.int16)
    events = np.where(rng.random((days, 4)) < 0.05, rng.integers(1, 5, (days, 4)), 0)
    department = np.arange(items) % 7
    snap = (day % 30 < 10).astype(np.int8)
    date = np.datetime64("2012-11-01") + day
    return Store(sales, price, department, np.array([0, 0, 0, 1, 1, 2, 2])[department], date, events, snap)


def rows(store: Store, first: np.datetime64 = FIRST) -> Rows:
    """All rows from a day on.

    What is only known when a day is over enters from the day after; prices, events and dates of a day are known before
    it. The paper's code has two more kinds of features that are not here: sales of the item in other stores, and two
    states' food stamps; its prices are relative to means over all days, also later ones, where ours are not.
    """
    start = int(np.searchsorted(store.date, first))
    if start < _HISTORY:
        raise ValueError(f"{first} has {start} days before it, and features look {_HISTORY} days back: begin later")
    on_sale = ~np.isnan(store.price[:, start:]).T
    day, item = np.nonzero(on_sale)
    columns = dict(_features(store, start))
    X = np.empty((len(day), len(columns)), np.float32)
    for j, plane in enumerate(columns.values()):
        X[:, j] = np.broadcast_to(plane, on_sale.shape)[on_sale]
    y = store.sales[:, start:].T[on_sale].astype(np.float64)
    return Rows(X, tuple(columns), y, day + start, store.department[item], store.category[item])


def _features(store: Store, start: int) -> Iterator[tuple[str, Array]]:
    """Name and values of each feature, which broadcast to (days from `start` on, items)."""
    n = len(store.date)
    items = len(store.sales)
    for name, codes in (("item", np.arange(items)), ("department", store.department), ("category", store.category)):
        yield name, codes[None]
    yield "snap", store.snap[start:, None]
    for k in range(store.events.shape[1]):
        yield f"event_{k}", store.events[start:, k, None]
    yield from _calendar(store.date[start:])
    for name, plane in _prices(store.price, store.department):
        yield name, plane[:, start:].T

    # total[:, d] is what was sold before day d, so that a window that ends there knows nothing of day d
    total = np.concatenate([np.zeros((items, 1)), np.cumsum(store.sales, axis=1, dtype=np.float64)], axis=1)

    def mean(lag: int, window: int, of: Array = total) -> Array:
        """(days, series) mean of the `window` days of which the last is `lag` days back."""
        end = np.arange(start, n) - lag + 1
        return ((of[:, end] - of[:, end - window]) / window).T

    for lag in LAGS:
        yield f"lag_{lag}", store.sales[:, start - lag : n - lag].T
    for lag in (1, 7, 28):
        for window in WINDOWS:
            yield f"lag_{lag}_mean_{window}", mean(lag, window)
    week, year_ago = 1.0 + mean(1, 7), 1.0 + mean(365, 7)
    yield "short_trend", week / (1.0 + mean(1, 28)) - 1.0
    yield "long_trend", week / (1.0 + mean(28, 56)) - 1.0
    yield "year_trend", week / year_ago - 1.0
    yield "last_year_trend", (1.0 + mean(358, 7)) / year_ago - 1.0
    by_department = np.zeros((store.department.max() + 1, n + 1))
    np.add.at(by_department, store.department, total)
    week = 1.0 + mean(1, 7, by_department)
    for name, before in (("long", mean(1, 91, by_department)), ("year", mean(365, 7, by_department))):
        yield f"department_{name}_trend", (week / (1.0 + before) - 1.0)[:, store.department]


def _calendar(date: Array) -> Iterator[tuple[str, Array]]:
    """Where a day lies in its week, month and year, as points of circles; each (days, 1)."""
    months = date.astype("datetime64[M]")
    weekday = (date.astype(np.int64) + 3) % 7  # 1970-01-01 was a Thursday
    of_month = (date - months).astype(np.int64)
    of_year = (date - date.astype("datetime64[Y]")).astype(np.int64)
    circles = {"weekday": (weekday, 7), "day": (of_month, 31), "week": (of_year // 7, 53)}
    circles["month"] = (months.astype(np.int64) % 12, 12)
    for name, (place, period) in circles.items():
        angle = 2.0 * np.pi * place[:, None] / period
        yield f"{name}_sin", np.sin(angle)
        yield f"{name}_cos", np.cos(angle)


def _prices(price: Array, department: Array) -> Iterator[tuple[str, Array]]:
    """Of each item and day; each (items, days), anything on days without a price."""
    known = ~np.isnan(price)
    filled = np.where(known, price, 0.0).astype(np.float64)
    yield "price", price
    days = np.cumsum(known, axis=1)
    yield "days_on_sale", days
    before = np.cumsum(filled, axis=1) - filled
    usual = np.divide(before, days - known, out=filled.copy(), where=days > known)
    with np.errstate(divide="ignore", invalid="ignore"):
        yield "price_to_usual", filled / usual
        last_week = np.concatenate([price[:, :7], price[:, :-7]], axis=1)
        yield "price_change", np.where(np.isnan(last_week), 0.0, price / last_week - 1.0)
        sums, counts = np.zeros((2, department.max() + 1, price.shape[1]))
        np.add.at(sums, department, filled)
        np.add.at(counts, department, known)
        yield "price_to_department", filled / (sums / counts)[department]
