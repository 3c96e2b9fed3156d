"""The jit policy, in one place.

* ``nogil``: kernels are serial and run over a range of rows; a thread pool drives them. That is as fast as
  ``parallel=True``, compiles in half the time and has no threading layer to go wrong after a fork.
* ``error_model="numpy"``: a division by zero is an inf, not an exception with a branch in the inner loop.
* ``cache``: the compiled code is kept beside the package, or in the user's cache directory when that is read-only.
  Numba drops it when the kernel's own file has changed; here, when any file has that kernels are compiled from.
* no ``fastmath``: predictions must carry the boosters' own bits.
* lazy, no signatures: signatures would compile at import.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit

from ..trees import forest, objectives

_FLAGS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_INNER: dict[str, Any] = {"no_cpython_wrapper": True}  # nobody calls them from Python: a tenth less to compile

# What kernels inline, and the constants in it.
_SOURCES = [*sorted(Path(__file__).parent.glob("*.py")), Path(forest.__file__), Path(objectives.__file__)]


def _digest_of_sources() -> str | None:
    """Hash the files that kernels are compiled from; None inside an archive, which numba stamps as a whole."""
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
    """Make a cached function depend on all sources; numba has no public way to say so."""
    index = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if index is not None and _DIGEST is not None:
        index._source_stamp = _DIGEST


def scalar(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function of scalars that kernels call; LLVM inlines it, and its caller's cache holds it."""
    compiled: Callable[..., Any] = njit(**_FLAGS, **_INNER)(function)
    return compiled
