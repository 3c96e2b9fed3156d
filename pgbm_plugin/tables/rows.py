"""Rows: a user's table, read in blocks that are matrices of floats, so that it is never copied as a whole."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import NOT_REAL, AnyArray
from ..trees.forest import ZERO_BOUND, Features
from .number_codes import number_codes, with_codes, with_marks

# Numbers in a converted block: few enough to stay in the outer cache.
_BLOCK_NUMBERS = 1 << 19


class Rows(ABC):
    """A table that fits a model's features."""

    n: int  # number of rows
    on_gpu = False  # whether a GPU reads the rows

    def __init__(self, features: Features):
        self.features = features

    def __len__(self) -> int:
        return self.n

    def blocks(self, lo: int, hi: int, columns: NDArray[np.int64] | None = None) -> Iterator[tuple[int, int, AnyArray]]:
        """Yield rows lo..hi in blocks, as ``(begin, end, matrix)``; `place` tells which columns the matrix has."""
        width = self.features.width if columns is None else len(columns)
        # an even number of rows, for the moments' lanes (see `kernels.accumulate`)
        size = max(2, _BLOCK_NUMBERS // max(1, width) & ~1)
        for begin in range(lo, hi, size):
            end = min(begin + size, hi)
            yield begin, end, self.rounded(self.block(begin, end, columns))

    def sample(self, index: NDArray[np.int64]) -> Rows:
        """Return the rows with these numbers, which must be in rising order, as a matrix."""
        parts = [block[index[(index >= lo) & (index < hi)] - lo] for lo, hi, block in self.blocks(0, self.n)]
        return matrix(np.concatenate(parts), self.features)

    def training_table(self) -> Any:
        """Return the rows as a booster sees them, and can be trained on them: categories are codes, or hashes."""
        return self.converted().block(0, self.n)

    def for_trained_on_table(self, features: Features) -> Rows:
        """Return the rows for a model that was trained on such a `training_table`, and has these features."""
        return self

    def place(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return at which places the matrices of ``blocks(lo, hi, columns)`` have these columns: 0, 1, 2..."""
        return np.arange(len(columns))

    def converted(self) -> Rows:
        """Return the rows as one matrix that needs no conversion, for many passes over them."""
        return matrix_rows([self])

    def on_host(self) -> Rows:
        """Return the rows for the CPU to read."""
        return self

    def joined(self, others: Sequence[Rows] = ()) -> Rows:
        """Return a copy of these rows, and of others of their kind, as one matrix."""
        return matrix_rows([self, *others])

    def marked(self) -> Rows:
        """Return the rows with -inf in the place of categories that training did not see, as far as they are known."""
        return self

    @abstractmethod
    def block(self, lo: int, hi: int, columns: NDArray[np.int64] | None = None) -> AnyArray:
        """Return rows lo..hi and the given columns, or all columns, as a matrix of float32 or float64."""

    def rounded(self, block: AnyArray) -> AnyArray:
        """Return the block in the precision that the booster compares in, with its own missing value as NaN."""
        if self.features.dtype.char == "f" and block.dtype.char != "f":
            with np.errstate(over="ignore"):
                block = block.astype(np.float32)
        if not math.isnan(self.features.missing):
            block = np.where(block == self.features.missing, block.dtype.type(np.nan), block)
        return block


def read_rows(X: Any, features: Features) -> Rows:
    """Check a table against the model's features, and return its rows; there may be none."""
    if isinstance(X, Rows):
        return X
    if X is None:
        raise TypeError("X is None; give a table")
    if features.hashed:
        from .hashed_rows import HashedRows

        return HashedRows(_read_table(X, features.as_hashes()), features)
    return _read_table(X, features)


def _read_table(X: Any, features: Features) -> Rows:
    if type(X) is np.ndarray and X.ndim == 2 and X.dtype.kind in "fiub" and not features.hashed:  # fast for single rows
        return _Matrix(X, features)
    from .coded_matrix import CodedMatrix, CodedRows
    from .frames import FRAMES

    reader = next((reader for is_kind, reader in FRAMES if is_kind(X)), None)
    if reader is not None:
        return reader(X, features)
    if features.hashed:
        return _category_matrix(X, features)
    if isinstance(X, CodedMatrix):
        return CodedRows(X, features)
    if hasattr(X, "collect_schema"):
        raise TypeError(f"X is a {type(X).__name__}, which has no rows yet: give X.collect()")
    return SparseRows(X, features) if hasattr(X, "tocsr") else _Matrix(_as_matrix(X, features), features)


def _category_matrix(X: Any, features: Features) -> Rows:
    from .category_matrix import CategoryMatrix

    if isinstance(X, np.ndarray):
        return CategoryMatrix(X, features)
    if isinstance(X, (list, tuple)):
        return CategoryMatrix(np.array(X, object), features)
    raise TypeError(f"the model has categories, which a {type(X).__name__} does not hold: give a frame or a matrix")


class _Matrix(Rows):
    """A NumPy matrix of any order and strides."""

    def __init__(self, X: AnyArray, features: Features):
        super().__init__(features)
        check_shape(X.shape, features)
        self.X, self.n = X, X.shape[0]
        readable = "f" if features.dtype.char == "f" else "fd"
        self.codes = number_codes(range(features.count), features)
        as_is = X.dtype.char in readable and X.dtype.isnative
        self.is_view = as_is and not self.codes and math.isnan(features.missing)

    def blocks(self, lo: int, hi: int, columns: NDArray[np.int64] | None = None) -> Iterator[tuple[int, int, AnyArray]]:
        if self.is_view:  # nothing is converted, so one block is enough
            return iter(((lo, hi, self.X[lo:hi]),))
        return super().blocks(lo, hi, columns)

    def converted(self) -> Rows:
        return self if self.is_view else super().converted()

    def place(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        return columns if self.is_view else super().place(columns)

    def marked(self) -> Rows:
        marked = copy.copy(self)
        marked.codes = with_marks(self.codes)
        return marked

    def block(self, lo: int, hi: int, columns: NDArray[np.int64] | None = None) -> AnyArray:
        block = self.X[lo:hi]
        if columns is not None:
            block = block[:, columns]
        native = block.dtype in (np.float32, np.float64) and block.dtype.isnative
        block = block if native else block.astype(self.features.integers)
        return with_codes(block, self.codes, columns) if self.codes else block


def matrix(X: AnyArray, features: Features) -> Rows:
    """Return the rows of a matrix that needs no conversion."""
    return _Matrix(X, features.converted())


def matrix_rows(parts: Sequence[Rows]) -> Rows:
    """Return the rows of several tables as one matrix that needs no conversion."""
    blocks = [block for part in parts for _, _, block in part.blocks(0, len(part))]
    return matrix(np.concatenate(blocks), parts[0].features)


class SparseRows(Rows):
    """A SciPy sparse matrix or array."""

    def __init__(self, X: Any, features: Features):
        super().__init__(features)
        check_shape(X.shape, features)
        if features.numbers_are_values and features.categories:
            raise TypeError("X is sparse, and the model has categorical columns: give X.toarray()")
        X = X.tocsr()
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        if features.absent == 0.0 and np.any(X.data == -ZERO_BOUND):
            raise ValueError(
                f"X stores {-ZERO_BOUND!r}, the last number that the booster takes for 0; it does so in dense rows but "
                f"not in sparse ones: store 0.0 in its place"
            )
        self.X, self.n = X, X.shape[0]

    def sample(self, index: NDArray[np.int64]) -> Rows:
        return SparseRows(self.X[index], self.features)  # as a matrix they may not fit into memory

    def training_table(self) -> Any:
        return self.X

    def block(self, lo: int, hi: int, columns: NDArray[np.int64] | None = None) -> AnyArray:
        X, width = self.X, self.features.count
        begin, end = X.indptr[lo], X.indptr[hi]
        row = np.repeat(np.arange(hi - lo), np.diff(X.indptr[lo : hi + 1]))
        column, data = X.indices[begin:end], X.data[begin:end]
        if columns is not None:
            to = np.full(width, -1)
            to[columns], width = np.arange(len(columns)), len(columns)
            kept = to[column] >= 0
            row, column, data = row[kept], to[column[kept]], data[kept]
        out = np.full((hi - lo, width), self.features.absent, np.float64 if X.dtype == np.float64 else np.float32)
        out[row, column] = data
        return out


def some_rows(n: int, most: int) -> NDArray[np.int64]:
    """Return the numbers of at most `most` of n rows in rising order, a random sample that is the same every time."""
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def table_length(X: Any) -> int:
    """Return the number of rows of an object; -1 if it is not a table."""
    shape = getattr(X, "shape", None)
    return int(shape[0]) if shape else len(X) if hasattr(X, "__len__") else -1


def _as_matrix(X: Any, features: Features) -> AnyArray:
    if hasattr(X, "detach"):  # a torch tensor, perhaps one that keeps gradients
        X = X.detach()
    try:
        if np.ma.isMaskedArray(X):
            raise TypeError("fill the masked array, with NaN for what is missing")
        matrix = np.asarray(X)
        if matrix.dtype.kind == "O" and not any(isinstance(value, NOT_REAL) for value in matrix.flat):
            matrix = matrix.astype(features.integers)
        if matrix.dtype.kind not in "fiub":
            raise TypeError(f"its type is {matrix.dtype}")
        return matrix
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"cannot read X of type {type(X).__name__} as a numeric table ({error}); give a NumPy array, a pandas or "
            f"polars DataFrame, a PyArrow table or a SciPy sparse matrix"
        ) from error


def check_shape(shape: Sequence[int], features: Features) -> None:
    """Refuse a table that is no matrix, or does not have as many columns as the model."""
    if len(shape) == 2:
        check_count(shape[1], features)
        return
    hint = "; for one row give X.reshape(1, -1), or frame.iloc[[0]]" if len(shape) == 1 else ""
    if len(shape) == 1 and features.count == 1:
        hint = "; for one column give X.reshape(-1, 1), or series.to_frame()"
    raise ValueError(f"X must have two dimensions, it has {len(shape)}{hint}")


def check_count(columns: int, features: Features) -> None:
    """Refuse a table that does not have as many columns as the model."""
    if columns != features.count:
        raise ValueError(f"X has {columns} columns, the model was trained on {features.count}")
