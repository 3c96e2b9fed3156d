"""Rows of a booster's own data set: a sparse matrix that still has the names and categories of its frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..trees.forest import Features
from .categories import CategoricalRows, column_codes
from .frames import check_names
from .rows import SparseRows


@dataclass(frozen=True)
class CodedMatrix:
    """A sparse matrix of numbers and codes."""

    matrix: Any  # CSR
    names: list[str] | None  # names of columns; None if it has none
    categories: Mapping[int, Sequence[Any] | None]  # categorical column -> the values behind its codes, if known

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape


class CodedRows(SparseRows, CategoricalRows):
    """A `CodedMatrix`, with the codes of training in place of its own."""

    def __init__(self, X: CodedMatrix, features: Features):
        if X.names is not None:
            check_names(X.names, features)
        super().__init__(X.matrix, features)
        names = X.names or [str(j) for j in range(features.count)]
        self.categories = X.categories
        # without any categories the numbers are codes already
        self.codes = column_codes(sorted(X.categories), features, names.__getitem__) if X.categories else {}
        data = self.X.data.copy() if self.codes else self.X.data
        for j, codes in self.codes.items():
            values, places = X.categories[j], self.X.indices == j
            if values is not None:
                data[places] = codes.encode(values, data[places])
            elif not codes.own:
                raise ValueError(f"the data set does not tell the categories of column {codes.name!r}: give the frame")
        self.X = type(self.X)((data, self.X.indices, self.X.indptr), self.X.shape)

    def _categories(self, j: int) -> Sequence[Any] | None:
        return self.categories[j]
