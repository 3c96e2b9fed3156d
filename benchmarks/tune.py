"""Seconds of `tune` by stage on one core, and what a closed-form CRPS saves over a sampled one.

python -m benchmarks.tune [--quick] [--json PATH]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lightgbm as lgb
import numpy as np

from pgbm_plugin import ProbabilisticModel, wrap
from pgbm_plugin.calibration import validation
from pgbm_plugin.calibration.search import DEFAULT_RHO, _Refinement
from pgbm_plugin.calibration.validation import Validation
from pgbm_plugin.parallel import progress_bar
from pgbm_plugin.predict import predictions
from pgbm_plugin.scores import crps, crps_ensemble

FAMILIES = [
    "normal",
    "studentt",
    "logistic",
    "laplace",
    "lognormal",
    "gamma",
    "gumbel",
    "weibull",
    "poisson",
    "negativebinomial",
]


def make_data(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Over-dispersed counts from 1 on: rows that all ten families can be fitted to."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 10))
    mean = np.exp(2.0 + 0.5 * X[:, 0] + 0.3 * np.sin(3.0 * X[:, 1]))
    return X, 1.0 + rng.negative_binomial(5.0, 5.0 / (5.0 + mean))


@contextmanager
def stages() -> Iterator[Counter[str]]:
    """Seconds by stage of what runs inside; the stages do not overlap, and refining is told from the grid."""
    seconds: Counter[str] = Counter()
    phase = ["grid"]

    def timed(function: Callable[..., Any], label: Callable[..., str]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                seconds[f"{phase[-1]}: {label(*args)}"] += time.perf_counter() - start

        return call

    def entering(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            phase.append("refine")
            try:
                return function(*args, **kwargs)
            finally:
                phase.pop()

        return call

    with ExitStack() as stack:
        for module, name in ((validation, "variances"), (predictions, "margins_and_variances")):
            stack.enter_context(patch.object(module, name, timed(getattr(module, name), lambda *_: "walk")))
        stack.enter_context(patch.object(Validation, "fit_map", timed(Validation.fit_map, lambda *_: "maps")))
        stack.enter_context(patch.object(Validation, "score", timed(Validation.score, lambda _, name, *__: name)))
        stack.enter_context(patch.object(_Refinement, "refine", entering(_Refinement.refine)))
        yield seconds


def measure_tune(wrapped: ProbabilisticModel, X: np.ndarray, y: np.ndarray, repeats: int) -> dict[str, Any]:
    """The fastest of some runs, by stage."""
    given: dict[str, Any] = {"distributions": FAMILIES, "rho": DEFAULT_RHO}
    wrapped.tune(X[:100], y[:100], **given)  # compiles the kernels
    runs = []
    with progress_bar(repeats, "runs", True) as advance:
        for _ in range(repeats):
            start = time.perf_counter()
            with stages() as seconds:
                result = wrapped.tune(X, y, **given)
            total = time.perf_counter() - start
            rest = total - sum(seconds.values())
            runs.append({"total": total, "stages": {**seconds, "rest": rest}, "best": str(result.best)})
            advance(1)
    if result.failed:
        raise RuntimeError(f"all families were to be measured, but {result.failed}")
    return min(runs, key=lambda run: run["total"])


def measure_crps(
    wrapped: ProbabilisticModel, X: np.ndarray, y: np.ndarray, samples: int
) -> dict[str, dict[str, float]]:
    """Closed form against `samples` draws and `crps_ensemble`, for the same distributions."""
    out = {}
    with progress_bar(len(FAMILIES), "families", True) as advance:
        for name in FAMILIES:
            distribution = wrapped.predict_dist(X, name)
            closed_seconds = min(_seconds(lambda d=distribution: crps(y, d)) for _ in range(3))
            start = time.perf_counter()
            draws = distribution.rvs(samples, random_state=0)
            draw_seconds = time.perf_counter() - start
            score_seconds = _seconds(lambda x=draws: crps_ensemble(y, x))
            out[name] = {
                "closed": closed_seconds,
                "draws": draw_seconds,
                "ensemble": score_seconds,
                "ratio": (draw_seconds + score_seconds) / closed_seconds,
                "error": crps_ensemble(y, draws) / crps(y, distribution) - 1.0,
            }
            advance(1)
    return out


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, trees and samples")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    rows, trees, samples = (1_000, 50, 100) if options.quick else (10_000, 500, 1_000)

    X, y = make_data(2 * rows, 0)
    params = {"objective": "poisson", "num_leaves": 31, "learning_rate": 0.03, "verbose": -1}
    wrapped = wrap(lgb.train(params, lgb.Dataset(X, y), trees), X, y, n_jobs=1)
    X, y = make_data(rows, 1)

    tuning = measure_tune(wrapped, X, y, 1 if options.quick else 3)
    print(f"tune: {rows} rows x {trees} trees, {len(FAMILIES)} families x {len(DEFAULT_RHO)} rho, one core")
    print(f"  {'total':26} {tuning['total']:8.3f} s   {tuning['best']}")
    for stage, seconds in sorted(tuning["stages"].items(), key=lambda item: -item[1]):
        print(f"  {stage:26} {seconds:8.3f} s   {seconds / tuning['total']:6.1%}")

    scores = measure_crps(wrapped, X, y, samples)
    print(f"CRPS of {rows} rows: closed form, and {samples} samples a row")
    print(f"  {'family':18} {'closed':>10} {'draws':>10} {'ensemble':>10} {'ratio':>8} {'error':>9}")
    for name, s in scores.items():
        times = " ".join(f"{1e3 * s[key]:7.1f} ms" for key in ("closed", "draws", "ensemble"))
        print(f"  {name:18} {times} {s['ratio']:7.0f}x {s['error']:+9.1e}")
    if options.json:
        figures = {"rows": rows, "trees": trees, "samples": samples, "tune": tuning, "crps": scores}
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
