"""Rows and columns of a catboost.Pool."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tables.coded_matrix import CodedMatrix
from ...tables.labelled import RawRows


def read_dataset(data: Any) -> RawRows:
    """Return the rows of a Pool; TypeError if it does not give them back."""
    try:
        X: Any = data.get_features()
    except Exception as error:  # CatBoostError, which we would have to import
        raise TypeError(
            f"the {type(data).__name__} does not give back its rows ({error}): call wrap(booster, X, y) with the frame "
            f"that it was made of"
        ) from error
    names = list(data.get_feature_names())
    if any(names):
        from scipy.sparse import csr_matrix

        X = CodedMatrix(csr_matrix(X), names, {})
    weight, start = np.asarray(data.get_weight(), np.float64), np.asarray(data.get_baseline())
    # weights of 1 stand for none
    return RawRows(
        X,
        data.get_label(),
        None if np.all(weight == 1.0) else weight,
        start.reshape(len(start)) if start.size else None,
    )
