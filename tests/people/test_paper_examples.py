"""The paper's experiments: that each runs, and the parts that can be wrong unseen."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.accuracy.sets import load
from examples.paper import figure3, published, readme, results, table2, table3, table4, table5, totals, uci
from pgbm_plugin import wrap
from pgbm_plugin.distributions import NegativeBinomial, Normal, Poisson
from pgbm_plugin.scores import crps_ensemble


@pytest.mark.parametrize("script", [table5, figure3, table2, table3, table4, totals], ids=lambda script: script.NAME)
def test_runs_and_goes_on_where_it_was(script, tmp_path, monkeypatch, capsys):
    if script is table4:
        pytest.importorskip("torch")
    monkeypatch.setattr(table5, "has_ngboost", lambda: False)  # which is slow, and often not there
    monkeypatch.setattr(table3, "has_ngboost", lambda: False)
    script.main(["--quick", "--out", str(tmp_path)])
    assert "no --data DIR" in capsys.readouterr().err
    written = {path.suffix: path for path in tmp_path.iterdir()}
    assert set(written) == {".json", ".jsonl", ".md", ".png"}
    assert json.loads(written[".json"].read_text())["machine"]["lightgbm"]
    tables = written[".md"].read_text()

    def again(*args):
        raise AssertionError("it was known")

    monkeypatch.setattr(script, "compute", again)
    script.main(["--quick", "--out", str(tmp_path)])
    assert written[".md"].read_text() == tables
    with pytest.raises(SystemExit):
        script.main([])


def test_a_line_that_was_cut_off_counts_for_nothing(tmp_path):
    keys = [{"n": 1}, {"n": 2}]
    results.complete("x", keys[:1], lambda key: {"found": key["n"]}, tmp_path, 1)
    with (tmp_path / "x.jsonl").open("a") as file:
        file.write('{"key": {"n": 2}, "fou')
    found = results.complete("x", keys, lambda key: {"found": 10 * key["n"]}, tmp_path, 1)
    assert [record["found"] for record in found] == [1, 20]
    assert [record["found"] for record in results.complete("x", keys, None, tmp_path, 1)] == [1, 20]


def test_sampled_scores_are_those_in_closed_form():
    rng = np.random.default_rng(0)
    forecast = Normal.from_moments(rng.normal(size=400), rng.uniform(0.1, 4.0, 400))
    y = rng.normal(size=400)
    found = uci.scores(forecast, y)
    # 400 rows of 1,000 samples: the mean's standard error is below a thousandth
    assert found["crps_sampled"] == pytest.approx(found["crps"], rel=5e-3)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((forecast.mean() - y) ** 2)))


@pytest.mark.parametrize("family", [Poisson, NegativeBinomial])
def test_discrete_families_score_labels_that_are_no_whole_numbers(family):
    rng = np.random.default_rng(0)
    y = np.array([-0.4, 0.0, 0.3, 1.7, 2.0, 11.9])
    forecast = family.from_moments(np.full(6, 2.3), np.full(6, 3.5))
    samples = forecast.rvs(200_000, random_state=rng)
    expected = [crps_ensemble(y[k : k + 1], samples[k : k + 1]) for k in range(6)]
    np.testing.assert_allclose(forecast.crps(y), expected, atol=0.02)  # five standard errors


def test_the_number_of_trees_is_that_of_the_least_validation_error():
    split = load(None, "yacht-sized", 3)
    first = uci.validated_lightgbm(split, 25)
    errors = [uci.rmse(first.predict(split.X_val, num_iteration=k), split.y_val) for k in range(1, 26)]
    assert first.best_iteration == 1 + np.argmin(errors)
    early = uci.train_lightgbm(split.X, split.y, 4)
    first.best_iteration = 4
    model = wrap(first, split.X, split.y)
    np.testing.assert_array_equal(model.predict(split.X_test), early.predict(split.X_test))
    assert model.certificate.status == "certified"

    errors = []
    best = uci.best_xgboost(split, 12)
    for k in range(1, 13):
        booster = uci.train_xgboost(split.X, split.y, k)
        errors.append(uci.rmse(booster.inplace_predict(split.X_val), split.y_val))
    assert best == 1 + np.argmin(errors)


def test_the_second_training_has_all_rows_but_those_of_the_test():
    split = load(None, "boston-sized", 0)
    X, y = uci.all_rows(split)
    assert len(split.y_val) == int(0.2 * len(y))
    assert len(y) + len(split.y_test) == 506
    assert len({*y, *split.y_test}) == 506  # labels are continuous: each names its row
    np.testing.assert_array_equal(X, np.concatenate([split.X, split.X_val]))


def test_keys_hold_the_settings():
    plan = uci.Plan(None, {"a": 2}, 5)
    assert [(k["set"], k["split"], k["model"]) for k in plan.keys({"x": 1}, model="m")] == [
        ("a", 0, "m"),
        ("a", 1, "m"),
    ]
    assert plan.keys({"x": 1}) != plan.keys({"x": 2})
    assert plan.keys({"x": 1}) != replace(plan, rounds=6).keys({"x": 1})


def test_ratios_are_of_the_splits_that_both_have():
    found = {"lightgbm": {"a": [1.0, 3.0], "b": [2.0]}, "xgboost": {"a": [2.0], "b": [8.0]}, "ngboost": {"c": [1.0]}}
    assert table5.ratio(found, "xgboost") == (pytest.approx(np.sqrt(2.0 * 4.0)), 2)
    assert table5.ratio(found, "ngboost")[1] == 0


def test_cells_say_where_splits_are_missing():
    assert table5.cell([1.0, 3.0], 2) == "2.00 ± 1.4"
    assert table5.cell([2.0], 20) == "2.00 (1 of 20)"
    assert results.mean_and_sd([900.0, 1500.0]) == "1,200 ± 424"
    assert table5.apart([1.0, 3.0], (1.0, 0.5)) == "+2.0"
    assert table5.apart([1.0], (0.0, 0.0)) == ""


def test_what_is_chosen_on_validation_rows_is_what_is_tested():
    work = uci.Plan(None, {"yacht-sized": 1}, 20)
    (key,) = work.keys({})
    found = table2.compute(key, work)
    split = uci.split_of(key, work)
    known = {name: line for name, line in found["validation"].items() if None not in line}
    assert found["validation"]["weibull"] == [None] * 10  # made-up labels are also negative
    family = min(known, key=lambda name: min(known[name]))
    rho = table2.RHO[np.argmin(known[family])]
    assert found["chosen"] == {"family": family, "rho": rho, "refused": False}
    first = uci.validated_lightgbm(split, 20)
    _, final = uci.wrapped(uci.train_lightgbm, *uci.all_rows(split), first.best_iteration)
    assert found["optimal"] == final.predict_dist(split.X_test, family, rho=rho).crps(split.y_test).mean()
    assert found["base"] == final.predict_dist(split.X_test).crps(split.y_test).mean()


def test_costs_of_fewer_trees_and_rows_are_scaled():
    costs = {"lightgbm": (1.0, 2.0, 100), "lightgbm+wrap": (0.0, 0.5, 100), "quantiles": (0.0, 7.0, 2000)}
    lines = {name: dict(zip(("once", "boosting", "trees"), cost, strict=True)) for name, cost in costs.items()}
    records = [{"key": {"set": "x"}, "costs": lines}]
    size = table3.Size(1000, 3)
    assert table3.seconds(records, "x", size) == {
        "lightgbm": (41.0, True),
        "lightgbm+wrap": (51.0, True),
        "quantiles": (7.0, False),
    }
    assert table3.seconds(records, "x", replace(size, run=500))["quantiles"] == (14.0, True)


def test_totals_are_in_the_order_of_their_first_rows():
    sums, first = totals.total_of([1.0, 2.0, 4.0, 8.0], np.array([7, 3, 7, 5]))
    assert sums.tolist() == [5.0, 2.0, 8.0]
    assert first.tolist() == [0, 1, 3]


def test_published_figures_are_at_their_places():
    assert published.TABLE_5["concrete"]["crps"]["NGBoost"] == (2.95, 0.326)
    assert published.TABLE_5["protein"]["rmse"]["LightGBM"] == (3.82, 0.058)
    assert published.TABLE_2["protein"]["lognormal"] == 45.3
    assert (published.TABLE_2["boston"]["base"], published.TABLE_2["boston"]["optimal"]) == (2.08, 2.06)


def test_the_page_takes_what_there_is(tmp_path):
    page = readme.PAGE.read_text()
    names = [script.NAME for script in (table5, figure3, table2, table3, table4, totals)]
    assert [match[2] for match in readme._MARKED.finditer(page)] == names
    for name in names:
        assert f"python -m examples.paper.{name}" in page
    (tmp_path / "table2.md").write_text("| a |\n")
    (tmp_path / "table2.png").write_bytes(b"")
    once = readme.filled(page, tmp_path)
    assert "| a |\n\n![table2](results/table2.png)" in once
    assert once.count(readme.NONE) == 5
    assert readme.filled(once, tmp_path) == once
