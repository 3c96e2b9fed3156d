"""Rows and columns of an xgb.DMatrix."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import warn
from ...tables.coded_matrix import CodedMatrix
from ...tables.labelled import RawRows
from ..booster import TrainingColumns, class_names
from .model import WHOLE_LETTERS


def read_dataset(data: Any) -> RawRows:
    """Return the rows of an xgb.DMatrix; TypeError if it does not give them back."""
    try:
        X = data.get_data()
    except Exception as error:  # XGBoostError, which we would have to import
        raise TypeError(
            f"the {type(data).__name__} did not keep its rows: call wrap(booster, X, y), or with rows that come in "
            f"batches wrap(booster, batches), where batches yields (X, y) as the iterator of training did"
        ) from error
    fields = (data.get_label(), data.get_weight(), data.get_base_margin())
    if "xgboost.QuantileDMatrix" in class_names(data):
        X = _with_lowest_bins(X, *data.get_quantile_cut())
    table = CodedMatrix(X, data.feature_names, _categories(data))
    return RawRows(table, *(field if field.size else None for field in fields))


def _with_lowest_bins(X: Any, start: NDArray[Any], cuts: NDArray[np.float32]) -> Any:
    """Return the values of a QuantileDMatrix with -inf in the lowest bins that begin there.

    A value is given back as the lower end of its bin, but -inf (since XGBoost 3.4) as the upper end. XGBoost predicts
    with the former.
    """
    lowest = start[:-1].astype(np.int64)
    second = np.where(np.diff(start) > 1, cuts[np.minimum(lowest + 1, len(cuts) - 1)], np.nan)
    upper_end = np.where(cuts[lowest] == -np.inf, np.nextafter(second, np.float32(-np.inf)), np.nan)
    data = np.where(X.data == upper_end[X.indices], np.float32(-np.inf), X.data)
    return type(X)((data, X.indices, X.indptr), X.shape)


def _categories(data: Any) -> dict[int, list[Any] | None]:
    """Return column -> the categories behind its codes; None where the DMatrix has garbled them."""
    # before 3.1 XGBoost forgets the categories of a frame, and its models store none; codes given as numbers have none
    if not hasattr(data, "get_categories") or data.get_categories().empty():
        return {}
    try:
        columns = data.get_categories(export_to_arrow=True).to_arrow()
    except ImportError as error:
        raise TypeError(
            f"PyArrow is needed to read the categories of a {type(data).__name__}: install it, or give the frame"
        ) from error
    categories = {j: _values(values) for j, (_, values) in enumerate(columns) if values is not None}
    for j in (j for j, values in categories.items() if values is None):
        warn(
            f"the categories of column {data.feature_names[j]!r} are not checked: XGBoost before 3.4 garbles letters "
            f"beyond ASCII in a {type(data).__name__}, and its codes are taken as they are; give the frame"
        )
    return categories


def _values(column: Any) -> list[Any] | None:
    if not str(column.type).endswith("string"):
        return column.to_pylist()
    raw = column.cast(str(column.type).replace("string", "binary")).to_pylist()
    version = tuple(int(number) for number in sys.modules["xgboost"].__version__.split(".")[:2])
    whole = version >= WHOLE_LETTERS or all(name.isascii() for name in raw)
    return [name.decode() for name in raw] if whole else None


def training_columns(data: Any) -> TrainingColumns:
    """Return what an objective needs of the xgb.DMatrix that it is called with."""
    return TrainingColumns(data.get_label(), data.get_weight())
