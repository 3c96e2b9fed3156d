"""What `record` adds to training: wall time with it over wall time without, taking turns.

python -m benchmarks.record [--quick] [--rows N] [--json PATH]

Of LightGBM the time of one look at its training scores is shown as well: `record` cannot do without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import lightgbm as lgb
import numpy as np
import xgboost as xgb

from pgbm_plugin import record, wrap
from pgbm_plugin.parallel import progress_bar

from .contest import interleave, options, report
from .models import BOOSTERS, Case, cases


def training(booster: str, case: Case, X: np.ndarray, y: np.ndarray, trees: int) -> Callable[[bool], Any]:
    """A function that trains on data prepared here, with or without `record`."""
    if booster == "LightGBM":
        data = lgb.Dataset(X, y, params={"verbose": -1}).construct()
        params = {"num_leaves": case.leaves, "verbose": -1}
        return lambda recorded: lgb.train(params, data, trees, callbacks=[record()] if recorded else [])
    matrix = xgb.QuantileDMatrix(X, y)
    params = {"max_leaves": case.leaves, "max_depth": 0, "grow_policy": "lossguide", "eta": 0.1}
    return lambda recorded: xgb.train(params, matrix, trees, callbacks=[record(matrix)] if recorded else [])


def look_at_scores(X: np.ndarray, y: np.ndarray) -> float:
    """Seconds in which LightGBM gives its training scores."""
    model = lgb.Booster({"verbose": -1}, lgb.Dataset(X, y, params={"verbose": -1}))
    model.update()
    look = {"look": lambda: setattr(model, "_Booster__is_predicted_cur_iter", [False]) or read(model)}
    return interleave(look, 10, time.perf_counter)["look"]


def read(model: lgb.Booster) -> np.ndarray:
    return model._Booster__inner_predict(data_idx=0)


def main() -> None:
    given = options(__doc__, rows={"type": int, "default": 1_000_000})
    rows, trees, rounds = (5_000, 3, 1) if given.quick else (given.rows, 24, 5)
    chosen = [case for case in cases(given.quick) if case.name in "ac"]
    lines: list[dict[str, Any]] = []
    with progress_bar(len(BOOSTERS) * len(chosen), "trainings", True) as advance:
        for case in chosen:
            X, y = case.rows(rows, 0)
            for booster in BOOSTERS:
                train = training(booster, case, X, y, trees)
                status = wrap(train(True)).certificate.status
                if status != "certified":
                    raise AssertionError(f"what was recorded is {status}")
                calls = {"without": lambda train=train: train(False), "with": lambda train=train: train(True)}
                best = interleave(calls, rounds, time.perf_counter)
                line: dict[str, Any] = {"booster": booster, "leaves": case.leaves, "features": case.features}
                line |= {"ms a tree": 1e3 * best["without"] / trees}
                line |= {"with record": f"{best['with'] / best['without'] - 1.0:+.0%}"}
                look = look_at_scores(X, y) / (best["without"] / trees) if booster == "LightGBM" else None
                lines.append(line | {"one look at scores": "" if look is None else f"{look:.0%} of a tree"})
                advance(1)
    report(f"record: {rows} rows, {trees} trees", lines, given.json)


if __name__ == "__main__":
    main()
