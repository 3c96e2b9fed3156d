"""All boosters, every form, data kind, precision, objective and weighting: the package against the slow oracle."""

from __future__ import annotations

import math
import warnings
from itertools import combinations, product

import catboost as cb
import dask
import dask.array as da
import dask.dataframe as dd
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.ensemble import HistGradientBoostingRegressor

from pgbm_plugin import wrap
from tests import naive
from tests.boosters import catboost_models, histgradient
from tests.core.matrix import CATBOOST, HISTGRADIENT, KINDS, LIGHTGBM, XGBOOST
from tests.quiet import quiet_wrap
from tests.same import assert_same_model, assert_same_moments

RENEWED = ("regression_l1", "mape", "reg:absoluteerror", "absolute_error", "MAE")
FORMS = ("native", "sklearn", "file")
RATE, LAMBDA, TREES = 0.2, 0.7, 6


def all_pairs(*factors):
    """Cases of the full product that, between them, hold every pair of values of every two factors."""
    left = {pair for case in product(*factors) for pair in combinations(enumerate(case), 2)}
    while left:
        best = max(product(*factors), key=lambda case: len(left & set(combinations(enumerate(case), 2))))
        left -= set(combinations(enumerate(best), 2))
        yield pytest.param(*best, id="-".join(map(str, best)))


def cases(objectives, forms=FORMS, *factors):
    return list(all_pairs(objectives, KINDS, forms, ("float32", "float64"), ("weighted", "unweighted"), *factors))


def wrapped(model, X, y, weight, renewed):
    """wrap, with the warning that belongs to renewed leaves and none else."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out = wrap(model, X, y, sample_weight=weight)
    assert [w.category for w in caught] == [UserWarning] * renewed
    return out


def check_oracle(trees, rate, lambda_, tolerance, renewed, max_step=math.inf):
    """The oracle holds g and h as the booster did, if they give back the leaves that the booster stored."""
    for leaf in (leaf for tree in trees for leaf in tree.values() if leaf.w and not renewed):
        n, g, h, vg, *_ = leaf.moments()
        scale = rate * math.sqrt(vg + g * g) / (h + lambda_ / n)
        assert rate * leaf.newton(lambda_, max_step=max_step) == pytest.approx(leaf.value, abs=tolerance * scale)


def check_moments(model, trees, lambda_, max_step=math.inf):
    """Moments, leaf means and leaf variances against the oracle, each leaf of each tree."""
    moments, forest = model.moments, model.forest
    for t, tree in enumerate(trees):
        for j in range(forest.leaf_start[t], forest.leaf_start[t + 1]):
            leaf = tree[int(forest.leaf_label[j])]
            assert moments.count[j] == len(leaf.w)
            if not leaf.w:  # CatBoost's symmetric trees have such leaves
                continue
            n, g, h, vg, vh, cov = leaf.moments()
            got = (moments.g_mean[j], moments.h_mean[j], moments.var_g[j], moments.var_h[j], moments.cov_gh[j])
            # means and covariances may cancel: their own scale is that of the values they are taken from
            size_g, size_h = math.sqrt(vg + g * g), math.sqrt(vh + h * h)
            # numbers of one value, times weights and rounded, vary by 1e-15 of their square: rounding of rounding
            scale = (size_g, size_h, max(vg, 1e-12 * size_g**2), max(vh, 1e-12 * size_h**2), size_g * size_h)
            for got_, want, scale_ in zip(got, (g, h, vg, vh, cov), scale, strict=True):
                assert got_ == pytest.approx(want, rel=1e-10, abs=1e-10 * scale_)
            assert moments.mass[j] == pytest.approx(n, rel=1e-14)
            mu, v = leaf.weight(lambda_, max_step=max_step)
            step = size_g / (h + lambda_ / n)
            assert model.weights.variance[j] == pytest.approx(v, rel=1e-10, abs=1e-22 * step**2)
            assert model.weights.mu[j] == pytest.approx(mu, rel=1e-10, abs=1e-10 * step)


def check_variance(model, X, ids, trees, rates, link, margin, prediction):
    sigma2 = naive.variance(ids, trees, *rates, model.rho)
    want = {
        "identity": sigma2,
        "log": prediction.astype(float) ** 2 * sigma2,
        "sqrt": 4 * margin.astype(float) ** 2 * sigma2 + 2 * sigma2**2,  # the variance of the square of a normal
    }[link]
    np.testing.assert_allclose(model.predict_var(X), want, rtol=1e-12)
    assert model.rho == math.log10(model.moments.rows) / 100


def check_other_ways(source, model, X, y, weight, renewed):
    """Batches and Dask give what memory gives, and one label off does not certify."""
    columns = (X, y) if weight is None else (X, y, weight)
    batches = (tuple(column[lo : lo + 150] for column in columns) for lo in range(0, len(y), 150))
    assert_same_model(quiet_wrap(source, batches), model, X)
    if isinstance(X, pd.DataFrame):
        lazy = [dd.from_pandas(c if c is X else pd.Series(c, X.index), npartitions=3) for c in columns]
    else:
        lazy = [da.from_array(c, chunks=(130, *c.shape[1:])) for c in columns]
    with dask.config.set(scheduler="synchronous"):
        parts = quiet_wrap(source, *lazy[:2], sample_weight=lazy[2] if weight is not None else None)
    assert_same_moments(parts.moments, model.moments)
    assert parts.certificate.status == model.certificate.status
    one_off = y.copy()
    one_off[np.argmin(np.abs(y - np.median(y)))] += 1.0  # huber sees no change of a label that is far off already
    assert renewed or quiet_wrap(source, X, one_off, sample_weight=weight).certificate.status != "certified"


@pytest.mark.parametrize(("objective", "kind", "form", "dtype", "weighted"), cases(LIGHTGBM))
def test_lightgbm(objective, kind, form, dtype, weighted, make_data, leaf_labels, tmp_path):
    X, y = make_data(kind, np.dtype(dtype))
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y)) if weighted == "weighted" else None
    own, gradients, parameter, link = LIGHTGBM[objective]
    params = {"objective": objective, "num_leaves": 7, "min_data_in_leaf": 10, "learning_rate": RATE, "verbose": -1}
    params |= {"lambda_l2": LAMBDA, "cat_l2": 0.0, "num_threads": 1, **own}
    if form == "sklearn":
        model = lgb.LGBMRegressor(n_estimators=TREES, **params).fit(X, y, sample_weight=weight)
        booster = model.booster_
    else:
        model = booster = lgb.train(params, lgb.Dataset(X, y, weight=weight), TREES)
    if form == "file":
        booster.save_model(tmp_path / "model.txt")
    renewed = objective in RENEWED
    wrap_this = tmp_path / "model.txt" if form == "file" else model
    pm = wrapped(wrap_this, X, y, weight, renewed)

    ids = booster.predict(X, pred_leaf=True)
    prediction = model.predict(X)
    assert np.array_equal(leaf_labels(pm, X), ids)
    assert np.array_equal(pm.predict(X), prediction)
    assert pm.predict(X).dtype == prediction.dtype
    assert pm.certificate.status == ("approximate" if renewed else "certified")
    assert renewed or pm.certificate.error <= 1e-6

    label = y.astype(np.float32).astype(float)
    if link == "sqrt":
        label = np.sqrt(y.astype(np.float32)).astype(float)
    w = None if weight is None else weight.astype(np.float32).astype(float)
    start = np.average(label, weights=w)
    start = math.log(start) if link == "log" else start
    if renewed:  # LightGBM starts from a quantile, which the package only estimates; it is not part of the promise
        start = pm.spec.start
    values = naive.lightgbm_leaf_values(booster)
    # L2 rounds its gradients before it weights them, the others after
    rounded = gradients is naive.squared
    trees = naive.replay(
        ids, values, gradients, parameter, label, start, weight=weight, folded=start, weigh_rounded=rounded
    )
    check_oracle(trees, RATE, LAMBDA, 1e-11, renewed)
    check_moments(pm, trees, LAMBDA)
    margin = booster.predict(X, raw_score=True)
    check_variance(pm, X, ids, trees, (RATE, LAMBDA), link, margin, prediction)
    check_other_ways(wrap_this, pm, X, y, weight, renewed)


@pytest.mark.parametrize(("objective", "kind", "form", "dtype", "weighted"), cases(XGBOOST))
def test_xgboost(objective, kind, form, dtype, weighted, make_data, leaf_labels, tmp_path):
    X, y = make_data(kind, np.dtype(dtype))
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y)) if weighted == "weighted" else None
    own, gradients, parameter, link = XGBOOST[objective]
    params = {"objective": objective, "max_depth": 3, "learning_rate": RATE, "reg_lambda": LAMBDA, "nthread": 1, **own}
    dmatrix = xgb.DMatrix(X, enable_categorical=isinstance(X, pd.DataFrame))
    if form == "sklearn":
        model = xgb.XGBRegressor(n_estimators=TREES, enable_categorical=True, **params)
        booster = model.fit(X, y, sample_weight=weight).get_booster()
        prediction = model.predict(X)
    else:
        train = xgb.DMatrix(X, y, weight=weight, enable_categorical=True)
        model = booster = xgb.train(params, train, TREES)
        prediction = booster.predict(dmatrix)
    if form == "file":
        suffix = ".json" if dtype == "float32" else ".ubj"
        booster.save_model(tmp_path / f"model{suffix}")
    renewed = objective in RENEWED
    wrap_this = tmp_path / f"model{suffix}" if form == "file" else model
    pm = wrapped(wrap_this, X, y, weight, renewed)

    ids = booster.predict(dmatrix, pred_leaf=True).reshape(len(y), -1)
    assert np.array_equal(leaf_labels(pm, X), ids)
    assert np.array_equal(pm.predict(X), prediction)
    assert pm.predict(X).dtype == prediction.dtype
    assert pm.certificate.status == ("approximate" if renewed else "certified")
    assert renewed or pm.certificate.error <= 1e-5

    start = naive.xgboost_base_score(booster)
    start = naive.f32(math.log(start)) if link == "log" else start
    values = naive.xgboost_leaf_values(booster)
    rate, lambda_, parameter = naive.f32(RATE), naive.f32(LAMBDA), naive.f32(parameter)  # as XGBoost holds them
    trees = naive.replay(ids, values, gradients, parameter, y, start, weight=weight, single=True)
    max_step = own.get("max_delta_step", math.inf)
    check_oracle(trees, rate, lambda_, 3e-6, renewed, max_step)
    check_moments(pm, trees, lambda_, max_step)
    margin = booster.predict(dmatrix, output_margin=True)
    check_variance(pm, X, ids, trees, (rate, lambda_), link, margin, prediction)
    check_other_ways(wrap_this, pm, X, y, weight, renewed)


@pytest.mark.parametrize(("objective", "kind", "form", "dtype", "weighted"), cases(HISTGRADIENT, ("sklearn",)))
def test_histgradient(objective, kind, form, dtype, weighted, make_data, leaf_labels):
    X, y = make_data(kind, np.dtype(dtype))
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y)) if weighted == "weighted" else None
    own, gradients, parameter, link = HISTGRADIENT[objective]
    params = {"max_leaf_nodes": 7, "min_samples_leaf": 10, "learning_rate": RATE, "l2_regularization": LAMBDA, **own}
    params |= {"categorical_features": "from_dtype" if isinstance(X, pd.DataFrame) else None, "max_iter": TREES}
    model = HistGradientBoostingRegressor(loss=objective, **params).fit(X, y, sample_weight=weight)
    renewed = objective in RENEWED
    pm = wrapped(model, X, y, weight, renewed)

    ids, prediction = histgradient.own_leaves(model, X), model.predict(X)
    assert np.array_equal(leaf_labels(pm, X), ids)
    assert np.array_equal(pm.predict(X), prediction)
    assert pm.certificate.status == ("approximate" if renewed else "certified")
    assert renewed or pm.certificate.error <= 1e-6

    start = float(model._baseline_prediction.item())
    trees = naive.replay(
        ids,
        histgradient.own_values(model),
        gradients,
        parameter,
        y,
        start,
        weight=weight,
        weigh_rounded=False,
        held=float,
    )
    check_oracle(trees, RATE, LAMBDA, 1e-11, renewed)
    check_moments(pm, trees, LAMBDA)
    check_variance(pm, X, ids, trees, (RATE, LAMBDA), link, model._raw_predict(X).ravel(), prediction)
    check_other_ways(model, pm, X, y, weight, renewed)


def gradient_step(gradients):
    """Return the derivatives of gradient leaves, which count 1 for each hessian."""
    return lambda s, y, p: (gradients(s, y, p)[0], 1.0)


METHODS, POLICIES = ("Newton", "Gradient"), ("SymmetricTree", "Depthwise", "Lossguide")


@pytest.mark.parametrize(
    ("objective", "kind", "form", "dtype", "weighted", "method", "policy"), cases(CATBOOST, FORMS, METHODS, POLICIES)
)
def test_catboost(objective, kind, form, dtype, weighted, method, policy, make_data, leaf_labels, tmp_path):
    X, y = make_data(kind, np.dtype(dtype))
    if kind == "mixed":  # CatBoost refuses missing categories
        X["many"] = X["many"].cat.add_categories("none").fillna("none")
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y)) if weighted == "weighted" else None
    own, gradients, parameter, link = CATBOOST[objective]
    params = {**catboost_models.FIXED, "iterations": TREES, "learning_rate": RATE, "l2_leaf_reg": LAMBDA}
    params |= {"loss_function": objective, "grow_policy": policy, "one_hot_max_size": 255}
    params |= {"leaf_estimation_method": method, "leaf_estimation_iterations": 1, **own}
    categories = ["few", "many"] if isinstance(X, pd.DataFrame) else None
    if form == "sklearn":
        model = cb.CatBoostRegressor(**params).fit(X, y, sample_weight=weight, cat_features=categories)
    else:
        model = cb.CatBoost(params).fit(cb.Pool(X, y, weight=weight, cat_features=categories))
    if form == "file":
        model.save_model(str(tmp_path / "model.json"), format="json")
    renewed = objective in RENEWED
    wrap_this = tmp_path / "model.json" if form == "file" else model
    pm = wrapped(wrap_this, X, y, weight, renewed)

    ids, margin = model.calc_leaf_indexes(X), model.predict(X, prediction_type="RawFormulaVal")
    assert np.array_equal(leaf_labels(pm, X), ids)
    prediction = pm.predict(X)
    if link == "identity":
        assert np.array_equal(prediction, margin)
    else:  # CatBoost computes exponentials by code of its own
        np.testing.assert_allclose(prediction, model.predict(X, prediction_type="Exponent"), rtol=1e-15)
        assert np.array_equal(prediction, [math.exp(m) for m in margin])
    assert pm.certificate.status == ("approximate" if renewed else "certified")
    assert renewed or pm.certificate.error <= 1e-11

    w = None if weight is None else weight.astype(np.float32).astype(float)
    lambda_ = naive.f32(LAMBDA) * (1.0 if w is None else w.mean())
    gradients = gradient_step(gradients) if method == "Gradient" and not renewed else gradients
    start = model.get_scale_and_bias()[1]
    values = catboost_models.own_values(model)
    trees = naive.replay(
        ids, values, gradients, parameter, y, start, weight=weight, weigh_rounded=False, held_gradients=float
    )
    check_oracle(trees, naive.f32(RATE), lambda_, 1e-11, renewed)
    check_moments(pm, trees, lambda_)
    check_variance(pm, X, ids, trees, (naive.f32(RATE), lambda_), link, margin, prediction)
    check_other_ways(wrap_this, pm, X, y, weight, renewed)
