"""Residuals in bins: each row has the distribution of its own bin, with and without weights and bounds."""

from __future__ import annotations

import numpy as np
import pytest

from pgbm_plugin.distributions import Conformal, Empirical
from pgbm_plugin.scores import crps_ensemble

RNG = np.random.default_rng(8)
M, N = 90, 12
RESIDUALS, WEIGHTS, BINS = RNG.gumbel(size=M).round(1), RNG.uniform(0.5, 2.0, M), RNG.integers(0, 3, M)
MEAN, VARIANCE = RNG.uniform(1.0, 9.0, N), RNG.uniform(0.5, 4.0, N)
EDGES = [3.0, 6.0]


def binned(cls=Empirical, **options):
    options = {"residuals": RESIDUALS, "residual_bin": BINS, "edges": EDGES, "bins": 3, **options}
    return cls.from_moments(MEAN, VARIANCE, **options)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("bounds", [{}, {"lower": 2.0}, {"upper": 5.0}, {"lower": 2.0, "upper": 5.0}])
@pytest.mark.parametrize("cls", [Empirical, Conformal])
@pytest.mark.filterwarnings("ignore:.*too few")
def test_a_row_has_the_residuals_of_its_bin(cls, weights, bounds):
    d = binned(cls, weights=weights, **bounds)
    place = np.searchsorted(EDGES, MEAN)
    assert set(place) == {0, 1, 2}
    y = MEAN + np.array([[-9.0, -1.0, 0.0, 0.3, 9.0]])[0][:, None] * np.sqrt(VARIANCE)
    for row in range(N):
        own = place[row] == BINS
        alone = cls.from_moments(
            MEAN[[row]],
            VARIANCE[[row]],
            residuals=RESIDUALS[own],
            weights=None if weights is None else weights[own],
            **bounds,
        )
        for method in ("mean", "var", "std", "median"):
            assert getattr(d, method)()[row] == getattr(alone, method)()[0]
        for method in ("cdf", "sf", "crps"):
            assert np.array_equal(getattr(d, method)(y.T)[row], getattr(alone, method)(y.T[[row]])[0])
        q = [0.02, 0.2, 0.5, 0.9]
        assert np.array_equal(d.ppf(q)[row], alone.ppf(q)[0])
        assert d[[row]].crps(3.0) == alone.crps(3.0)
        outcomes = alone.ppf(np.linspace(0.001, 0.999, 999))
        if cls is Empirical:
            assert np.isin(d.rvs(200, random_state=1)[row], outcomes).all()


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("upper", [np.inf, 5.0])
def test_both_bounds_are_those_of_a_clipped_sample(weights, upper):
    d = Empirical.from_moments(MEAN, VARIANCE, residuals=RESIDUALS, weights=weights, lower=1.5, upper=upper)
    order = np.argsort(RESIDUALS, kind="stable")
    sample = np.clip(MEAN[:, None] + np.sqrt(VARIANCE)[:, None] * RESIDUALS[order], 1.5, upper)
    p = np.full(M, 1.0 / M) if weights is None else (weights / weights.sum())[order]
    mean = sample @ p
    np.testing.assert_allclose(d.mean(), mean, rtol=1e-12)
    np.testing.assert_allclose(d.var(), (sample - mean[:, None]) ** 2 @ p, rtol=1e-10, atol=1e-20)
    for y in (-3.0, 1.5, 2.2, 5.0, 7.0):
        spread = np.abs(sample[:, :, None] - sample[:, None]) @ p @ p
        np.testing.assert_allclose(d.crps(y), np.abs(sample - y) @ p - 0.5 * spread, atol=1e-12)
        np.testing.assert_allclose(d.cdf(y), (sample <= y) @ p, atol=1e-12)
    assert np.all((d.ppf([0.0, 0.5, 1.0]) >= 1.5) & (d.ppf([0.0, 0.5, 1.0]) <= upper))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bounds", [{}, {"lower": -1.0, "upper": 12.0}])
def test_left_out_scores_are_those_without_the_own_residual(weighted, bounds):
    """In every bin, against a loop that leaves out one residual at a time."""
    mean, sd = RNG.normal(5.0, 2.0, M), RNG.uniform(0.5, 2.0, M)
    y = np.clip(mean + sd * RESIDUALS, -1.0, 12.0)
    residuals, weights = (y - mean) / sd, WEIGHTS if weighted else np.ones(M)
    d = Empirical(
        residuals=residuals, weights=weights, residual_bin=BINS, loc=mean, scale=sd, bin=BINS.astype(float), **bounds
    )
    found = d.left_out_crps(y, weights)
    for i in range(M):
        others = (BINS[i] == BINS) & (np.arange(M) != i)
        sample = np.clip(mean[i] + sd[i] * residuals[others], *(bounds.values() or (-np.inf, np.inf)))
        p = weights[others] / weights[others].sum()
        expected = np.abs(sample - y[i]) @ p - 0.5 * (np.abs(sample[:, None] - sample) @ p @ p)
        np.testing.assert_allclose(found[i], expected, rtol=1e-9, atol=1e-12)
        if not weighted:
            np.testing.assert_allclose(found[i], crps_ensemble(y[[i]], sample[None]), rtol=1e-9, atol=1e-12)


def test_an_outlier_of_one_bin_leaves_the_others_exact():
    """Sums run within bins: 1e30 in one of them would swallow all digits of the next."""
    residuals, bins = np.array([1e30, 2e30, -1.0, 1.0]), np.array([0, 0, 1, 1])
    d = Empirical(residuals=residuals, residual_bin=bins, loc=np.zeros(1), scale=np.ones(1), bin=np.ones(1))
    assert (d.mean()[0], d.var()[0]) == (0.0, 1.0)
    assert d.crps(0.0)[0] == 0.5


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"residual_bin": BINS + 1}, "bin 0 has none"),
        ({"residual_bin": BINS - 1}, "a bin for each residual"),
        ({"residual_bin": BINS[:-1]}, "a bin for each residual"),
        ({"residual_bin": BINS * 0.5}, "a bin for each residual"),
        ({"residual_bin": BINS + 99}, "residuals in every bin, and bin 0 has none"),
        ({"residual_bin": None}, "or neither"),
        ({"edges": None}, "needs edges"),
        ({"edges": [1.0, 2.0, 3.0, 4.0]}, "bins other than 0 to 2"),
    ],
)
def test_bins_that_do_not_fit(options, match):
    with pytest.raises(ValueError, match=match):
        binned(**options)
