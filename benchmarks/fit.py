"""What `wrap` costs, reading the model included, as a share of the training's own processor time.

python -m benchmarks.fit [--quick] [--json PATH]

Training and wrapping take turns. The moments must have the same bits on both routes and for any number of threads, and
every leaf must be certified.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from pgbm_plugin import wrap
from pgbm_plugin.leaves.moments import ARRAYS, LeafMoments
from pgbm_plugin.parallel import progress_bar

from .contest import options, report, route
from .models import ALL_BOOSTERS, cases, train


def same_bits(a: LeafMoments, b: LeafMoments) -> bool:
    return a.rows == b.rows and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ARRAYS)


def check_moments(booster: Any, X: np.ndarray, y: np.ndarray) -> None:
    wrapped = wrap(booster, X, y, n_jobs=1)
    if wrapped.certificate.status != "certified":
        raise AssertionError(f"not certified: {wrapped.certificate}")
    with route("walk"):
        walked = wrap(booster, X, y, n_jobs=2)
    if not same_bits(wrapped.moments, walked.moments):
        raise AssertionError("the moments depend on the route or on the threads")


def main() -> None:
    given = options(__doc__, rows={"type": int, "default": 200_000})
    rows, rounds = (3_000, 1) if given.quick else (given.rows, 3)
    chosen = [case for case in cases(given.quick) if case.name in "ad"]
    lines: list[dict[str, Any]] = []
    with progress_bar(len(ALL_BOOSTERS) * len(chosen) * rounds, "rounds", True) as advance:
        for name in ALL_BOOSTERS:
            for case in chosen:
                X, y = case.rows(rows, 0)
                training, wrapping = [], []
                for _ in range(rounds):
                    start = time.process_time()
                    booster = train(name, case, X, y, 2)
                    training.append(time.process_time() - start)
                    if not wrapping:
                        check_moments(booster, X, y)  # and compiles
                    start = time.process_time()
                    wrap(booster, X, y, n_jobs=1)
                    wrapping.append(time.process_time() - start)
                    advance(1)
                line = {"booster": name, "model": str(case), "training s": min(training), "wrap s": min(wrapping)}
                line |= {"wrap / training": f"{min(wrapping) / min(training):.1%}"}
                line |= {"ns per row and tree": min(wrapping) * 1e9 / (rows * case.trees)}
                lines.append(line)
    report(f"wrap as a share of training, processor time, {rows} rows, bits checked", lines, given.json)


if __name__ == "__main__":
    main()
