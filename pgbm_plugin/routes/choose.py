"""The choice of a route. The environment variable PGBM_PLUGIN_ROUTE, "walk" or "replay", forces one."""

from __future__ import annotations

import os

from ..tables.cuda_rows import CudaRows
from ..tables.rows import Rows
from ..trees.forest import Forest
from .base import Route
from .cuda import Cuda
from .replay import Replay
from .replay_program import replay_program
from .walk import Walk

# With fewer rows than these, walking is faster for most forests, and no program needs to be compiled.
_FEW_ROWS = 4

forced = os.environ.get("PGBM_PLUGIN_ROUTE", "")
"""The route that the CPU always uses, if it is "walk" or "replay"."""


def choose_route(forest: Forest, rows: Rows) -> Route:
    """Return the fastest route for these rows, on the device that reads them."""
    if isinstance(rows, CudaRows):
        return Cuda(forest, rows)
    if forced == "walk" or (rows.n < _FEW_ROWS and forced != "replay"):
        return Walk(forest, rows)
    program = replay_program(forest)
    if program is None or (rows.n < program.least_rows and forced != "replay"):
        return Walk(forest, rows)
    return Replay(forest, rows, program)
