"""Scores of probabilistic predictions; the lower the better, except coverage.

Each takes the outcomes first and then the prediction, as scikit-learn's metrics do, and returns a weighted mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .tables.columns import check_level, check_levels, read_column, read_weights

if TYPE_CHECKING:
    from .distributions import Distribution


def crps(y_true: Any, distribution: Distribution, sample_weight: Any = None) -> float:
    """Mean continuous ranked probability score, in the unit of y; of a point prediction it is the absolute error."""
    return _average(_distribution(distribution).crps(_outcomes(y_true, len(distribution))), sample_weight)


def nll(y_true: Any, distribution: Distribution, sample_weight: Any = None) -> float:
    """Mean negative log likelihood, in nats."""
    return _average(_distribution(distribution).nll(_outcomes(y_true, len(distribution))), sample_weight)


def pinball(y_true: Any, y_pred: ArrayLike, q: float = 0.5, sample_weight: Any = None) -> float:
    """Mean quantile loss of predictions (n,) or (n, 1) of the level q."""
    level, quantile = check_levels("q", q), np.asarray(y_pred, np.float64)
    if quantile.ndim == 2 and quantile.shape[1] == 1:  # as predict_quantiles gives one level
        quantile = quantile[:, 0]
    if quantile.ndim != 1 or level.ndim != 0:
        raise ValueError(f"pinball scores one level: y_pred must have shape (n,), not {quantile.shape}")
    difference = _outcomes(y_true, len(quantile)) - quantile
    return _average(np.maximum(level * difference, (level - 1.0) * difference), sample_weight)


def interval_score(y_true: Any, interval: ArrayLike, coverage: float = 0.9, sample_weight: Any = None) -> float:
    """Mean interval score (Gneiting and Raftery 2007, eq. 43): width, plus 2/alpha times the distance of a miss."""
    alpha = 1.0 - check_level("coverage", coverage)
    low, high = _ends(interval)
    y = _outcomes(y_true, len(low))
    miss = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return _average(high - low + 2.0 / alpha * miss, sample_weight)


def coverage(y_true: Any, interval: ArrayLike, sample_weight: Any = None, *, coverage: float | None = None) -> float:
    """Share of outcomes inside intervals (n, 2), ends included; the `coverage` that was asked for changes nothing."""
    low, high = _ends(interval)
    y = _outcomes(y_true, len(low))
    return _average(((low <= y) & (y <= high)).astype(np.float64), sample_weight)


def crps_ensemble(y_true: Any, samples: ArrayLike, sample_weight: Any = None) -> float:
    """Mean CRPS of samples (n, m), each line one predictive distribution; O(m log m) a line."""
    x = np.asarray(samples, np.float64)
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"samples must have shape (n, m), not {x.shape}")
    x, m = np.sort(x, axis=1), x.shape[1]
    y = _outcomes(y_true, len(x))
    distance = np.abs(x - y[:, None]).mean(axis=1)
    spread = x @ (2.0 * np.arange(1, m + 1) - m - 1.0) / m**2
    return _average(distance - spread, sample_weight)


@dataclass(frozen=True)
class Scorer:
    """A score as scikit-learn's ``scoring=``, where greater is better, for estimators with this package's methods.

    `method` makes the prediction; `options` go to it and to the score.

    >>> cross_val_score(estimator, X, y, scoring=Scorer(crps))
    >>> cross_val_score(estimator, X, y, scoring=Scorer(interval_score, "predict_interval", {"coverage": 0.8}))
    >>> cross_val_score(estimator, X, y, scoring=Scorer(pinball, "predict_quantiles", {"q": 0.95}))
    """

    score: Callable[..., float]
    method: str = "predict_dist"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        estimator, X = _last_step(estimator, X, self.method)
        prediction = getattr(estimator, self.method)(X, **self.options)
        value = self.score(y, prediction, **self.options, sample_weight=sample_weight)
        return value if self.score is coverage else -value


def _last_step(estimator: Any, X: Any, method: str) -> tuple[Any, Any]:
    """The estimator that has the method, and what it is given, of a pipeline or a search around it."""
    while not hasattr(estimator, method):
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif hasattr(estimator, "steps"):
            X = estimator[:-1].transform(X) if len(estimator.steps) > 1 else X
            estimator = estimator[-1]
        else:
            raise TypeError(f"a {type(estimator).__name__} has no {method}; give a PGBMRegressor, or a pipeline to one")
    return estimator, X


def _outcomes(y: Any, n: int) -> NDArray[np.float64]:
    column = read_column("y_true", y, n)
    if column is None:
        raise TypeError("y_true is None; give the outcomes")
    return column


def _distribution(value: Any) -> Distribution:
    if not hasattr(value, "crps"):
        raise TypeError(f"give the distribution, model.predict_dist(X), not a {type(value).__name__}")
    return value


def _ends(interval: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    # predict_interval gives (n, 2), a distribution's interval() a pair
    ends = np.stack(interval, axis=1) if isinstance(interval, tuple) else np.asarray(interval, np.float64)
    if ends.ndim != 2 or ends.shape[1] != 2:
        raise ValueError(f"interval must have shape (n, 2), not {ends.shape}")
    return ends[:, 0], ends[:, 1]


def _average(values: NDArray[np.float64], sample_weight: Any) -> float:
    return float(np.average(values, weights=read_weights("sample_weight", sample_weight, len(values))))
