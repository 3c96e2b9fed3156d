"""The parts of benchmarks.accuracy that can be wrong unseen: scores of quantiles, neighbours, what is resumed."""

from __future__ import annotations

import ast
import json
import sys
from dataclasses import replace
from functools import partial

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri

from benchmarks.accuracy import __main__ as accuracy
from benchmarks.accuracy import neighbours, records
from benchmarks.accuracy.contenders import LEVELS, Contender, Fitted, Rounds, Work, contenders
from benchmarks.accuracy.measures import _nll, measure, run
from benchmarks.accuracy.quantiles import Quantiles
from benchmarks.accuracy.sets import load, n_splits, sets_in
from benchmarks.accuracy.tables import Results, by_set, geometric_mean, markdown, ratios, summary
from pgbm_plugin import wrap
from pgbm_plugin.distributions import Normal
from pgbm_plugin.distributions.snapped import Snapped

QUICK = Rounds(10, 10)


def test_crps_of_quantiles_is_twice_the_quantile_loss():
    rng = np.random.default_rng(0)
    crossing = rng.normal(size=(40, 19)).round(1)  # rounded, so that some are equal
    y = np.concatenate([rng.normal(size=30), crossing[:5, 3], [-30.0, 30.0, 0.0, -2.0, 2.0]])
    forecast = Quantiles.of_crossing(LEVELS, crossing)

    q, x = forecast.knots()
    level = (np.arange(200_000) + 0.5) / 200_000
    expected = []
    for row, outcome in zip(x, y, strict=True):
        difference = outcome - np.interp(level, q, row)
        expected.append(2.0 * np.mean(np.maximum(level * difference, (level - 1.0) * difference)))
    # the midpoint rule errs where the loss has its kink and its corners, by the square of a step
    np.testing.assert_allclose(forecast.crps(y), expected, rtol=1e-6)


def test_probabilities_are_no_densities():
    normal = Normal.from_moments(np.zeros(2), np.ones(2))
    y = np.array([0.0, 1.0])
    assert _nll(normal, y) == pytest.approx(normal.nll(y).mean())
    assert _nll(Snapped(normal, [0.0, 1.0]), y) is None


def test_quantiles_have_their_own_interval_and_mean():
    values = np.sort(np.random.default_rng(0).normal(size=(5, 19)), axis=1)
    forecast = Quantiles.of_crossing(LEVELS, values[:, ::-1])
    np.testing.assert_allclose(np.stack(forecast.interval(0.9)), values[:, [0, -1]].T, rtol=1e-12)
    step = 0.2 * np.diff(values)
    inner = np.stack([values[:, 0] + step[:, 0], values[:, -1] - step[:, -1]])
    np.testing.assert_allclose(np.stack(forecast.interval(0.88)), inner, rtol=1e-9)
    q, x = forecast.knots()
    level = (np.arange(100_000) + 0.5) / 100_000
    np.testing.assert_allclose(forecast.mean(), [np.mean(np.interp(level, q, row)) for row in x], rtol=1e-6, atol=1e-8)


def test_many_quantiles_of_a_normal_score_as_the_normal():
    levels = np.arange(1, 2000) / 2000
    y = np.linspace(-3.0, 3.0, 13)
    forecast = Quantiles.of_crossing(levels, np.tile(ndtri(levels), (len(y), 1)))
    normal = Normal.from_moments(np.zeros(len(y)), np.ones(len(y)))
    # what the bounded tails leave out: less than a thousandth of the mass, at each end
    np.testing.assert_allclose(forecast.crps(y), normal.crps(y), atol=1e-4)


@pytest.mark.parametrize(("trees", "n"), [(3, 20), (600, 1100)])  # within one group of trees and block of rows; beyond
def test_neighbours_are_those_of_brute_force(trees, n):
    rng = np.random.default_rng(trees)
    train, query = rng.integers(0, 16, (trees, n), np.uint8), rng.integers(0, 16, (trees, 70), np.uint8)
    train[:, : n // 2] = np.where(rng.random((trees, n // 2)) < 0.5, query[:, :1], train[:, : n // 2])
    query[:, 1], y = train[:, -1], rng.normal(1e6, 1.0, n)
    shared = (train[:, :, None] == query[:, None, :]).sum(axis=0).T
    found = np.empty(shared.shape, np.uint16)
    neighbours.affinities(train, query, found)
    assert found.max() == trees
    np.testing.assert_array_equal(found, shared)

    grid = np.array([2, 3, 7, n])
    nearest = np.argsort(-shared, axis=1, kind="stable")
    expected = [[np.var(y[line[:k]], ddof=1) for k in grid] for line in nearest]
    # labels around 1e6 with a variance of 1 keep ten digits
    np.testing.assert_allclose(neighbours.variances(train, y, query, grid), expected, rtol=1e-6, atol=1e-8)


def test_leaf_numbers_are_those_of_the_booster(numeric):
    X, y = numeric
    booster = lgb.train({"num_leaves": 16, "min_data_in_leaf": 1, "verbose": -1}, lgb.Dataset(X, y), 5)
    X = np.tile(X, (12, 1))  # more than one part
    np.testing.assert_array_equal(neighbours.leaf_numbers(booster, X).T, booster.predict(X, pred_leaf=True))


def test_the_column_that_tells_rows_apart_is_chosen():
    rng = np.random.default_rng(0)
    variance = np.exp(rng.normal(size=500))
    residual = np.sqrt(variance) * rng.normal(size=500)
    table = np.stack([np.zeros(500), rng.permutation(variance), 9.0 * variance**0.5], axis=1)
    table[0, 2] = 0.0
    column, floor, calibration = neighbours.choose(residual, table)
    assert column == 2
    assert floor == table[1:, 2].min()
    assert calibration.b == pytest.approx(2.0, abs=0.3)  # five hundred rows, about two standard errors
    with pytest.raises(ValueError, match="labels that differ"):
        neighbours.choose(residual, np.zeros((500, 2)))


def test_a_family_that_refuses_a_row_is_replaced_and_counted():
    def weibull(work):
        model = wrap(work.booster, work.split.X, work.split.y)
        assert model.predict(work.split.X_test).min() < 0.0
        around = [partial(model.predict_dist, distribution=name) for name in ("weibull", "normal")]
        return Fitted(around[0], otherwise=around[1])

    def normal(work):
        return replace(weibull(work), predict=weibull(work).otherwise)

    work = Work(load(None, "yacht-sized", 0), QUICK)
    refused, direct = (measure(Contender("", fit, (), wraps=True), work) for fit in (weibull, normal))
    assert (refused["refused"], direct["refused"]) == (True, False)
    assert refused["crps"] == direct["crps"]
    with pytest.raises(ValueError, match="weibull cannot have the mean and variance"):
        measure(Contender("", lambda work: replace(weibull(work), otherwise=None), (), wraps=True), work)


def test_the_parts_of_a_split_do_not_overlap():
    split = load(None, "boston-sized", 3)
    parts = [split.X, split.X_val, split.X_test]
    assert list(map(len, parts)) == [365, 91, 50]
    assert len(np.unique(np.concatenate(parts), axis=0)) == 506
    assert not np.array_equal(load(None, "boston-sized", 4).X_test, split.X_test)


def test_what_is_known_is_not_computed_again(tmp_path, monkeypatch, capsys):
    """Two runs of the command in this process: the second has one contender more, and computes that alone."""
    computed = []

    def compute(folder, work, rounds, path, jobs):
        computed.append([(k.set, k.split, k.contender) for keys in work for k in keys])
        return [record for keys in work for record in run(folder, keys, QUICK, path)]

    def command(*options):
        path = str(tmp_path / "results.json")
        monkeypatch.setattr(sys, "argv", ["accuracy", "--quick", "--json", path, *options])
        accuracy.main()
        return json.loads((tmp_path / "results.json").read_text())["crps"]

    monkeypatch.setattr(accuracy, "compute", compute)
    one = command("--sets", "yacht-sized", "--only", "auto,constant")
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"set": "yacht-si')  # killed while it wrote
    two = command("--sets", "yacht-sized", "--only", "constant,auto,instance")
    assert computed == [[("yacht-sized", 0, name) for name in names] for names in (["constant", "auto"], ["instance"])]
    assert two == one | {"instance": two["instance"]}
    assert command("--splits", "0") == two
    assert len(computed) == 2

    monkeypatch.setattr(records, "source", lambda: "changed")
    assert set(command("--splits", "0")) == {"constant", "instance"}
    assert command("--splits", "0", "--stale") == two
    command("--sets", "yacht-sized", "--only", "auto,instance")
    assert computed[2:] == [[("yacht-sized", 0, "auto")]]
    assert "CRPS over that of PGBM and boosted scale" in capsys.readouterr().out


def test_a_key_holds_what_a_result_depends_on():
    here, _ = contenders()
    key = records.key("yacht", 0, "constant", here["constant"], Rounds())
    assert records.key("yacht", 0, "constant", here["constant"], Rounds()) == key
    assert records.key("yacht", 0, "constant", here["constant"], Rounds(100)) != key
    more_leaves = replace(here["constant"], settings={**here["constant"].settings, "num_leaves": 31})
    assert records.key("yacht", 0, "constant", more_leaves, Rounds()) != key
    assert key.source == ""
    assert records.key("yacht", 0, "tuned", here["tuned"], Rounds()).source == records.source()


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ('"""One."""\ndef f(x):\n    """Two."""\n    return x  # three\n', True),
        ("def f(x):\n    return -x\n", False),
        ("def f(x):\n    return 'x'\n", False),
    ],
)
def test_docstrings_and_comments_are_no_code(other, same):
    one, two = (ast.dump(records._without_docstrings(ast.parse(s))) for s in ("def f(x):\n    return x\n", other))
    assert (one == two) is same


def results(scores):
    """From set -> contender -> CRPS by split, None for a split that is missing."""
    lines = [
        {"set": s, "split": k, "contender": name, "crps": value, "nll": None if k else 1.0, "coverage": 0.9}
        for s, by in scores.items()
        for name, values in by.items()
        for k, value in enumerate(values)
        if value is not None
    ]
    return Results.of({"auto": "the default", "other": "another", "absent": "nobody"}, lines)


def test_ratios_are_of_the_splits_that_both_have():
    found = results(
        {
            "yacht": {"auto": [1.0, 3.0, 100.0], "other": [2.0, 2.0, None]},
            "power": {"auto": [2.0, 2.0], "other": [4.5, 3.5]},
            "boston": {"auto": [1.0]},
        }
    )
    assert ratios(found, "other") == {"yacht": 1.0, "power": 2.0}
    mean, error = geometric_mean(found, "other")
    assert mean == pytest.approx(np.sqrt(2.0))
    # all draws of two splits with replacement: half of them are both splits, a quarter either twice
    yacht, power = ([np.log(a), np.log(b), 0.0, 0.0] for a, b in ((2.0, 2 / 3), (4.5 / 4, 3.5 / 4)))
    assert error == pytest.approx(mean * np.sqrt(np.var(yacht) + np.var(power)) / 2.0, rel=0.1)  # 2,000 draws
    lines = {line["contender"]: line for line in summary(found)}
    assert list(lines) == ["the default", "another"]
    assert (lines["another"]["sets"], lines["another"]["better"], lines["another"]["best"]) == (2, 0, 1)  # a tie
    assert lines["the default"]["se"] == 0.0
    assert by_set(found, "crps")["other"]["yacht"] == {"mean": 2.0, "sd": 0.0, "splits": 2}
    assert {name: list(by) for name, by in by_set(found, "nll").items()} == {"auto": ["boston"]}
    assert "**2 ± 0** (2)" in markdown(found)


def test_without_the_baseline_there_are_tables_but_no_ratios():
    found = results({"yacht": {"other": [2.0, 4.0]}})
    assert summary(found) == []
    assert "3 ± 1.4" in markdown(found)


def test_collections_have_tables_of_their_own():
    everyday = {"auto": [1.0, 1.0], "other": [4.0, 4.0]}
    found = results({"yacht": {"auto": [1.0, 1.0], "other": [1.0, 1.0]}, "bike": everyday})
    ratio = {title: geometric_mean(part, "other")[0] for title, part in found.collections.items()}
    assert ratio == {"All sets": 2.0, "UCI sets": 1.0, "Everyday sets": 4.0}
    found.values["bike", "auto"][0]["coverage"] = 0.3
    line = summary(found)[0]
    assert (line["coverage"], line["lowest coverage"]) == (pytest.approx(0.75), pytest.approx(0.6))
    assert markdown(found).count("### coverage of the central 90 % interval") == 2
    assert list(results({"bike": everyday}).collections) == ["Everyday sets"]


def test_everyday_sets(tmp_path):
    """Every row is in one part, and categories are numbers."""
    frame = pd.DataFrame({"kind": pd.Categorical(["b", None, "a", "b"] * 25), "target": np.arange(100.0)})
    (tmp_path / "more").mkdir()
    frame.to_parquet(tmp_path / "more" / "abalone.parquet")
    assert sets_in(tmp_path) == ("abalone",)
    assert n_splits(tmp_path, "abalone") > 1
    split = load(tmp_path, "abalone", 1)
    parts = [(split.X, split.y), (split.X_val, split.y_val), (split.X_test, split.y_test)]
    assert [len(y) for _, y in parts] == [72, 18, 10]
    assert sorted(np.concatenate([y for _, y in parts])) == list(range(100))
    for X, y in parts:
        np.testing.assert_array_equal(X[:, 0], np.array([1.0, np.nan, 0.0, 1.0])[y.astype(int) % 4])
    assert not np.array_equal(load(tmp_path, "abalone", 2).y_test, split.y_test)
