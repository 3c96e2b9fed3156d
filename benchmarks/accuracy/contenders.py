"""The contenders: ways to a predictive distribution, from the same rows and, where they wrap one, the same booster."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Any, Protocol

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from pgbm_plugin import ProbabilisticModel, wrap
from pgbm_plugin.distributions import Normal

from . import neighbours
from .quantiles import Quantiles
from .sets import Split

Array = NDArray[np.float64]

# The paper's key hyperparameters (appendix), for the boosters that it compares.
TREES = {"num_leaves": 16, "learning_rate": 0.1, "lambda_l2": 1.0, "max_bin": 64, "min_data_in_leaf": 1, "seed": 1}
NGBOOST = {"learning_rate": 0.01, "random_state": 1}
CATBOOST = {"loss_function": "RMSEWithUncertainty", "random_seed": 1}
LEVELS = np.arange(1, 20) / 20
FOLDS = 5
_ONE_THREAD = {"num_threads": 1, "verbose": -1}


class Forecast(Protocol):
    """What is scored: the package's distributions, and others."""

    def mean(self) -> Array: ...
    def interval(self, confidence: float) -> tuple[Array, Array]: ...
    def crps(self, y: Array) -> Array: ...
    def nll(self, y: Array) -> Array: ...


@dataclass(frozen=True)
class Rounds:
    """How long a model may grow: the best of at most `most` rounds on the validation rows, by its own loss.

    It ends after `patience` rounds without a better one.
    """

    most: int = 2000
    patience: int = 200


@dataclass(frozen=True)
class Work:
    """A split, and the booster that its contenders share."""

    split: Split
    rounds: Rounds

    @cached_property
    def _trained(self) -> tuple[lgb.Booster, float]:
        start = time.process_time()
        return train_lightgbm(self.split, self.rounds, {}), time.process_time() - start

    @property
    def booster(self) -> lgb.Booster:
        return self._trained[0]

    @property
    def booster_s(self) -> float:
        """Processor seconds of its training."""
        return self._trained[1]


@dataclass(frozen=True)
class Fitted:
    """A contender that is ready to predict.

    Attributes
    ----------
    predict : rows -> a distribution each; ValueError where the family that was chosen has none for a row.
    otherwise : what predicts in its place then.
    chosen : what the validation rows chose, in words.
    conformalized : the model made anew from one half of the validation rows, and conformalised on the other.
    """

    predict: Callable[[Array], Forecast]
    chosen: str = ""
    otherwise: Callable[[Array], Forecast] | None = None
    conformalized: Callable[[], ProbabilisticModel] | None = None


@dataclass(frozen=True)
class Contender:
    """A way to distributions.

    Attributes
    ----------
    title : its name in tables.
    fit : sees training and validation rows only.
    packages : those that its results depend on, besides NumPy.
    settings : what else its results depend on.
    wraps : whether it needs the shared booster.
    """

    title: str
    fit: Callable[[Work], Fitted]
    packages: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    wraps: bool = False


def contenders() -> tuple[dict[str, Contender], list[str]]:
    """Those that can take part here by name, and why others cannot."""
    shared: dict[str, Any] = {"packages": ("lightgbm",), "settings": TREES, "wraps": True}
    package: dict[str, Any] = {**shared, "packages": ("lightgbm", "pgbm_plugin")}
    here = {
        "constant": Contender("one sigma for all rows", _constant, **shared),
        "paper": Contender("untuned, the paper's rho", _wrapped(None), **package),
    }
    notes = []
    for name, title, variance in (
        ("tuned", "PGBM, tuned", "pgbm"),
        ("boosted", "boosted scale", "boosted"),
        ("auto", "PGBM and boosted scale", "auto"),
    ):
        tuning: dict[str, Any] = {"variance": variance}
        normal = {**tuning, "distributions": "normal"}
        for suffix, families, chosen in (("-normal", "Normal", normal), ("", "all families", tuning)):
            settings = {**package, "settings": {**TREES, **chosen}}
            here[name + suffix] = Contender(f"{title}, {families}", _wrapped(chosen), **settings)
    folds = {**package, "settings": {**TREES, "cv": FOLDS}}
    here["folds"] = Contender(f"trained on all rows, cv={FOLDS}", _on_folds, **folds)
    instances = {**TREES, "neighbours": neighbours.NEIGHBOURS}
    here["instance"] = Contender("instance-based (IBUG)", _instance, ("lightgbm",), instances, wraps=True)
    levels = {**TREES, "levels": LEVELS.tolist()}
    here["quantiles"] = Contender("LightGBM quantiles", _quantiles, ("lightgbm",), levels)
    for name, title, fit, settings in (
        ("ngboost", "NGBoost, Normal", _ngboost, NGBOOST),
        ("catboost", "CatBoost, RMSEWithUncertainty", _catboost, CATBOOST),
    ):
        if find_spec(name):
            here[name] = Contender(title, fit, (name,), settings)
        else:
            notes.append(f"{name}: not installed, pip install {name}")
    return here, notes


def train_lightgbm(split: Split, rounds: Rounds, loss: Mapping[str, Any]) -> lgb.Booster:
    """The paper's trees for a loss of LightGBM."""
    params = {**TREES, **_ONE_THREAD, **loss}
    rows = lgb.Dataset(split.X, split.y, params=params)
    stop = lgb.early_stopping(rounds.patience, verbose=False)
    held_out = rows.create_valid(split.X_val, split.y_val)
    return lgb.train(params, rows, rounds.most, valid_sets=[held_out], callbacks=[stop])


def _mean(work: Work, X: Array) -> Array:
    return work.booster.predict(X, num_threads=1)


def _constant(work: Work) -> Fitted:
    """The root mean square of the validation residuals as the sigma of every row."""
    residual = work.split.y_val - _mean(work, work.split.X_val)
    variance = float(np.mean(residual**2))
    return Fitted(lambda X: Normal.from_moments(_mean(work, X), np.full(len(X), variance)))


def _wrapped(tuning: Mapping[str, Any] | None) -> Callable[[Work], Fitted]:
    """This package: `wrap`, and `tune` unless None."""

    def fit(work: Work) -> Fitted:
        split = work.split
        variance = "pgbm" if tuning is None else tuning["variance"]
        model = wrap(work.booster, split.X, split.y, variance=variance, n_jobs=1)
        if tuning is None:
            model.rho = model.rho  # chosen, so that nothing warns of a model that is not calibrated
        half = len(split.y_val) // 2

        def conformalized() -> ProbabilisticModel:
            anew = copy.copy(model)
            if tuning is not None:
                anew.tune(split.X_val[:half], split.y_val[:half], **tuning)
            return anew.conformalize(split.X_val[half:], split.y_val[half:])

        if tuning is not None:
            model.tune(split.X_val, split.y_val, **tuning)
        return Fitted(
            model.predict_dist, _chosen(model), partial(model.predict_dist, distribution="normal"), conformalized
        )

    return fit


def _on_folds(work: Work) -> Fitted:
    """This package, for those who have no row to spare: the booster sees the validation rows as well.

    It has as many trees as the shared booster, whose number the validation rows chose.
    """
    split = work.split
    X, y = np.concatenate([split.X, split.X_val]), np.concatenate([split.y, split.y_val])
    params = {**TREES, **_ONE_THREAD}
    booster = lgb.train(params, lgb.Dataset(X, y, params=params), work.booster.best_iteration)
    model = wrap(booster, X, y, cv=FOLDS, n_jobs=1)
    return Fitted(model.predict_dist, _chosen(model), partial(model.predict_dist, distribution="normal"))


def _chosen(model: ProbabilisticModel) -> str:
    """The family, and what the labels showed of their bounds."""
    support = model.chosen.support
    if support is None:
        return model.distribution
    values = f"{support.lower:g} to {support.upper:g}" if support.values is None else f"{len(support.values)} values"
    return f"{model.distribution}, {values}"


def _instance(work: Work) -> Fitted:
    split = work.split
    train = neighbours.leaf_numbers(work.booster, split.X)
    grid = np.array([k for k in neighbours.NEIGHBOURS if k <= len(split.y)])
    table = neighbours.variances(train, split.y, neighbours.leaf_numbers(work.booster, split.X_val), grid)
    column, floor, calibration = neighbours.choose(split.y_val - _mean(work, split.X_val), table)
    k = grid[column : column + 1]

    def predict(X: Array) -> Forecast:
        variance = neighbours.variances(train, split.y, neighbours.leaf_numbers(work.booster, X), k)[:, 0]
        return Normal.from_moments(_mean(work, X), calibration(np.maximum(variance, floor)))

    return Fitted(predict, f"k = {k[0]}")


def _quantiles(work: Work) -> Fitted:
    """A model for each level, each stopped by its own loss."""
    models = [train_lightgbm(work.split, work.rounds, {"objective": "quantile", "alpha": q}) for q in LEVELS]

    def predict(X: Array) -> Forecast:
        values = [model.predict(X, num_threads=1) for model in models]
        return Quantiles.of_crossing(LEVELS, np.column_stack(values))

    return Fitted(predict, f"{np.median([model.best_iteration for model in models]):.0f} trees")


def _ngboost(work: Work) -> Fitted:
    """Its default learners, trees of depth three, with a seed."""
    from ngboost import NGBRegressor
    from ngboost.learners import default_tree_learner
    from sklearn import clone

    split, rounds = work.split, work.rounds
    learner = clone(default_tree_learner).set_params(random_state=NGBOOST["random_state"])
    model = NGBRegressor(Base=learner, n_estimators=rounds.most, verbose=False, **NGBOOST)
    model.fit(split.X, split.y, split.X_val, split.y_val, early_stopping_rounds=rounds.patience)
    best = model.best_val_loss_itr + 1

    def predict(X: Array) -> Forecast:
        found = model.pred_dist(X, max_iter=best)
        return Normal.from_moments(found.loc, found.scale**2)

    return Fitted(predict, f"{best} rounds")


def _catboost(work: Work) -> Fitted:
    """Its default trees and step."""
    from catboost import CatBoostRegressor

    split, rounds = work.split, work.rounds
    quiet = {"thread_count": 1, "verbose": False, "allow_writing_files": False}
    model = CatBoostRegressor(iterations=rounds.most, early_stopping_rounds=rounds.patience, **CATBOOST, **quiet)
    model.fit(split.X, split.y, eval_set=(split.X_val, split.y_val), use_best_model=True)
    return Fitted(lambda X: Normal.from_moments(*model.predict(X, thread_count=1).T), f"{model.tree_count_} trees")
