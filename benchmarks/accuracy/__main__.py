"""Probabilistic accuracy on nine UCI sets and eight everyday ones, all contenders on the same splits.

python -m benchmarks.accuracy --data DIR [--sets yacht,boston] [--splits N] [--only constant,tuned] [--jobs 2]
    [--json results.json] [--plot plot.png] [--quick]

Protocol. Of each split's 90 %, four fifths train and one fifth validates; nothing is trained again on both. A contender
that wraps a booster wraps the one that is trained once a split with the paper's settings: 16 leaves, a step of 0.1,
lambda 1, 64 bins, one row a leaf, up to 2000 trees, the best on the validation rows. Everything else that is chosen or
calibrated comes from the same validation rows. Only "trained on all rows, cv=5" trains again on both, and calibrates on
folds of them. Each contender has one thread.

With --json, every result is appended to results.jsonl beside it as soon as it is known, and the tables are also written
as results.md. A later run computes only what is missing or whose settings, versions or code have changed, and its
tables show all that is known: --splits 0 shows them and computes nothing.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pgbm_plugin.parallel import progress_bar

from ..contest import machine, options
from .contenders import Contender, Rounds, contenders
from .measures import run
from .records import Key, key, read, without_source
from .sets import MADE_UP, QUICK, n_splits, sets_in
from .tables import METRICS, Results, by_set, markdown, summary

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def missing(keys: Sequence[Key], known: dict[Key, Any], stale: bool) -> list[list[Key]]:
    """The keys without a result, those of a split together."""
    wanted = [k for k in keys if (without_source(k) if stale else k) not in known]
    return [list(group) for _, group in groupby(wanted, lambda k: (k.set, k.split))]


def compute(folder: Path | None, work: list[list[Key]], rounds: Rounds, path: Path | None, jobs: int) -> list[Any]:
    """Splits in processes of their own, each with one thread."""
    os.environ.update(dict.fromkeys(_THREADS, "1"))  # read when the processes start
    found = []
    with (
        progress_bar(sum(map(len, work)), "results", True) as advance,
        ProcessPoolExecutor(min(jobs, len(work)), get_context("spawn")) as pool,
    ):
        futures = [pool.submit(run, folder, keys, rounds, path) for keys in work]
        try:
            for future in as_completed(futures):
                found += future.result()
                advance(len(future.result()))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return found


def chosen(text: str | None, names: Sequence[str], what: str) -> list[str]:
    """Names from a list with commas; all for None."""
    wanted = names if text is None else text.split(",")
    unknown = [name for name in wanted if name not in names]
    if unknown:
        sys.exit(f"no such {what}: {', '.join(unknown)}; there are {', '.join(names)}")
    return [name for name in names if name in wanted]


def write(results: Results, notes: list[str], path: Path) -> None:
    figures: dict[str, Any] = {"machine": machine(), "when": time.strftime("%Y-%m-%d"), "notes": notes}
    figures["summary"] = {title: summary(part) for title, part in results.collections.items()}
    figures |= {metric: by_set(results, metric) for metric in METRICS}
    path.write_text(json.dumps(_finite(figures), indent=2, allow_nan=False) + "\n")
    path.with_suffix(".md").write_text(markdown(results))


def _finite(value: Any) -> Any:
    """The same without numbers that JSON does not have: null for them."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def all_keys(
    folder: Path | None, sets: Sequence[str], splits: int | None, here: dict[str, Contender], rounds: Rounds
) -> list[Key]:
    """Of every contender on the first splits of every set."""
    numbers = {s: n_splits(folder, s) for s in sets}
    return [
        key(s, k, name, contender, rounds)
        for s, most in numbers.items()
        for k in range(most if splits is None else min(splits, most))
        for name, contender in here.items()
    ]


def main() -> None:
    given = options(
        __doc__,
        data={"type": Path, "help": "the .npz and .parquet files are in it or in its folders; --quick does without"},
        sets={"help": "with commas; all unless given"},
        splits={"type": int, "help": "the first N of each set"},
        only={"help": "contenders, with commas"},
        jobs={"type": int, "default": 2, "help": "processes"},
        plot={"type": Path, "help": "draw the boxes here"},
        stale={"action": "store_true", "help": "results of other code of this package count as well"},
    )
    if given.data is None and not given.quick:
        sys.exit("--data DIR is needed: a folder of yacht.npz, boston.npz, ...; or --quick for made-up rows")
    names = sets_in(given.data) if given.data is not None else tuple(MADE_UP)
    if not names:
        sys.exit(f"{given.data} has none of the sets: yacht.npz, boston.npz, ..., or insurance.parquet, ...")
    rounds = Rounds(50, 20) if given.quick else Rounds()
    here, notes = contenders()
    for note in notes:
        print(f"left out: {note}")
    only = chosen(given.only, tuple(here), "contender")
    wanted_sets = chosen(given.sets, names, "set")
    splits = given.splits
    if given.quick:
        wanted_sets = [s for s in wanted_sets if s in (*QUICK, *MADE_UP)] or wanted_sets[:2]
        splits = 1 if splits is None else splits

    path = given.json.with_suffix(".jsonl") if given.json else None
    known = read(path, given.stale)
    wanted = all_keys(given.data, wanted_sets, splits, {name: here[name] for name in only}, rounds)
    work = missing(wanted, known, given.stale)
    computed = compute(given.data, work, rounds, path, given.jobs) if work else []

    possible = set(all_keys(given.data, names, None, here, rounds))
    valid = {without_source(k) for k in possible} if given.stale else possible
    records = [*(record for k, record in known.items() if k in valid), *computed]
    if not records:
        sys.exit("there are no results yet")
    results = Results.of({name: contender.title for name, contender in here.items()}, records)
    print(markdown(results))
    if given.json:
        write(results, notes, given.json)
    if given.plot:
        from .plot import plot

        plot(results, given.plot)


if __name__ == "__main__":
    main()
