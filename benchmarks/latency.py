"""Few rows at a time, as a service sees them: `predict_dist` against the booster's own predict, checks included.

python -m benchmarks.latency [--quick] [--json PATH]
"""

from __future__ import annotations

import time
from typing import Any

from pgbm_plugin.parallel import progress_bar

from .contest import check_answers, interleave, options, report
from .models import ALL_BOOSTERS, cases, contender

ROWS = (1, 10, 100, 1_000)


def main() -> None:
    given = options(__doc__)
    n_train, repeats = (3_000, 20) if given.quick else (50_000, 2_000)
    lines: list[dict[str, Any]] = []
    with progress_bar(len(ALL_BOOSTERS) * len(cases(given.quick)), "models", True) as advance:
        for booster in ALL_BOOSTERS:
            for case in cases(given.quick):
                it = contender(booster, case, n_train, max(ROWS), 1)
                check_answers(it.wrapped, it.predict, it.X)
                for n in ROWS:
                    X = it.X[:n]
                    calls = {
                        "own": lambda it=it, X=X: it.predict(X),
                        "dist": lambda it=it, X=X: it.wrapped.predict_dist(X),
                        "mean": lambda it=it, X=X: it.wrapped.predict(X),
                    }
                    best = interleave(calls, max(repeats // n, 10), time.perf_counter)
                    line = {"booster": booster, "model": str(case), "rows": n, "own us": best["own"] * 1e6}
                    line |= {"predict_dist us": best["dist"] * 1e6, "predict_dist / own": best["dist"] / best["own"]}
                    lines.append(line | {"predict / own": best["mean"] / best["own"]})
                advance(1)
    report("time of a call as a share of the booster's own, one thread, bits checked", lines, given.json)


if __name__ == "__main__":
    main()
