"""Groups of conformalize in every way to predict, and through all that may happen to the model afterwards."""

from __future__ import annotations

import copy
import datetime
import pickle

import numpy as np
import pandas as pd
import pytest

from pgbm_plugin import load, wrap
from pgbm_plugin.scores import coverage
from tests.calibration.conformalized import train
from tests.calibration.test_groups import NOISE, grouped

# All observations of groups are of rows whose noise is larger by this factor.
LOUDER = 3.0


@pytest.fixture(scope="module")
def trained():
    return train(*grouped(600, 0)[:2])


@pytest.fixture
def model(trained):
    return copy.copy(trained)


@pytest.fixture
def by_shop(model):
    X, y, shop = grouped(1200, 1)
    return model.conformalize(X, y, groups=shop)


def louder(model, n, seed):
    X, y, shop = grouped(n, seed)
    mean = model.predict(X)
    return X, mean + LOUDER * (y - mean), shop


def test_frames(by_shop):
    X, _, shop = grouped(50, 3)
    frame = by_shop.predict_frame(pd.DataFrame(X), intervals=[0.9], groups=shop)
    expected = by_shop.predict_interval(X, groups=shop)
    assert np.array_equal(frame[["lower90", "upper90"]], expected)
    with pytest.raises(ValueError, match="give the group of each row"):
        by_shop.predict_frame(X)


def test_no_rows(by_shop):
    X, _, shop = grouped(5, 3)
    assert by_shop.predict_interval(X[:0], groups=shop[:0]).shape == (0, 2)
    assert by_shop.predict_interval(X[:0], groups=[]).shape == (0, 2)


def test_regressors(model):
    sklearn = pytest.importorskip("pgbm_plugin.sklearn")
    pipelines = pytest.importorskip("sklearn.pipeline")
    from lightgbm import LGBMRegressor
    from sklearn.preprocessing import StandardScaler

    X, y, shop = grouped(1200, 1)
    regressor = sklearn.PGBMRegressor(LGBMRegressor(n_estimators=10, num_leaves=8, n_jobs=1, verbose=-1), cv=None)
    pipeline = pipelines.make_pipeline(StandardScaler(), regressor).fit(*grouped(600, 0)[:2])
    own, scaled = pipeline[-1], pipeline[:-1].transform(X)
    own.model_.conformalize(scaled, y, groups=shop)
    expected = own.model_.predict_interval(scaled, groups=shop)
    assert np.array_equal(own.predict_interval(scaled, groups=shop), expected)
    assert np.array_equal(own.predict_quantiles(scaled, [0.05, 0.95], groups=shop), expected)
    assert np.array_equal(own.predict_dist(scaled, groups=shop).ppf([0.05, 0.95]), expected)
    assert np.array_equal(own.predict(scaled, return_std=True, groups=shop)[0], own.predict(scaled))
    assert np.array_equal(pipeline.predict(X, coverage=0.9, groups=shop), expected)
    with pytest.raises(ValueError, match="give the group of each row"):
        own.predict_interval(scaled)


def test_a_transformed_target():
    """Every group holds on the scale of the outcome."""
    compose = pytest.importorskip("sklearn.compose")
    from lightgbm import LGBMRegressor

    def positive(n, seed):
        X, y, shop = grouped(n, seed)
        return X, np.exp(0.3 * y), shop

    X, y, _ = positive(600, 0)
    booster = LGBMRegressor(n_estimators=20, num_leaves=8, n_jobs=1, verbose=-1)
    model = wrap(compose.TransformedTargetRegressor(booster, func=np.log, inverse_func=np.exp).fit(X, y), X, y)
    X, y, shop = positive(3000, 1)
    model.conformalize(X, y, groups=shop)
    X, y, shop = positive(3000, 2)
    interval = model.predict_interval(X, groups=shop)
    assert interval.min() > 0.0
    # with a thousand calibration rows in a group, its coverage is known to three points, at five standard deviations
    assert np.all(np.abs(coverage(y, interval, groups=shop).cover - 0.9) < 0.1)
    assert not coverage(y, interval, groups=shop, calibration_rows=600).outside().any()


def test_dask_columns(by_shop):
    """Collections are read into memory, like those of the rows."""
    dask = pytest.importorskip("dask.array")
    X, y, shop = grouped(1200, 1)
    code = np.unique(shop, return_inverse=True)[1]
    expected = copy.copy(by_shop).conformalize(X, y, groups=code).predict_interval(X, groups=code)
    lazy = dask.from_array(code, chunks=500)
    by_shop.conformalize(dask.from_array(X, chunks=(500, 3)), dask.from_array(y, chunks=500), groups=lazy)
    assert np.array_equal(by_shop.predict_interval(X, groups=lazy), expected)
    assert np.array_equal(coverage(y, expected, groups=lazy).cover, coverage(y, expected, groups=code).cover)


def test_dask_predictions_are_refused(by_shop):
    dask = pytest.importorskip("dask.array")
    from pgbm_plugin.dask import DaskModel

    X = dask.from_array(grouped(20, 3)[0], chunks=(10, 3))
    with pytest.raises(ValueError, match="predictions of Dask collections take none: predict one partition"):
        DaskModel(by_shop).predict_interval(X)
    DaskModel(by_shop).predict(X).compute()  # the mean does not depend on the group


KEYS = {
    "unicode": ["Zürich", "東京", "ß\t\n"],
    "dates": [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2), datetime.date(2024, 1, 3)],
    "times": list(pd.date_range("2024-01-01 12:30", periods=3, freq="h", tz="Europe/Zurich")),
    "numbers": [0.5, -np.inf, 1e300],
    "empty text": ["", " ", "a"],
    "periods": list(pd.period_range("2024-01", periods=3, freq="M")),
    "bins": list(pd.IntervalIndex.from_breaks([0, 1, 2, 3])),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_any_kind(kind, model, tmp_path):
    """As a list, in a series, as categories and in a file, the groups are those of plain numbers."""
    X, y, shop = grouped(1200, 1)
    code = np.unique(shop, return_inverse=True)[1]
    expected = copy.copy(model).conformalize(X, y, groups=code).predict_interval(X, groups=code)
    keys = [KEYS[kind][k] for k in code]
    model.conformalize(X, y, groups=keys)
    model.save(tmp_path / "m.pgbm")
    for again in (model, load(tmp_path / "m.pgbm")):
        for column in (keys, pd.Series(keys), pd.Series(keys, index=code).astype("category")):
            assert np.array_equal(again.predict_interval(X, groups=column), expected)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_columns_of_other_libraries(library, by_shop):
    module = pytest.importorskip(library)
    X, _, shop = grouped(60, 3)
    expected = by_shop.predict_interval(X, groups=shop)
    if library == "polars":
        text, missing = module.Series(shop), module.Series([None, *shop[1:]])
        categories = text.cast(module.Categorical)
    else:
        text, missing = module.chunked_array([shop[:20], shop[20:]]), module.array([None, *shop[1:]])
        categories = text.dictionary_encode()
    assert np.array_equal(by_shop.predict_interval(X, groups=text), expected)
    assert np.array_equal(by_shop.predict_interval(X, groups=categories), expected)
    with pytest.raises(ValueError, match=r"1 missing keys \(first at row 0\)"):
        by_shop.predict_interval(X, groups=missing)


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        (lambda shop: pd.DataFrame({"shop": shop, "day": shop}), ValueError),
        (lambda shop: np.stack([shop, shop], 1), ValueError),
        (lambda shop: [shop, shop], ValueError),
        (lambda shop: {"shop": shop, "day": shop}, TypeError),
    ],
)
def test_several_columns_that_are_no_tuple(columns, error, by_shop):
    X, _, shop = grouped(60, 3)
    with pytest.raises(error, match="for the combination of several columns, give a tuple of them"):
        by_shop.predict_interval(X, groups=columns(shop))
    with pytest.raises(ValueError, match=r"groups\[1\] has 7 keys, X has 60 rows"):
        by_shop.predict_interval(X, groups=(shop, shop[:7]))


def test_a_tuple_of_keys(by_shop):
    X, _, shop = grouped(60, 3)
    with pytest.raises(TypeError, match="a tuple stands for several columns: give the keys of the rows as a list"):
        by_shop.predict_interval(X, groups=tuple(shop.tolist()))


def test_observed_groups_hold(by_shop, tmp_path):
    """One map moves all groups; they keep their differences, and hold again after the noise has tripled."""
    X, y, shop = grouped(300, 3)
    before = by_shop.predict_interval(X, groups=shop)
    for seed in range(40):
        batch = louder(by_shop, 100, 100 + seed)
        by_shop.observe(*batch[:2], groups=batch[2])
    assert by_shop.observed.rows == 4000
    after = by_shop.predict_interval(X, groups=shop)
    assert np.all(np.diff(by_shop.predict_quantiles(X, [0.05, 0.25, 0.5, 0.75, 0.95], groups=shop)) > 0.0)
    by_shop.save(tmp_path / "m.pgbm")
    for again in (load(tmp_path / "m.pgbm"), pickle.loads(pickle.dumps(by_shop))):  # noqa: S301
        assert np.array_equal(again.predict_interval(X, groups=shop), after)
    width = {name: np.diff(after)[shop == name].mean() for name in NOISE}
    assert np.median(np.diff(after) / np.diff(before)) > 2.0
    assert 2.0 * width["calm"] < width["usual"] < 0.5 * width["wild"]
    X, y, shop = louder(by_shop, 4000, 4)
    found = coverage(y, by_shop.predict_interval(X, groups=shop), groups=shop)
    assert np.all(found.cover > 0.8), found


def test_observed_rows_need_their_groups(by_shop, model):
    X, y, shop = grouped(60, 3)
    state = by_shop.state
    with pytest.raises(ValueError, match="give the group of each row"):
        by_shop.observe(X, y)
    with pytest.raises(ValueError, match="groups has 59 keys, X has 60 rows"):
        by_shop.observe(X, y, groups=shop[1:])
    assert by_shop.state is state
    with pytest.warns(UserWarning, match=r"saw no row of 1 of 1 groups \('new'\); it saw '\w+', '\w+', '\w+':"):
        by_shop.observe(X, y, groups=["new"] * 60)
    model.conformalize(*grouped(300, 4)[:2])
    with pytest.raises(ValueError, match="conformalize got no groups"):
        model.observe(X, y, groups=shop)


@pytest.mark.parametrize("by", ["mean", "spread"])
def test_bins_that_are_observed_and_updated(by, model):
    """Bins of the spread follow its unit: otherwise, all rows would fall into the widest one."""
    X, y, _ = grouped(1200, 1)
    model.conformalize(X, y, groups=by).observe(*louder(model, 200, 5)[:2])
    edges, spread = model.chosen.conformal.groups.edges, np.median(model.predict_dist(X, "normal").std())
    model.update(*louder(model, 2000, 6)[:2], decay=0.0)
    wider = np.median(model.predict_dist(X, "normal").std()) / spread
    assert wider > 2.0
    moved = model.chosen.conformal.groups.edges / edges
    np.testing.assert_allclose(moved, 1.0 if by == "mean" else wider, rtol=0.0 if by == "mean" else 0.3)
    assert len(np.unique(model.predict_dist(X).params["bin"])) > 3


def test_update_keeps_observed_groups(by_shop):
    X, y, shop = grouped(300, 3)
    by_shop.observe(X, y, groups=shop).update(*grouped(600, 7)[:2])
    assert by_shop.chosen.conformal.groups is not None
    assert by_shop.predict_interval(X, groups=shop).shape == (300, 2)
    by_shop.observe(*grouped(50, 8)[:2], groups=grouped(50, 8)[2])
