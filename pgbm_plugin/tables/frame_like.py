"""Frames of results, in the library of the table that was asked about."""

from __future__ import annotations

import sys
from typing import Any

from ..arrays import Array


def frame_like(X: Any, columns: dict[str, Array]) -> Any:
    """Return columns as a polars frame or PyArrow table if `X` is one, else as a pandas frame with the index of `X`.

    Parameters
    ----------
    X : table in memory
        Its library is taken, and the index if it has one.
    columns : dict
        The (n,) columns by name.
    """
    package = type(X).__module__.partition(".")[0]
    if package == "polars":
        return sys.modules["polars"].DataFrame(columns)
    if package == "pyarrow":
        return sys.modules["pyarrow"].table(columns)
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(
            "a frame of predictions needs pandas unless X is a polars frame or a PyArrow table: pip install pandas"
        ) from error
    index: Any = getattr(X, "index", None)
    if hasattr(index, "to_pandas"):  # of cuDF
        index = index.to_pandas()
    return pd.DataFrame(columns, index=index if isinstance(index, pd.Index) else None)
