"""torch_objective: exact derivatives, the boosters' four ways to call, where to start, and what it refuses."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

from pgbm_plugin import torch_objective, wrap
from tests.training.torch_losses import LGB, LOSSES, XGB, squared, torch


def rows(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n), rng.uniform(0.2, 3.0, n)


def hessian_of(total, p):
    """The whole matrix, by brute force."""
    return torch.autograd.functional.hessian(total, torch.tensor(p)).numpy()


@pytest.mark.filterwarnings("ignore:.*second derivatives are")
@pytest.mark.parametrize("name", LOSSES)
def test_derivatives_of_single_rows(name):
    loss = LOSSES[name]
    p, y = rows()
    p = np.abs(p) if name == "gamma of the mean" else p
    g, h = torch_objective(loss)(y, p)
    tensor = torch.tensor(p, requires_grad=True)
    loss(tensor, torch.tensor(y)).sum().backward()
    np.testing.assert_allclose(g, tensor.grad.numpy(), rtol=1e-10, atol=1e-12)
    H = hessian_of(lambda p: loss(p, torch.tensor(y)).sum(), p)
    exact = np.diag(H)
    np.testing.assert_allclose(h[exact > 0], exact[exact > 0], rtol=1e-10, atol=1e-12)
    assert np.all(h > 0)


def hierarchy(n, levels):
    """Rows, groups of 5 with a weight each, groups of 15, the total."""
    rng = np.random.default_rng(3)
    five = np.arange(n) // 5
    every = [(None, 0.25), (five, rng.uniform(0.1, 1.0, five.max() + 1)), (np.arange(n) % 4, 0.1), (np.zeros(n), 0.02)]
    return every[:levels]


def total_loss(loss, levels, y):
    def total(p):
        value = torch.zeros((), dtype=p.dtype)
        for groups, weight in levels:
            groups = np.arange(len(y)) if groups is None else groups
            one_hot = torch.tensor((np.unique(groups)[:, None] == groups).astype(float))
            of_groups = loss(one_hot @ p, one_hot @ torch.tensor(y))
            value = value + (torch.as_tensor(weight, dtype=p.dtype) * of_groups).sum()
        return value

    return total


@pytest.mark.parametrize("loss", [squared, LOSSES["log-cosh"], LOSSES["pseudohuber"]])
@pytest.mark.parametrize("n_levels", [2, 3, 4])
def test_derivatives_of_levels(loss, n_levels):
    p, y = rows()
    levels = hierarchy(len(y), n_levels)
    H = hessian_of(total_loss(loss, levels, y), p)
    tensor = torch.tensor(p, requires_grad=True)
    total_loss(loss, levels, y)(tensor).backward()
    for kind, expected in (("diagonal", np.diag(H)), ("rowsum", H.sum(1))):
        g, h = torch_objective(loss, levels=levels, hessian=kind).derivatives(p, y)
        np.testing.assert_allclose(g, tensor.grad.numpy(), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(h, expected, rtol=1e-10, atol=1e-12)
    assert not np.allclose(np.diag(H), H.sum(1), rtol=0.1)


def trees(booster):
    if isinstance(booster, xgb.Booster):
        return booster.trees_to_dataframe()[["Tree", "Feature", "Split", "Gain"]]
    return booster.trees_to_dataframe()[["tree_index", "split_feature", "threshold", "value"]]


def assert_same_trees(a, b):
    for (name, x), (_, y) in zip(trees(a).items(), trees(b).items(), strict=True):
        if x.dtype.kind == "f":  # a gradient may differ in its last float32 bit
            np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-6, err_msg=name)
        else:
            assert list(x.dropna()) == list(y.dropna())


@pytest.mark.parametrize(("loss", "builtin"), [("squared", "regression"), ("gamma", "gamma"), ("tweedie", "tweedie")])
def test_lightgbm_grows_the_trees_of_its_own_objective(loss, builtin, numeric):
    X, y = numeric
    custom = lgb.train({**LGB, "objective": torch_objective(LOSSES[loss])}, lgb.Dataset(X, y), 8)
    twin = lgb.train({**LGB, "objective": builtin, "boost_from_average": False}, lgb.Dataset(X, y), 8)
    assert_same_trees(custom, twin)


@pytest.mark.parametrize(
    ("loss", "builtin"), [("squared", "reg:squarederror"), ("pseudohuber", "reg:pseudohubererror")]
)
def test_xgboost_grows_the_trees_of_its_own_objective(loss, builtin, numeric):
    X, y = numeric
    params = {**XGB, "base_score": 0.5}
    custom = xgb.train(params, xgb.DMatrix(X, y), 8, obj=torch_objective(LOSSES[loss]))
    twin = xgb.train({**params, "objective": builtin}, xgb.DMatrix(X, y), 8)
    assert_same_trees(custom, twin)


@pytest.mark.parametrize("weighted", [False, True])
def test_four_ways_to_call_it(numeric, weighted):
    """And with weights, which neither booster applies to custom objectives."""
    X, y = numeric
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y)) if weighted else None
    objective = torch_objective(LOSSES["log-cosh"])
    native = lgb.train({**LGB, "objective": objective}, lgb.Dataset(X, y, weight=weight), 6)
    estimator = lgb.LGBMRegressor(n_estimators=6, objective=objective, **LGB).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(native.predict(X), estimator.predict(X))
    xnative = xgb.train({**XGB, "base_score": 0.5}, xgb.DMatrix(X, y, weight=weight), 6, obj=objective)
    xestimator = xgb.XGBRegressor(n_estimators=6, objective=objective, base_score=0.5, **XGB)
    xestimator.fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(xnative.predict(xgb.DMatrix(X)), xestimator.predict(X))
    for model in (native, estimator, xnative, xestimator):
        assert wrap(model, X, y, sample_weight=weight, objective=objective).certificate.status == "certified"


@pytest.mark.parametrize("hessian", ["diagonal", "rowsum"])
def test_coupled_rows_without_levels(hessian, numeric):
    _, y = numeric

    def coupled(p, y):
        return (p - y) ** 2 + 0.01 * (p.sum() - y.sum()) ** 2 / len(y)

    objective = torch_objective(coupled, hessian=hessian)
    if hessian == "diagonal":
        for _ in range(2):  # it is not accepted the second time
            with pytest.raises(ValueError, match=r"couples rows.*levels=.*rowsum"):
                objective(y, np.zeros(len(y)))
    else:
        assert np.all(np.isfinite(objective(y, np.zeros(len(y)))))


def test_coupling_that_starts_later():
    """At a constant margin the Hessian of a variance's square is 0."""
    _, y = rows()
    with pytest.raises(ValueError, match="couples rows"):
        torch_objective(lambda p, y: ((p - y) ** 2).sum() + len(y) * p.var() ** 2)(y, np.zeros(len(y)))


def test_groups_and_their_weights_by_name():
    p, y = rows(20)
    number = np.arange(20) % 2
    named = np.array(["north", "south"])[number]
    want = torch_objective(squared, levels=[(number, [1.0, 3.0])]).derivatives(p, y)
    for weight in ([1.0, 3.0], pd.Series({"south": 3.0, "north": 1.0})):
        np.testing.assert_array_equal(torch_objective(squared, levels=[(named, weight)]).derivatives(p, y), want)


def test_divergence_is_foretold(numeric):
    X, y = numeric
    levels = [(None, 1.0), (np.zeros(len(y)), 1.0)]
    with pytest.warns(UserWarning, match="diverge at learning rates above 0.01,"):
        torch_objective(squared, levels=levels)(np.zeros(len(y)), lgb.Dataset(X, y).construct())
    torch_objective(squared, levels=levels, hessian="rowsum")(y, np.zeros(len(y)))
    slow = lgb.Dataset(X, y, params={"learning_rate": 0.005}).construct()
    torch_objective(squared, levels=levels)(np.zeros(len(y)), slow)


def test_one_warning_for_flat_losses():
    p, y = rows()
    objective = torch_objective(LOSSES["student t"])
    with pytest.warns(UserWarning, match="not positive"):
        objective(y, 4 * p)
    objective(y, 4 * p)  # a second warning would be an error here


def test_a_mean_is_pointed_out():
    p, y = rows(2000)
    with pytest.warns(UserWarning, match="reduction='none'"):
        torch_objective(torch.nn.MSELoss())(y, p)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("squared", np.mean),
        ("poisson", lambda y: np.log(np.mean(y))),
        ("gamma", lambda y: np.log(np.mean(y))),
        ("pseudohuber", None),
        ("gamma of the mean", np.mean),
    ],
)
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_init_minimises_the_loss(loss, expected, offset):
    _, y = rows()
    y = y + offset
    start = torch_objective(LOSSES[loss]).init(y)
    if expected is not None:
        assert start == pytest.approx(expected(y), rel=1e-9)
    value = [float(LOSSES[loss](torch.tensor(start + d), torch.tensor(y)).sum()) for d in (0.0, -1e-3, 1e-3)]
    assert value[0] == min(value)


def test_init_with_weights_and_levels():
    _, y = rows()
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    assert torch_objective(squared).init(y, weight) == pytest.approx(np.average(y, weights=weight))
    levels = [(np.arange(len(y)) // 10, 1.0)]
    assert torch_objective(squared, levels=levels).init(y) == pytest.approx(np.mean(y))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch_objective("mse"), "function"),
        (lambda: torch_objective(squared, hessian="full"), "'diagonal' or 'rowsum'"),
        (lambda: torch_objective(squared, levels=[]), "empty"),
        (lambda: torch_objective(squared, levels=[np.arange(3)]), "pairs"),
        (lambda: torch_objective(squared, levels=[(np.arange(3), [1.0, 2.0])]), "3 groups but 2 weights"),
        (lambda: torch_objective(squared, levels=[(np.arange(3), -1.0)]), "negative"),
        (lambda: torch_objective(squared, levels=[(np.arange(3), 1.0)])(np.ones(4), np.ones(4)), "3 rows.*4"),
        (lambda: torch_objective(lambda p, y: 1.0)(np.ones(4), np.ones(4)), "tensor"),
        (lambda: torch_objective(lambda p, y: p[:2])(np.ones(4), np.ones(4)), "shape"),
        (lambda: torch_objective(lambda p, y: torch.abs(p - y))(np.ones(4), np.zeros(4)), "smooth"),
        (lambda: torch_objective(lambda p, y: torch.log(p))(np.ones(4), np.zeros(4)), "finite"),
        (lambda: torch_objective(squared, levels=[(None, 1.0)])(np.ones(4), np.ones(4), np.ones(4)), "per group"),
        (lambda: torch_objective(squared, levels=[(None, np.ones(3))])(np.ones(4), np.ones(4)), "3 rows.*4"),
        (lambda: torch_objective(squared, levels=[(np.array([1.0, np.nan]), 1.0)]), "no group"),
        (lambda: torch_objective(squared, levels=[(np.array(["a", None], object), 1.0)]), "no group"),
        (lambda: torch_objective(squared, levels=[(np.ones((2, 2)), 1.0)]), "one dimension"),
        (lambda: torch_objective(squared, levels=[(None, 1.0)]).init(np.ones(4), np.ones(4)), "sample_weight"),
        (lambda: torch_objective(squared).init([]), "labels"),
        (lambda: torch_objective(squared).init([1.0, np.nan]), "NaN"),
        (lambda: torch_objective(squared).init(np.ones(4), np.ones(3)), "3 values"),
        (lambda: torch_objective(lambda p, y: 2.0 * p).init(np.ones(4)), "no constant"),
    ],
)
def test_refusals(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()
