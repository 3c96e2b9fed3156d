"""Rows that a GPU reads: tables in the GPU's memory, and tables in the host's memory that are sent in blocks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray
from ..device import gpu_number, gpu_of, has_usable_gpu, is_on_gpu, numba_array, stream_of, to_host
from ..trees.forest import Features, Forest
from .frames import check_names
from .in_memory import in_memory
from .rows import Rows, check_shape, read_rows, table_length

# A table in the host's memory is sent to a GPU if it has at least so many rows times trees.
_LARGE = 1 << 30


def read_rows_for(X: Any, forest: Forest, device: str) -> Rows:
    """Check a table and return its rows for the CPU or for a GPU.

    With `device` "auto", a GPU reads the tables that it holds and very large tables. The CPU reads those without rows.
    """
    is_matrix = type(X) is np.ndarray  # fast for single rows
    X = X if is_matrix else in_memory(X)
    if not is_matrix and is_on_gpu(X):
        features = forest.features  # a GPU looks nothing up
        coded = features.hashed or (features.numbers_are_values and len(features.categories) > 0)
        stays = device != "cpu" and table_length(X) != 0 and not coded
        return _RowsOnGpu(X, forest.features) if stays else read_rows(to_host(X), forest.features)
    rows = read_rows(X, forest.features)
    small = rows.n * forest.n_trees < _LARGE
    if device == "cpu" or rows.n == 0 or (device == "auto" and (small or not has_usable_gpu())):
        return rows
    return _RowsOnHost(rows, gpu_number("cuda" if device == "auto" else device))


class CudaRows(Rows):
    """Rows that a GPU reads."""

    on_gpu = True
    device: int  # number of the GPU
    stream: Any  # the stream that copies and kernels run on
    width: int  # bytes per row that must be allocated on the GPU

    @abstractmethod
    def sent(self, lo: int, hi: int) -> Iterator[tuple[int, int, Any]]:
        """Yield rows lo..hi as ``(begin, end, matrix on the GPU)``, in the precision that the booster compares in."""


class _RowsOnHost(CudaRows):
    """A table in the host's memory, sent block by block."""

    def __init__(self, rows: Rows, device: int):
        super().__init__(rows.features)
        self.table, self.n = rows, len(rows)
        self.device, self.stream = device, 0
        self.width = 8 * rows.features.width

    def on_host(self) -> Rows:
        return self.table

    def block(self, lo: int, hi: int, columns: NDArray[np.int64] | None = None) -> AnyArray:
        return self.table.block(lo, hi, columns)

    def converted(self) -> Rows:
        return _RowsOnHost(self.table.converted(), self.device)

    def sent(self, lo: int, hi: int) -> Iterator[tuple[int, int, Any]]:
        from numba import cuda

        for begin, end, block in self.table.blocks(lo, hi):
            contiguous = block.flags.c_contiguous or block.flags.f_contiguous
            yield begin, end, cuda.to_device(block if contiguous else np.ascontiguousarray(block), self.stream)


class _RowsOnGpu(CudaRows):
    """A matrix in a GPU's memory, read and if necessary converted there, on the stream of its library."""

    def __init__(self, X: Any, features: Features):
        super().__init__(features)
        if hasattr(X, "columns"):
            X = _cudf_matrix(X, features)
        self.X = numba_array(X)
        check_shape(self.X.shape, features)
        kind, self.n = self.X.dtype, self.X.shape[0]
        if kind.kind not in "fiub" or kind == np.float16:
            raise TypeError(f"X on the GPU has type {kind}; give float32, float64 or integers")
        self.device, self.stream = gpu_number(f"cuda:{gpu_of(X)}"), stream_of(X)
        self.dtype = features.dtype if features.dtype == np.float32 or kind.kind == "f" else features.integers
        self.as_is = np.isnan(features.missing) and (kind == self.dtype or (self.dtype == "f8" and kind == "f4"))
        self.width = 0 if self.as_is else self.dtype.itemsize * features.count

    def on_host(self) -> Rows:
        return self  # `block` copies what it returns

    def block(self, lo: int, hi: int, columns: NDArray[np.int64] | None = None) -> AnyArray:
        block = self.X[lo:hi].copy_to_host()
        block = block if columns is None else block[:, columns]
        return block if block.dtype in (np.float32, np.float64) else block.astype(self.dtype)

    def converted(self) -> Rows:
        return self

    def sent(self, lo: int, hi: int) -> Iterator[tuple[int, int, Any]]:
        if self.as_is:
            yield lo, hi, self.X[lo:hi]
            return
        from numba import cuda

        from ..kernels.cuda import THREADS, read

        out = cuda.device_array((hi - lo, self.X.shape[1]), self.dtype, stream=self.stream)
        missing = self.dtype.type(self.features.missing)
        read[-(-(hi - lo) // THREADS), THREADS, self.stream](self.X[lo:hi], missing, out)
        yield lo, hi, out


def _cudf_matrix(frame: Any, features: Features) -> Any:
    check_names([str(name) for name in frame.columns], features)
    for name, dtype in zip(frame.columns, frame.dtypes, strict=True):
        if getattr(dtype, "kind", "O") not in "fiub":
            raise ValueError(f"column {str(name)!r} on the GPU has type {dtype}; for categories give X.to_pandas()")
    return frame.to_cupy(na_value=np.nan)
