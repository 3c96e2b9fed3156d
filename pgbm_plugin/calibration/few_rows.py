"""Few validation rows: what is held back where more would be fitted to noise.

Everything is held back in proportion to the scarcity of the rows, and nothing from `ENOUGH` rows on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arrays import Array
from ..predict.power_map import MAX_B

ENOUGH = 200
"""The number of rows from which on nothing is held back."""

# Where rows are most scarce, a gain below so many standard errors counts as chance. One is too little, because many
# candidates are compared. Chosen with a look at all 17 sets of benchmarks.few_rows; `ENOUGH` on eight of them.
_ERRORS = 2.0


def effective_rows(weight: Array) -> float:
    """Return the number of equally weighted rows that would tell as much: (sum w)^2 / sum w^2."""
    return float(weight.sum() ** 2 / (weight @ weight))


def scarcity(rows: float) -> float:
    """Return how scarce so many effective rows are: nearly 1 for a single one, 0 from `ENOUGH` on."""
    return max(0.0, 1.0 - rows / ENOUGH)


def exponent_bounds(scarce: float) -> tuple[float, float]:
    """Return the bounds of the power map's exponent b: near 1 for few rows, 0 and `MAX_B` for enough."""
    return scarce, MAX_B - scarce * (MAX_B - 1.0)


def needed_gain(scarce: float) -> float:
    """Return by how many standard errors a choice must be better than a simpler one."""
    return _ERRORS * scarce


def simplest(scores: Sequence[Array], weight: Array, scarce: float) -> int:
    """Return which candidate to choose: the first that is about as good as the best one.

    Candidates are in order of simplicity. About as good means that its mean score exceeds the best one by at most
    `needed_gain` standard errors of the paired difference. With enough rows it is the best one itself. `scores` are the
    (n,) scores of the rows under each candidate, lower is better, and `weight` sums to 1.
    """
    best = int(np.argmin([weight @ values for values in scores]))
    if not scarce:
        return best
    for k in range(best):
        difference = scores[k] - scores[best]
        mean = float(weight @ difference)
        if mean <= needed_gain(scarce) * float(np.sqrt(weight**2 @ (difference - mean) ** 2)):
            return k
    return best
