"""How to measure: contenders in turn, the best of several runs, ratios instead of times, and right answers only."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from pgbm_plugin import ProbabilisticModel
from pgbm_plugin.routes import choose as routes


def options(doc: str | None, **flags: dict[str, Any]) -> argparse.Namespace:
    """The command line that all benchmarks share, and flags of their own."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small models and few rows: that it runs, not how fast")
    parser.add_argument("--json", type=Path, help="write the figures here")
    for name, settings in flags.items():
        parser.add_argument(f"--{name}", **settings)
    return parser.parse_args()


def interleave(calls: Mapping[str, Callable[[], Any]], repeats: int, clock: Callable[[], float]) -> dict[str, float]:
    """Shortest seconds of each call. They take turns, so that a slow moment of the machine hits all of them."""
    best = dict.fromkeys(calls, np.inf)
    for call in calls.values():
        call()  # compiles, and warms the caches
    for _ in range(repeats):
        for name, call in calls.items():
            start = clock()
            call()
            best[name] = min(best[name], clock() - start)
    return best


def on_fresh_rows(
    calls: Mapping[str, Callable[[np.ndarray], Any]], X: np.ndarray, n: int, rounds: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Median seconds of each call on n rows that nothing has seen before.

    The same rows again and again would train the processor's branch predictor, which services do not enjoy. Calls take
    turns, and the one that begins changes.
    """
    names, blocks = list(calls), iter(range(0, len(X) - n + 1, n))
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for call in calls.values():
        call(X[:n])  # compiles, and warms the caches
    for turn in range(rounds):
        for k in range(len(names)):
            name, first = names[(turn + k) % len(names)], next(blocks)
            rows = X[first : first + n]
            start = clock()
            calls[name](rows)
            seconds[name].append(clock() - start)
    return {name: float(np.median(took)) for name, took in seconds.items()}


@contextmanager
def route(name: str) -> Iterator[None]:
    """Inside, all trees are walked or all are replayed."""
    before, routes.forced = routes.forced, name
    try:
        yield
    finally:
        routes.forced = before


def check_answers(wrapped: ProbabilisticModel, predict: Callable[[np.ndarray], np.ndarray], X: np.ndarray) -> None:
    """A fast wrong answer is worth nothing: the mean has the booster's bits, the variance the same on both routes."""
    if not np.array_equal(wrapped.predict_dist(X).mean(), predict(X)):
        raise AssertionError("the mean differs from the booster's prediction")
    X = X[:2000]
    with route("walk"):
        walked = wrapped.predict_dist(X).var()
    with route("replay"):
        replayed = wrapped.predict_dist(X).var()
    if not (np.array_equal(walked, replayed) and np.all(walked > 0)):
        raise AssertionError("the variance depends on the route, or is not positive")


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    names = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in names if line.startswith("model name")), "")
    packages = {name: version(name) for name in ("lightgbm", "xgboost", "numpy", "numba")}
    return {"cpu": model or platform.processor(), "cores": str(os.cpu_count()), **packages}


def report(title: str, lines: Sequence[Mapping[str, Any]], json_path: Path | None) -> None:
    """A table of the lines, which share their keys, and the same as JSON."""
    print(f"\n{title}")
    shown = [{key: _shown(value) for key, value in line.items()} for line in lines]
    width = {key: max(len(key), *(len(line[key]) for line in shown)) for key in shown[0]}
    print("  ".join(key.rjust(width[key]) for key in width))
    for line in shown:
        print("  ".join(line[key].rjust(width[key]) for key in width))
    if json_path:
        figures = {"title": title, "machine": machine(), "when": time.strftime("%Y-%m-%d"), "lines": list(lines)}
        json_path.write_text(json.dumps(figures, indent=2) + "\n")


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
