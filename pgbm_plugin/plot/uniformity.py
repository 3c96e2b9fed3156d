"""Test of calibration: whether probability integral transforms (PIT) are uniform, up to chance.

The PIT of an outcome y is F(y), the probability that its predicted distribution gave to values up to y. A model is
calibrated if its PITs are uniform. Shares of rows are compared with bands, which calibrated models rarely leave; the
bands are simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import Array
from ..checks import check_levels
from ..distributions import Distribution, Empirical
from ..tables.columns import read_labels

# Number of calibrated models that are simulated for a band. Its ends are then exact to a few hundredths of its width.
DRAWS = 10_000

# Levels of the central intervals whose coverage is drawn as a curve.
LEVELS = np.arange(1, 40) / 40.0


@dataclass(frozen=True)
class Pit:
    """Probability integral transforms of n outcomes."""

    values: Array  # (n,) numbers from 0 to 1, uniform if the model is calibrated
    residuals: int | None  # number of residuals that the distributions are made of; None for a formula

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Shares:
    """Shares of rows in K bins or intervals."""

    expected: Array  # (K,) mean shares of a calibrated model
    observed: Array  # (K,) shares of the rows at hand
    low: Array  # (K,) lower ends of the band
    high: Array  # (K,) upper ends
    confidence: float  # probability that all K shares of a calibrated model lie inside the band

    def outside(self) -> NDArray[np.bool_]:
        """Tell for each of the K shares whether it lies outside the band."""
        return (self.observed < self.low) | (self.observed > self.high)


def randomised_pit(dist: Distribution, y: Any, random_state: Any = 0) -> Pit:
    """Return the PITs of outcomes, at random within the jump where F jumps: F(y-) + v (F(y) - F(y-)), v uniform.

    F(y) of a count is never uniform, but this is, if the model is calibrated (Czado, Gneiting and Held 2009). For a
    distribution made of m residuals, the PIT is drawn from the gap between residuals in which the outcome lies: a new
    outcome is equally likely to fall into each of the m + 1 gaps.
    """
    if not isinstance(dist, Distribution):
        raise TypeError(f"dist must be a Distribution, such as model.predict_dist(X), not a {type(dist).__name__}")
    outcome = read_labels("y", y, len(dist))
    below, at_most = dist.cdf(np.nextafter(outcome, -np.inf)), dist.cdf(outcome)
    within = np.random.default_rng(random_state).random(len(outcome))
    if not isinstance(dist, Empirical):
        return Pit(below + within * (at_most - below), None)
    m = dist.sample_size()
    return Pit((m * below + within * (m * (at_most - below) + 1.0)) / (m + 1.0), dist.observed)


def pit_histogram(pit: Pit, bins: int = 20, confidence: float = 0.95) -> Shares:
    """Return the shares of PITs in bins of equal width."""
    if not isinstance(bins, (int, np.integer)) or bins < 2:
        raise ValueError(f"bins must be a whole number, at least 2, not {bins!r}")
    width = np.full(bins, 1.0 / bins)
    observed = np.histogram(pit.values, bins, (0.0, 1.0))[0]
    # bins of equal width share one band, whose ends are more exact if all bins are pooled
    low, high = _band(_simulate_calibrated(pit, width), confidence, pooled=True)
    return Shares(width, observed / len(pit), low / len(pit), high / len(pit), float(confidence))


def central_coverage(pit: Pit, levels: ArrayLike, confidence: float = 0.95) -> Shares:
    """Return the shares of outcomes inside central intervals of rising levels, found by their PITs."""
    level = np.atleast_1d(check_levels("levels", levels))
    width = np.diff(level, prepend=0.0, append=1.0)
    if np.any(width <= 0.0):
        raise ValueError(f"levels must rise strictly, not {level.tolist()}: sort them and drop repeated ones")
    distance = np.sort(np.abs(2.0 * pit.values - 1.0))
    observed = np.searchsorted(distance, level, side="right")
    low, high = _band(np.cumsum(_simulate_calibrated(pit, width), axis=1)[:, :-1], confidence)
    return Shares(level, observed / len(pit), low / len(pit), high / len(pit), float(confidence))


def _simulate_calibrated(pit: Pit, width: Array) -> NDArray[np.int64]:
    """Draw (DRAWS, cells) counts of as many rows, under calibrated models whose cells have probabilities `width`.

    If the quantiles of a distribution are residuals of m rows, the true probabilities of the cells vary with these
    rows. They are drawn from a Dirichlet distribution of weight m + 1. If cells are narrower than the gaps between
    residuals, this makes the bands slightly too wide.
    """
    random = np.random.default_rng(0)
    p = width if pit.residuals is None else random.dirichlet((pit.residuals + 1.0) * width, DRAWS)
    return random.multinomial(len(pit), p, None if p.ndim == 2 else DRAWS)


def _band(draws: NDArray[np.int64], confidence: float, pooled: bool = False) -> tuple[NDArray[np.int64], ...]:
    """Return the ends of the narrowest band that holds whole lines of `draws` with probability `confidence`.

    In every column, as many draws lie below the band as above it.
    """
    check_levels("confidence", confidence)
    lines, columns = draws.shape
    ranked = np.sort(draws.reshape(-1, 1) if pooled else draws, axis=0)
    depth = np.full(lines, len(ranked))  # the smallest rank of a line in any column, counted from the nearer end
    for k in range(columns):
        column = ranked[:, 0 if pooled else k]
        depth = np.minimum(depth, np.searchsorted(column, draws[:, k], side="right"))
        depth = np.minimum(depth, len(ranked) - np.searchsorted(column, draws[:, k], side="left"))
    cut = int(np.sort(depth)[int((1.0 - confidence) * lines)])
    low, high = ranked[cut - 1], ranked[len(ranked) - cut]
    return (np.repeat(low, columns), np.repeat(high, columns)) if pooled else (low, high)
