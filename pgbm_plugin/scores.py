"""Scores of probabilistic predictions; the lower the better, except coverage.

Each takes the outcomes first and then the prediction, as scikit-learn's metrics do, and returns a weighted mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .columns import check_levels, read_column

if TYPE_CHECKING:
    from .distributions import Distribution


def crps(y_true: Any, distribution: Distribution, sample_weight: Any = None) -> float:
    """Mean continuous ranked probability score, in the unit of y; of a point prediction it is the absolute error."""
    return _average(distribution.crps(_outcomes(y_true, len(distribution))), sample_weight)


def nll(y_true: Any, distribution: Distribution, sample_weight: Any = None) -> float:
    """Mean negative log likelihood, in nats."""
    return _average(distribution.nll(_outcomes(y_true, len(distribution))), sample_weight)


def pinball(y_true: Any, y_pred: ArrayLike, q: float = 0.5, sample_weight: Any = None) -> float:
    """Mean quantile loss of predictions (n,) of the level q."""
    level = check_levels("q", q)
    difference = _outcomes(y_true, len(np.asarray(y_pred))) - np.asarray(y_pred, np.float64)
    return _average(np.maximum(level * difference, (level - 1.0) * difference), sample_weight)


def interval_score(y_true: Any, interval: ArrayLike, coverage: float = 0.9, sample_weight: Any = None) -> float:
    """Mean interval score (Gneiting and Raftery 2007, eq. 43): width, plus 2/alpha times the distance of a miss."""
    alpha = 1.0 - check_levels("coverage", coverage)
    low, high = _ends(interval)
    y = _outcomes(y_true, len(low))
    miss = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return _average(high - low + 2.0 / alpha * miss, sample_weight)


def coverage(y_true: Any, interval: ArrayLike, sample_weight: Any = None) -> float:
    """Share of outcomes inside intervals (n, 2), ends included."""
    low, high = _ends(interval)
    y = _outcomes(y_true, len(low))
    return _average(((low <= y) & (y <= high)).astype(np.float64), sample_weight)


def crps_ensemble(y_true: Any, samples: ArrayLike, sample_weight: Any = None) -> float:
    """Mean CRPS of samples (n, m), each line one predictive distribution; O(m log m) a line."""
    x = np.sort(np.asarray(samples, np.float64), axis=1)
    m = x.shape[1]
    y = _outcomes(y_true, len(x))
    distance = np.abs(x - y[:, None]).mean(axis=1)
    spread = x @ (2.0 * np.arange(1, m + 1) - m - 1.0) / m**2
    return _average(distance - spread, sample_weight)


@dataclass(frozen=True)
class Scorer:
    """A score as scikit-learn's ``scoring=``: greater is better, for anything with `predict_dist`.

    >>> cross_val_score(estimator, X, y, scoring=Scorer(crps))
    """

    score: Callable[..., float]

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        return -self.score(y, estimator.predict_dist(X), sample_weight=sample_weight)


def _outcomes(y: Any, n: int) -> NDArray[np.float64]:
    column = read_column("y_true", y, n)
    assert column is not None
    return column


def _ends(interval: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    ends = np.asarray(interval, np.float64)
    if ends.ndim != 2 or ends.shape[1] != 2:
        raise ValueError(f"interval must have shape (n, 2), not {ends.shape}")
    return ends[:, 0], ends[:, 1]


def _average(values: NDArray[np.float64], sample_weight: Any) -> float:
    return float(np.average(values, weights=read_column("sample_weight", sample_weight, len(values))))
