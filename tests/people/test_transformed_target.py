"""Models inside a TransformedTargetRegressor: distributions of the outcome, mapped from those of the booster."""

from __future__ import annotations

import pickle

import lightgbm as lgb
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PowerTransformer, QuantileTransformer, StandardScaler

from pgbm_plugin import load, out_of_fold, wrap
from tests.people.regressors import REGRESSORS

TRANSFORMS = {
    "log1p": {"func": np.log1p, "inverse_func": np.expm1},
    "sqrt": {"func": np.sqrt, "inverse_func": np.square},
    "falling": {"func": np.reciprocal, "inverse_func": np.reciprocal},
    "scaled": {"transformer": StandardScaler()},
    "yeo-johnson": {"transformer": PowerTransformer()},
    "box-cox": {"transformer": PowerTransformer("box-cox")},
    "quantiles": {"transformer": QuantileTransformer(n_quantiles=50, output_distribution="normal")},
    "two": {"transformer": make_pipeline(FunctionTransformer(np.log, np.exp), StandardScaler())},
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    return X, np.exp(0.5 * X[:, 0] + (0.1 + 0.1 * (X[:, 1] > 0)) * rng.normal(size=400))


def make_regressor():
    return clone(REGRESSORS["lightgbm"])  # what a transform does depends on no booster


def around(regressor, transform):
    return TransformedTargetRegressor(regressor, **transform, check_inverse=False)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_distributions_against_samples(name, rows):
    X, y = rows
    target = around(make_regressor(), TRANSFORMS[name]).fit(X, y)
    model = wrap(target, X, y)
    assert model.certificate.status == "certified"
    assert np.array_equal(model.predict(X), target.predict(X))
    z = target.transformer_.transform(y.reshape(-1, 1))[:, 0]
    plain = wrap(target.regressor_, X, z)
    model.rho = plain.rho = 0.0
    d, inner = model.predict_dist(X[:40]), plain.predict_dist(X[:40])

    def mapped(values):
        flat = target.transformer_.inverse_transform(np.reshape(values, (-1, 1)))
        return np.sort(flat.reshape(np.shape(values)), axis=-1)

    levels = [0.05, 0.3, 0.5, 0.95]
    ends = inner.ppf([1 - q for q in levels] if falling(target) else levels)
    np.testing.assert_allclose(d.ppf(levels), mapped(ends), rtol=1e-9)
    np.testing.assert_allclose(model.predict_interval(X[:40]), d.ppf([0.05, 0.95]), rtol=1e-9)
    np.testing.assert_allclose(d.cdf(d.ppf(levels)), np.tile(levels, (40, 1)), atol=1e-7)
    np.testing.assert_allclose(d.sf(d.ppf(levels)), 1 - np.tile(levels, (40, 1)), atol=1e-7)
    samples = d.rvs(4_000, random_state=0)
    # the reciprocal of a normal has no mean: there the standard deviation is infinite, or as large as the tail says
    some = d.std() < np.diff(d.ppf([0.05, 0.95]))[:, 0]
    assert some.all() or falling(target)
    samples, d_, std = samples[some], d[some], d.std()[some]
    np.testing.assert_allclose(samples.mean(axis=1), d_.mean(), atol=0.08 * std.max())
    np.testing.assert_allclose(samples.std(axis=1), std, rtol=0.12)
    distance = np.abs(samples - y[:40][some, None]).mean(axis=1)
    weight = (2 * np.arange(4_000) - 3_999.0) / 4_000**2
    expected = distance - np.sort(samples, axis=1) @ weight
    np.testing.assert_allclose(d_.crps(y[:40][some]), expected, rtol=0.1, atol=0.05 * std.mean())
    middle = d.ppf([0.499, 0.501])
    slope = (d.cdf(middle[:, 1]) - d.cdf(middle[:, 0])) / (middle[:, 1] - middle[:, 0])
    if not isinstance(target.transformer_, QuantileTransformer):  # whose density is a staircase
        np.testing.assert_allclose(d.pdf(d.median()), slope, rtol=1e-3)


def falling(target):
    return target.func is np.reciprocal


@pytest.mark.parametrize("name", ["log1p", "two"])
def test_tune_conformalize_and_folds(name, rows, tmp_path):
    X, y = rows
    inside = make_pipeline(StandardScaler(), make_regressor())
    pipeline = make_pipeline(StandardScaler(), around(inside, TRANSFORMS[name]))
    cv = KFold(3)
    expected = cross_val_predict(pipeline, X, y, cv=cv)
    pipeline.fit(X, y)
    np.testing.assert_allclose(out_of_fold(pipeline, X, y, cv=cv), expected, rtol=1e-6)
    model = wrap(pipeline, X, y, cv=cv, variance="pgbm")
    by_hand = wrap(pipeline, X, y, variance="pgbm")
    by_hand.tune(X, y, out_of_fold=expected)
    np.testing.assert_allclose(model.predict_interval(X), by_hand.predict_interval(X), rtol=1e-6)
    low, high = model.predict_interval(X).T
    assert np.mean((low <= y) & (y <= high)) > 0.85
    rng = np.random.default_rng(1)
    X_cal = rng.normal(size=(200, 3))
    y_cal = np.exp(0.5 * X_cal[:, 0] + 0.2 * rng.normal(size=200))
    model.conformalize(X_cal, y_cal, lower=y_cal.min() / 10)
    low, high = model.predict_interval(X_cal, 0.8).T
    assert 0.8 <= np.mean((low <= y_cal) & (y_cal <= high)) <= 0.85  # on these rows themselves, by their ranks
    again = pickle.loads(pickle.dumps(model))  # noqa: S301
    assert np.array_equal(again.predict_quantiles(X, [0.1, 0.9]), model.predict_quantiles(X, [0.1, 0.9]))
    model.save(tmp_path / "model.pgbm")
    with pytest.raises(ValueError, match="the outcome through"):
        load(tmp_path / "model.pgbm")
    loaded = load(tmp_path / "model.pgbm", around=pipeline)
    assert np.array_equal(loaded.predict_quantiles(X, [0.1, 0.9]), model.predict_quantiles(X, [0.1, 0.9]))


def test_labels_keep_their_precision(regressor, rows):
    X, y = rows
    for labels in (y.astype(np.float32), y.tolist()):
        target = around(regressor, TRANSFORMS["log1p"]).fit(X, labels)
        model = wrap(GridSearchCV(target, {}, cv=2).fit(X, labels), X, labels)
        assert model.certificate.status == "certified"
        assert model.predict(X).tobytes() == target.predict(X).tobytes()


def test_batches_and_updates(regressor, rows):
    X, y = rows
    target = around(regressor, TRANSFORMS["log1p"]).fit(X, y)
    model = wrap(target, ((X[i : i + 100], y[i : i + 100]) for i in range(0, 400, 100)))
    assert model.certificate.status == "certified"
    at_once = wrap(target, X, y)
    for one in (model, at_once):
        one.rho = 0.1
        one.update(X[:50], y[:50] * 1.1)
    np.testing.assert_allclose(model.predict_var(X), at_once.predict_var(X), rtol=1e-6)


def test_bounds(rows):
    X, y = rows
    for name in ("log1p", "falling"):
        target = around(lgb.LGBMRegressor(n_estimators=5, verbose=-1), TRANSFORMS[name]).fit(X, y)
        model = wrap(target, X, y)
        model.tune(X, y, out_of_fold=y * np.exp(np.sin(np.arange(400))), distributions="normal", lower=0.1, upper=6.5)
        with pytest.raises(ValueError, match=r"labels are above the bound 1 "):
            model.conformalize(X, y, upper=1.0)
        d = model.predict_dist(X)
        samples = d.rvs(2_000, random_state=0)
        np.testing.assert_allclose([samples.min(), samples.max()], [0.1, 6.5])
        on_bound = np.isclose(samples, 0.1).mean(axis=1)
        np.testing.assert_allclose(d.cdf(0.1), on_bound, atol=0.05)
        np.testing.assert_allclose(samples.mean(axis=1), d.mean(), atol=0.3)
        with pytest.raises(NotImplementedError, match="score it with crps"):
            d.pdf(1.0)


@pytest.mark.parametrize(
    ("func", "inverse_func", "labels", "match"),
    [
        (np.abs, np.abs, "both", "not monotone over these labels"),
        (np.square, np.sqrt, "both", "not monotone over these labels"),
        (np.sin, np.arcsin, "positive", "the transform of the target, sin, "),
        (np.log, np.log1p, "positive", "does not give back the outcomes"),
    ],
)
def test_transforms_that_are_not_monotone(func, inverse_func, labels, match, rows):
    X, y = rows
    y = y - y.mean() if labels == "both" else y
    regressor = lgb.LGBMRegressor(n_estimators=5, verbose=-1)
    target = around(regressor, {"func": func, "inverse_func": inverse_func}).fit(X, y)
    with pytest.raises(ValueError, match=match):
        wrap(target, X, y)


@pytest.mark.parametrize("name", ["log1p", "two"])
def test_totals_against_joint_samples(name, rows):
    X, y = rows
    target = around(make_regressor(), TRANSFORMS[name]).fit(X, y)
    model = wrap(target, X, y)
    model.tune(X, y, out_of_fold=np.roll(y, 7), distributions="normal", variance="pgbm")
    day = np.arange(400) // 20
    model.correlate(X, y, levels={"day": day}, out_of_fold=np.roll(y, 7))
    total = model.predict_total(X, day, levels={"day": day})
    draws = model.sample(X, 4000, levels={"day": day}, random_state=0)
    sums = np.stack([draws[day == group].sum(axis=0) for group in total.groups])
    error = total.std() / np.sqrt(4000)
    assert np.all(np.abs(total.mean() - sums.mean(axis=1)) < 5.0 * error)
    assert np.all(model.predict(X[day == 0]).sum() < sums[0].mean() - 5.0 * error[0])  # predictions are no means


def test_labels_without_a_value(rows):
    X, y = rows
    target = around(lgb.LGBMRegressor(n_estimators=5, verbose=-1), {"func": np.log, "inverse_func": np.exp}).fit(X, y)
    model = wrap(target, X, y)
    with pytest.raises(ValueError, match=r"2 labels have no value under .* log \(first at row 3"):
        model.tune(X, np.where(np.isin(np.arange(400), [3, 7]), -1.0, y))


def test_labels_out_of_reach(rows):
    X, y = rows
    target = around(lgb.LGBMRegressor(n_estimators=5, verbose=-1), TRANSFORMS["quantiles"]).fit(X, y)
    model = wrap(target, X, y)
    with pytest.warns(UserWarning, match="1 labels lie beyond the outcomes that .* QuantileTransformer, can reach"):
        model.tune(X, np.append(y[1:], 20.0), out_of_fold=np.roll(y, 7), distributions="normal")


def test_a_model_that_predicts_one_number(rows):
    """Its predictions have no range, but the transform must hold for all labels."""
    X, y = rows
    target = around(lgb.LGBMRegressor(n_estimators=2, learning_rate=1e-9, verbose=-1), TRANSFORMS["log1p"]).fit(X, y)
    model = wrap(target, X, y)
    model.tune(X, y, out_of_fold=np.roll(y, 7), distributions="normal", variance="boosted")
    low, high = model.predict_interval(X, 0.9).T
    assert np.mean((low <= y) & (y <= high)) > 0.8


def test_data_sets_need_labels_of_the_outcome(rows):
    X, y = rows
    target = around(lgb.LGBMRegressor(n_estimators=2, verbose=-1), TRANSFORMS["log1p"]).fit(X, y)
    with pytest.raises(TypeError, match="a transformed target needs y="):
        wrap(target, lgb.Dataset(X, np.log1p(y), free_raw_data=False))


def test_unfitted(regressor):
    with pytest.raises(ValueError, match="this TransformedTargetRegressor has no regressor_: call fit first"):
        wrap(around(clone(regressor), TRANSFORMS["log1p"]), np.ones((5, 1)), np.ones(5))


def test_totals_through_steps_and_a_transform_hold():
    """Steps around a target that is fitted as a logarithm: new days of rows that err together, and joint samples."""
    rng, size = np.random.default_rng(3), 20

    def of_days(days):
        X = rng.normal(size=(days * size, 3))
        common = np.repeat(rng.normal(size=days), size)
        return X, np.exp(1.0 + 0.5 * X[:, 0] + 0.2 * common + 0.2 * rng.normal(size=len(X))), np.arange(len(X)) // size

    (X, y, _), (X_val, y_val, day_val), (X_new, y_new, day) = of_days(60), of_days(150), of_days(300)
    pipeline = make_pipeline(StandardScaler(), around(make_regressor(), TRANSFORMS["log1p"])).fit(X, y)
    model = wrap(pipeline, X, y)
    model.tune(X_val, y_val)
    joint = model.correlate(X_val, y_val, levels={"day": day_val})
    assert abs(joint.r[0] - 0.5) < 4.0 * joint.standard_error[0] + 0.1  # the trees leave errors of their own
    totals = np.bincount(day, y_new)
    low, high = model.predict_total(X_new, day, levels={"day": day}).interval(0.9)
    assert 0.8 < np.mean((low <= totals) & (totals <= high)) < 0.97
    sums = np.apply_along_axis(lambda draw: np.bincount(day, draw), 0, model.sample(X_new, 200, levels={"day": day}))
    low, high = np.quantile(sums, [0.05, 0.95], axis=1)
    assert 0.8 < np.mean((low <= totals) & (totals <= high)) < 0.97
    alone = model.sample(X_new, 200, levels={"day": np.arange(len(day))})  # no two rows share a day
    low, high = np.quantile(np.apply_along_axis(lambda draw: np.bincount(day, draw), 0, alone), [0.05, 0.95], axis=1)
    assert np.mean((low <= totals) & (totals <= high)) < 0.7
