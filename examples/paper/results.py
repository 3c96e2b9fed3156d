"""What all experiments share: the command line, results that are kept as soon as they are known, and tables."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.accuracy.records import append, lines, source
from benchmarks.contest import machine
from pgbm_plugin.parallel import progress_bar

FOLDER = Path(__file__).parent / "results"
WHERE = """no --data DIR: made-up rows instead. The real ones: the UCI repository (archive.ics.uci.edu) with the splits
of Hernandez-Lobato and Adams (2015), and Kaggle's m5-forecasting-accuracy; README.md says how their files look"""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

Key = Mapping[str, Any]
Record = dict[str, Any]


def options(doc: str | None, arguments: Sequence[str] | None, **flags: Mapping[str, Any]) -> argparse.Namespace:
    """The command line of an experiment; made-up rows are for --quick only."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="seconds: that it runs, not what it finds")
    parser.add_argument("--data", type=Path, help="folder with uci/*.npz and m5/m5_ca1.npz")
    parser.add_argument("--out", type=Path, help=f"where results go; {FOLDER.name}/ beside the scripts, if not --quick")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with one thread")
    for name, settings in flags.items():
        parser.add_argument(f"--{name}", **settings)
    given = parser.parse_args(arguments)
    if given.data is None and not given.quick:
        parser.error("--data DIR is needed, or --quick for made-up rows")
    if given.data is not None and not given.data.is_dir():
        parser.error(f"--data {given.data} is not a folder")
    if given.data is None:
        print(WHERE, file=sys.stderr)
    if given.out is None and not given.quick:
        given.out = FOLDER
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
    return given


def digest(settings: Any) -> str:
    """Of all that a result depends on besides its key."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def complete(
    name: str, keys: Sequence[Key], compute: Callable[..., Record], out: Path | None, jobs: int, *args: Any
) -> list[Record]:
    """The records of all keys, old and new, in the order of the keys: ``{"key": key, **compute(key, *args)}``.

    Each is appended to `out`/`name`.jsonl when it is known, so that a run may be killed, and goes on where it was.
    """
    path = None if out is None else out / f"{name}.jsonl"
    known = {_text(record["key"]): record for record in lines(path)}
    missing = [key for key in keys if _text(key) not in known]
    with progress_bar(len(missing), name, bool(missing)) as advance:
        for record in _computed(missing, compute, jobs, args):
            known[_text(record["key"])] = record
            if path is not None:
                append(path, record)
            advance(1)
    return [known[_text(key)] for key in keys]


def _computed(keys: Sequence[Key], compute: Callable[..., Record], jobs: int, args: tuple[Any, ...]) -> Any:
    if jobs == 1 or len(keys) < 2:
        for key in keys:
            yield _stamped(compute, key, *args)
        return
    os.environ.update(dict.fromkeys(_THREADS, "1"))  # read when the processes start
    with ProcessPoolExecutor(min(jobs, len(keys)), get_context("spawn")) as pool:
        futures = [pool.submit(_stamped, compute, key, *args) for key in keys]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _stamped(compute: Callable[..., Record], key: Key, *args: Any) -> Record:
    start = time.process_time()
    found = compute(key, *args)
    return {"key": dict(key), **found, "processor_s": round(time.process_time() - start, 3), "source": source()}


def _text(key: Key) -> str:
    return json.dumps(dict(key), sort_keys=True)


def write(name: str, markdown: str, figures: Mapping[str, Any], records: Sequence[Record], out: Path | None) -> None:
    """Print the tables; with `out`, write them as `name`.md, and as `name`.json with what they were measured on."""
    print(markdown)
    if out is None:
        return
    where = machine() | {package: version(package) for package in ("pgbm-plugin", "scikit-learn")}
    known = {"machine": where, "when": time.strftime("%Y-%m-%d"), "source": sorted({r["source"] for r in records})}
    (out / f"{name}.json").write_text(json.dumps({**known, **figures}, indent=1, allow_nan=False) + "\n")
    (out / f"{name}.md").write_text(markdown)


def table(lines: Sequence[Mapping[str, str]]) -> str:
    """Markdown; the lines share their keys."""
    head = list(lines[0])
    rows = [head, ["---"] * len(head), *([line[key] for key in head] for line in lines)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def number(value: float) -> str:
    """Three digits, and no exponent for large ones."""
    return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:#.3g}"


def mean_and_sd(values: Sequence[float]) -> str:
    if len(values) == 1:
        return number(values[0])
    sd = statistics.stdev(values)
    return f"{number(statistics.fmean(values))} ± {f'{sd:,.0f}' if sd >= 10.0 else f'{sd:.2g}'}"


def figure(lines: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    """A figure and its (lines, columns) panels of this size in inches, without a screen."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    size = (width * columns, height * lines)
    return plt.subplots(lines, columns, figsize=size, layout="constrained", squeeze=False)


def save(drawing: Any, name: str, out: Path) -> None:
    from matplotlib import pyplot as plt

    drawing.savefig(out / f"{name}.png", dpi=120)
    plt.close(drawing)
