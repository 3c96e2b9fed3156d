"""The report: right in its numbers, and honest in its sentences. `test_report_page` has the page."""

from __future__ import annotations

import copy
import re
import sys
import warnings

import lightgbm as lgb
import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from pgbm_plugin import wrap
from pgbm_plugin.distributions import Normal
from pgbm_plugin.report import findings, numbers, report, words
from pgbm_plugin.report.findings import assess
from pgbm_plugin.scores import coverage, crps, nll
from tests.people.reported import CAL, LGB, NAMES, TEST, TRAIN, VAL


def test_numbers_are_those_of_the_scores(report_cases, report_data, report_pages):
    X = report_data[0][TEST]
    for name in NAMES:
        model, y, _ = report_cases[name]
        dist, prediction, found = model.predict_dist(X), model.predict(X), assess(model, X, y, None)
        sd = np.sqrt(np.mean((y - prediction) ** 2))
        baseline = Normal(loc=prediction.astype(float), scale=sd)
        # sums in another order; a scale from a variance
        assert found.crps.model.value == pytest.approx(crps(y, dist), rel=1e-12)
        assert found.crps.baseline.value == pytest.approx(crps(y, baseline), rel=1e-12)
        difference = dist.crps(y) - baseline.crps(y)
        assert found.crps.difference.value == pytest.approx(difference.mean(), rel=1e-9)
        assert found.crps.difference.error == pytest.approx(difference.std(ddof=1) / np.sqrt(len(y)), rel=1e-9)
        assert found.rmse.model.value == found.sd == pytest.approx(sd, rel=1e-12)
        assert found.mae.model.value == pytest.approx(np.mean(np.abs(y - prediction)), rel=1e-12)
        if name in ("conformal", "empirical"):
            assert found.nll is None
        else:
            assert found.nll.model.value == pytest.approx(nll(y, dist), rel=1e-12)
        for interval in found.intervals:
            ends = dist.interval(interval.level)
            assert interval.held == coverage(y, ends)
            assert interval.width.value == pytest.approx(np.mean(ends[1] - ends[0]), rel=1e-12)
            assert interval.baseline_held == coverage(y, baseline.interval(interval.level))
            assert numbers.percent(interval.held).replace(" ", "&nbsp;") in report_pages[name]
        assert numbers.plus_minus(found.crps.model).replace(" ± ", "&nbsp;±&nbsp;") in report_pages[name]


def test_standard_error_of_the_rmse(report_cases, report_data):
    """Against the bootstrap."""
    model, y, _ = report_cases["tuned"]
    X, rng = report_data[0][TEST], np.random.default_rng(0)
    square = (y - model.predict(X)) ** 2
    draws = np.sqrt(square[rng.integers(0, len(y), (4000, len(y)))].mean(axis=1))
    # the bootstrap's own error is 1 %, the rest is curvature of the root
    assert assess(model, X, y, None).rmse.model.error == pytest.approx(draws.std(), rel=0.05)


def test_intervals_of_counts_should_hold_more(report_cases, report_data):
    model, y, _ = report_cases["poisson"]
    X = report_data[0][TEST]
    dist = model.predict_dist(X)
    for interval in assess(model, X, y, None).intervals:
        low, high = dist.interval(interval.level)
        held = [dist.to_scipy().cdf(high)[k] - dist.to_scipy().cdf(low - 1)[k] for k in range(0, 800, 50)]
        assert interval.expected > interval.level
        assert np.mean(held) == pytest.approx(interval.expected, abs=0.05)  # a sample of the rows
        assert interval.low < interval.expected < interval.high


def test_sentences_say_what_is_found(report_cases, report_pages, report_data):
    X = report_data[0][TEST]

    def sentence(name):
        return words.on_intervals(assess(*report_cases[name][:1], X, report_cases[name][1], None))

    assert re.match(r"Intervals are too narrow: 90 % intervals held [3-7]\d\.\d % of outcomes", sentence("narrow"))
    for name in ("conformal", "poisson"):
        as_wide = "Intervals are as wide as they should be, as far as 800 rows can tell: 90 % intervals held"
        assert sentence(name).startswith(as_wide)
    assert "outcomes fall into the tails more often than predicted" in report_pages["narrow"]
    assert "The spreads of the model do harm here" in report_pages["narrow"]
    assert "A spread for each row pays off" in report_pages["tuned"]
    assert "A Poisson distribution takes its spread from its mean" in report_pages["poisson"]
    assert "Outcomes are counts" in report_pages["poisson"]
    assert "Tuning on 500 rows chose poisson" in report_pages["poisson"]
    assert "on 300 rows, around normal" in report_pages["conformal"]


def test_rows_that_were_seen_are_told(report_cases, report_data):
    X, y, _ = report_data
    model = report_cases["tuned"][0]
    assert "The spreads of the model were computed from these same rows" in report(model, X[TRAIN], y[TRAIN])
    assert "The spreads of the model were tuned on these same rows" in report(model, X[VAL], y[VAL])
    assert 'class="warning"' not in report(model, X[TEST], y[TEST])


def test_many_rows_are_drawn_from(report_cases, report_data, monkeypatch):
    X, y, _ = report_data
    model = report_cases["tuned"][0]
    monkeypatch.setattr(findings, "MAX_ROWS", 500)
    page = report(model, pd.DataFrame(X, columns=model.forest.features.names), y)
    assert "This report is about 500 rows, drawn at random from 2,400." in page
    found = assess(model, X, y, None)
    drawn = np.sort(np.random.default_rng(0).choice(2400, 500, replace=False))
    assert found.crps.model.value == pytest.approx(crps(y[drawn], model.predict_dist(X[drawn])), rel=1e-12)
    rows = re.findall(r'<tr><th scope="row">(\d+)</th>', page)
    assert len(rows) == 20
    std = model.predict_dist(X[drawn]).std()
    assert [int(row) for row in rows[:10]] == drawn[np.argsort(-std, kind="stable")[:10]].tolist()
    support = model.predict_support(X[drawn])
    assert [int(row) for row in rows[10:]] == drawn[support.least()].tolist()
    assert np.array_equal(found.support.rows, support.rows)
    assert found.support.outside == support.outside
    assert f"{np.count_nonzero(support.n_outside)} of the 500 rows have values outside of what training saw" in page


def test_init_scores_are_used(report_data):
    X, y, _ = report_data
    start = 3.0 * X[:, 2]
    booster = lgb.train(LGB, lgb.Dataset(X[TRAIN], (y + start)[TRAIN], init_score=start[TRAIN]), 10)
    model = wrap(booster, X[TRAIN], (y + start)[TRAIN], init_score=start[TRAIN])
    found = assess(model, X[TEST], (y + start)[TEST], start[TEST])
    np.testing.assert_array_equal(found.prediction, model.predict(X[TEST], init_score=start[TEST]))
    assert found.sd < 2.0


def test_few_conformal_rows_give_infinite_ends(report_data):
    X, y, _ = report_data
    model = wrap(lgb.train(LGB, lgb.Dataset(X[TRAIN], y[TRAIN]), 10), X[TRAIN], y[TRAIN])
    model.conformalize(X[CAL][:15], y[CAL][:15])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = report(model, X[TEST], y[TEST])
    assert "-∞ to ∞" in page
    assert "95&nbsp;%, partly infinite" in page or "95 %, partly infinite" in page


def test_a_model_that_is_never_wrong():
    X = np.repeat([[0.0], [1.0]], 50, axis=0)
    y = X[:, 0]
    model = wrap(lgb.train({**LGB, "learning_rate": 1.0, "min_data_in_leaf": 1}, lgb.Dataset(X, y), 1), X, y)
    page = report(model, X[::2], y[::2])
    assert "not clearly better than one spread" in page
    assert "No tree adds any variance" in page
    assert "No feature matters: the model gives every row the same spread" in page


def test_outcomes_without_density_are_counted(report_data):
    X, y, _ = report_data
    positive = np.exp(0.3 * y)
    booster = lgb.train({**LGB, "objective": "gamma"}, lgb.Dataset(X[TRAIN], positive[TRAIN]), 20)
    model = wrap(booster, X[TRAIN], positive[TRAIN])
    model.distribution = "gamma"
    outcome = positive[TEST].copy()
    outcome[:3] = -1.0
    page = report(model, X[TEST], outcome)
    assert "To the model, 3 of the outcomes were impossible: density 0." in page
    assert "∞" in page


def test_path_and_repetition(report_cases, report_data, tmp_path):
    model, y, result = report_cases["tuned"]
    path = tmp_path / "page.html"
    assert report(model, report_data[0][TEST], y, tuning=result, path=path) is path
    assert path.read_text(encoding="utf-8") == report(model, report_data[0][TEST], y, tuning=result)
    # a title that is no text, as the shell may give it
    report(model, report_data[0][TEST], y, title="\udcff", path=tmp_path / "page.html")
    assert "<title>?</title>" in (tmp_path / "page.html").read_text(encoding="utf-8")
    with pytest.raises(IsADirectoryError, match="give the path of a file in it"):
        report(model, None, None, path=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no directory '.*none' to write 'page\.html' to"):
        report(model, None, None, path=tmp_path / "none" / "page.html")


def test_no_global_state_is_changed(report_cases, report_data):
    from matplotlib import pyplot as plt

    before, figures = dict(mpl.rcParams), plt.get_fignums()
    model, y, _ = report_cases["tuned"]
    with mpl.rc_context({"axes.facecolor": "red", "svg.fonttype": "path"}):
        assert report(model, report_data[0][TEST], y) == report(model, report_data[0][TEST], y)
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == figures


def test_outcomes_in_another_unit(report_cases, report_data):
    """`report` says what `tune` says, in a warning and on the page."""
    model, y, _ = report_cases["tuned"]
    X = report_data[0][TEST]
    for shift, scale in ((100.0, 1.0), (0.0, -1.0)):
        with warnings.catch_warnings(record=True) as of_tune:
            warnings.simplefilter("always")
            copy.deepcopy(model).tune(X, scale * y + shift, distributions="normal", rho=0.0)
        with warnings.catch_warnings(record=True) as of_report:
            warnings.simplefilter("always")
            page = report(model, X, scale * y + shift)
        said = [str(w.message) for w in of_report]
        assert said == [str(w.message).replace("tune", "report") for w in of_tune]
        assert ("check that they are in the unit of training" in page) == bool(shift) == bool(said)


def test_refusals(report_cases, report_data, monkeypatch):
    model, y, _ = report_cases["tuned"]
    X = report_data[0][TEST]
    for call, error, match in (
        (lambda: report("model", X, y), TypeError, "must be a ProbabilisticModel"),
        (lambda: report(model, X, None), TypeError, "y is None; give the labels"),
        (lambda: report(model, X[:1], y[:1]), ValueError, "at least 2 rows"),
        (lambda: report(model, X, y[1:]), ValueError, "y has 799 values"),
        (lambda: report(model, X, y, tuning={}), TypeError, "the TuneResult that model.tune returned"),
        (lambda: report(model, iter([X]), y), TypeError, "one table"),
    ):
        with pytest.raises(error, match=match):
            call()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pgbm-plugin\[plot\]"):
        report(model, X, y)


def test_coverage_by_group(report_cases, report_data):
    """The worst first, with the band of chance; bins of the prediction if it is told a word."""
    X = report_data[0][TEST]
    model, y, _ = report_cases["narrow"]
    shop = np.where(X[:, 1] > 1.0, "<b>Oslo</b>", "Lyon")
    found = assess(model, X, y, None, shop).groups
    expected = coverage(y, model.predict_interval(X), groups=shop)
    assert found.groups.tolist() == expected.groups.tolist()
    assert (found.cover.tolist(), found.low.tolist()) == (expected.cover.tolist(), expected.low.tolist())
    page = report(model, X, y, groups=shop)
    assert "<b>Oslo" not in page
    assert "&lt;b&gt;Oslo" in page
    assert "90&nbsp;% intervals hold too few outcomes in 2 of 2 groups" in page
    for by in ("mean", "spread"):
        tenths = assess(model, X, y, None, by).groups
        assert len(tenths) == 10
        assert tenths.rows.sum() == len(y)
    with pytest.raises(ValueError, match="'mean' or 'spread', not 'shop'"):
        report(model, X, y, groups="shop")
    with pytest.raises(ValueError, match="groups has 3 keys"):
        report(model, X, y, groups=["a", "b", "c"])


def test_groups_of_conformalize(report_cases, report_data):
    X, y, _ = report_data
    model = copy.copy(report_cases["conformal"][0])
    shop = np.where(X[:, 1] > 0.0, "Oslo", "Lyon")
    model.conformalize(X[CAL], y[CAL], groups=shop[CAL])
    with pytest.raises(ValueError, match="give the group of each row"):
        report(model, X[TEST], y[TEST])
    page = report(model, X[TEST], y[TEST], groups=shop[TEST])
    assert "on 300 rows in 2 groups, around normal" in page
    found = assess(model, X[TEST], y[TEST], None, shop[TEST]).groups
    expected = coverage(y[TEST], model.predict_interval(X[TEST], groups=shop[TEST]), groups=shop[TEST])
    assert sorted(found.cover) == sorted(expected.cover)
    assert found.low.min() < expected.low.min()  # the calibration rows were drawn by chance, too


def test_words_on_groups():
    inside, group = np.arange(400) % 10 > 0, np.arange(400) // 100
    ends = np.tile([-0.5, 0.5], (400, 1))
    right = coverage(1.0 - inside, ends, groups=group)
    assert words.on_groups(right).startswith("In all 4 groups, 90 % intervals hold as many outcomes as they should")
    wide = coverage(np.where(group == 1, 0.0, 1.0 - inside), ends, groups=group)
    assert words.on_groups(wide) == "90 % intervals hold more than they should in 1 of 4 groups."
    both = coverage(
        np.where(group == 1, 0.0, np.where(group == 2, np.arange(400) % 3 > 0, 1.0 - inside)), ends, groups=group
    )
    assert words.on_groups(both).startswith(
        "90 % intervals hold too few outcomes in 1 of 4 groups, first of all in 2: 33.0 %"
    )
    assert words.on_groups(both).endswith("Intervals hold more than they should in 1 of 4 groups.")


def test_parts_of_time(report_cases, report_data):
    X = report_data[0][TEST]
    model, y, _ = report_cases["tuned"]
    shuffled = np.random.default_rng(0).permutation(len(y))
    date = np.datetime64("2024-01-01") + np.arange(len(y)) // 4
    found = assess(model, X[shuffled], y[shuffled], None, time=date[shuffled]).time
    low, high = model.predict_interval(X).T
    inside = (low <= y) & (y <= high)
    assert len(found) == 10
    np.testing.assert_allclose(found.cover, [part.mean() for part in np.split(inside, 10)])
    assert found.groups[0] == "2024-01-01 to 2024-01-20"
    same = assess(model, X[shuffled], y[shuffled], None, time=[str(day) for day in date[shuffled]]).time
    assert same.groups.tolist() == found.groups.tolist()
    hours = assess(model, X[:120], y[:120], None, time=np.datetime64("2024-01-01T06") + np.arange(120)).time
    assert hours.groups.tolist() == [
        "2024-01-01T06:00:00 to 2024-01-03T17:00:00",
        "2024-01-03T18:00:00 to 2024-01-06T05:00:00",
    ]
    assert assess(model, X, y, None, time=np.arange(len(y))).time.groups[9] == "720 to 799"
    late = np.where(np.arange(len(y)) < 720, y, y + 20.0)
    page = report(model, X, late, time=date)
    assert "hold too few outcomes in 1 of 10 parts of time, the latest among them" in page
    assert "Intervals are too narrow in the latest part, 2024-06-29 to 2024-07-18" in page
    with pytest.raises(ValueError, match="time holds the text '1/5/2024': give dates"):
        report(model, X, y, time=["1/5/2024"] * len(y))
    with pytest.raises(TypeError, match="time holds values that have no order"):
        report(model, X, y, time=["2024-01-01", 3] * (len(y) // 2))


def test_names_units_and_reasons(report_cases, report_data):
    X = report_data[0][TEST]
    model, y, _ = report_cases["tuned"]
    house = pd.Series([f"house <{k}>" for k in range(len(y))], name="which house")
    page = report(model, X, y, id=house, unit="$")
    found = assess(model, X, y, None, id=house)
    std = model.predict_dist(X).std()
    assert found.least_sure.names[0] == f"house <{np.argmax(std)}>"
    assert f"house &lt;{np.argmax(std)}&gt;" in page
    assert "which house" in page
    assert numbers.quantity(float(model.predict(X)[np.argmax(std)]), "$") in page
    # the spread of these data comes from the second feature alone
    name = model.forest.features.names[1]
    assert found.least_sure.why[0].startswith(f"{name} = {numbers.number(X[np.argmax(std), 1])}")
    assert found.id_name == "which house"
    with pytest.raises(TypeError, match="unit must be text"):
        report(model, X, y, unit=3)
    with pytest.raises(ValueError, match="id has 3 keys"):
        report(model, X, y, id=[1, 2, 3])


def test_untuned_models_are_marked(report_cases, report_data):
    X = report_data[0][TEST]
    for name in ("narrow", "tuned", "conformal"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            page = report(report_cases[name][0], X, report_cases[name][1])
        assert ('class="danger"' in page) == (name == "narrow")
        assert "When not to trust it" in page
