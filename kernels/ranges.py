"""Kernel that finds the smallest and largest number of every column (see `pgbm_plugin.tables.ranges`)."""

from __future__ import annotations

from typing import Any

from .jit import kernel


@kernel
def widen(X: Any, low: Any, high: Any, missing: Any) -> None:
    """Widen ``low`` and ``high`` by the columns of a matrix, in its precision; set ``missing`` where one has NaN."""
    if X.strides[0] >= X.strides[1]:
        for i in range(X.shape[0]):
            for j in range(X.shape[1]):
                x = X[i, j]
                low[j] = x if x < low[j] else low[j]
                high[j] = x if x > high[j] else high[j]
                missing[j] |= x != x
        return
    for j in range(X.shape[1]):
        smallest, largest, gap = low[j], high[j], missing[j]
        for i in range(X.shape[0]):
            x = X[i, j]
            smallest = x if x < smallest else smallest
            largest = x if x > largest else largest
            gap |= x != x
        low[j], high[j], missing[j] = smallest, largest, gap
