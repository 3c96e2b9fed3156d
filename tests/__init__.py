"""Tests by area, a folder each.

Fixtures are in an area's `conftest.py`. Plain helpers are modules whose names do not start with `test_`.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Folder of the paper's UCI data sets, which the repository does not hold.
DATA = Path(os.environ.get("PGBM_PLUGIN_DATA", ROOT.parent / "shared" / "data" / "uci"))
