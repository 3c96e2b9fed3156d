"""Rows of a matrix of which some columns are categories, such as text or whole numbers, under their own values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray
from ..trees.forest import Features
from .categories import CategoricalRows, column_codes, distinct
from .rows import check_shape


class CategoryMatrix(CategoricalRows):
    """A NumPy matrix of any type, for a model that knows categories by their hashes."""

    def __init__(self, X: AnyArray, features: Features):
        super().__init__(features)
        check_shape(X.shape, features)
        self.X, self.n = X, X.shape[0]
        names = features.names or [str(j) for j in range(features.count)]
        self.codes = column_codes(features.category_columns or (), features, names.__getitem__)

    def block(self, lo: int, hi: int, columns: NDArray[np.int64] | None = None) -> AnyArray:
        wanted = range(self.features.count) if columns is None else columns.tolist()
        out = np.empty((hi - lo, len(wanted)), np.float64, order="F")
        for i, j in enumerate(wanted):
            column = self.X[lo:hi, j]
            if j in self.codes:
                out[:, i] = self.codes[j].encode(*distinct(column.tolist()))
                continue
            try:
                out[:, i] = column.astype(np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(f"column {j} was numeric in training: {error}") from error
        return out
