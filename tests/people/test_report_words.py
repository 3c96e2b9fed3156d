"""The sentences of a report, about made-up distributions whose faults are known."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pgbm_plugin.distributions import Normal
from pgbm_plugin.plot.growth import Growth
from pgbm_plugin.report import findings, numbers, verdicts, words
from pgbm_plugin.report.numbers import Mean


def of_normal(dist, y):
    """Findings of made-up distributions, as far as sentences about calibration look at them."""
    pit = findings.randomised_pit(dist, y)
    shown, reliability = findings._intervals(dist, dist, y, pit)
    fields = dict.fromkeys(findings.Findings.__dataclass_fields__)
    fields |= {"y": y, "dist": dist, "prediction": dist.mean(), "pit": pit, "intervals": shown}
    fields["reliability"] = reliability
    fields["histogram"] = findings.pit_histogram(pit)
    fields["unit"] = ""
    return findings.Findings(**fields)


@pytest.mark.parametrize(
    ("draw", "intervals", "shape"),
    [
        (lambda r, n: r.normal(size=n), "are as wide as they should be", "All 20 bins lie within the band"),
        (lambda r, n: 1.05 * r.normal(size=n), "are slightly too narrow", "tails more often"),
        (lambda r, n: 3.0 * r.normal(size=n), "are too narrow", "tails more often"),
        (lambda r, n: 0.5 * r.normal(size=n), "are too wide", "middle more often"),
        (lambda r, n: 0.2 + r.normal(size=n), "are slightly too narrow|are as wide", "above the predicted median"),
        (
            lambda r, n: r.standard_t(2, size=n) / 2,
            "too wide at low levels and too narrow at high levels",
            "bins lie outside",
        ),
        (
            lambda r, n: r.uniform(-1.6, 1.6, n),
            "too narrow at low levels and too wide at high levels",
            "bins lie outside",
        ),
    ],
)
def test_verdicts(draw, intervals, shape):
    n = 20_000
    found = of_normal(Normal(loc=np.zeros(n), scale=1.0), draw(np.random.default_rng(0), n))
    assert re.search(intervals, words.on_intervals(found))
    assert shape in words.on_shape(found)


def test_spreads_that_tell_nothing():
    y = np.random.default_rng(0).normal(size=1000)
    same = of_normal(Normal(loc=np.zeros(1000), scale=1.0), y)
    assert words.on_spreads(same).startswith("All rows have the same spread")
    noise = of_normal(Normal(loc=np.zeros(1000), scale=np.linspace(0.5, 2, 1000)), y)
    assert "do not tell easy rows from hard ones" in words.on_spreads(noise)
    right = of_normal(Normal(loc=np.zeros(1000), scale=np.linspace(0.5, 2, 1000)), y * np.linspace(0.5, 2, 1000))
    assert "where the model is less sure, its errors are larger" in words.on_spreads(right)


@pytest.mark.parametrize(
    ("mean", "error", "shown"),
    [
        (0.123456, 0.00345, "0.1235 ± 0.0034"),
        (1234.5, 67.0, "1,234 ± 67"),
        (123456.0, 2345.0, "123,500 ± 2,300"),
        (1e-9, 1e-10, "1 × 10⁻⁹ ± 1 × 10⁻¹⁰"),  # noqa: RUF001
        (2.0, 0.0, "2"),
        (np.inf, np.nan, "∞"),
        (np.nan, np.nan, "not defined"),
    ],
)
def test_numbers_have_the_digits_that_they_can_have(mean, error, shown):
    assert numbers.plus_minus(Mean(mean, error)) == shown


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (22160.0, "", "22,160"),
        (22160.0, "$", "$22,160"),
        (-1234567.0, "€", "-€1,235,000"),
        (9999.96, "kWh", "10,000 kWh"),
        (0.5, "", "0.5"),
        (0.000123456, "", "0.0001235"),
        (-0.00001, "", "-1 × 10⁻⁵"),  # noqa: RUF001
        (2.5e13, "", "2.5 × 10¹³"),  # noqa: RUF001
        (0.0, "$", "$0"),
        (-np.inf, "$", "-$∞"),
        (np.inf, "", "∞"),
        (np.nan, "$", "not defined"),
    ],
)
def test_quantities(value, unit, shown):
    assert numbers.quantity(value, unit) == shown


@pytest.mark.parametrize(
    ("factor", "verdict", "line"),
    [
        (
            1.0,
            "Yes: the intervals hold what they promise.",
            r"90 % intervals held (89|90)\.\d % of 20,000 outcomes: as prom",
        ),
        (
            1.03,
            "No: the intervals are slightly too narrow.",
            r"90 % intervals held 8[89]\.\d % .*: slightly fewer than promi",
        ),
        (
            3.0,
            "No: the intervals are too narrow.",
            r"90 % intervals held 4\d\.\d % of 20,000 outcomes: fewer than promised",
        ),
        (
            0.5,
            "Yes, but the intervals are wider than they need to be.",
            r"90 % intervals held 99\.\d % .*: more than promised",
        ),
    ],
)
def test_first_lines(factor, verdict, line):
    n = 20_000
    found = of_normal(Normal(loc=np.zeros(n), scale=1.0), factor * np.random.default_rng(0).normal(size=n))
    said, lines = verdicts.on_promises(found)
    assert said == verdict
    assert len(lines) == 3
    assert re.match(line, lines[1])


@pytest.mark.parametrize(
    ("mean", "said"),
    [
        ([0.0], "No tree adds any variance"),
        ([2.0], "There is only one tree"),
        ([0.0, 0.0, 2.0], "comes from the last 10 % of the 3 trees"),
        ([1.0, 2.0], "still grows"),
        ([2.0, 1.0], "takes away more than they add"),
        ([1.0] * 20, "levelled off"),
    ],
)
def test_growth(mean, said):
    values, trees = np.array(mean), np.arange(1, len(mean) + 1)
    assert said in words.on_growth(Growth(trees, values, values, values, (0.05, 0.95), 10))
