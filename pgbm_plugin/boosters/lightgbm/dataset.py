"""Rows and columns of an lgb.Dataset."""

from __future__ import annotations

import os
from typing import Any

from ...tables.labelled import RawRows
from ..booster import TrainingColumns

_WAY_OUT = "make it with lgb.Dataset(..., free_raw_data=False), or call wrap(booster, X, y)"


def read_dataset(data: Any) -> RawRows:
    """Return the rows of an lgb.Dataset; TypeError if it has freed them."""
    if getattr(data, "_handle", None) is None and data.data is not None:  # not yet constructed
        return RawRows(data.data, data.label, data.weight, data.init_score)
    try:
        X = data.get_data()
    except Exception as error:  # LightGBMError, which we would have to import
        raise TypeError(f"the lgb.Dataset has freed its rows: {_WAY_OUT}") from error
    if X is None or isinstance(X, (str, os.PathLike, list)):
        raise TypeError(f"the lgb.Dataset has no rows in memory as one table: {_WAY_OUT}")
    # continued training puts the predictions of the first model here, whose trees the model has already
    own = getattr(data, "_predictor", None) is None
    return RawRows(X, data.get_label(), data.get_weight(), data.get_init_score() if own else None)


def training_columns(data: Any) -> TrainingColumns:
    """Return what an objective needs of the lgb.Dataset that it is called with."""
    params = getattr(data, "params", None)
    rate = None
    if isinstance(params, dict):
        names = ("learning_rate", "eta", "shrinkage_rate")
        rate = next((float(params[name]) for name in names if name in params), 0.1)
    return TrainingColumns(data.get_label(), data.get_weight(), rate)
