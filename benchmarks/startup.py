"""Seconds of a fresh process: import, the first calls with nothing compiled (cold), and with the cache filled (cached).

python -m benchmarks.startup [--quick] [--json PATH]

Each process is its own; numba's cache is a directory that starts empty. One kind wraps a model and predicts, the other
loads what `save` wrote and predicts, as a service does. The first call that uses numba pays for numba's own start: the
last line is that alone, a process that calls one cached function of a line.
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

_SCRIPT = """
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
%s
timed("predict_dist", lambda: model.predict_dist(data["X"]))
timed("one row", lambda: model.predict_dist(data["X"][:1]))
print(json.dumps(seconds))
"""
WRAP = (
    _SCRIPT
    % """
model = timed("wrap or load", lambda: pgbm_plugin.wrap("model.txt", data["X"], data["y"]))
model.save("model.pgbm")
"""
)
SERVE = _SCRIPT % 'model = timed("wrap or load", lambda: pgbm_plugin.load("model.pgbm"))'

# What nobody who uses numba can save.
FLOOR = """
import json, sys, time
import numpy
sys.path.insert(0, ".")
start = time.perf_counter()
import tiny
tiny.first(numpy.zeros(3))
print(json.dumps({"wrap or load": time.perf_counter() - start}))
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

        def run(cache: str, script: str) -> dict[str, float]:
            env = {**os.environ, "NUMBA_CACHE_DIR": str(Path(folder) / cache)}
            command = [sys.executable, "-c", script]
            return json.loads(subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True).stdout)

        found: dict[str, list[dict[str, float]]] = {}
        for state in ("cold", "cached"):
            for i in range(runs):
                for name, script in (("wrap", WRAP), ("load", SERVE), ("numba alone", FLOOR)):
                    cache = f"{name}{i if state == 'cold' else 0}"
                    found.setdefault(f"{name}, {state}", []).append(run(cache, script))
    lines: list[dict[str, Any]] = []
    for name, of in found.items():
        best = {key: min(run[key] for run in of) for key in of[0]}
        lines.append({"process": name, **{key: best.get(key, "") for key in found["wrap, cold"][0]}})
    report(
        f"seconds of a fresh process, best of {runs}: {trees} trees, {n} rows, the model from a file", lines, given.json
    )


if __name__ == "__main__":
    main()
