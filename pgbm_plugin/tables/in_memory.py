"""Which tables are in memory: all but those that only stand for others, and rows that come in parts."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from ..errors import needing

# Libraries whose objects are read as they are, though some of them would give their columns to Arrow as well.
_READ_AS_THEY_ARE = {"numpy", "pandas", "polars", "pyarrow", "scipy", "torch", "cupy", "cudf"}


def is_stream(X: Any) -> bool:
    """Tell whether rows come in parts: an iterator, a path or pattern of files, a PyArrow data set or reader."""
    if type(X) is np.ndarray:  # returns early, because single rows are predicted in microseconds
        return False
    if isinstance(X, (str, os.PathLike)) or hasattr(X, "__next__") or hasattr(X, "read_next_batch"):
        return True
    dataset = sys.modules.get("pyarrow.dataset")
    return dataset is not None and isinstance(X, dataset.Dataset)


def check_in_memory(X: Any) -> None:
    """Refuse rows that come in parts."""
    if is_stream(X):
        raise TypeError(
            "this method takes one table in memory, not files or an iterator: predict those with predict_dist or "
            "predict_parquet; for other methods, read the rows into a table first"
        )


def in_memory(X: Any) -> Any:
    """Return a table or column that is in memory, in place of what only stands for it.

    That is the frame inside a narwhals frame, the result of a Dask collection, the table of a Hugging Face data set,
    and a PyArrow table of any other object that gives its columns to Arrow, such as a query of DuckDB or ibis. Anything
    else is returned unchanged.
    """
    package = type(X).__module__.partition(".")[0]
    if package == "narwhals":
        X = X.to_native()
    if package == "datasets" and hasattr(X, "num_rows"):  # those of Hugging Face do not offer their columns
        return X.with_format("arrow")[:]
    if hasattr(X, "__dask_graph__"):
        return X.compute()
    if package == "pyspark":  # from Spark 4 on, they would offer to collect all rows
        raise TypeError("a Spark frame is not read into memory: pgbm_plugin.spark wraps and predicts it on its cluster")
    if hasattr(X, "__arrow_c_stream__") or hasattr(X, "__dataframe__"):
        packages = {kind.__module__.partition(".")[0] for kind in type(X).__mro__}
        return X if packages & _READ_AS_THEY_ARE else _as_arrow(X)
    return X


def _as_arrow(X: Any) -> Any:
    """Return a PyArrow table with the columns of an object that offers them to any library."""
    with needing(f"a {type(X).__name__} is read through PyArrow: pip install pyarrow"):
        import pyarrow as pa
    if hasattr(X, "__arrow_c_stream__"):
        return pa.table(X)
    from pyarrow.interchange import from_dataframe

    return from_dataframe(X)
