"""Few validation rows: what is held back, by how much, and that enough rows are held back in nothing."""

from __future__ import annotations

import numpy as np
import pytest

from pgbm_plugin import wrap
from pgbm_plugin.calibration.few_rows import ENOUGH, effective_rows, exponent_bounds, scarcity, simplest
from pgbm_plugin.calibration.fit_map import fit_map
from pgbm_plugin.predict.power_map import MAX_B
from tests.calibration.tuned import heteroscedastic, train


def test_rows_are_scarce_by_degrees():
    assert [scarcity(n) for n in (0, ENOUGH / 2, ENOUGH, 10 * ENOUGH)] == [1.0, 0.5, 0.0, 0.0]
    assert exponent_bounds(0.0) == (0.0, MAX_B)
    assert exponent_bounds(1.0) == (1.0, 1.0)
    low, high = np.transpose([exponent_bounds(scarcity(n)) for n in range(6, ENOUGH + 1)])
    assert np.all(np.diff(low) < 0)
    assert np.all(np.diff(high) > 0)


def test_uneven_weights_count_as_fewer_rows():
    assert effective_rows(np.full(40, 3.0)) == pytest.approx(40.0)
    assert effective_rows(np.r_[np.ones(10), np.full(30, 1e-9)]) == pytest.approx(10.0)


def test_the_simplest_that_is_about_as_good():
    """A gain counts in standard errors of the paired difference, times the scarcity."""
    rng = np.random.default_rng(0)
    weight, simple = np.full(50, 0.02), rng.exponential(size=50)
    noise = rng.normal(size=50)
    noise = (noise - noise.mean()) / noise.std() * np.sqrt(50)  # so that one standard error is 1
    slightly, clearly = simple - 0.9 + noise, simple - 2.2 + noise
    assert simplest([simple, slightly], weight, 0.5) == 0
    assert simplest([simple, clearly], weight, 0.5) == 1
    assert simplest([simple, slightly], weight, 0.3) == 1
    assert simplest([simple, slightly], weight, 0.0) == 1  # with enough rows the best is the best
    assert simplest([simple, simple - 1e-9, clearly], weight, 1.0) == 2
    assert simplest([slightly, simple], weight, 1.0) == 0


@pytest.mark.parametrize("metric", ["crps", "nll"])
@pytest.mark.parametrize("bounds", [(0.9, 1.2), (1.0, 1.0), (0.0, 0.4), (1.5, 1.6)])
def test_a_bounded_map_is_the_best_within_its_bounds(metric, bounds):
    rng = np.random.default_rng(0)
    variance = np.exp(rng.normal(size=80))
    residual, weight, one = rng.normal(size=80) * variance, np.full(80, 1 / 80), np.ones(80)

    def score(b, c):
        from pgbm_plugin.distributions import Normal

        d = Normal.from_moments(np.zeros(80), c * variance**b)
        return (d.crps(residual) if metric == "crps" else d.nll(residual)).mean()

    found = fit_map(residual, one, variance, 1.0, weight, metric, bounds=bounds)
    assert bounds[0] <= found.b <= bounds[1]
    grid = [score(b, c) for b in np.linspace(*bounds, 7) for c in np.geomspace(0.05, 20.0, 200)]
    assert score(found.b, found.c) <= min(grid) * (1 + 1e-6 * np.sign(min(grid)))


@pytest.fixture(scope="module")
def trained():
    rows = heteroscedastic(1200, 0)
    return train("lightgbm", *rows), *rows


@pytest.mark.parametrize("variance", ["pgbm", "boosted", "auto"])
@pytest.mark.parametrize("given", [{}, {"variance": "auto"}])
@pytest.mark.parametrize("n", [8, 20, 60])
def test_exponents_stay_in_their_bounds(variance, given, n, trained):
    model = wrap(*trained, **given)
    result = model.tune(*heteroscedastic(n, 3), variance=variance)
    low, high = exponent_bounds(scarcity(n))
    for calibration in (*result.calibrations, *(candidate.calibration for candidate in result.candidates)):
        assert low - 1e-9 <= calibration.b <= high + 1e-9  # weights are rounded


def test_the_result_says_what_was_held_back(trained):
    model = wrap(*trained)
    X, y = heteroscedastic(300, 3)
    few = model.tune(X[:50], y[:50])
    assert few.effective_rows == pytest.approx(50)
    assert "few rows (50): the exponent of the variance stays in [0.75, 1.5]" in repr(few)
    top = min(few.candidates, key=lambda candidate: candidate.score).distribution
    assert few.best.distribution in ("normal", top)
    assert (f"normal, not {top}" in repr(few)) == (top != few.best.distribution)
    weighted = model.tune(X, y, sample_weight=np.where(np.arange(300) < 30, 1.0, 1e-6))
    assert "few rows (30 effective)" in repr(weighted)
    enough = model.tune(X, y)
    assert enough.held_back == ""
    assert "few rows" not in repr(enough)
    plain = [candidate.score for candidate in enough.candidates if "bins" not in candidate.distribution]
    assert enough.best.score <= min(plain)  # bins need a gain that is more than chance


def test_a_normal_is_kept_unless_rows_speak_against_it(trained):
    """Fifteen rows of a normal: some family fits them better by chance, and is not chosen; the tails of 150 speak."""
    booster, X, y = trained
    model = wrap(booster, X, y, variance="pgbm")
    mean, std = model.predict(X, return_std=True)
    best, chosen = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        rows = rng.permutation(len(y))[:15]
        result = model.tune(X[rows], (mean + std * rng.normal(size=len(y)))[rows])
        best.append(min(result.candidates, key=lambda candidate: candidate.score).distribution)
        chosen.append(result.best.distribution)
    assert best.count("normal") < 8
    assert chosen.count("normal") >= 11
    rows = np.random.default_rng(0).permutation(len(y))[:150]
    heavy = (mean + std * np.random.default_rng(1).standard_t(2.1, size=len(y)))[rows]
    assert model.tune(X[rows], heavy).best.distribution != "normal"


def test_few_rows_end_no_worse_than_one_number(trained):
    """The old search took exponents of 3 here, and ended up to twice as bad."""
    from pgbm_plugin.predict.power_map import Calibration
    from pgbm_plugin.scores import crps

    new = heteroscedastic(2000, 9)
    auto, boosted = wrap(*trained, variance="auto"), wrap(*trained, variance="boosted")
    ratios = []
    for seed in range(12):
        X, y = heteroscedastic(20, 100 + seed)
        auto.tune(X, y)
        boosted.calibration = Calibration()
        mean, std = boosted.predict(X, return_std=True)
        boosted.calibration = fit_map(y - mean, np.ones(20), std**2, 1.0, np.full(20, 0.05), "crps", bounds=(1.0, 1.0))
        ratios.append(crps(new[1], auto.predict_dist(new[0])) / crps(new[1], boosted.predict_dist(new[0])))
    assert np.exp(np.mean(np.log(ratios))) < 1.01
    assert max(ratios) < 1.1
