"""Rows and columns of an xgb.DMatrix."""

from __future__ import annotations

from typing import Any

from ...tables.labelled import RawRows
from ..booster import TrainingColumns


def read_dataset(data: Any) -> RawRows:
    """Return the rows of an xgb.DMatrix; TypeError if it does not give them back."""
    try:
        X = data.get_data()
    except Exception as error:  # XGBoostError, which we would have to import
        raise TypeError(f"the {type(data).__name__} did not keep its rows: call wrap(booster, X, y)") from error
    fields = (data.get_label(), data.get_weight(), data.get_base_margin())
    return RawRows(X, *(field if field.size else None for field in fields))


def training_columns(data: Any) -> TrainingColumns:
    """Return what an objective needs of the xgb.DMatrix that it is called with."""
    return TrainingColumns(data.get_label(), data.get_weight())
