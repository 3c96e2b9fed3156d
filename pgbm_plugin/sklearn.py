"""PGBMRegressor: either booster's scikit-learn regressor, with a predictive distribution per row."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .calibration.search import rho_grid
from .calibration.validation import MIN_ROWS
from .distributions import Conformal, family
from .losses.torch_objective import TorchObjective
from .predictor import Variance, check_variance
from .tables.columns import check_level, read_column, read_weights
from .tables.frames import FRAMES
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

# A row's own start, as LightGBM and XGBoost call it; the only fit parameters that must be split with the rows.
_STARTS = ("init_score", "base_margin")


class PGBMRegressor(RegressorMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Fits a booster's regressor and wraps it; a scikit-learn estimator that predicts distributions.

    >>> model = PGBMRegressor(LGBMRegressor(), tune_fraction=0.2).fit(X, y)  # or XGBRegressor()
    >>> model.predict_interval(X_new, coverage=0.9)
    >>> GridSearchCV(model, {"estimator__num_leaves": [8, 32], "rho": [0.0, 0.05]}, scoring=Scorer(crps))

    A pipeline hands on `predict` alone: ``pipeline[-1].predict_interval(pipeline[:-1].transform(X))``.

    Parameters
    ----------
    estimator : an LGBMRegressor or XGBRegressor, of which a copy is fitted; None for the booster that is installed.
    rho : correlation between successive trees; None for what tuning finds, or without it log10(rows) / 100.
    distribution : a family's name, the only one to be tuned; None for the one that tuning finds, or the normal.
    variance : "pgbm", "boosted" or "auto", as in `wrap`: where the spread comes from.
    tune_fraction : share of the rows that is kept from training, for `ProbabilisticModel.tune`; None for no tuning.
    conformal_fraction : share of the rows that is kept from both, for `ProbabilisticModel.conformalize`.
    shuffle : choose those rows at random; False for rows in the order of time, of which the last are kept: for
        `conformalize` the very last, for `tune` those before them.
    random_state : seed of the choice of those rows; the booster has its own.

    Attributes
    ----------
    estimator_ : the fitted booster.
    model_ : the ProbabilisticModel around it, with its `certificate`.
    tune_result_ : the TuneResult; None without `tune_fraction`.
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.
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

        `fit_params` go to the estimator's own fit. Of an init_score or base_margin among them, each step gets the part
        of its rows; predictions take their own, by the name of init_score.
        """
        estimator = self._new_estimator()
        objective = _custom_objective(estimator, weighted=sample_weight is not None)
        self._check_settings()
        start = next((name for name in _STARTS if fit_params.get(name) is not None), None)
        data = self._read(X, y, sample_weight, None if start is None else fit_params.pop(start))
        train, held_out, apart = self._split(data)
        if start is not None:
            fit_params[start] = train.init_score

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
                n_jobs=self.estimator_.n_jobs or None,
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
        """What the booster predicts, bit for bit; with ``return_std=True`` the pair (mean, std)."""
        X = self._table_to_predict(X)
        return self.model_.predict(X, return_std, init_score=init_score)

    def predict_dist(self, X: Any, *, init_score: Any = None) -> Distribution:
        """A distribution per row: ``d.mean()``, ``d.std()``, ``d.ppf([.05, .95])``, ``d.rvs(100)``, ``d.crps(y)``..."""
        X = self._table_to_predict(X)
        return self.model_.predict_dist(X, init_score=init_score)

    def predict_interval(self, X: Any, coverage: float = 0.9, *, init_score: Any = None) -> NDArray[np.float64]:
        """(n, 2) lower and upper end of the central interval."""
        X = self._table_to_predict(X)
        return self.model_.predict_interval(X, coverage, init_score=init_score)

    def predict_quantiles(self, X: Any, q: ArrayLike, *, init_score: Any = None) -> NDArray[np.float64]:
        """(n, k) quantiles at k levels in (0, 1)."""
        X = self._table_to_predict(X)
        return self.model_.predict_quantiles(X, q, init_score=init_score)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True  # both boosters read either
        return tags

    def _new_estimator(self) -> Any:
        """An unfitted copy of the estimator, of a kind that can be wrapped."""
        if self.estimator is None:
            return _default_estimator()
        kinds = {cls.__name__ for cls in type(self.estimator).__mro__}
        if not kinds & {"LGBMModel", "XGBModel"} or not is_regressor(self.estimator):
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

    def _read(self, X: Any, y: Any, sample_weight: Any, init_score: Any) -> _Data:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        X = self._table(X, reset=True)
        rows = X.shape[0]
        label = read_column("y", column_or_1d(y, warn=True), rows)
        assert label is not None
        weight, start = read_weights("sample_weight", sample_weight, rows), read_column("init_score", init_score, rows)
        return _Data(X, label, weight, start)

    def _split(self, data: _Data) -> tuple[_Data, _Data | None, _Data | None]:
        """Rows to train on, to tune on and to conformalize on; None for those not asked for."""
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
            data, apart = data.split(conformal, self.shuffle, random)
        if tune:
            data, held_out = data.split(tune, self.shuffle, random)
        return data, held_out, apart

    def _table(self, X: Any, reset: bool) -> Any:
        """X for the booster: a data frame as it is, with its categories; anything else as a matrix."""
        if any(is_kind(X) for is_kind, _ in FRAMES):
            return validate_data(self, X, reset=reset, skip_check_array=True)
        return validate_data(self, X, reset=reset, accept_sparse="csr", ensure_all_finite=False)

    def _table_to_predict(self, X: Any) -> Any:
        check_is_fitted(self)
        return self._table(X, reset=False)


class _Data(NamedTuple):
    """Rows and what belongs to them; None for what was not given."""

    X: Any
    y: NDArray[np.float64]
    sample_weight: NDArray[np.float64] | None
    init_score: NDArray[np.float64] | None

    def split(self, size: int, shuffle: bool, random: Any) -> tuple[_Data, _Data]:
        """All but `size` rows, and those: drawn, or the last."""
        given = [column for column in self if column is not None]
        parts = iter(train_test_split(*given, test_size=size, shuffle=shuffle, random_state=random))
        pairs = [(None, None) if column is None else (next(parts), next(parts)) for column in self]
        rest, taken = zip(*pairs, strict=True)
        return _Data(*rest), _Data(*taken)


def _held_out_rows(name: str, fraction: float | None, n: int, at_least: int) -> int:
    if fraction is None:
        return 0
    check_level(name, fraction)
    size = round(fraction * n)
    if size < at_least:
        raise ValueError(f"{name}={fraction:g} of {n} rows is {size}, and {at_least} are needed: give it more")
    return size


def _custom_objective(estimator: Any, weighted: bool) -> Gradients | None:
    """The estimator's own objective if it is a function, with the arguments in the order of `wrap`."""
    function = estimator.objective
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


def _default_estimator() -> Any:
    try:
        from lightgbm import LGBMRegressor

        return LGBMRegressor(verbose=-1)
    except ImportError:
        pass
    try:
        from xgboost import XGBRegressor

        return XGBRegressor()
    except ImportError:
        raise ImportError(
            "PGBMRegressor needs a booster: pip install 'pgbm-plugin[lightgbm]' or 'pgbm-plugin[xgboost]'"
        ) from None
