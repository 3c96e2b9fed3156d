"""PGBMRegressor: a booster's scikit-learn regressor, with a predictive distribution per row."""

from __future__ import annotations

import warnings
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .boosters import BOOSTERS, booster_of_estimator
from .calibration.search import rho_grid
from .calibration.validation import MIN_ROWS
from .checks import Variance, check_level, check_variance
from .distributions import Conformal, family
from .losses.torch_objective import TorchObjective
from .tables.columns import read_column, read_labels, read_weights
from .tables.frames import is_frame
from .tables.labelled import RawRows
from .wrap import wrap

try:
    from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone, is_regressor
    from sklearn.model_selection import train_test_split
    from sklearn.utils import check_random_state, column_or_1d
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "pgbm_plugin.sklearn needs scikit-learn 1.7 or later: pip install 'pgbm-plugin[sklearn]'"
    ) from error

if TYPE_CHECKING:
    from .distributions import Distribution
    from .trees.objectives import Gradients


class PGBMRegressor(RegressorMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn estimator that fits a booster's regressor, wraps it, and predicts distributions.

    A pipeline passes only `predict` on. For the rest, call
    ``pipeline[-1].predict_interval(pipeline[:-1].transform(X))``.

    Parameters
    ----------
    estimator : LGBMRegressor or XGBRegressor, optional
        The regressor, of which a copy is fitted. Default: that of the booster that is installed.
    rho : float, optional
        Correlation between successive trees. Default: what tuning finds, or log10(rows) / 100 without tuning.
    distribution : str or None
        Name of the only family that is tuned; None for the one that tuning finds, or the normal.
    variance : {"pgbm", "boosted", "auto"}
        Where the spread comes from, as in `wrap`.
    tune_fraction : float, optional
        Share of the rows that is kept from training for `ProbabilisticModel.tune`. Default: no tuning.
    conformal_fraction : float, optional
        Share of the rows that is kept from both for `ProbabilisticModel.conformalize`.
    shuffle : bool
        Choose those rows at random. False is for rows in the order of time: the very last rows are kept for
        `conformalize`, and those before them for `tune`.
    random_state : int, RandomState or None
        Seed of the choice of those rows. The booster has its own.

    Attributes
    ----------
    estimator_ : estimator
        The fitted booster.
    model_ : ProbabilisticModel
        The wrapped booster, with its `certificate`.
    tune_result_ : TuneResult or None
        What tuning found; None without `tune_fraction`.
    n_features_in_, feature_names_in_ : int, array
        As everywhere in scikit-learn.

    Examples
    --------
    >>> model = PGBMRegressor(LGBMRegressor(), tune_fraction=0.2).fit(X, y)  # or XGBRegressor()
    >>> model.predict_interval(X_new, coverage=0.9)
    >>> GridSearchCV(model, {"estimator__num_leaves": [8, 32], "rho": [0.0, 0.05]}, scoring=Scorer(crps))
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        rho: float | None = None,
        distribution: str | None = "normal",
        variance: Variance = "pgbm",
        tune_fraction: float | None = None,
        conformal_fraction: float | None = None,
        shuffle: bool = True,
        random_state: Any = None,
    ):
        self.estimator = estimator
        self.rho = rho
        self.distribution = distribution
        self.variance = variance
        self.tune_fraction = tune_fraction
        self.conformal_fraction = conformal_fraction
        self.shuffle = shuffle
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> PGBMRegressor:
        """Fit a copy of the estimator, and wrap it with the same rows.

        `fit_params` go to the estimator's own fit. An init_score (XGBoost: base_margin) among them is split with the
        rows. Predictions take theirs as init_score.
        """
        estimator = self._new_estimator()
        objective = _custom_objective(estimator, weighted=sample_weight is not None)
        self._check_settings()
        starts = _init_score_name(estimator)
        data = self._read(X, y, sample_weight, fit_params.pop(starts, None))
        train, held_out, apart = self._split(data)
        if train.init_score is not None:
            fit_params[starts] = train.init_score

        self.estimator_ = estimator.fit(train.X, train.y, sample_weight=train.sample_weight, **fit_params)
        with warnings.catch_warnings():
            # whoever set subsample knows it, and a search would say it once for every fold
            warnings.filterwarnings("ignore", "not certified: subsampled", UserWarning)
            model = wrap(
                self.estimator_,
                train.X,
                train.y,
                sample_weight=train.sample_weight,
                init_score=train.init_score,
                objective=objective,
                variance=self.variance,
                n_jobs=getattr(self.estimator_, "n_jobs", None) or None,
            )
        if self.rho is not None:
            model.rho = self.rho
        self.tune_result_ = None
        if held_out is not None:
            self.tune_result_ = model.tune(
                held_out.X,
                held_out.y,
                distributions=self.distribution,
                rho=self.rho,
                sample_weight=held_out.sample_weight,
                init_score=held_out.init_score,
            )
        elif self.distribution is not None:
            model.distribution = self.distribution
        if apart is not None:
            model.conformalize(apart.X, apart.y, init_score=apart.init_score)
        self.model_ = model
        return self

    def predict(self, X: Any, return_std: bool = False, *, init_score: Any = None) -> Any:
        """Return what the booster predicts, bit for bit; with ``return_std=True`` the pair (mean, std)."""
        X = self._table_to_predict(X)
        return self.model_.predict(X, return_std, init_score=init_score)

    def predict_dist(self, X: Any, *, init_score: Any = None) -> Distribution:
        """Return a distribution per row: ``d.mean()``, ``d.std()``, ``d.ppf([.05, .95])``, ``d.rvs(100)``..."""
        X = self._table_to_predict(X)
        return self.model_.predict_dist(X, init_score=init_score)

    def predict_interval(self, X: Any, coverage: float = 0.9, *, init_score: Any = None) -> NDArray[np.float64]:
        """Return the (n, 2) ends of the central intervals of this coverage."""
        X = self._table_to_predict(X)
        return self.model_.predict_interval(X, coverage, init_score=init_score)

    def predict_quantiles(self, X: Any, q: ArrayLike, *, init_score: Any = None) -> NDArray[np.float64]:
        """Return the (n, k) quantiles at k levels in (0, 1)."""
        X = self._table_to_predict(X)
        return self.model_.predict_quantiles(X, q, init_score=init_score)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True  # boosters read either
        return tags

    def _new_estimator(self) -> Any:
        """Return an unfitted copy of the estimator; refuse a kind that cannot be wrapped."""
        if self.estimator is None:
            return _default_estimator()
        if booster_of_estimator(self.estimator) is None or not is_regressor(self.estimator):
            raise TypeError(
                f"estimator must be an LGBMRegressor or an XGBRegressor, not {self.estimator!r:.80}; what else a "
                f"model needs comes before it, make_pipeline(StandardScaler(), PGBMRegressor(LGBMRegressor()))"
            )
        return clone(self.estimator)

    def _check_settings(self) -> None:
        rho_grid(self.rho)
        check_variance(self.variance)
        if self.distribution is None:
            return
        cls, _ = family(self.distribution)
        if issubclass(cls, Conformal):
            raise ValueError(
                "distribution='conformal' is what conformal_fraction makes: set that, and distribution to the family "
                "that is tuned before it, or to None"
            )
        if cls.needs_residuals and self.tune_fraction is None:
            raise ValueError(f"distribution={self.distribution!r} needs residuals of held-out rows: set tune_fraction")

    def _read(self, X: Any, y: Any, sample_weight: Any, init_score: Any) -> RawRows:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        X = self._table(X, reset=True)
        rows = X.shape[0]
        label = read_labels("y", column_or_1d(y, warn=True), rows)
        weight = read_weights("sample_weight", sample_weight, rows)
        return RawRows(X, label, weight, read_column("init_score", init_score, rows))

    def _split(self, data: RawRows) -> tuple[RawRows, RawRows | None, RawRows | None]:
        """Return rows to train on, to tune on and to conformalize on; None for those not asked for."""
        n = len(data.y)
        tune = _held_out_rows("tune_fraction", self.tune_fraction, n, MIN_ROWS)
        conformal = _held_out_rows("conformal_fraction", self.conformal_fraction, n, 2)
        if n - tune - conformal < 2:
            kept = f" of {n}, after tune_fraction and conformal_fraction took theirs" if tune or conformal else ""
            raise ValueError(f"there must be 2 rows to train on, not {n - tune - conformal} sample(s){kept}")
        # one stream of numbers for both; in order there is nothing to draw
        random = check_random_state(self.random_state) if self.shuffle else None
        held_out = apart = None
        if conformal:
            data, apart = _split_off(data, conformal, self.shuffle, random)
        if tune:
            data, held_out = _split_off(data, tune, self.shuffle, random)
        return data, held_out, apart

    def _table(self, X: Any, reset: bool) -> Any:
        """Return X for the booster: a data frame as it is, with its categories; anything else as a matrix."""
        if is_frame(X):
            return validate_data(self, X, reset=reset, skip_check_array=True)
        return validate_data(self, X, reset=reset, accept_sparse="csr", ensure_all_finite=False)

    def _table_to_predict(self, X: Any) -> Any:
        check_is_fitted(self)
        return self._table(X, reset=False)


def _split_off(data: RawRows, size: int, shuffle: bool, random: Any) -> tuple[RawRows, RawRows]:
    """Return all rows but `size`, and these: drawn at random, or the last."""
    columns = (data.X, data.y, data.sample_weight, data.init_score)
    present = [column for column in columns if column is not None]
    parts = iter(train_test_split(*present, test_size=size, shuffle=shuffle, random_state=random))
    pairs = [(None, None) if column is None else (next(parts), next(parts)) for column in columns]
    rest, taken = zip(*pairs, strict=True)
    return RawRows(*rest), RawRows(*taken)


def _held_out_rows(name: str, fraction: float | None, n: int, at_least: int) -> int:
    if fraction is None:
        return 0
    check_level(name, fraction)
    size = round(fraction * n)
    if size < at_least:
        raise ValueError(f"{name}={fraction:g} of {n} rows is {size}, and {at_least} are needed: give it more")
    return size


def _custom_objective(estimator: Any, weighted: bool) -> Gradients | None:
    """Return the estimator's own objective if it is a function, with the arguments in the order of `wrap`."""
    function = getattr(estimator, "objective", None)
    if not callable(function) or isinstance(function, TorchObjective):  # which wrap finds by itself
        return None
    if weighted:
        raise ValueError(
            "sample_weight with a custom objective: only the objective knows what it did with the weights; fit the "
            "booster yourself, and give wrap(..., objective=f) with the weights in f"
        )
    return partial(_margin_first, function)


def _margin_first(function: Any, margin: NDArray[np.float64], y: NDArray[np.float64]) -> Any:
    return function(y, margin)


def _init_score_name(estimator: Any) -> str:
    """Return what the estimator's fit calls the scores that rows start from; they must be split with the rows."""
    booster = booster_of_estimator(estimator)
    assert booster is not None
    return booster.init_score


def _default_estimator() -> Any:
    """Return a new estimator of the first booster that is installed."""
    for booster in BOOSTERS:
        if booster.default_estimator is not None:
            with suppress(ImportError):
                return booster.default_estimator()
    raise ImportError("PGBMRegressor needs a booster: pip install 'pgbm-plugin[lightgbm]' or 'pgbm-plugin[xgboost]'")
