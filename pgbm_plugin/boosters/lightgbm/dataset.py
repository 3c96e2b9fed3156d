"""Rows and columns of an lgb.Dataset."""

from __future__ import annotations

import os
from typing import Any

from ...tables.labelled import RawRows
from ..booster import TrainingColumns

_FREED = "the lgb.Dataset has freed its rows: make it with free_raw_data=False, or call wrap(booster, X, y)"


def read_dataset(data: Any) -> RawRows:
    """Return the rows of an lgb.Dataset; TypeError if it does not have them as one table."""
    if getattr(data, "_handle", None) is None and data.data is not None:  # not yet constructed
        _check_table(data.data)
        return RawRows(data.data, data.label, data.weight, data.init_score)
    try:
        X = data.get_data()
    except Exception as error:  # LightGBMError, which we would have to import
        raise TypeError(_FREED) from error
    _check_table(X)
    # continued training puts the predictions of the first model here, whose trees the model has already
    own = getattr(data, "_predictor", None) is None
    return RawRows(X, data.get_label(), data.get_weight(), data.get_init_score() if own else None)


def _check_table(X: Any) -> None:
    if X is None:
        raise TypeError(_FREED)
    if isinstance(X, (str, os.PathLike)):
        raise TypeError(f"the lgb.Dataset was made of a file, {str(X)!r}: read it, and call wrap(booster, X, y)")
    if isinstance(X, list) or hasattr(X, "batch_size"):
        raise TypeError(
            "the lgb.Dataset was made of a list of arrays or of a Sequence: join them to one table, or give them as "
            "batches, wrap(booster, zip(arrays, labels))"
        )


def training_columns(data: Any) -> TrainingColumns:
    """Return what an objective needs of the lgb.Dataset that it is called with."""
    params = getattr(data, "params", None)
    rate = None
    if isinstance(params, dict):
        names = ("learning_rate", "eta", "shrinkage_rate")
        rate = next((float(params[name]) for name in names if name in params), 0.1)
    return TrainingColumns(data.get_label(), data.get_weight(), rate)
