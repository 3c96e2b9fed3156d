"""What streaming costs: `wrap` over batches against `wrap` of a table, in memory and in time.

python -m benchmarks.stream [--quick] [--rows N] [--json PATH]

A generator makes rows as they are asked for, and all of them go once through a model of 500 trees; making them is timed
and taken off. A part that fits memory is then taken as a table, as batches and from a Parquet file, in turn; the
moments must be the same to 1e-12. Times are processor time of all threads, so that others on the machine do not count.
Memory is the process's resident set: before, and its peak since (Linux; elsewhere the peak of the whole run).
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pgbm_plugin import LeafMoments, wrap

from .contest import interleave, options, report
from .models import BOOSTERS, Case, cases, train

BATCH = 1 << 17


class Generator:
    """Rows on demand, and the seconds that it took to make them."""

    def __init__(self, case: Case, rows: int):
        self.case, self.rows, self.seconds = case, rows, 0.0

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for i, lo in enumerate(range(0, self.rows, BATCH)):
            start = time.process_time()
            batch = self.case.rows(min(BATCH, self.rows - lo), i)
            self.seconds += time.process_time() - start
            yield batch


def megabytes(peak: bool) -> float:
    """Resident memory, now or at most since `forget_peak`."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith("VmHWM:" if peak else "VmRSS:"))) / 1024
    except OSError:
        unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def forget_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def check_same(a: LeafMoments, b: LeafMoments) -> None:
    """Means and variances, to 1e-12 of the gradients' size."""
    if not np.array_equal(a.count, b.count):
        raise AssertionError("leaves hold other rows")
    size = np.sqrt(a.gg / np.maximum(a.count, 1) + a.g_mean**2)
    if np.any(np.abs(a.g_mean - b.g_mean) > 1e-12 * size) or np.any(np.abs(a.gg - b.gg) > 1e-12 * a.gg):
        raise AssertionError("the moments depend on the batches")


def rates(name: str, booster: Any, X: np.ndarray, y: np.ndarray, repeats: int, folder: Path) -> dict[str, Any]:
    """The same rows as a table, as batches and from a file, taking turns."""
    path = folder / f"{name}.parquet"
    columns = {f"c{i}": X[:, i] for i in range(X.shape[1])}
    pq.write_table(pa.table(columns | {"y": y}), path, row_group_size=BATCH)
    pieces = [slice(lo, lo + BATCH) for lo in range(0, len(y), BATCH)]
    ways = {
        "table": lambda: wrap(booster, X, y),
        "batches": lambda: wrap(booster, ((X[piece], y[piece]) for piece in pieces)),
        "Parquet": lambda: wrap(booster, path, label="y"),
    }
    for way in ("batches", "Parquet"):
        check_same(ways["table"]().moments, ways[way]().moments)
    best = interleave(ways, repeats, time.process_time)
    line: dict[str, Any] = {"booster": name, "table, rows/CPU s": len(y) / best["table"]}
    return line | {f"{way} / table": best[way] / best["table"] for way in ("batches", "Parquet")}


def streamed(booster: Any, case: Case, rows: int) -> dict[str, Any]:
    """All rows, of which a batch is in memory at a time."""
    generator, before = Generator(case, rows), megabytes(peak=False)
    forget_peak()
    start = time.process_time()
    seen = wrap(booster, generator).moments.rows
    seconds = time.process_time() - start - generator.seconds
    return {"streamed": seen, "rows/CPU s": rows / seconds, "MB before": before, "MB peak": megabytes(peak=True)}


def measure(name: str, case: Case, rows: int, part: int, repeats: int, folder: Path) -> dict[str, Any]:
    booster = train(name, case, *case.rows(part // 5, 0), 2)
    of_stream = streamed(booster, case, rows)  # first: before a table fills the memory
    return rates(name, booster, *case.rows(part, 0), repeats, folder) | of_stream


def main() -> None:
    given = options(__doc__, rows={"type": int, "default": 10_000_000})
    rows, part, repeats = (20_000, 5_000, 1) if given.quick else (given.rows, 1_000_000, 3)
    warnings.filterwarnings("ignore", "not certified")  # the rows are those of training only in part
    case = cases(given.quick)[0]
    with tempfile.TemporaryDirectory() as folder:
        lines = [measure(name, case, rows, part, repeats, Path(folder)) for name in BOOSTERS]
    title = f"streaming {rows} x {case.features} rows, {case.trees} trees; ratios on {part} rows, moments checked"
    report(title, lines, given.json)


if __name__ == "__main__":
    main()
