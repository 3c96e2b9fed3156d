"""The paper's protocol on the UCI sets: the number of trees from validation rows, then a model of all rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import xgboost as xgb

from benchmarks.accuracy.__main__ import chosen
from benchmarks.accuracy.contenders import NGBOOST, TREES
from benchmarks.accuracy.sets import MADE_UP, QUICK, SETS, Array, Split, load, n_splits
from pgbm_plugin import ProbabilisticModel, wrap
from pgbm_plugin.scores import crps_ensemble

from .results import Key, digest, options

SAMPLES = 1000
ROUNDS = 2000
QUICK_ROUNDS = 30
LIGHTGBM = {**TREES, "num_threads": 1, "verbose": -1}
# The same settings by XGBoost's names. Squared error has h = 1, so that a weight of 1 is one row.
XGBOOST = {
    "max_leaves": 16,
    "max_depth": 0,
    "grow_policy": "lossguide",
    "tree_method": "hist",
    "eta": 0.1,
    "lambda": 1.0,
    "max_bin": 64,
    "min_child_weight": 1.0,
    "seed": 1,
    "nthread": 1,
}


@dataclass(frozen=True)
class Plan:
    """Which splits of which sets, and for how many rounds.

    Attributes
    ----------
    folder : of the .npz files, None for made-up rows.
    splits : set -> number of splits.
    """

    folder: Path | None
    splits: Mapping[str, int]
    rounds: int

    def keys(self, settings: Any, **more: Any) -> list[Key]:
        """A key for every split."""
        known = {**more, "settings": digest({"rounds": self.rounds, "of": settings})}
        return [{"set": name, "split": k, **known} for name, most in self.splits.items() for k in range(most)]


def plan(doc: str | None, arguments: Any, most: int | None, **flags: Mapping[str, Any]) -> tuple[Any, Plan]:
    """The command line of an experiment on these sets, and what it asks for: `most` splits unless told otherwise."""
    sets = {"help": "with commas; all nine unless given"}
    splits = {"type": int, "help": f"the first N of each set; {'all' if most is None else most} unless given"}
    given = options(doc, arguments, sets=sets, splits=splits, **flags)
    folder = None if given.data is None else given.data / "uci"
    names = tuple(MADE_UP) if folder is None else SETS
    wanted = chosen(given.sets, names, "set")
    if given.quick and folder is not None and given.sets is None:
        wanted = list(QUICK)
    most = given.splits or (1 if given.quick else most)
    counts = {name: n_splits(folder, name) for name in wanted}
    limited = {name: count if most is None else min(most, count) for name, count in counts.items()}
    return given, Plan(folder, limited, QUICK_ROUNDS if given.quick else ROUNDS)


def split_of(key: Key, work: Plan) -> Split:
    return load(work.folder, key["set"], key["split"])


def all_rows(split: Split) -> tuple[Array, Array]:
    """Training and validation rows together, for the second training."""
    return np.concatenate([split.X, split.X_val]), np.concatenate([split.y, split.y_val])


def train_lightgbm(X: Array, y: Array, rounds: int, **more: Any) -> lgb.Booster:
    params = {**LIGHTGBM, **more}
    return lgb.train(params, lgb.Dataset(X, y, params=params), rounds)


def train_xgboost(X: Array, y: Array, rounds: int, **more: Any) -> xgb.Booster:
    return xgb.train({**XGBOOST, **more}, xgb.DMatrix(X, y), rounds)


def validated_lightgbm(split: Split, rounds: int, **more: Any) -> lgb.Booster:
    """Trained on the training rows; keeps the trees up to the lowest validation error of all `rounds`."""
    params = {**LIGHTGBM, **more}
    rows = lgb.Dataset(split.X, split.y, params=params)
    held_out = rows.create_valid(split.X_val, split.y_val)
    errors: dict[str, Any] = {}
    watch = lgb.record_evaluation(errors)
    booster = lgb.train(params, rows, rounds, valid_sets=[held_out], callbacks=[watch])
    booster.best_iteration = 1 + int(np.argmin(errors["valid_0"]["l2"]))
    return booster


def best_xgboost(split: Split, rounds: int) -> int:
    """The number of rounds with the lowest validation error."""
    errors: dict[str, Any] = {}
    rows, held_out = xgb.DMatrix(split.X, split.y), xgb.DMatrix(split.X_val, split.y_val)
    settings: dict[str, Any] = {"evals": [(held_out, "valid")], "evals_result": errors, "verbose_eval": False}
    xgb.train(XGBOOST, rows, rounds, **settings)
    return 1 + int(np.argmin(errors["valid"]["rmse"]))


def ngboost(rounds: int, **more: Any) -> Any:
    """NGBoost as its authors set it: a Normal, trees of depth three, a step of 0.01."""
    from ngboost import NGBRegressor
    from ngboost.learners import default_tree_learner
    from sklearn import clone

    learner = clone(default_tree_learner).set_params(random_state=NGBOOST["random_state"])
    return NGBRegressor(Base=learner, n_estimators=rounds, verbose=False, **{**NGBOOST, **more})


def has_ngboost() -> bool:
    found = find_spec("ngboost") is not None
    if not found:
        print("left out: NGBoost is not installed, pip install ngboost", file=sys.stderr)
    return found


def wrapped(
    train: Callable[[Array, Array, int], Any], X: Array, y: Array, rounds: int
) -> tuple[Any, ProbabilisticModel]:
    """A booster of these rows and the same with a distribution, with the paper's rho and a Normal."""
    booster = train(X, y, rounds)
    return booster, wrap(booster, X, y, n_jobs=1)


def scores(distribution: Any, y: Array, mean: Array | None = None) -> dict[str, float]:
    """CRPS in closed form and of 1,000 samples, as in the paper; RMSE of `mean`, or of the distribution's."""
    mean = distribution.mean() if mean is None else mean
    return {
        "crps": float(np.mean(distribution.crps(y))),
        "crps_sampled": crps_ensemble(y, distribution.rvs(SAMPLES, random_state=1)),
        "rmse": rmse(mean, y),
    }


def rmse(prediction: Array, y: Array) -> float:
    return float(np.sqrt(np.mean((prediction - y) ** 2)))
