"""Few rows at a time, as a service sees them: `predict_dist` against the booster's own predict, checks included.

Every call gets other rows.

python -m benchmarks.latency [--quick] [--json PATH]
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from pgbm_plugin.parallel import progress_bar

from .contest import check_answers, interleave, on_new_rows, options, report
from .models import ALL_BOOSTERS, cases, contender

ROWS = (1, 3, 10, 30, 100, 300, 1_000)


def main() -> None:
    given = options(__doc__)
    n_train, n_test, repeats = (3_000, 3_000, 20) if given.quick else (50_000, 60_000, 2_000)
    lines: list[dict[str, Any]] = []
    with progress_bar(len(ALL_BOOSTERS) * len(cases(given.quick)), "models", True) as advance:
        for booster in ALL_BOOSTERS:
            for case in cases(given.quick):
                it = contender(booster, case, n_train, n_test, 1)
                check_answers(it.wrapped, it.predict, it.X[: max(ROWS)])
                functions = {"own": it.predict, "dist": it.wrapped.predict_dist, "mean": it.wrapped.predict}
                parts = np.array_split(it.X, len(functions))  # rows that nobody has brought into a cache
                for n in ROWS:
                    calls = {
                        name: on_new_rows(function, part, n)
                        for (name, function), part in zip(functions.items(), parts, strict=True)
                    }
                    best = interleave(calls, max(repeats // n, 10), time.perf_counter)
                    line = {"booster": booster, "model": str(case), "rows": n, "own us": best["own"] * 1e6}
                    line |= {"predict_dist us": best["dist"] * 1e6, "predict_dist / own": best["dist"] / best["own"]}
                    lines.append(line | {"predict / own": best["mean"] / best["own"]})
                advance(1)
    title = "time of a call as a share of the booster's own, new rows at every call, one thread, bits checked"
    report(title, lines, given.json)


if __name__ == "__main__":
    main()
