"""Are probability integral transforms uniform? Shares of rows, and bands in which those of a calibrated model lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..distributions import Distribution, Empirical
from ..tables.columns import check_levels, read_column

Array = NDArray[np.float64]

# Calibrated models that a band is drawn from; its ends are then known to a few hundredths of its width.
DRAWS = 10_000

# Of central intervals, for a curve of their coverage.
LEVELS = np.arange(1, 40) / 40.0


@dataclass(frozen=True)
class Pit:
    """Transforms of outcomes.

    Attributes
    ----------
    values : (n,) in 0..1, uniform if the distributions are right.
    residuals : how many residuals the distributions are made of; None for a family with a formula.
    """

    values: Array
    residuals: int | None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Shares:
    """Shares of n rows in K places.

    Attributes
    ----------
    expected, observed : (K,) what a calibrated model has on average, and what was seen.
    low, high : (K,) ends of the band, which holds all K shares of a calibrated model at once with `confidence`.
    """

    expected: Array
    observed: Array
    low: Array
    high: Array
    confidence: float

    def outside(self) -> NDArray[np.bool_]:
        """(K,) whether a share has left the band."""
        return (self.observed < self.low) | (self.observed > self.high)


def randomised_pit(distribution: Distribution, y: Any, random_state: Any = 0) -> Pit:
    """The transforms of outcomes, drawn evenly from the jump where a cdf jumps: F(y-) + v (F(y) - F(y-)).

    Those of counts are then uniform as well, which F(y) is not (Czado, Gneiting and Held 2009). m residuals leave m + 1
    gaps, in all of which the next one is equally likely to fall: there the rank is drawn within its gap.
    """
    if not isinstance(distribution, Distribution):
        raise TypeError(f"give the distribution, model.predict_dist(X), not a {type(distribution).__name__}")
    outcome = read_column("y", y, len(distribution))
    if outcome is None:
        raise TypeError("y is None; give the outcomes")
    below, at_most = distribution.cdf(np.nextafter(outcome, -np.inf)), distribution.cdf(outcome)
    within = np.random.default_rng(random_state).random(len(outcome))
    if not isinstance(distribution, Empirical):
        return Pit(below + within * (at_most - below), None)
    m = len(distribution.residuals)
    return Pit((m * below + within * (m * (at_most - below) + 1.0)) / (m + 1.0), m)


def pit_histogram(pit: Pit, bins: int = 20, confidence: float = 0.95) -> Shares:
    """Shares of the transforms in bins of equal width."""
    if not isinstance(bins, (int, np.integer)) or bins < 2:
        raise ValueError(f"bins must be a number of bins, 2 at least, not {bins!r}")
    width = np.full(bins, 1.0 / bins)
    observed = np.histogram(pit.values, bins, (0.0, 1.0))[0]
    # bins of equal width have the same band; all of them together know its ends better than each alone
    low, high = _band(_calibrated(pit, width), confidence, alike=True)
    return Shares(width, observed / len(pit), low / len(pit), high / len(pit), float(confidence))


def central_coverage(pit: Pit, levels: ArrayLike, confidence: float = 0.95) -> Shares:
    """Shares of outcomes within the central intervals of rising levels, by their transforms."""
    level = np.atleast_1d(check_levels("levels", levels))
    width = np.diff(level, prepend=0.0, append=1.0)
    if np.any(width <= 0.0):
        raise ValueError(f"levels must rise, not {level.tolist()}")
    distance = np.sort(np.abs(2.0 * pit.values - 1.0))
    observed = np.searchsorted(distance, level, side="right")
    low, high = _band(np.cumsum(_calibrated(pit, width), axis=1)[:, :-1], confidence)
    return Shares(level, observed / len(pit), low / len(pit), high / len(pit), float(confidence))


def _calibrated(pit: Pit, width: Array) -> NDArray[np.int64]:
    """(DRAWS, cells) counts of as many rows under calibrated models, in cells that hold `width` of the probability.

    Quantiles that are residuals of m rows are themselves off by these rows' chance: cells of them hold shares drawn
    from a Dirichlet distribution of weight m + 1. (If cells are narrower than gaps, this makes bands a little wide.)
    """
    random = np.random.default_rng(0)
    p = width if pit.residuals is None else random.dirichlet((pit.residuals + 1.0) * width, DRAWS)
    return random.multinomial(len(pit), p, None if p.ndim == 2 else DRAWS)


def _band(draws: NDArray[np.int64], confidence: float, alike: bool = False) -> tuple[NDArray[np.int64], ...]:
    """Ends of the narrowest band of equal tails in every column that holds this share of the lines as a whole."""
    check_levels("confidence", confidence)
    lines, columns = draws.shape
    values = np.sort(draws.reshape(-1, 1) if alike else draws, axis=0)
    depth = np.full(lines, len(values))
    for k in range(columns):
        of_column = values[:, 0 if alike else k]
        depth = np.minimum(depth, np.searchsorted(of_column, draws[:, k], side="right"))
        depth = np.minimum(depth, len(values) - np.searchsorted(of_column, draws[:, k], side="left"))
    cut = int(np.sort(depth)[int((1.0 - confidence) * lines)])
    low, high = values[cut - 1], values[len(values) - cut]
    return (np.repeat(low, columns), np.repeat(high, columns)) if alike else (low, high)
