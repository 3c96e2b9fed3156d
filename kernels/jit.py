"""Options with which all kernels are compiled.

* ``nogil``: kernels are serial, and a thread pool calls them on ranges of rows. That is as fast as ``parallel=True``,
  compiles in half the time and has no threading layer that could fail after a fork.
* ``error_model="numpy"``: a division by zero gives inf, without a branch for an exception in the inner loop.
* ``cache``: compiled code is stored beside the package, or in the user's cache directory if that is read-only. Numba
  discards it if the kernel's own file has changed; here, also if any other file has that kernels are compiled from.
* no ``fastmath``: predictions must have the boosters' own bits.
* no signatures: they would compile at import.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit

from ..trees import forest, objectives

_FLAGS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}

# Functions that are not called from Python, which saves a tenth of their compilation. LLVM alone would not inline the
# largest ones, and a call with as many arguments takes longer than a small tree.
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "forceinline": True}

# Files with code or constants that kernels are compiled from.
_SOURCES = [*sorted(Path(__file__).parent.glob("*.py")), Path(forest.__file__), Path(objectives.__file__)]


def _digest_of_sources() -> str | None:
    """Hash the files that kernels are compiled from; None inside an archive, for which numba uses its own stamp."""
    try:
        return hashlib.sha256(b"".join(path.read_bytes() for path in _SOURCES)).hexdigest()
    except OSError:
        return None


_DIGEST = _digest_of_sources()


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that loops over rows."""
    compiled: Callable[..., Any]
    try:
        compiled = njit(cache=True, **_FLAGS)(function)
        _depend_on_sources(compiled)
    except RuntimeError:  # numba found no directory that it may write a cache to
        compiled = njit(**_FLAGS)(function)
    return compiled


def _depend_on_sources(compiled: Any) -> None:
    """Make a cached function depend on all sources, for which numba has no public interface."""
    index = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if index is not None and _DIGEST is not None:
        index._source_stamp = _DIGEST


def scalar(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that is inlined into kernels, so that it needs no cache of its own."""
    compiled: Callable[..., Any] = njit(**_FLAGS, **_INNER)(function)
    return compiled
