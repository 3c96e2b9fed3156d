"""Seconds of a fresh process: import, the first calls with nothing compiled (cold), and with the cache filled (cached).

python -m benchmarks.startup [--quick] [--json PATH]

Each process is its own; numba's cache is a directory that starts empty. `wrap` is the first to use numba, so it pays
for numba's own start: the last line is that alone, a process that calls one cached function of a line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from .contest import options, report
from .models import CASES, train

SCRIPT = """
import json, sys, time
import numpy  # every caller has it
start = time.perf_counter()
import pgbm_plugin
seconds = {"import": time.perf_counter() - start}
data = numpy.load("data.npz")
def timed(name, call):
    start = time.perf_counter()
    result = call()
    seconds[name] = time.perf_counter() - start
    return result
model = timed("wrap", lambda: pgbm_plugin.wrap("model.txt", data["X"], data["y"]))
timed("predict_dist", lambda: model.predict_dist(data["X"]))
timed("one row", lambda: model.predict_dist(data["X"][:1]))
print(json.dumps(seconds))
"""

# What nobody who uses numba can save.
FLOOR = """
import json, sys, time
import numpy
sys.path.insert(0, ".")
start = time.perf_counter()
import tiny
tiny.first(numpy.zeros(3))
print(json.dumps({"wrap": time.perf_counter() - start}))
"""
TINY = """
from numba import njit
@njit(cache=True)
def first(x):
    return x[0]
"""


def main() -> None:
    given = options(__doc__)
    case = CASES[0]
    n, trees = (1_000, 20) if given.quick else (5_000, case.trees)
    runs = 1 if given.quick else 5
    with TemporaryDirectory() as folder:
        X, y = case.rows(n, 0)
        train("LightGBM", type(case)("a", trees, case.leaves), X, y, 2).save_model(Path(folder) / "model.txt")
        np.savez(Path(folder) / "data.npz", X=X, y=y)

        (Path(folder) / "tiny.py").write_text(TINY)

        def run(cache: str, script: str = SCRIPT) -> dict[str, float]:
            env = {**os.environ, "NUMBA_CACHE_DIR": str(Path(folder) / cache)}
            command = [sys.executable, "-c", script]
            return json.loads(subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True).stdout)

        cold = [run(f"cold{i}") for i in range(runs)]
        run("cold0", FLOOR)  # compiles
        cached, floor = zip(*((run("cold0"), run("cold0", FLOOR)) for _ in range(runs)), strict=True)
    lines: list[dict[str, Any]] = []
    for name, of in (("cold", cold), ("cached", cached), ("numba alone", floor)):
        best = {key: min(run[key] for run in of) for key in of[0]}
        lines.append({"process": name, **{key: best.get(key, "") for key in cold[0]}})
    report(
        f"seconds of a fresh process, best of {runs}: {trees} trees, {n} rows, the model from a file", lines, given.json
    )


if __name__ == "__main__":
    main()
