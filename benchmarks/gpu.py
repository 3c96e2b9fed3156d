"""The CUDA kernels against the CPU's, and against XGBoost's own prediction on the GPU: moments, predictions, all of it.

python -m benchmarks.gpu [--quick] [--rows N] [--json PATH]

Needs a GPU and ``pip install 'pgbm-plugin[cuda]'``. NUMBA_ENABLE_CUDASIM=1 with --quick shows that it runs, not how
fast. Answers are compared before anything is timed; times are wall times, because a GPU has no processor time here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import xgboost as xgb

from pgbm_plugin import ProbabilisticModel, wrap
from pgbm_plugin.device import check_device
from pgbm_plugin.parallel import progress_bar

from .contest import interleave, options, report
from .models import BOOSTERS, Case, cases, train

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


def check_devices(cpu: ProbabilisticModel, gpu: ProbabilisticModel, X: np.ndarray) -> None:
    """Equal means; moments and variances that differ by the order of sums and by fused products alone."""
    want, got = cpu.predict_dist(X), gpu.predict_dist(X)
    if not np.array_equal(got.mean(), want.mean()):
        raise AssertionError("the mean depends on the device")
    if not np.allclose(got.var(), want.var(), rtol=1e-9) or not np.array_equal(cpu.moments.count, gpu.moments.count):
        raise AssertionError("the variance depends on the device")


def on_gpu(X: np.ndarray) -> Any:
    """The rows where a GPU reads them without a copy, if a library for it is there."""
    if SIMULATED:
        return None
    try:
        import cupy
    except ImportError:
        return None
    return cupy.asarray(X)


def calls(name: str, booster: Any, case: Case, X: np.ndarray, y: np.ndarray) -> dict[str, Callable[[], Any]]:
    """What is timed, by name; the first is what the others are compared with."""
    cpu, gpu = (wrap(booster, X, y, device=device) for device in ("cpu", "cuda"))
    check_devices(cpu, gpu, X[:2000])
    timed: dict[str, Callable[[], Any]] = {
        "wrap, CPU": lambda: wrap(booster, X, y, device="cpu"),
        "wrap, GPU": lambda: wrap(booster, X, y, device="cuda"),
        "predict_dist, CPU": lambda: cpu.predict_dist(X),
        "predict_dist, GPU": lambda: gpu.predict_dist(X),
        "predict_dist in float32, GPU": lambda: gpu.predict_dist(X, dtype=np.float32),
    }
    resident = on_gpu(X)
    if resident is not None:
        timed["predict_dist, rows on the GPU"] = lambda: gpu.predict_dist(resident)
    if not SIMULATED and name == "XGBoost":
        booster.set_param({"device": "cuda"})
        rows = xgb.DMatrix(X) if resident is None else resident
        own = booster.predict if resident is None else booster.inplace_predict
        timed["XGBoost's own predict, GPU"] = lambda: own(rows)
        params = {"max_leaves": case.leaves, "max_depth": 0, "grow_policy": "lossguide", "device": "cuda"}
        timed["training, GPU"] = lambda: xgb.train(params, xgb.QuantileDMatrix(X, y), case.trees)
    return timed


def main() -> None:
    given = options(__doc__, rows={"type": int, "default": 1_000_000})
    check_device("cuda")
    rows, repeats = (60, 1) if SIMULATED else (20_000, 2) if given.quick else (given.rows, 5)
    chosen = cases(given.quick)[:1] if SIMULATED else cases(given.quick)
    lines: list[dict[str, Any]] = []
    with progress_bar(len(BOOSTERS) * len(chosen), "models", True) as advance:
        for name in BOOSTERS:
            for case in chosen:
                if SIMULATED:
                    case = Case(case.name, 2, 8, case.features)
                X, y = case.rows(rows, 0)
                X = X.astype(np.float32) if name == "XGBoost" else X
                best = interleave(calls(name, train(name, case, X, y, 2), case, X, y), repeats, time.perf_counter)
                for what, seconds in best.items():
                    base = best[f"{what.partition(',')[0].partition(' in ')[0]}, CPU"] if ", " in what else None
                    if what.startswith(("XGBoost", "training")):
                        base = best["predict_dist, CPU"] if what.startswith("XGBoost") else None
                    line: dict[str, Any] = {"booster": name, "model": str(case), "what": what, "ms": 1e3 * seconds}
                    line |= {"G rows x trees / s": rows * case.trees / seconds / 1e9}
                    lines.append(line | {"times the CPU": "" if base is None else base / seconds})
                advance(1)
    title = "in the simulator: that it runs" if SIMULATED else "against the CPU's kernels on all cores"
    report(f"GPU, {rows} rows, {title}", lines, given.json)


if __name__ == "__main__":
    main()
