"""Coverage by group: plain counts, and a band that right intervals rarely leave."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pgbm_plugin.scores import coverage


def rows(n, seed=0, groups=5):
    rng = np.random.default_rng(seed)
    y, group = rng.normal(size=n), rng.integers(0, groups, n)
    half = np.where(group == 2, 0.8, stats.norm.isf(0.05))
    return y, np.stack([-half, half], 1), group


def test_counts():
    y, interval, group = rows(2000)
    found = coverage(y, interval, groups=group)
    inside = (interval[:, 0] <= y) & (y <= interval[:, 1])
    assert found.groups[0] == 2
    assert (len(found), found.level) == (5, 0.9)
    for k, key in enumerate(found.groups):
        own = group == key
        assert found.rows[k] == own.sum()
        assert found.cover[k] == pytest.approx(inside[own].mean(), rel=1e-12)
        assert found.width[k] == pytest.approx((interval[own, 1] - interval[own, 0]).mean(), rel=1e-12)
        tail = (1.0 - 0.95 ** (1 / 5)) / 2.0
        ends = stats.binom(own.sum(), 0.9).ppf([tail, 1.0 - tail]) / own.sum()
        np.testing.assert_allclose([found.low[k], found.high[k]], ends, rtol=1e-12)
    assert found.outside()[0] == -1
    assert not found.outside()[1:].any()
    assert found.rows @ found.cover == pytest.approx(2000 * coverage(y, interval), rel=1e-12)


def test_worst_is_what_chance_would_least_do():
    """Two of three rows inside is no news, and 150 of 200 is."""
    inside = np.concatenate([[1, 1, 0], np.arange(200) % 4 > 0, np.arange(100) % 10 > 0])
    group = np.repeat(["few", "low", "right"], [3, 200, 100])
    found = coverage(1.0 - inside, np.tile([-0.5, 0.5], (303, 1)), groups=group)
    assert found.groups.tolist() == ["low", "few", "right"]
    assert found.outside().tolist() == [-1, 0, 0]


@pytest.mark.parametrize("behind", [None, 50])
def test_right_intervals_stay_inside_the_bands(behind):
    """All groups at once, 19 times in 20 or a little more often, because numbers of rows are whole."""
    rng, times, n, groups = np.random.default_rng(0), 100, 60, 8
    group, y = np.repeat(np.arange(groups), n), np.zeros(groups * n)
    stayed = 0
    for _ in range(times):
        level = np.full(groups, 0.9) if behind is None else rng.beta(0.9 * (behind + 1), 0.1 * (behind + 1), groups)
        missed = rng.random(groups * n) > level[group]
        found = coverage(y, np.stack([missed - 0.5, missed + 0.5], 1), groups=group, calibration_rows=behind)
        stayed += not found.outside().any()
    low, high = stats.binom(times, 0.95).ppf([1e-6]), stats.binom(times, 0.995).isf(1e-6)
    assert low <= stayed <= high


def test_calibration_rows_make_the_bands_wider():
    y, interval, group = rows(2000)
    plain, conformal = (coverage(y, interval, groups=group, calibration_rows=rows) for rows in (None, 100))
    assert np.all(np.sort(conformal.low) < np.sort(plain.low))


def test_another_level():
    y, interval, group = rows(500)
    found = coverage(y, interval, groups=group, coverage=0.5)
    assert found.level == 0.5
    assert found.outside()[-1] == 1
    assert "coverage of 50 % intervals in 5 groups" in repr(found)


def test_repr():
    y, interval, group = rows(3000, groups=40)
    lines = repr(coverage(y, interval, groups=(group, group % 2 == 0))).splitlines()
    assert lines[0] == "coverage of 90 % intervals in 40 groups, the worst first"
    assert lines[2].split()[:2] == ["2,", "True"]
    assert lines[2].endswith("too few")
    assert lines[-1].strip() == "and 20 more"


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"groups": [1, 2]}, ValueError, "groups has 2 keys, X has 100 rows"),
        ({"groups": [None] * 100}, ValueError, "100 missing keys"),
        ({"groups": "shop"}, TypeError, "must be a column"),
        ({"groups": np.zeros(100), "sample_weight": np.ones(100)}, ValueError, "takes no sample_weight"),
        ({"groups": np.zeros(100), "calibration_rows": -1}, ValueError, "calibration_rows must not be negative"),
        ({"groups": np.zeros(100), "coverage": 90}, ValueError, "strictly between 0 and 1"),
    ],
)
def test_bad_input(options, error, match):
    y, interval, _ = rows(100)
    with pytest.raises(error, match=match):
        coverage(y, interval, **options)


def test_one_group_of_one_row():
    found = coverage([0.0], [[-1.0, 1.0]], groups=["a"])
    assert (found.cover.tolist(), found.outside().tolist()) == ([1.0], [0])
    assert (found.low[0], found.high[0]) == (0.0, 1.0)
