"""Plots: their artists hold what the distributions say, their bands what calibrated models do."""

from __future__ import annotations

import datetime
import sys

import lightgbm as lgb
import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

from pgbm_plugin import plot, wrap
from pgbm_plugin.distributions import Conformal, Empirical, Normal, Poisson
from pgbm_plugin.predict.recursion import margins_and_variances
from pgbm_plugin.tables.rows import read_rows

mpl.use("Agg")

from matplotlib import pyplot as plt

LGB = {"num_leaves": 6, "verbose": -1, "num_threads": 1}


@pytest.fixture(autouse=True)
def _no_other_figures():
    plt.close("all")
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def tuned(numeric):
    """A model, the rows it was not wrapped with, and what tune found."""
    X, y = numeric
    model = wrap(lgb.train(LGB, lgb.Dataset(X[:200], y[:200]), 12), X[:200], y[:200], variance="pgbm")
    result = model.tune(X[200:300], y[200:300], distributions=["normal", "gamma", "laplace", "gumbel", "logistic"])
    return model, X[300:], y[300:], result


@pytest.fixture
def dist():
    return Normal(loc=np.array([1.0, 3.0, 2.0]), scale=np.array([1.0, 0.5, 2.0]))


def band_ends(collection):
    """x -> (lowest, highest) of a filled band."""
    vertices = collection.get_paths()[0].vertices
    return {x: (vertices[vertices[:, 0] == x, 1].min(), vertices[vertices[:, 0] == x, 1].max()) for x in vertices[:, 0]}


def lines(ax):
    return {line.get_label(): line for line in ax.lines}


def test_fan_draws_the_distributions_in_the_order_of_x(dist):
    ax = plot.fan(dist, y=[0.5, 3.5, 2.5], x=[20, 30, 10], coverages=(0.8, 0.5))
    for collection, coverage in zip(ax.collections, (0.8, 0.5), strict=True):  # the widest lies lowest
        low, high = dist.interval(coverage)
        assert band_ends(collection) == {x: (low[k], high[k]) for k, x in enumerate([20, 30, 10])}
    np.testing.assert_array_equal(lines(ax)["median"].get_xydata(), [[10, 2.0], [20, 1.0], [30, 3.0]])
    np.testing.assert_array_equal(lines(ax)["outcome"].get_xydata(), [[10, 2.5], [20, 0.5], [30, 3.5]])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["80 %", "50 %", "median", "outcome"]


def test_fan_without_x_and_y(dist):
    ax = plot.fan(dist)
    np.testing.assert_array_equal(lines(ax)["median"].get_xydata(), [[0, 1.0], [1, 3.0], [2, 2.0]])
    assert "outcome" not in lines(ax)
    assert ax.get_xlabel() == "row"


def test_the_legend_of_a_fan_is_as_dark_as_its_bands(dist):
    ax = plot.fan(dist)
    alphas = [patch.get_alpha() for patch in ax.get_legend().get_patches()]
    seen, expected = 0.0, []
    for collection in ax.collections:
        seen = seen + (1.0 - seen) * collection.get_alpha()
        expected.append(seen)
    np.testing.assert_allclose(alphas, expected, rtol=1e-15)  # the same sum, otherwise written


DAYS = [datetime.date(2024, 3, 2), datetime.date(2024, 3, 3), datetime.date(2024, 3, 1)]


@pytest.mark.parametrize(
    "x",
    [
        np.array(DAYS, "datetime64[D]"),
        pd.DatetimeIndex(DAYS),
        pd.Series(pd.DatetimeIndex(DAYS, tz="Europe/Amsterdam")),
        DAYS,
    ],
    ids=["numpy", "index", "zone", "list"],
)
def test_fan_over_dates(dist, x):
    ax = plot.fan(dist, x=x)
    ax.figure.canvas.draw()
    drawn = [date.date() for date in mpl.dates.num2date(ax.convert_xunits(lines(ax)["median"].get_xdata()), tz=None)]
    # midnight in Amsterdam is the day before in UTC
    shift = datetime.timedelta(days=1 if getattr(getattr(x, "dt", None), "tz", None) else 0)
    assert [day + shift for day in drawn] == sorted(DAYS)
    np.testing.assert_array_equal(lines(ax)["median"].get_ydata(), [2.0, 1.0, 3.0])


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"x": [1, 2]}, ValueError, r"x must have shape \(3,\)"),
        ({"x": ["a", "b", "c"]}, TypeError, "numbers or dates"),
        ({"x": np.array(["a", "b", "c"], object)}, TypeError, "numbers or dates"),
        ({"x": [1.0, np.nan, 2.0]}, ValueError, "x has missing values"),
        ({"x": np.array(["2024-01-01", "NaT", "2024-01-02"], "datetime64[D]")}, ValueError, "x has missing values"),
        ({"y": [1.0, 2.0]}, ValueError, "y has 2 values"),
        ({"coverages": (0.5, 1.0)}, ValueError, "coverages must lie strictly between 0 and 1"),
    ],
)
def test_fan_refuses(dist, arguments, error, match):
    with pytest.raises(error, match=match):
        plot.fan(dist, **arguments)
    assert not plt.get_fignums()


def test_fan_says_where_a_band_has_no_end():
    few = Conformal(residuals=np.linspace(-1, 1, 9), loc=np.arange(3.0), scale=1.0)
    with pytest.warns(UserWarning, match="too few"):
        ax = plot.fan(few)
    assert [text.get_text() for text in ax.get_legend().get_texts()][:2] == ["95 %, partly infinite", "80 %"]


def test_pit_is_the_histogram_of_the_transforms():
    rng = np.random.default_rng(0)
    dist = Normal(loc=np.zeros(500), scale=1.0)
    y = rng.normal(scale=2.0, size=500)
    ax = plot.pit(dist, y, bins=10)
    density = ax.patches[0].get_data().values
    counts = np.histogram(dist.cdf(y), 10, (0, 1))[0]
    np.testing.assert_allclose(density, counts / 50, rtol=1e-15)  # rounded once here, twice there
    low, one, high = (line.get_ydata()[0] for line in ax.lines)
    assert low < one == 1.0 < high
    assert density[0] > high
    assert density[4] < low


def test_reliability_is_the_coverage_of_intervals():
    rng = np.random.default_rng(0)
    dist, y = Normal(loc=np.arange(300.0), scale=2.0), np.arange(300.0) + rng.normal(size=300)
    ax = plot.reliability(dist, y)
    nominal, held = ax.lines[0].get_data()
    assert nominal[0] == held[0] == 0.0
    assert nominal[-1] == held[-1] == 1.0
    for level, share in zip(nominal[1:-1], held[1:-1], strict=True):
        low, high = dist.interval(level)
        assert share == np.mean((low <= y) & (y <= high))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["holds 95 % of calibrated models"]


def test_reliability_compares_distributions_by_name():
    y = np.random.default_rng(0).normal(size=100)
    named = {
        "_under": Normal(loc=np.zeros(100), scale=1.0),
        r"$\frac{$": Normal(loc=np.zeros(100), scale=2.0),
        "residuals": Empirical(residuals=np.linspace(-2, 2, 50), loc=np.zeros(100), scale=1.0),
    }
    ax = plot.reliability(named, y, confidence=0.9)
    ax.figure.canvas.draw()  # would fail if names were formulas
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == [*named, "holds 90 % of calibrated models"]
    assert len(ax.collections) == 2  # one band for formulas, one for residuals
    assert len({(line.get_color(), line.get_linestyle()) for line in ax.lines}) == 4


def test_tuning_draws_the_scores(tuned):
    result = tuned[3]
    ax = plot.tuning(result)
    drawn = lines(ax)
    scores = dict(zip(result.distributions, result.scores, strict=True))
    for candidate in result.candidates[:4]:
        np.testing.assert_array_equal(drawn[candidate.distribution].get_xdata(), result.rho)
        np.testing.assert_array_equal(drawn[candidate.distribution].get_ydata(), scores[candidate.distribution])
    np.testing.assert_array_equal(drawn["other families"].get_ydata(), scores[result.candidates[4].distribution])
    chosen = drawn[f"chosen, rho = {result.best.rho:.3g}"]
    assert chosen.get_xydata().tolist() == [[result.best.rho, result.best.score]]
    assert drawn["one spread for all rows"].get_ydata()[0] == result.constant.score
    assert ax.get_ylabel() == "mean CRPS, 100 rows"


def test_tuning_of_one_correlation_is_points(numeric):
    X, y = numeric
    model = wrap(lgb.train(LGB, lgb.Dataset(X[:200], y[:200]), 5), X[:200], y[:200])
    ax = plot.tuning(model.tune(X[200:], y[200:], rho=0.02, distributions="normal", score="nll"))
    assert lines(ax)["normal"].get_marker() == "o"
    assert ax.get_ylabel() == "mean NLL, 200 rows"


@pytest.mark.parametrize("booster", ["lightgbm", "xgboost"])
def test_variance_by_tree(booster, numeric):
    X, y = numeric
    if booster == "lightgbm":
        model = wrap(lgb.train(LGB, lgb.Dataset(X, y), 9), X, y)
    else:
        model = wrap(xgb.train({"max_depth": 3, "nthread": 1}, xgb.DMatrix(X, y), 9), X, y)
    model.rho = 0.1
    ax = plot.variance_by_tree(model, X, quantiles=(0.75, 0.25))
    rows, forest = read_rows(X, model.forest.features), model.forest
    trees, mean = lines(ax)["mean"].get_data()
    ends = band_ends(ax.collections[0])
    assert trees.tolist() == list(range(1, 10))
    for k, of_k in zip(trees, mean, strict=True):
        first = forest.first_trees(k)
        _, variance, _ = margins_and_variances(first, rows, first.leaf_value, model.weights.sd[: first.n_leaves], 0.1)
        assert of_k == variance.mean()
        assert ends[k] == tuple(np.quantile(variance, [0.25, 0.75]))
    assert mean[-1] == model.predict_var(X).mean()


def test_variance_by_tree_of_many_rows_and_trees(numeric, monkeypatch):
    X, y = numeric
    model = wrap(lgb.train(LGB, lgb.Dataset(X, y), 30), X, y)
    monkeypatch.setattr("pgbm_plugin.plot.growth.MAX_PLACES", 7)
    whole = lines(plot.variance_by_tree(model, X))["mean"]
    assert whole.get_xdata().tolist() == [1, 5, 10, 15, 20, 25, 30]
    assert whole.get_ydata()[-1] == model.predict_var(X).mean()
    monkeypatch.setattr("pgbm_plugin.plot.growth.MAX_ROWS", 100)
    part = lines(plot.variance_by_tree(model, pd.DataFrame(X, columns=[f"Column_{j}" for j in range(4)])))["mean"]
    drawn = np.sort(np.random.default_rng(0).choice(400, 100, replace=False))
    assert part.get_ydata()[-1] == model.predict_var(X[drawn]).mean()


def calls(tuned):
    model, X, y, result = tuned
    dist = model.predict_dist(X)
    return [
        lambda ax: plot.fan(dist, y, ax=ax),
        lambda ax: plot.pit(dist, y, ax=ax),
        lambda ax: plot.reliability(dist, y, ax=ax),
        lambda ax: plot.tuning(result, ax=ax),
        lambda ax: plot.variance_by_tree(model, X, ax=ax),
    ]


def test_given_axes_are_used_and_nothing_else_changes(tuned, monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *args, **kwargs: pytest.fail("a plot was shown"))
    before = dict(mpl.rcParams)
    figure, axes = plt.subplots(5)
    for call, ax in zip(calls(tuned), axes, strict=True):
        assert call(ax) is ax
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        assert not ax.get_title()
    assert plt.get_fignums() == [figure.number]
    assert dict(mpl.rcParams) == before


def test_without_axes_each_has_a_figure_of_its_own(tuned):
    made = [call(None) for call in calls(tuned)]
    assert len({ax.figure for ax in made}) == 5
    assert len(plt.get_fignums()) == 5


def test_plots_take_the_colours_of_a_dark_style(dist):
    with plt.style.context("dark_background"):
        ax = plot.fan(dist, y=[1.0, 2.0, 3.0])
    assert lines(ax)["outcome"].get_color() == "white"


def test_without_matplotlib(tuned, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for call in calls(tuned):
        with pytest.raises(ImportError, match=r'pip install "pgbm-plugin\[plot\]"'):
            call(None)


def test_wrong_arguments_leave_no_figure_behind(tuned):
    model, X, y, _ = tuned
    dist = model.predict_dist(X)
    for wrong, error, match in (
        (lambda: plot.pit(model, y), TypeError, "dist must be a Distribution, such as model.predict_dist"),
        (lambda: plot.pit(dist, None), TypeError, "y is None; give the labels"),
        (lambda: plot.pit(dist, y, bins=1), ValueError, "bins must be a whole number, at least 2"),
        (lambda: plot.pit(dist, y, confidence=1.0), ValueError, "confidence must lie strictly"),
        (lambda: plot.reliability(dist, y[1:]), ValueError, "y has 99 values"),
        (lambda: plot.reliability({}, y), ValueError, "dist is an empty dict"),
        (lambda: plot.reliability(dist, y, confidence=95), ValueError, "confidence must lie strictly"),
        (lambda: plot.variance_by_tree(model, X[:, 1:]), ValueError, "3 columns"),
    ):
        with pytest.raises(error, match=match):
            wrong()
    assert not plt.get_fignums()


def test_counts_are_placed_evenly_within_their_jumps():
    """Poisson counts fill the histogram; their plain transforms, and the mid ones, would leave most bins empty."""
    mu = np.full(20_000, 0.7)
    y = np.random.default_rng(1).poisson(mu)
    ax = plot.pit(Poisson(mu=mu), y)
    density = ax.patches[0].get_data().values
    low, _, high = (line.get_ydata()[0] for line in ax.lines)
    assert density.min() >= low
    assert density.max() <= high
    nominal, held = plot.reliability(Poisson(mu=mu), y).lines[0].get_data()
    np.testing.assert_allclose(held, nominal, atol=0.02)  # five standard errors


def test_contributions_are_the_largest_parts(tuned):
    model, X, _, _ = tuned
    parts = model.explain_variance(X[:10])
    ax = plot.contributions(parts, row=4, count=2)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert list(zip(names, [bar.get_width() for bar in ax.patches], strict=True)) == parts.largest(4, 2)
    widths = [bar.get_width() for bar in plot.contributions(parts.std()).patches]
    np.testing.assert_allclose(sorted(widths), np.sort(np.abs(parts.std().values).mean(axis=0)))
    with pytest.raises(ValueError, match="no rows"):
        plot.contributions(model.explain_variance(X[:0]))
