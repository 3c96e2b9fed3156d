"""What is measured of a contender on a split."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pgbm_plugin.scores import coverage

from .contenders import Contender, Fitted, Forecast, Rounds, Work, contenders
from .records import Key, append
from .sets import MADE_UP, Array, load

COVERAGE = 0.9


def measure(contender: Contender, work: Work) -> dict[str, Any]:
    """Scores on the test rows, and processor seconds.

    `fit_s` is what comes after the shared booster, which takes `booster_s` and is 0 for those that do without.
    `refused` says that the family which tuning chose cannot have the moments of a test row, so that a normal is scored.
    """
    split = work.split
    booster_s = work.booster_s if contender.wraps else 0.0
    start = time.process_time()
    fitted = contender.fit(work)
    fit_s = time.process_time() - start
    start = time.process_time()
    forecast, refused = _predict(fitted, split.X_test)
    predict_s = time.process_time() - start
    found = {"booster_s": booster_s, "fit_s": fit_s, "predict_s": predict_s}
    found |= {"crps": float(np.mean(forecast.crps(split.y_test))), "nll": _nll(forecast, split.y_test)}
    found |= {"rmse": float(np.sqrt(np.mean((forecast.mean() - split.y_test) ** 2)))}
    found |= _of_interval("", np.column_stack(forecast.interval(COVERAGE)), split.y_test)
    if fitted.conformalized is not None:
        interval = fitted.conformalized().predict_interval(split.X_test, coverage=COVERAGE)
        found |= _of_interval("conformal_", interval, split.y_test)
    return {**found, "chosen": fitted.chosen, "refused": refused}


def _predict(fitted: Fitted, X: Array) -> tuple[Forecast, bool]:
    try:
        return fitted.predict(X), False
    except ValueError:
        if fitted.otherwise is None:
            raise
        return fitted.otherwise(X), True


def _nll(forecast: Forecast, y: Array) -> float | None:
    """Nats a row; None without a density: counts, outcomes on a lattice, and those with mass on a bound."""
    if getattr(forecast, "has_mass", False):
        return None
    try:
        return float(np.mean(forecast.nll(y)))
    except NotImplementedError:
        return None


def _of_interval(prefix: str, interval: Array, y: Array) -> dict[str, float]:
    width = float(np.mean(interval[:, 1] - interval[:, 0]))
    return {f"{prefix}coverage": coverage(y, interval), f"{prefix}width": width}


@cache
def warm_up(names: tuple[str, ...]) -> None:
    """Import packages and load or compile kernels, once a process, so that no contender is charged with it."""
    here, _ = contenders()
    work = Work(load(None, next(iter(MADE_UP)), 0), Rounds(5, 5))
    for name in names:
        measure(here[name], work)


def run(folder: Path | None, keys: list[Key], rounds: Rounds, path: Path | None) -> list[dict[str, Any]]:
    """The results of some contenders on one split, each written to `path` as soon as it is known."""
    here, _ = contenders()
    warm_up(tuple(key.contender for key in keys))
    work = Work(load(folder, keys[0].set, keys[0].split), rounds)
    found = []
    for key in keys:
        try:
            record = {**key.as_dict(), **measure(here[key.contender], work)}
        except Exception as error:
            raise RuntimeError(f"{key.contender} failed on split {key.split} of {key.set}") from error
        found.append(record)
        if path is not None:
            append(path, record)
    return found
