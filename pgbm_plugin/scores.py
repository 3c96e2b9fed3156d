"""Scores of probabilistic predictions, each a weighted mean over rows; lower is better, except for `coverage`.

The outcomes come first and the prediction second, as in scikit-learn's metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .checks import check_level, check_levels
from .group_coverage import GroupCoverage, coverage_by_group
from .tables.columns import read_labels, read_weights
from .tables.keys import read_groups

if TYPE_CHECKING:
    from .distributions import Distribution


def crps(y_true: Any, distribution: Distribution, sample_weight: Any = None) -> float:
    """Return the mean continuous ranked probability score (CRPS), in the unit of y.

    The CRPS of a prediction without spread is its absolute error.

    Parameters
    ----------
    y_true, sample_weight : array-like of shape (n,)
        Outcomes, and their weights in the mean. Default of the weights: all equal.
    distribution : Distribution
        Predictions, ``model.predict_dist(X)``.
    """
    _refuse_estimator("crps", y_true)
    return _average(_distribution(distribution).crps(read_labels("y_true", y_true, len(distribution))), sample_weight)


def nll(y_true: Any, distribution: Distribution, sample_weight: Any = None) -> float:
    """Return the mean negative log likelihood (NLL), in nats; parameters as in `crps`."""
    _refuse_estimator("nll", y_true)
    return _average(_distribution(distribution).nll(read_labels("y_true", y_true, len(distribution))), sample_weight)


def pinball(y_true: Any, y_pred: ArrayLike, q: float = 0.5, sample_weight: Any = None) -> float:
    """Return the mean quantile loss (pinball loss) of predicted quantiles; other parameters as in `crps`.

    Parameters
    ----------
    y_pred : array-like of shape (n,) or (n, 1)
        Predicted quantiles.
    q : float
        Level of the quantiles.
    """
    _refuse_estimator("pinball", y_true)
    level, quantile = check_levels("q", q), np.asarray(y_pred, np.float64)
    if quantile.ndim == 2 and quantile.shape[1] == 1:  # what predict_quantiles returns for one level
        quantile = quantile[:, 0]
    if quantile.ndim != 1 or level.ndim != 0:
        raise ValueError(f"pinball scores one level: y_pred must have shape (n,), not {quantile.shape}")
    difference = read_labels("y_true", y_true, len(quantile)) - quantile
    return _average(np.maximum(level * difference, (level - 1.0) * difference), sample_weight)


def interval_score(y_true: Any, interval: ArrayLike, coverage: float = 0.9, sample_weight: Any = None) -> float:
    """Return the mean interval score (Gneiting and Raftery 2007, eq. 43), in the unit of y; parameters as in `crps`.

    The score of a row is the width of its interval, plus 2 / (1 - coverage) times the distance of an outcome outside.

    Parameters
    ----------
    interval : array-like of shape (n, 2), or pair of arrays of shape (n,)
        Ends of the intervals: ``model.predict_interval(X)``, or ``interval()`` of a distribution.
    coverage : float
        Probability with which the intervals should contain the outcomes.
    """
    _refuse_estimator("interval_score", y_true)
    alpha = 1.0 - check_level("coverage", coverage)
    low, high = _ends(interval)
    y = read_labels("y_true", y_true, len(low))
    miss = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return _average(high - low + 2.0 / alpha * miss, sample_weight)


@overload
def coverage(
    y_true: Any, interval: ArrayLike, sample_weight: Any = ..., *, coverage: float | None = ..., groups: None = ...
) -> float: ...


@overload
def coverage(
    y_true: Any,
    interval: ArrayLike,
    sample_weight: None = ...,
    *,
    coverage: float | None = ...,
    groups: Any,
    calibration_rows: int | None = ...,
) -> GroupCoverage: ...


def coverage(
    y_true: Any,
    interval: ArrayLike,
    sample_weight: Any = None,
    *,
    coverage: float | None = None,
    groups: Any = None,
    calibration_rows: int | None = None,
) -> float | GroupCoverage:
    """Return the share of outcomes inside their intervals, ends included; with groups, that in each of them.

    Parameters
    ----------
    y_true, sample_weight : array-like of shape (n,)
        Outcomes, and their weights in the mean. Default of the weights: all equal. Groups take no weights.
    interval : array-like of shape (n, 2), or pair of arrays of shape (n,)
        Ends of the intervals: ``model.predict_interval(X)``, or ``interval()`` of a distribution.
    coverage : float, optional
        Probability that the intervals promise, for the band of `groups`. Default: 0.9, as in `predict_interval`.
        Ignored without groups, so that `Scorer` can pass the same options as to `interval_score`.
    groups : column, or tuple of columns, optional
        Group of each row, such as a shop. A tuple of columns stands for their combination.
    calibration_rows : int, optional
        Number of rows behind the intervals of a group, if they are conformal. The bands are then wider, because these
        rows were drawn by chance, too.
    """
    _refuse_estimator("coverage", y_true)
    low, high = _ends(interval)
    y = read_labels("y_true", y_true, len(low))
    inside = (low <= y) & (y <= high)
    if groups is None:
        return _average(inside.astype(np.float64), sample_weight)
    if sample_weight is not None:
        raise ValueError("coverage by group takes no sample_weight: the band of chance is that of equal rows")
    if calibration_rows is not None and np.any(np.asarray(calibration_rows) < 0):
        raise ValueError(f"calibration_rows must not be negative, it is {calibration_rows!r:.60}")
    found, level = read_groups("groups", groups, len(y)), check_level("coverage", 0.9 if coverage is None else coverage)
    return coverage_by_group(found, inside, high - low, level, calibration_rows)


def crps_ensemble(y_true: Any, samples: ArrayLike, sample_weight: Any = None) -> float:
    """Return the mean continuous ranked probability score (CRPS) of samples; other parameters as in `crps`.

    Parameters
    ----------
    samples : array-like of shape (n, m)
        Row i holds m samples from the predictive distribution of outcome i.
    """
    _refuse_estimator("crps_ensemble", y_true)
    x = np.asarray(samples, np.float64)
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"samples must have shape (n, m), not {x.shape}")
    x, m = np.sort(x, axis=1), x.shape[1]
    y = read_labels("y_true", y_true, len(x))
    distance = np.abs(x - y[:, None]).mean(axis=1)
    spread = x @ (2.0 * np.arange(1, m + 1) - m - 1.0) / m**2
    return _average(distance - spread, sample_weight)


@dataclass(frozen=True)
class Scorer:
    """Scorer for scikit-learn's ``scoring=``, for estimators with the ``predict_...`` methods of this package.

    In scikit-learn greater is better, so all scores except `coverage` are negated.

    Parameters
    ----------
    score : callable
        Function of this module.
    method : str
        Method of the estimator that makes the prediction.
    options : mapping
        Keyword arguments of both the method and the score.
    weight_request : bool, str or None
        What `set_score_request` was told of ``sample_weight``, under scikit-learn's metadata routing.

    Examples
    --------
    >>> cross_val_score(estimator, X, y, scoring=Scorer(crps))
    >>> cross_val_score(estimator, X, y, scoring=Scorer(interval_score, "predict_interval", {"coverage": 0.8}))
    >>> cross_val_score(estimator, X, y, scoring=Scorer(pinball, "predict_quantiles", {"q": 0.95}))
    """

    score: Callable[..., float]
    method: str = "predict_dist"
    options: Mapping[str, Any] = field(default_factory=dict)
    weight_request: bool | str | None = None

    def set_score_request(self, *, sample_weight: bool | str | None) -> Scorer:
        """Return a scorer that requests weights: True, False, or the name under which they are passed.

        Only for scikit-learn's metadata routing, under which weights that nobody requested are refused.
        """
        return replace(self, weight_request=sample_weight)

    def get_metadata_routing(self) -> Any:
        """Return the request for scikit-learn."""
        from sklearn.utils.metadata_routing import MetadataRequest

        request = MetadataRequest(owner=self)
        request.score.add_request(param="sample_weight", alias=self.weight_request)
        return request

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        estimator, X = _last_step(estimator, X, self.method)
        prediction = getattr(estimator, self.method)(X, **self.options)
        value = self.score(y, prediction, **self.options, sample_weight=sample_weight)
        return value if self.score is coverage else -value


def _last_step(estimator: Any, X: Any, method: str) -> tuple[Any, Any]:
    """Return the estimator with `method` inside a pipeline or search, and X as transformed by the steps before it."""
    while not hasattr(estimator, method):
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif hasattr(estimator, "steps"):
            X = estimator[:-1].transform(X) if len(estimator.steps) > 1 else X
            estimator = estimator[-1]
        else:
            kind = type(estimator).__name__
            raise TypeError(f"a {kind} has no {method}; give a PGBMRegressor or a pipeline that ends in one")
    return estimator, X


def _refuse_estimator(name: str, y_true: Any) -> None:
    """Refuse an estimator in the place of outcomes: scikit-learn calls ``scoring=`` with (estimator, X, y)."""
    if hasattr(y_true, "predict"):
        raise TypeError(f"scoring={name} is called with an estimator: give scoring=Scorer({name})")


def _distribution(value: Any) -> Distribution:
    if not hasattr(value, "crps"):
        raise TypeError(
            f"distribution must be a Distribution, such as model.predict_dist(X), not a {type(value).__name__}"
        )
    return value


def _ends(interval: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    # predict_interval returns (n, 2), interval() of a distribution returns a pair
    ends = np.stack(interval, axis=1) if isinstance(interval, tuple) else np.asarray(interval, np.float64)
    if ends.ndim != 2 or ends.shape[1] != 2:
        raise ValueError(f"interval must have shape (n, 2), not {ends.shape}")
    return ends[:, 0], ends[:, 1]


def _average(values: NDArray[np.float64], sample_weight: Any) -> float:
    """Return the weighted mean; rows of weight 0 do not count, and one infinite score makes it infinite."""
    weights = read_weights("sample_weight", sample_weight, len(values))
    if weights is not None:
        values, weights = values[weights > 0.0], weights[weights > 0.0]
    return np.inf if np.any(values == np.inf) else float(np.average(values, weights=weights))
