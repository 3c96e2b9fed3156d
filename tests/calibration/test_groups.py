"""Conformal quantiles of groups: the coverage holds in every group, as often as exchangeability says."""

from __future__ import annotations

import copy
import datetime
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pgbm_plugin import load
from pgbm_plugin.calibration.groups import FEWEST
from pgbm_plugin.distributions import Conformal
from pgbm_plugin.predict.conformal_groups import ConformalGroups
from pgbm_plugin.scores import coverage
from tests.calibration.conformalized import data, train

SPLITS, ALARM = 200, 1e-6
NOISE = {"calm": 0.3, "usual": 1.0, "wild": 4.0}


def grouped(n, seed):
    """Rows of three groups, whose errors the model cannot tell apart, because no feature names the group."""
    X, y = data(n, seed)
    shop = np.random.default_rng(seed + 100).choice(list(NOISE), n, p=[0.5, 0.3, 0.2])
    return X, 2 * X[:, 0] + (y - 2 * X[:, 0]) * np.vectorize(NOISE.get)(shop), shop


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


def resampled(trained, groups_of, new_groups):
    """Yield (cover by rows, groups of the new rows, sizes of the groups' samples), split by split.

    The rows pass through the trees anew in each, but these are few: a hundred splits take seconds.
    """
    X, y, shop = grouped(2400, 2)
    rng = np.random.default_rng(0)
    for _ in range(SPLITS):
        order = rng.permutation(len(y))
        cal, new = order[:800], order[800:]
        model = copy.copy(trained).conformalize(X[cal], y[cal], groups=groups_of(shop[cal]))
        told = {} if new_groups is None else {"groups": shop[new]}
        d = model.predict_dist(X[new], **told)
        low, high = d.interval(0.9)
        yield (low <= y[new]) & (y[new] <= high), shop[new], d.sample_size(), d


def test_every_group_holds_inside_its_exact_band(trained):
    """Over all splits, the standardised excess over the law of the ranks is standard normal, group by group."""
    total = dict.fromkeys(NOISE, 0.0)
    variance = dict.fromkeys(NOISE, 0.0)
    for inside, shop, behind, _ in resampled(trained, lambda shop: shop, True):
        for name in NOISE:
            rows = shop == name
            (m,) = np.unique(behind[rows])
            gaps = np.ceil((m + 1) * 0.95 - 1e-9) - np.floor((m + 1) * 0.05 + 1e-9)
            law = stats.betabinom(rows.sum(), gaps, m + 1 - gaps)
            total[name] += inside[rows].sum() - law.mean()
            variance[name] += law.var()
    for name in NOISE:
        assert abs(total[name]) < stats.norm.isf(ALARM / 2) * np.sqrt(variance[name]), name


def test_without_groups_the_wild_ones_do_not_hold(model):
    """What the above would see if nothing were done."""
    X, y, shop = grouped(2400, 2)
    model.conformalize(X[:800], y[:800])
    found = coverage(y[800:], model.predict_interval(X[800:]), groups=shop[800:], calibration_rows=800)
    assert found.groups[0] == "wild"
    assert found.outside().tolist() == [-1, *found.outside()[1:]]
    assert found.cover[0] < 0.75


@pytest.mark.parametrize("by", ["mean", "spread"])
def test_bins_of_the_prediction_hold(trained, by):
    """In each bin, over all splits. Predictions that are equal may leave fewer than 8 bins."""
    excess, variance = np.zeros((2, 8))
    for inside, _, behind, d in resampled(trained, lambda shop: by, None):
        bins = d.params["bin"].astype(int)
        assert 4 <= len(np.unique(bins)) <= 8
        for k in np.unique(bins):
            rows = bins == k
            m = behind[rows][0]
            gaps = np.ceil((m + 1) * 0.95 - 1e-9) - np.floor((m + 1) * 0.05 + 1e-9)
            law = stats.betabinom(rows.sum(), gaps, m + 1 - gaps)
            excess[k] += inside[rows].sum() - law.mean()
            variance[k] += law.var()
    assert np.all(np.abs(excess) <= stats.norm.isf(ALARM / 2) * np.sqrt(variance))  # the eighth may be absent


def test_a_group_has_the_quantiles_of_its_own_rows(model):
    X, y, shop = grouped(1200, 1)
    new = grouped(50, 3)[0]
    by_shop = copy.copy(model).conformalize(X, y, groups=shop)
    for name in NOISE:
        alone = copy.copy(model).conformalize(X[shop == name], y[shop == name])
        assert np.array_equal(by_shop.predict_interval(new, groups=[name] * 50), alone.predict_interval(new))
    assert by_shop.predict_dist(new, groups=["wild"] * 50).observed == 1200


@pytest.mark.parametrize("weighted", [False, True])
def test_small_and_new_groups_have_the_quantiles_of_all_rows(weighted, model):
    X, y, shop = grouped(1200, 1)
    weight = np.random.default_rng(0).uniform(0.5, 1.5, 1200) if weighted else None
    shop = np.where(np.cumsum(shop == "wild") > FEWEST - 1, shop, np.where(shop == "wild", "small", shop))
    new, plain = grouped(6, 3)[0], copy.copy(model).conformalize(X, y, sample_weight=weight)
    with pytest.warns(UserWarning, match=r"fewer than 100 calibration rows are in 1 of 4 groups \('small'\)"):
        model.conformalize(X, y, groups=shop, sample_weight=weight)
    with pytest.warns(UserWarning, match=r"saw no row of 2 of 3 groups \('new', 'other'\)") as told:
        found = model.predict_interval(new, groups=["small", "new", "other"] * 2)
    assert np.array_equal(found, plain.predict_interval(new))
    model.predict_interval(new, groups=["another"] * 6)  # told once, and the test fails at warnings
    assert len(told) == 1
    assert not np.array_equal(model.predict_interval(new, groups=["wild"] * 6), found)


def test_uneven_weights_count_as_fewer_rows(model):
    X, y, shop = grouped(1200, 1)
    weight = np.where(np.arange(1200) % 20, 0.01, 10.0)
    with pytest.warns(UserWarning, match="in 3 of 3 groups"):
        model.conformalize(X, y, groups=shop, sample_weight=weight)
    assert not model.chosen.conformal.groups.own.any()


def test_a_warning_that_is_an_error_is_told_again(by_shop):
    new = grouped(5, 3)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(UserWarning, match="saw no row of"):
                by_shop.predict_interval(new, groups=["new"] * 5)


@pytest.mark.parametrize(
    "other",
    [
        lambda code: code.astype(float),
        lambda code: code.astype(str),
        lambda code: pd.Series(code).astype("category"),
        lambda code: code.tolist(),
        lambda code: code.reshape(-1, 1),
    ],
)
def test_keys_are_compared_as_text(other, model):
    X, y, shop = grouped(1200, 1)
    code = np.unique(shop, return_inverse=True)[1]
    model.conformalize(X, y, groups=code)
    assert np.array_equal(model.predict_interval(X, groups=other(code)), model.predict_interval(X, groups=code))


def test_dates_and_combinations(model):
    X, y, shop = grouped(1200, 1)
    day = np.array(["2024-01-30", "2024-01-31"], "M8[ns]")[np.arange(1200) % 2]
    model.conformalize(X, y, groups=(day, shop == "wild"))
    assert model.chosen.conformal.groups.keys[0] == ("2024-01-30", str(shop[0] == "wild"))
    expected = model.predict_interval(X, groups=(day, shop == "wild"))
    dates = [datetime.date(2024, 1, 30), datetime.date(2024, 1, 31)] * 600
    assert np.array_equal(model.predict_interval(X, groups=(dates, shop == "wild")), expected)
    assert np.array_equal(model.predict_interval(X, groups=(day.astype("M8[D]").astype(str), shop == "wild")), expected)
    with pytest.raises(ValueError, match="groups has 1 column of keys, and those of conformalize had 2 columns"):
        model.predict_interval(X, groups=day)


def test_methods_agree(by_shop):
    X, y, shop = grouped(100, 3)
    d = by_shop.predict_dist(X, groups=shop)
    assert isinstance(d, Conformal)
    assert np.array_equal(by_shop.predict_interval(X, 0.8, groups=shop), np.stack(d.interval(0.8), 1))
    assert np.array_equal(by_shop.predict_quantiles(X, [0.1, 0.9], groups=shop), d.ppf([0.1, 0.9]))
    assert np.array_equal(by_shop.predict_var(X, groups=shop), d.var())
    mean, std = by_shop.predict(X, return_std=True, groups=shop)
    assert np.array_equal(mean, by_shop.predict(X))
    assert np.array_equal(std, d.std())
    assert np.array_equal(by_shop.predict_columns(X, intervals=[0.8], groups=shop)["lower80"], d.interval(0.8)[0])
    assert np.array_equal(by_shop.predict_frame(X, intervals=[0.8], groups=shop)["lower80"], d.interval(0.8)[0])
    assert np.array_equal(d[7:9].ppf(0.9), d.ppf(0.9)[7:9])
    single = [by_shop.predict_dist(X[[k]], groups=shop[[k]]).crps(y[k])[0] for k in range(20)]
    np.testing.assert_allclose(single, d.crps(y)[:20], rtol=1e-12)
    again = pickle.loads(pickle.dumps(by_shop))  # noqa: S301
    assert np.array_equal(again.predict_interval(X, groups=shop), np.stack(d.interval(0.9), 1))


def test_says_so(by_shop, model):
    assert "conformal on 1200 rows in 3 groups around normal" in repr(by_shop)
    X, y, _ = grouped(1200, 1)
    assert "bins of the predicted mean around normal" in repr(model.conformalize(X, y, groups="mean"))


def test_missing_groups_at_prediction(by_shop):
    X, _, shop = grouped(20, 3)
    for method in ("predict_dist", "predict_interval", "predict_var", "predict_columns", "predict_frame"):
        with pytest.raises(ValueError, match=r"give the group of each row, groups=, or call model\.conformalize again"):
            getattr(by_shop, method)(X)
    with pytest.raises(ValueError, match="give the group of each row"):
        by_shop.predict_dist(iter([X]))
    with pytest.raises(TypeError, match="groups belongs to one table"):
        by_shop.predict_dist(iter([X]), groups=shop)
    by_shop.predict(X)  # the mean does not depend on the group
    by_shop.predict_dist(X, "normal")
    with pytest.raises(ValueError, match="normal has no groups"):
        by_shop.predict_dist(X, "normal", groups=shop)


def test_groups_of_no_use(model):
    X, y, shop = grouped(1200, 1)
    with pytest.raises(ValueError, match="normal has no groups"):
        model.predict_interval(X, groups=shop)
    model.conformalize(X, y)
    with pytest.raises(ValueError, match="conformalize got no groups"):
        model.predict_interval(X, groups=shop)
    model.conformalize(X, y, groups="mean")
    with pytest.raises(ValueError, match="bins of the predicted mean: leave groups= out"):
        model.predict_interval(X, groups=shop)


@pytest.mark.parametrize(
    ("groups", "error", "match"),
    [
        (["a"] * 7, ValueError, "groups has 7 keys, X has 1200 rows"),
        ([None] * 1200, ValueError, "groups has 1200 missing keys"),
        (np.where(np.arange(1200) == 5, np.nan, 1.0), ValueError, r"1 missing keys \(first at row 5\)"),
        ((), ValueError, "empty tuple"),
        ("shop", ValueError, "groups must be a column with the group of each row, 'mean' or 'spread', not 'shop'"),
        ([object()] * 1200, TypeError, "objects without a text"),
        ([[1]] * 1200, TypeError, "cannot be told apart"),
    ],
)
def test_bad_groups(groups, error, match, model):
    X, y, _ = grouped(1200, 1)
    with pytest.raises(error, match=match):
        model.conformalize(X, y, groups=groups)
    assert model.distribution == "normal"


def test_bad_groups_at_prediction(by_shop):
    X, _, shop = grouped(20, 3)
    with pytest.raises(ValueError, match="groups has 19 keys, X has 20 rows"):
        by_shop.predict_interval(X, groups=shop[1:])
    with pytest.raises(ValueError, match="missing keys"):
        by_shop.predict_interval(X, groups=[None, *shop[1:]])


def test_all_rows_in_one_group(model):
    X, y, _ = grouped(1200, 1)
    plain = copy.copy(model).conformalize(X, y).predict_interval(X)
    model.conformalize(X, y, groups=["here"] * 1200)
    assert np.array_equal(model.predict_interval(X, groups=["here"] * 1200), plain)


def test_groups_of_one_row(model):
    X, y, _ = grouped(1200, 1)
    plain = copy.copy(model).conformalize(X, y).predict_interval(X)
    with pytest.warns(UserWarning, match=r"in 1200 of 1200 groups \('0', '1', '2', '3', '4', \.\.\.\)"):
        model.conformalize(X, y, groups=np.arange(1200))
    assert np.array_equal(model.predict_interval(X, groups=np.arange(1200)), plain)


@pytest.mark.parametrize("by", ["mean", "spread"])
def test_too_few_rows_for_bins(by, model):
    X, y, _ = grouped(199, 1)
    plain = copy.copy(model).conformalize(X, y).predict_interval(X)
    with pytest.warns(UserWarning, match=f"199 calibration rows are one bin of the predicted {by}"):
        model.conformalize(X, y, groups=by)
    assert np.array_equal(model.predict_interval(X), plain)


def test_again_without_groups(by_shop):
    X, y, _ = grouped(300, 4)
    by_shop.conformalize(X, y)
    assert by_shop.chosen.conformal.groups is None
    by_shop.predict_interval(X)


def test_tune_and_update_discard_them(by_shop):
    X, y, _ = grouped(300, 4)
    tuned, updated = copy.copy(by_shop), copy.copy(by_shop)
    tuned.tune(X, y, distributions=["normal"], rho=0.0, variance="pgbm")
    tuned.predict_interval(X)
    updated.update(X, y)
    with pytest.raises(ValueError, match="update removed them"):
        updated.predict_interval(X)
    updated.conformalize(X, y).predict_interval(X)


def test_bins_of_tune_come_back(model):
    X, y, shop = grouped(1200, 1)
    model.tune(*grouped(900, 5)[:2], distributions="empirical(by='mean', bins=3)", rho=0.0)
    binned = copy.copy(model).conformalize(X, y).predict_interval(X)
    model.conformalize(X, y, groups=shop)
    assert model.chosen.residual_bin is None
    assert np.array_equal(model.conformalize(X, y).predict_interval(X), binned)


def test_rows_out_of_fold():
    """Rows without a prediction are left out, with their groups."""
    X, y, shop = grouped(600, 0)
    model = train(X, y)
    predicted = model.predict(X) + np.random.default_rng(0).normal(size=600)
    predicted[::7] = np.nan
    model.conformalize(X, y, out_of_fold=predicted, groups=np.where(np.arange(600) % 7, shop != "calm", 2))
    assert set(model.chosen.conformal.groups.keys) == {"0", "1"}  # and not "2"


@pytest.mark.filterwarnings("ignore:the rows that correlate got scatter")
def test_correlate_knows_no_groups(by_shop):
    X, y, shop = grouped(300, 4)
    with pytest.raises(ValueError, match=r"know no groups: first set model\.distribution = 'normal'"):
        by_shop.correlate(X, y, {"day": np.arange(300) // 10})
    by_shop.distribution = "normal"
    by_shop.correlate(X, y, {"day": np.arange(300) // 10})
    by_shop.predict_total(X, shop, {"day": np.arange(300) // 10})
    by_shop.conformalize(X, y, groups="mean")  # bins are found by the model
    by_shop.correlate(X, y, {"day": np.arange(300) // 10})


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_files(ending, by_shop, tmp_path):
    pytest.importorskip("pyarrow")
    import pyarrow.parquet

    X, _, shop = grouped(50, 3)
    table = pd.DataFrame(X, columns=["Column_0", "Column_1", "Column_2"]).assign(shop=shop)
    source = tmp_path / f"new.{ending}"
    table.to_csv(source, index=False) if ending == "csv" else table.to_parquet(source)
    by_shop.predict_parquet(source, tmp_path / "out.parquet", intervals=[0.9], groups="shop")
    found = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pandas()
    assert "shop" not in found
    np.testing.assert_allclose(
        found[["lower90", "upper90"]], by_shop.predict_interval(X, groups=shop), rtol=1e-12, atol=1e-12
    )
    with pytest.raises(ValueError, match="no column 'store'"):
        by_shop.predict_parquet(source, tmp_path / "out.parquet", groups="store")
    with pytest.raises(ValueError, match="give the group of each row"):
        by_shop.predict_parquet(source, tmp_path / "out.parquet")


CODE = np.array([0, 0, 1, 1, 1, 2], np.int32)
OWN = np.array([True, True, False])


@pytest.mark.parametrize(
    ("by", "changes", "match"),
    [
        ("key", {"code": CODE + 1}, "groups that do not exist"),
        ("key", {"code": CODE - 1}, "groups that do not exist"),
        ("key", {"own": ~OWN}, "fewer than two"),
        ("key", {"keys": ("a", "b")}, "other keys"),
        ("key", {"keys": ("a", "b", "a")}, "other keys"),
        ("key", {"keys": ("a", "b", ("c", "d"))}, "other keys"),
        ("key", {"edges": np.ones(2)}, "have keys, or edges"),
        ("key", {"keys": ()}, "have keys, or edges"),
        ("size", {}, "have keys, or edges"),
        ("mean", {"keys": ()}, "have keys, or edges"),
        ("mean", {"keys": (), "own": OWN[:2], "code": np.arange(6) // 3, "edges": np.ones(2)}, "other edges"),
        ("mean", {"keys": (), "edges": np.array([1.0, 0.0]), "code": CODE // 2, "own": OWN | True}, "fewer than two"),
    ],
)
def test_groups_that_contradict_themselves(by, changes, match):
    good = {"code": CODE, "own": OWN, "keys": ("a", "b", "c"), "edges": None}
    ConformalGroups("key", **good)
    with pytest.raises(ValueError, match=match):
        ConformalGroups(by, **(good | changes))


@pytest.mark.parametrize("columns", [1, 2])
def test_saved(columns, model, tmp_path):
    X, y, shop = grouped(1200, 1)
    groups = shop if columns == 1 else (shop == "wild", np.arange(1200) % 2)
    model.conformalize(X, y, groups=groups).save(tmp_path / "m.pgbm")
    again = load(tmp_path / "m.pgbm")
    assert repr(again) == repr(model)
    assert again.chosen.conformal.groups.keys == model.chosen.conformal.groups.keys
    assert np.array_equal(again.predict_interval(X, groups=groups), model.predict_interval(X, groups=groups))
    with pytest.raises(ValueError, match="give the group of each row"):
        again.predict_interval(X)
