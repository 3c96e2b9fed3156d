"""Frames of results, in the library of the table that was asked about."""

from __future__ import annotations

import sys
from typing import Any

from ..arrays import Array
from ..errors import needing


def frame_like(X: Any, columns: dict[str, Array]) -> Any:
    """Return columns as a polars frame or PyArrow table if `X` is one, else as a pandas frame with the index of `X`."""
    package = type(X).__module__.partition(".")[0]
    if package == "polars":
        return sys.modules["polars"].DataFrame(columns)
    if package == "pyarrow":
        return sys.modules["pyarrow"].table(columns)
    with needing(
        "a frame of predictions needs pandas unless X is a polars frame or a PyArrow table: pip install pandas"
    ):
        import pandas as pd
    index: Any = getattr(X, "index", None)
    if hasattr(index, "to_pandas"):  # of cuDF
        index = index.to_pandas()
    return pd.DataFrame(columns, index=index if isinstance(index, pd.Index) else None)
