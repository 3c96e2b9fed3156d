"""Chunks of rows on a thread pool. Threads are enough, because kernels release the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def resolve_jobs(n_jobs: int | None) -> int:
    """Return the number of threads: all cores of this process for None, and as in scikit-learn for negative numbers."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if n_jobs is None:
        return cores
    if not isinstance(n_jobs, (int, np.integer)) or n_jobs == 0:
        raise ValueError(f"n_jobs must not be {n_jobs!r}; give a number of threads, or None for all cores")
    return max(1, cores + 1 + n_jobs) if n_jobs < 0 else n_jobs


def map_chunks(
    function: Callable[[int, int], T], n: int, size: int, n_jobs: int | None, progress: bool = False
) -> Iterator[T]:
    """Yield ``function(lo, hi)`` for 0..n in chunks of `size`, in order; the chunks do not depend on `n_jobs`."""
    bounds = [(lo, min(lo + size, n)) for lo in range(0, n, size)]
    threads = min(resolve_jobs(n_jobs), len(bounds))
    with progress_bar(n, "rows", progress) as advance:
        if threads == 1:
            for lo, hi in bounds:
                yield function(lo, hi)
                advance(hi - lo)
            return
        with ThreadPoolExecutor(threads) as pool:
            try:
                for (lo, hi), result in zip(bounds, _bounded_map(pool, function, bounds, threads), strict=True):
                    yield result
                    advance(hi - lo)
            finally:
                pool.shutdown(cancel_futures=True)


def _bounded_map(
    pool: ThreadPoolExecutor, function: Callable[[int, int], T], bounds: list[tuple[int, int]], threads: int
) -> Iterator[T]:
    """Yield the results in order and keep few of them waiting, because a chunk's result may be large."""
    waiting: list[Any] = []
    for lo, hi in bounds:
        waiting.append(pool.submit(function, lo, hi))
        if len(waiting) > threads:
            yield waiting.pop(0).result()
    for future in waiting:
        yield future.result()


def run_chunks(function: Callable[[int, int], None], n: int, size: int, n_jobs: int | None) -> None:
    """Call ``function(lo, hi)`` for 0..n in chunks of `size`; the function writes its result itself."""
    if n <= size:  # services predict single rows very often: do not start a pool for them
        if n:
            function(0, n)
        return
    for _ in map_chunks(function, n, size, n_jobs):
        pass


@contextmanager
def progress_bar(total: int | None, unit: str, show: bool) -> Iterator[Callable[[int], Any]]:
    """Give a function that advances a progress bar, or that does nothing; None for a total that is not known."""
    if not show:
        yield lambda n: None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError("progress=True needs tqdm: pip install tqdm") from error
    with tqdm(total=total, unit=f" {unit}", unit_scale=True) as bar:
        yield bar.update
