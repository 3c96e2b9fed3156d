"""PGBMRegressor: a scikit-learn regressor that predicts a distribution for each row."""

from __future__ import annotations

import warnings
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .boosters import BOOSTERS, booster_of_estimator, booster_of_model
from .boosters.booster import class_names
from .calibration.folds import check_cv
from .calibration.search import rho_grid
from .calibration.validation import MIN_ROWS
from .checks import Variance, check_level, check_variance, names_init_score, refuse_other_init_scores
from .distributions import Conformal, family
from .errors import needing
from .losses.torch_objective import TorchObjective
from .out_of_fold import out_of_fold
from .surroundings.peel import peel
from .tables.columns import read_column, read_labels, read_weights
from .tables.frames import is_frame
from .tables.in_memory import in_memory
from .tables.labelled import RawRows
from .wrap import wrap

with needing("pgbm_plugin.sklearn needs scikit-learn 1.7 or later: pip install 'pgbm-plugin[sklearn]'"):
    from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone, is_regressor
    from sklearn.model_selection import train_test_split
    from sklearn.utils import check_random_state, column_or_1d
    from sklearn.utils.validation import check_is_fitted, validate_data

if TYPE_CHECKING:
    from .distributions import Distribution
    from .model import ProbabilisticModel
    from .predict.row_support import RowSupport
    from .trees.objectives import Gradients


@names_init_score
class PGBMRegressor(RegressorMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Scikit-learn estimator that fits a booster's regressor, calibrates it, and predicts distributions.

    By default no row is given up for the calibration: the estimator is fitted `cv` more times, each time without one
    part of the rows, and the distributions are chosen by how well they foretell the rows of that part.

    A pipeline forwards only `predict`, with its arguments: ``pipeline.predict(X, coverage=0.9)`` returns intervals. A
    search forwards no arguments: ``search.best_estimator_.predict(X, coverage=0.9)``. For other methods, call
    ``pipeline[-1].predict_dist(pipeline[:-1].transform(X))``.

    Parameters
    ----------
    estimator : regressor of a booster, or FrozenEstimator, optional
        Regressor to fit a copy of, such as LGBMRegressor or XGBRegressor. Default: that of the first booster which is
        installed. A ``FrozenEstimator(fitted)`` is wrapped as it is, without training: the booster alone, or in
        anything that `wrap` takes. If training has not seen the rows of `fit`, these calibrate it, without folds.
    rho : float, optional
        Correlation between successive trees. Default: chosen by tuning, or log10(rows) / 100 without tuning.
    distribution : str or None
        Family of the distributions. None: chosen by tuning, or normal without tuning.
    variance : {"pgbm", "boosted", "auto"}
        Source of the spread, as in `wrap`.
    cv : int, splitter, iterable or None
        Folds for the calibration, as in `wrap`. Not used with `tune_fraction`. None: no folds.
    tune_fraction : float, optional
        Share of the rows to hold out from training for `ProbabilisticModel.tune`, in place of `cv`. It takes one
        training instead of `cv` + 1.
    conformal_fraction : float, optional
        Share of the rows to hold out from training and tuning for `ProbabilisticModel.conformalize`. Default: none.
    shuffle : bool
        If True, held-out rows are drawn at random. Pass False for rows in the order of time: the last rows are held
        out for `conformalize`, and the rows before them for `tune`.
    random_state : int, RandomState or None
        Seed for drawing the held-out rows. The booster has its own seed.

    Attributes
    ----------
    estimator_ : estimator
        The fitted booster.
    model_ : ProbabilisticModel
        The wrapped booster, with its `certificate`.
    tune_result_ : TuneResult or None
        Result of tuning; None without `cv` and `tune_fraction`.
    feature_importances_ : array
        Importance of each column, as the booster says it.
    n_features_in_, feature_names_in_ : int, array
        Number and names of the columns, as in all scikit-learn estimators.

    Examples
    --------
    >>> model = PGBMRegressor(LGBMRegressor()).fit(X, y)  # or XGBRegressor()
    >>> model.predict_interval(X_new, coverage=0.9)
    >>> GridSearchCV(model, {"estimator__num_leaves": [8, 32], "rho": [0.0, 0.05]}, scoring=Scorer(crps))
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        rho: float | None = None,
        distribution: str | None = None,
        variance: Variance = "auto",
        cv: Any = 5,
        tune_fraction: float | None = None,
        conformal_fraction: float | None = None,
        shuffle: bool = True,
        random_state: Any = None,
    ):
        self.estimator = estimator
        self.rho = rho
        self.distribution = distribution
        self.variance = variance
        self.cv = cv
        self.tune_fraction = tune_fraction
        self.conformal_fraction = conformal_fraction
        self.shuffle = shuffle
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, init_score: Any = None, **fit_params: Any
    ) -> PGBMRegressor:
        """Fit a copy of the estimator, and wrap it with the same rows.

        `fit_params` are passed to the estimator's own fit. The scores that rows start from are `init_score` for every
        estimator; XGBoost's own name for them, base_margin, works as well. Pass those of new rows to the predict
        methods as `init_score`.
        """
        estimator = self._new_estimator()
        booster, _ = peel(estimator)
        frozen = booster is not estimator
        objective = _custom_objective(booster, weighted=sample_weight is not None)
        self._check_settings()
        kind = booster_of_model(booster)
        init_score_name = "init_score" if kind is None else kind.init_score
        refuse_other_init_scores(fit_params.keys() - {init_score_name})
        if frozen and fit_params.keys() - {init_score_name}:
            raise TypeError(f"fit got {min(fit_params)!r}, but a FrozenEstimator is not trained: leave it out")
        if init_score is not None and init_score_name in fit_params:
            raise TypeError(f"fit got both init_score and {init_score_name}, which mean the same: give one of them")
        data = self._read(X, y, sample_weight, fit_params.pop(init_score_name, init_score))
        train, tuning, conformal = self._split(data)
        if train.init_score is not None:
            fit_params[init_score_name] = train.init_score

        self.estimator_ = estimator.fit(train.X, train.y, sample_weight=train.sample_weight, **fit_params)
        with warnings.catch_warnings():
            # the user set subsample, and a search would warn once for every fold
            warnings.filterwarnings("ignore", "not certified: subsampled", UserWarning)
            if frozen:  # for which other rows than those of training are welcome
                warnings.filterwarnings("ignore", "not certified: held-out", UserWarning)
            n_jobs = getattr(self.estimator_, "n_jobs", None) or None
            model = wrap(self.estimator_, **vars(train), objective=objective, variance=self.variance, n_jobs=n_jobs)
        if self.rho is not None:
            model.rho = self.rho
        self.tune_result_, predicted = None, None
        if tuning is None and self.cv is not None and frozen and model.certificate.status == "held-out":
            tuning = train  # training has not seen these rows
        elif tuning is None and self.cv is not None:
            tuning = train
            predicted = out_of_fold(self.estimator_, **vars(train), cv=self.cv, objective=objective, n_jobs=n_jobs)
        if tuning is not None:
            columns = {"sample_weight": tuning.sample_weight, "init_score": tuning.init_score}
            choice: dict[str, Any] = {"distributions": self.distribution, "rho": self.rho}
            self.tune_result_ = model.tune(tuning.X, tuning.y, out_of_fold=predicted, **choice, **columns)
        elif self.distribution is not None:
            model.distribution = self.distribution
        if conformal is not None:
            model.conformalize(conformal.X, conformal.y, init_score=conformal.init_score)
        self.model_ = model
        return self

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        *,
        coverage: float | None = None,
        init_score: Any = None,
        groups: Any = None,
    ) -> Any:
        """Return the booster's own (n,) predictions, bit for bit; or their spread, which pipelines forward as well.

        Parameters
        ----------
        X : table
            Rows.
        return_std : bool
            Return the pair (mean, std) instead.
        coverage : float, optional
            Return the (n, 2) ends of the central intervals of this coverage instead, as `predict_interval` does.
        init_score : column, optional
            Score that each row starts from, if training had one.
        groups : column, or tuple of columns, optional
            Group of each row, if ``model_.conformalize`` got groups. The mean does not depend on it.
        """
        if coverage is None:
            return self._fitted().predict(self._table(X), return_std, init_score=init_score, groups=groups)
        if return_std:
            raise TypeError("predict got return_std=True and coverage=, which ask for different results: give one")
        return self.predict_interval(X, coverage, init_score=init_score, groups=groups)

    def predict_dist(self, X: Any, *, init_score: Any = None, groups: Any = None) -> Distribution:
        """Return one distribution per row, with methods such as ``mean()``, ``std()`` and ``ppf([.05, .95])``."""
        return self._fitted().predict_dist(self._table(X), init_score=init_score, groups=groups)

    def predict_interval(
        self, X: Any, coverage: float = 0.9, *, init_score: Any = None, groups: Any = None
    ) -> NDArray[np.float64]:
        """Return the (n, 2) ends of the central intervals of this coverage."""
        return self._fitted().predict_interval(self._table(X), coverage, init_score=init_score, groups=groups)

    def predict_quantiles(
        self, X: Any, q: ArrayLike, *, init_score: Any = None, groups: Any = None
    ) -> NDArray[np.float64]:
        """Return the (n, k) quantiles at k levels in (0, 1)."""
        return self._fitted().predict_quantiles(self._table(X), q, init_score=init_score, groups=groups)

    def predict_support(self, X: Any) -> RowSupport:
        """Return how many training rows stand behind each prediction, and which values lie outside of theirs.

        See `ProbabilisticModel.predict_support`. Rows that `fit` kept back are not among them.
        """
        return self._fitted().predict_support(self._table(X))

    @property
    def feature_importances_(self) -> NDArray[Any]:
        """Return what the booster says of its columns' importance; AttributeError if it says nothing."""
        check_is_fitted(self)
        importances: NDArray[Any] = peel(self.estimator_)[0].feature_importances_
        return importances

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True  # boosters accept both
        return tags

    def _new_estimator(self) -> Any:
        """Return an unfitted copy of the estimator; refuse a kind that cannot be wrapped."""
        if self.estimator is None:
            return _default_estimator()
        if "sklearn.FrozenEstimator" in class_names(self.estimator):
            peel(self.estimator)  # refuses what holds no booster
            return self.estimator
        if booster_of_estimator(self.estimator) is None or not is_regressor(self.estimator):
            names = ", ".join(booster.accepts for booster in BOOSTERS).split(", ")
            accepted = [name for name in names if name.endswith("Regressor")]
            raise TypeError(
                f"estimator must be a regressor of a booster ({', '.join(accepted)}), not {self.estimator!r:.80}; put "
                f"other steps before it, make_pipeline(StandardScaler(), PGBMRegressor({accepted[0]}())), or give what "
                f"is fitted already, PGBMRegressor(FrozenEstimator(pipeline))"
            )
        try:
            return clone(self.estimator)
        except RuntimeError as error:
            raise TypeError(
                f"scikit-learn cannot copy this {type(self.estimator).__name__}; give it tuples in place of lists, "
                f"such as cat_features=('town',) ({error})"
            ) from error

    def _check_settings(self) -> None:
        rho_grid(self.rho)
        check_variance(self.variance)
        if self.cv is not None:
            check_cv(self.cv)
        if self.distribution is None:
            return
        cls, _ = family(self.distribution)
        if issubclass(cls, Conformal):
            raise ValueError(
                "distribution='conformal' is set by conformal_fraction: set that instead, and distribution to the "
                "family that is tuned before it, or to None"
            )
        if cls.needs_residuals and self.tune_fraction is None and self.cv is None:
            raise ValueError(
                f"distribution={self.distribution!r} needs residuals of rows that training did not see: set cv or "
                f"tune_fraction"
            )

    def _read(self, X: Any, y: Any, sample_weight: Any, init_score: Any) -> RawRows:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        X = self._table(X, reset=True)
        rows = X.shape[0]
        label = read_labels("y", column_or_1d(y, warn=True), rows)
        weight = read_weights("sample_weight", sample_weight, rows)
        return RawRows(X, label, weight, read_column("init_score", init_score, rows))

    def _split(self, data: RawRows) -> tuple[RawRows, RawRows | None, RawRows | None]:
        """Return the rows for training, tuning and conformalizing; None for a part that is not wanted."""
        n = len(data.y)
        tune = _held_out_rows("tune_fraction", self.tune_fraction, n, MIN_ROWS)
        conformal = _held_out_rows("conformal_fraction", self.conformal_fraction, n, 2)
        if n - tune - conformal < 2:
            shown = f" of {n}, after tune_fraction and conformal_fraction took theirs" if tune or conformal else ""
            raise ValueError(f"there must be 2 rows to train on, not {n - tune - conformal} sample(s){shown}")
        # one generator for both, so that they draw different rows
        random = check_random_state(self.random_state) if self.shuffle else None
        for_tuning = for_conformal = None
        if conformal:
            data, for_conformal = _split_off(data, conformal, self.shuffle, random)
        if tune:
            data, for_tuning = _split_off(data, tune, self.shuffle, random)
        return data, for_tuning, for_conformal

    def _table(self, X: Any, reset: bool = False) -> Any:
        """Return X for the booster: a data frame unchanged, anything else as a matrix."""
        X = in_memory(X)
        if is_frame(X):
            return validate_data(self, X, reset=reset, skip_check_array=True)
        return validate_data(self, X, reset=reset, accept_sparse="csr", ensure_all_finite=False)

    def _fitted(self) -> ProbabilisticModel:
        check_is_fitted(self)
        return self.model_


def _split_off(data: RawRows, size: int, shuffle: bool, random: Any) -> tuple[RawRows, RawRows]:
    """Split `size` rows off, at random or from the end; return the remaining rows and these."""
    columns = list(vars(data).values())
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
        raise ValueError(f"{name}={fraction:g} of {n} rows is {size}, but {at_least} are needed: raise it")
    return size


def _custom_objective(estimator: Any, weighted: bool) -> Gradients | None:
    """Return the estimator's objective if it is a function, with its arguments in the order of `wrap`."""
    function = getattr(estimator, "objective", None)
    if not callable(function) or isinstance(function, TorchObjective):  # `wrap` finds a TorchObjective itself
        return None
    if weighted:
        raise ValueError(
            "sample_weight with a custom objective: how the objective used the weights is unknown; fit the booster "
            "yourself, and call wrap(..., objective=f) with an f that applies the weights"
        )
    return partial(_margin_first, function)


def _margin_first(function: Any, margin: NDArray[np.float64], y: NDArray[np.float64]) -> Any:
    return function(y, margin)


def _default_estimator() -> Any:
    """Return a new estimator of the first booster that is installed; that of scikit-learn is always there."""
    for booster in BOOSTERS:
        if booster.default_estimator is not None:
            with suppress(ImportError):
                return booster.default_estimator()
    raise ImportError("no booster is installed: pip install 'pgbm-plugin[lightgbm]'")
