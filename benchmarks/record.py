"""What `record` adds to training: wall time with it over wall time without, taking turns.

python -m benchmarks.record [--quick] [--json PATH]
"""

from __future__ import annotations

import time
from typing import Any

import lightgbm as lgb
import xgboost as xgb

from pgbm_plugin import record, wrap
from pgbm_plugin.parallel import progress_bar

from .contest import interleave, options, report
from .models import BOOSTERS, CASES


def main() -> None:
    given = options(__doc__, rows={"type": int, "default": 1_000_000})
    rows, trees, rounds = (5_000, 3, 1) if given.quick else (given.rows, 25, 5)
    case = CASES[0]
    X, y = case.rows(rows, 0)
    lines: list[dict[str, Any]] = []
    with progress_bar(len(BOOSTERS), "boosters", True) as advance:
        for booster in BOOSTERS:
            if booster == "LightGBM":
                data = lgb.Dataset(X, y, params={"verbose": -1}).construct()
                params = {"num_leaves": case.leaves, "verbose": -1}

                def train(recorded: bool, data: Any = data, params: Any = params) -> Any:
                    return lgb.train(params, data, trees, callbacks=[record()] if recorded else [])
            else:
                data = xgb.QuantileDMatrix(X, y)
                params = {"max_leaves": case.leaves, "max_depth": 0, "grow_policy": "lossguide", "eta": 0.1}

                def train(recorded: bool, data: Any = data, params: Any = params) -> Any:
                    return xgb.train(params, data, trees, callbacks=[record(data)] if recorded else [])

            status = wrap(train(True)).certificate.status
            if status != "certified":
                raise AssertionError(f"what was recorded is {status}")
            calls = {"without": lambda train=train: train(False), "with": lambda train=train: train(True)}
            best = interleave(calls, rounds, time.perf_counter)
            line = {"booster": booster, "ms a tree": 1e3 * best["without"] / trees}
            lines.append(line | {"with record": f"{best['with'] / best['without'] - 1.0:+.0%}"})
            advance(1)
    report(f"record: {rows} rows x {case.features}, {case.leaves} leaves, {trees} trees", lines, given.json)


if __name__ == "__main__":
    main()
