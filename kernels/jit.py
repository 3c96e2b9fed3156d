"""The jit policy, in one place.

* ``nogil``: kernels are serial and run over a range of rows; a thread pool drives them. That is as fast as
  ``parallel=True``, compiles in half the time and has no threading layer to go wrong after a fork.
* ``error_model="numpy"``: a division by zero is an inf, not an exception with a branch in the inner loop.
* ``cache``: the compiled code is kept beside the package, or in the user's cache directory when that is read-only.
* no ``fastmath``: predictions must carry the boosters' own bits.
* lazy, no signatures: signatures would compile at import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

_FLAGS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_INNER: dict[str, Any] = {"no_cpython_wrapper": True}  # nobody calls them from Python: a tenth less to compile


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that loops over rows."""
    compiled: Callable[..., Any]
    try:
        compiled = njit(cache=True, **_FLAGS)(function)
    except RuntimeError:  # numba found no directory that it may write a cache to
        compiled = njit(**_FLAGS)(function)
    return compiled


def scalar(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function of scalars that kernels call; LLVM inlines it, and its caller's cache holds it."""
    compiled: Callable[..., Any] = njit(**_FLAGS, **_INNER)(function)
    return compiled
