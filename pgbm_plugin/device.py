"""Where kernels run: the choice between CPU and GPU, and tables that lie on a GPU.

Nothing of CUDA is imported until a GPU is asked for, or a table comes from one.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .tables.frames import check_names
from .tables.rows import Rows, check_count, read_rows
from .trees.forest import Features, Forest

# Rows times trees from which a table of the host is worth sending to a GPU that is there.
_LARGE = 1 << 30

# The DLPack standard's number for memory of a CUDA device.
_DLPACK_CUDA = 2

_INSTALL = "pip install 'pgbm-plugin[cuda]' (CUDA 13) or 'pgbm-plugin[cuda12]'"


def check_device(device: str, here: bool = True) -> str:
    """Refuse what is no device, before any work; one of other machines (not `here`) is theirs to refuse."""
    if not isinstance(device, str) or not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise ValueError(f"device must be 'auto', 'cpu', 'cuda' or 'cuda:1', not {device!r}")
    if here and device.startswith("cuda"):
        _gpu(device)
    return device


def read_rows_for(X: Any, forest: Forest, device: str) -> Rows:
    """A table, to be read by the CPU or by a GPU."""
    if _is_on_gpu(X):
        return _Resident(X, forest.features) if device != "cpu" else read_rows(to_host(X), forest.features)
    rows = read_rows(X, forest.features)
    if device == "cpu" or (device == "auto" and not _is_worth_sending(rows, forest)):
        return rows
    return _Sent(rows, _gpu("cuda" if device == "auto" else device))


def to_host(values: Any) -> Any:
    """An array of a GPU as one of NumPy; anything else as it is."""
    if not _is_on_gpu(values):
        return values
    if hasattr(values, "to_pandas"):
        return values.to_pandas()
    return values.detach().cpu().numpy() if hasattr(values, "detach") else _view(values).copy_to_host()


def in_kind_of(X: Any, values: NDArray[Any]) -> Any:
    """Results as the library that made X has its arrays: on X's GPU, or as they are for a table of the host."""
    if not _is_on_gpu(X):
        return values
    library = _library(X)
    if library == "torch":
        return sys.modules["torch"].as_tensor(values, device=X.device)
    if library == "numba":
        return sys.modules["numba"].cuda.to_device(values)
    import cupy  # also of cuDF, as XGBoost does

    return cupy.asarray(values)


class CudaRows(Rows):
    """Rows that a GPU reads.

    Attributes
    ----------
    table : the table of the host that they are sent from, or None.
    device : number of the GPU.
    stream : the one to work on.
    width : bytes of a row on the GPU, beside the table itself if that lies there.
    """

    table: Rows | None
    device: int
    stream: Any
    width: int

    def sent(self, lo: int, hi: int) -> Iterator[tuple[int, int, Any]]:
        """Rows lo..hi as ``(begin, end, matrix)``, on the GPU, in the precision that the booster compares in."""
        raise NotImplementedError


class _Sent(CudaRows):
    """A table of the host, sent block by block."""

    table: Rows

    def __init__(self, rows: Rows, device: int):
        super().__init__(rows.features)
        self.table, self.n = rows, len(rows)
        self.device, self.stream = device, 0
        self.width = 8 * rows.features.count

    def block(self, lo: int, hi: int, columns: NDArray[np.int64] | None = None) -> NDArray[Any]:
        return self.table.block(lo, hi, columns)

    def converted(self) -> Rows:
        return _Sent(self.table.converted(), self.device)

    def sent(self, lo: int, hi: int) -> Iterator[tuple[int, int, Any]]:
        from numba import cuda

        for begin, end, block in self.table.blocks(lo, hi):
            contiguous = block.flags.c_contiguous or block.flags.f_contiguous
            yield begin, end, cuda.to_device(block if contiguous else np.ascontiguousarray(block), self.stream)


class _Resident(CudaRows):
    """A matrix on a GPU: read where it lies, on its owner's stream; converted there if its precision is another."""

    def __init__(self, X: Any, features: Features):
        super().__init__(features)
        self.table = None
        if hasattr(X, "columns"):
            X = _cudf_matrix(X, features)
        self.X = _view(X)
        if self.X.ndim != 2:
            raise ValueError(f"X must have two dimensions, it has {self.X.ndim}")
        check_count(self.X.shape[1], features)
        kind, self.n = self.X.dtype, self.X.shape[0]
        if self.n == 0:
            raise ValueError("X has no rows")
        if kind.kind not in "fiub" or kind == np.float16:
            raise TypeError(f"X on the GPU is of type {kind}; give float32, float64 or integers")
        self.device, self.stream = _gpu(f"cuda:{_device_of(X)}"), _stream_of(X)
        self.dtype = features.dtype if features.dtype == np.float32 or kind.kind == "f" else features.integers
        self.as_is = np.isnan(features.missing) and (kind == self.dtype or (self.dtype == "f8" and kind == "f4"))
        self.width = 0 if self.as_is else self.dtype.itemsize * features.count

    def block(self, lo: int, hi: int, columns: NDArray[np.int64] | None = None) -> NDArray[Any]:
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

        from .kernels.cuda import THREADS, read

        out = cuda.device_array((hi - lo, self.X.shape[1]), self.dtype, stream=self.stream)
        missing = self.dtype.type(self.features.missing)
        read[-(-(hi - lo) // THREADS), THREADS, self.stream](self.X[lo:hi], missing, out)
        yield lo, hi, out


def _is_on_gpu(X: Any) -> bool:
    if type(X) is np.ndarray:  # the short way for single rows
        return False
    X = X.detach() if hasattr(X, "detach") else X  # torch refuses to show a tensor that keeps gradients
    if hasattr(X, "__cuda_array_interface__") or (_library(X) == "cudf" and hasattr(X, "to_cupy")):
        return True
    return hasattr(X, "__dlpack__") and hasattr(X, "__dlpack_device__") and X.__dlpack_device__()[0] == _DLPACK_CUDA


def _library(X: Any) -> str:
    return type(X).__module__.partition(".")[0]


def _is_worth_sending(rows: Rows, forest: Forest) -> bool:
    """Whether a GPU that is there would be faster; the simulator never is."""
    if len(rows) * forest.n_trees < _LARGE or find_spec("numba_cuda") is None or _is_simulated():
        return False
    from numba import cuda

    return bool(cuda.is_available())


def _is_simulated() -> bool:
    return os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")


def _gpu(device: str) -> int:
    """The number of a GPU that can be used."""
    if find_spec("numba_cuda") is None and not _is_simulated():
        raise RuntimeError(f"device={device!r} needs the package numba-cuda: {_INSTALL}")
    from numba import cuda

    if not cuda.is_available():
        raise RuntimeError(
            f"device={device!r}: no GPU can be used. Is there one (does nvidia-smi list it), and is this the right "
            f"package for it ({_INSTALL})? device='cpu' needs none"
        )
    number = int(device.partition(":")[2] or 0)
    if number >= len(cuda.gpus):
        raise ValueError(f"device={device!r}: there are {len(cuda.gpus)} GPUs, numbered from 0")
    return number


def _view(X: Any) -> Any:
    """An array of any library as one of numba, without a copy."""
    from numba import cuda

    X = X.detach() if hasattr(X, "detach") else X
    if not hasattr(X, "__cuda_array_interface__"):  # DLPack alone, which numba does not make arrays of
        X = sys.modules["torch" if "torch" in sys.modules else "cupy"].from_dlpack(X)
    # not synchronised: the kernels run on the stream that X was made on
    return cuda.as_cuda_array(X, sync=False)


def _device_of(X: Any) -> int:
    """The number of the GPU that holds X."""
    device = getattr(X, "device", None)
    if device is None:
        return 0
    number = getattr(device, "index", getattr(device, "id", 0))  # of torch, of CuPy
    return int(number or 0)


def _stream_of(X: Any) -> Any:
    """The stream on which the library that made X works at present."""
    from numba import cuda

    library = _library(X)
    if library == "torch":
        return cuda.external_stream(sys.modules["torch"].cuda.current_stream(X.device).cuda_stream)
    if library in ("cupy", "cudf"):
        return cuda.external_stream(sys.modules["cupy"].cuda.get_current_stream().ptr)
    return 0


def _cudf_matrix(frame: Any, features: Features) -> Any:
    check_names([str(name) for name in frame.columns], features)
    for name, dtype in zip(frame.columns, frame.dtypes, strict=True):
        if getattr(dtype, "kind", "O") not in "fiub":
            raise ValueError(f"column {str(name)!r} has type {dtype}; for categories give X.to_pandas()")
    return frame.to_cupy(na_value=np.nan)
