"""`predict_dist` (mean and variance) against the boosters' own predict (mean), one thread or several.

python -m benchmarks.predict [--quick] [--only CatBoost,XGBoost] [--threads N] [--rows N] [--json PATH]

Columns: ns per row and tree; how many times faster than the booster, and than CatBoost on a Pool made before; and how
many times as long it takes with a boosted scale, which `tune` adds where it helps. Where they are installed, ONNX
Runtime and oneDAL predict the mean with the same trees of LightGBM and XGBoost. lleaves, CatBoost
(RMSEWithUncertainty), NGBoost and PGBM take part in the first contest where they are installed; the last three are
models of their own, of as many trees.
"""

from __future__ import annotations

import copy
import time
from typing import Any

from pgbm_plugin.parallel import progress_bar

from . import others
from .contest import check_answers, interleave, options, report
from .models import ALL_BOOSTERS, cases, contender


def main() -> None:
    given = options(
        __doc__,
        only={"type": lambda names: names.split(","), "default": ALL_BOOSTERS, "metavar": "BOOSTERS"},
        threads={"type": int, "default": 1},
        rows={"type": int, "default": 20_000},
        repeats={"type": int},
    )
    n_train, n_test = (3_000, 3_000) if given.quick else (50_000, given.rows)
    names = (*others.SAME_TREES, *others.NAMES)
    repeats = given.repeats or (2 if given.quick else 9)
    lines: list[dict[str, Any]] = []
    with progress_bar(len(given.only) * len(cases(given.quick)), "models", True) as advance:
        for booster in given.only:
            for case in cases(given.quick):
                it = contender(booster, case, n_train, n_test, given.threads)
                check_answers(it.wrapped, it.predict, it.X)
                scaled = copy.copy(it.wrapped)
                scaled.tune(*case.rows(3_000, 2), variance="boosted", distributions="normal", rho=0.0)
                calls = {
                    "own": lambda it=it: it.predict(it.X),
                    "dist": lambda it=it: it.wrapped.predict_dist(it.X),
                    "mean": lambda it=it: it.wrapped.predict(it.X),
                    "scaled": lambda it=it, scaled=scaled: scaled.predict_dist(it.X),
                }
                if it.on_pool is not None:
                    calls["pool"] = it.on_pool
                same = others.on_same_trees(it, given.threads)
                calls |= {name: lambda it=it, predict=predict: predict(it.X) for name, predict in same.items()}
                if booster == "LightGBM" and case.name == "a":
                    calls |= others.contenders(case, it.X, given.threads)
                best = interleave(calls, repeats, time.perf_counter)
                per = 1e9 / (n_test * it.wrapped.forest.n_trees)
                line = {"booster": booster, "model": str(case), "leaves": it.wrapped.forest.n_leaves // case.trees}
                line |= {"own ns": best["own"] * per, "predict_dist ns": best["dist"] * per}
                line |= {"predict_dist": best["own"] / best["dist"], "predict": best["own"] / best["mean"]}
                line |= {"than on a Pool": best["pool"] / best["dist"] if "pool" in best else ""}
                line |= {"with a scale, times as long": best["scaled"] / best["dist"]}
                line |= {name: best["own"] / best[name] if name in best else "" for name in names}
                lines.append(line)
                advance(1)
    used = [name for name in names if any(line[name] for line in lines)]
    lines = [{key: line[key] for key in line if key not in names or key in used} for line in lines]
    title = f"times faster than the booster's own predict: {n_test} rows, {given.threads} thread(s), bits checked"
    report(title, lines, given.json)


if __name__ == "__main__":
    main()
