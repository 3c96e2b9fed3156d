"""Sums over the leaves that each row reaches, one in every tree."""

from __future__ import annotations

import numpy as np

from ..arrays import Array
from ..parallel import run_chunks
from ..tables.rows import Rows
from ..trees.forest import Forest
from .choose import choose_route


def leaf_sums(forest: Forest, rows: Rows, per_leaf: Array, n_jobs: int | None = None) -> Array:
    """Return the (n,) sums of an array over leaves over each row's leaves."""
    route = choose_route(forest, rows)
    value, out = route.ordered(per_leaf), np.zeros(len(rows))
    run_chunks(lambda lo, hi: route.add_margin(lo, hi, value, out), len(rows), route.task, route.threads(n_jobs))
    return out
