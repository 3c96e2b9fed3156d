"""Few rows at a time, as a service sees them: calls of the plugin against the booster's own predict, checks included.

python -m benchmarks.latency [--quick] [--only LightGBM,XGBoost] [--models abcd] [--json PATH]

Every call gets rows that nothing has seen before; figures are medians, one thread. `predict_dist` is that of a model as
`wrap` returns it, `predict_interval` that of the same model after `tune` and `conformalize`, and `serve` a call with
the same rows for plain floats of one quantile and one interval. ONNX Runtime and oneDAL predict the mean with the same
trees, where they are installed (``pip install onnxruntime onnxmltools scikit-learn-intelex``).
"""

from __future__ import annotations

import copy
import time
from typing import Any

from pgbm_plugin.parallel import progress_bar

from . import others
from .contest import check_answers, on_fresh_rows, options, report
from .models import ALL_BOOSTERS, Contender, cases, contender

ROWS = (1, 3, 10, 30, 100, 300, 1_000)
_MOST_NUMBERS = 20_000_000  # of the fresh rows of one measurement


def calls_of(it: Contender, quick: bool) -> dict[str, Any]:
    """The functions that are timed, by name."""
    n = 300 if quick else 3_000
    calibrated = copy.copy(it.wrapped)
    calibrated.tune(*it.case.rows(n, 2), distributions="normal" if quick else None)
    calibrated.conformalize(*it.case.rows(n, 3))
    served = calibrated.serve(quantiles=[0.5], intervals=[0.9])
    calls = {"own": it.predict, "predict": it.wrapped.predict, "predict_dist": it.wrapped.predict_dist}
    calls |= {"predict_interval": calibrated.predict_interval, "serve": served}
    return calls | others.on_same_trees(it, 1)


def main() -> None:
    flags = {"only": ",".join(ALL_BOOSTERS), "models": "abcd", "rounds": "2000"}
    given = options(__doc__, **{name: {"default": default} for name, default in flags.items()})
    n_train, rounds = (1_000, 3) if given.quick else (50_000, int(given.rounds))
    chosen = [case for case in cases(given.quick) if case.name in ("a" if given.quick else given.models)]
    boosters = given.only.split(",")
    lines: list[dict[str, Any]] = []
    with progress_bar(len(boosters) * len(chosen), "models", True) as advance:
        for booster in boosters:
            for case in chosen:
                it = contender(booster, case, n_train, 1_000, 1)
                check_answers(it.wrapped, it.predict, it.X)
                calls = calls_of(it, given.quick)
                for n in ROWS:
                    most = _MOST_NUMBERS // (case.features * n * len(calls))
                    turns = max(min(rounds, most, 20 * rounds // n), 3)
                    X = case.rows(n * len(calls) * turns, 10 + n)[0].astype(it.X.dtype)
                    took = on_fresh_rows(calls, X, n, turns, time.perf_counter)
                    line = {"booster": booster, "model": str(case), "rows": n, "own us": took["own"] * 1e6}
                    line |= {f"{name} / own": took[name] / took["own"] for name in list(calls)[1:5]}
                    dist = took["predict_dist"]
                    line |= {
                        f"predict_dist / {name}": dist / took[name] if name in took else ""
                        for name in others.SAME_TREES
                    }
                    lines.append(line)
                advance(1)
    lines = [{key: line[key] for key in line if any(other[key] != "" for other in lines)} for line in lines]
    report("time of a call as a share of another, one thread, fresh rows each call, bits checked", lines, given.json)


if __name__ == "__main__":
    main()
