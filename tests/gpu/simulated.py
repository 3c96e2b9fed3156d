"""Tell whether numba's simulator plays the GPU, and how large a test may then be."""

from __future__ import annotations

import os

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"

# A simulated thread takes a millisecond to start.
ROWS, TREES = (100, 2) if SIMULATED else (50_001, 20)
LGB = {"num_leaves": 12, "min_data_in_leaf": 5, "min_data_per_group": 5, "verbose": -1, "num_threads": 1}
XGB = {"max_depth": 3, "nthread": 1}
