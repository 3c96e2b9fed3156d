"""The models that are measured: four shapes of forest, grown by each booster on the same made-up rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import lightgbm as lgb
import numpy as np
import xgboost as xgb
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from pgbm_plugin import ProbabilisticModel, wrap

BOOSTERS = ("LightGBM", "XGBoost")
"""Boosters that show their training to callbacks, and train on a GPU."""
ALL_BOOSTERS = (*BOOSTERS, *(["CatBoost"] if find_spec("catboost") else []), "HistGradientBoosting")


@dataclass(frozen=True)
class Case:
    """A shape of forest; `balanced` trees are as deep everywhere, the others grow where the gain is."""

    name: str
    trees: int
    leaves: int
    features: int = 28
    balanced: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.trees} x {self.leaves}{', balanced' if self.balanced else ''}"

    def rows(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, self.features))
        if self.balanced:  # every feature counts, and none more than another
            return X, sum(np.sin(2.0 * X[:, i]) * X[:, i - 1] for i in range(self.features))
        return X, X[:, 0] + np.sin(3.0 * X[:, 1]) * X[:, 2] + rng.normal(size=n)


CASES = (
    Case("a", 500, 31),
    Case("b", 2000, 16),
    Case("c", 500, 255, features=90),
    Case("d", 500, 31, balanced=True),
)


def cases(quick: bool) -> tuple[Case, ...]:
    """All of them; in short, with a tenth of the trees."""
    return tuple(replace(case, trees=case.trees // 10) for case in CASES) if quick else CASES


@dataclass(frozen=True)
class Contender:
    """A trained booster, its wrapped model, and how both take rows."""

    booster: str
    case: Case
    trained: Any
    wrapped: ProbabilisticModel
    predict: Callable[[np.ndarray], np.ndarray]
    X: np.ndarray
    """Rows that it was not trained on, in the precision that its booster compares in."""
    on_pool: Callable[[], np.ndarray] | None = None
    """CatBoost's predict of these rows in a Pool that was made before, which its evaluator need not convert."""


def train(booster: str, case: Case, X: np.ndarray, y: np.ndarray, threads: int) -> Any:
    """A forest of the case's shape."""
    if booster == "LightGBM":
        params = {"num_leaves": case.leaves, "num_threads": threads, "verbose": -1}
        shape = {"max_depth": 5, "min_data_in_leaf": 50} if case.balanced else {}
        return lgb.train({**params, **shape}, lgb.Dataset(X, y), case.trees)
    if booster == "CatBoost":  # symmetric trees, the smallest with as many leaves
        import catboost

        params = {"iterations": case.trees, "depth": int(np.ceil(np.log2(case.leaves))), "thread_count": threads}
        return catboost.CatBoost({**params, "verbose": False, "allow_writing_files": False}).fit(X, y)
    if booster == "HistGradientBoosting":
        shape = {"max_depth": 5, "min_samples_leaf": 50} if case.balanced else {}
        new = HistGradientBoostingRegressor(
            max_iter=case.trees, max_leaf_nodes=case.leaves, early_stopping=False, **shape
        )
        with threadpool_limits(threads, "openmp"):
            return new.fit(X, y)
    grown = {"max_depth": 5} if case.balanced else {"max_depth": 0, "grow_policy": "lossguide"}
    params = {"max_leaves": case.leaves, "eta": 0.1, "tree_method": "hist", "nthread": threads}
    return xgb.train({**params, **grown}, xgb.DMatrix(X, y, nthread=threads), case.trees)


def contender(booster: str, case: Case, n_train: int, n_test: int, threads: int) -> Contender:
    """Train, wrap on the same rows, and make others to predict."""
    X, y = case.rows(n_train, 0)
    trained = train(booster, case, X, y, 2)
    X_new, _ = case.rows(n_test, 1)
    wrapped = wrap(trained, X, y, n_jobs=threads)
    if booster == "XGBoost":
        trained.set_param({"nthread": threads})
        return Contender(booster, case, trained, wrapped, trained.inplace_predict, X_new.astype(np.float32))
    on_pool = _predict_pool(trained, X_new, threads) if booster == "CatBoost" else None
    return Contender(booster, case, trained, wrapped, _own_predict(booster, trained, threads), X_new, on_pool)


def _predict_pool(trained: Any, X: np.ndarray, threads: int) -> Callable[[], np.ndarray]:
    import catboost

    pool = catboost.Pool(X)
    return lambda: trained.predict(pool, thread_count=threads)


def _own_predict(booster: str, trained: Any, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """The booster's own predict, with so many threads."""
    if booster == "LightGBM":
        return lambda X: trained.predict(X, num_threads=threads)
    if booster == "CatBoost":
        return lambda X: trained.predict(X, thread_count=threads)

    def predict(X: np.ndarray) -> np.ndarray:
        with threadpool_limits(threads, "openmp"):
            return trained.predict(X)

    return predict
