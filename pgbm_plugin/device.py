"""Devices and arrays on GPUs. CUDA is imported only for a user who asks for a GPU or passes an array from one."""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np

from .arrays import AnyArray

# The DLPack standard's number for memory of a CUDA device.
_DLPACK_CUDA = 2

_INSTALL = "pip install 'pgbm-plugin[cuda]' (CUDA 13) or 'pgbm-plugin[cuda12]'"


def check_device(device: str, here: bool = True) -> str:
    """Return the name of a device; refuse an unknown one, and if `here` also a GPU that this machine does not have."""
    if not isinstance(device, str) or not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise ValueError(f"device must be 'auto', 'cpu', 'cuda' or 'cuda:1', not {device!r}")
    if here and device.startswith("cuda"):
        gpu_number(device)
    return device


def gpu_number(device: str) -> int:
    """Return the number of a GPU; refuse it if it cannot be used."""
    if not has_cuda_package() and not is_simulated():
        raise RuntimeError(f"device={device!r} needs the package numba-cuda: {_INSTALL}")
    from numba import cuda

    if not cuda.is_available():
        raise RuntimeError(
            f"device={device!r}: no usable GPU. Check that nvidia-smi lists one and that the package fits it "
            f"({_INSTALL}), or use device='cpu'"
        )
    number = int(device.partition(":")[2] or 0)
    if number >= len(cuda.gpus):
        raise ValueError(f"device={device!r}: this machine has {len(cuda.gpus)} GPUs, numbered from 0")
    return number


def has_usable_gpu() -> bool:
    """Tell whether there is a real GPU to use; the simulator does not count."""
    if not has_cuda_package() or is_simulated():
        return False
    from numba import cuda

    return bool(cuda.is_available())


def has_cuda_package() -> bool:
    """Tell whether numba-cuda is installed."""
    return find_spec("numba_cuda") is not None


def is_simulated() -> bool:
    """Tell whether numba simulates CUDA on the CPU."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")


def is_on_gpu(X: Any) -> bool:
    """Tell whether an array or frame lies on a GPU."""
    if type(X) is np.ndarray:  # fast for single rows
        return False
    X = X.detach() if hasattr(X, "detach") else X  # a tensor that keeps gradients gives no access to its memory
    if hasattr(X, "__cuda_array_interface__") or (_library(X) == "cudf" and hasattr(X, "to_cupy")):
        return True
    if not (hasattr(X, "__dlpack__") and hasattr(X, "__dlpack_device__")):
        return False
    try:
        return bool(X.__dlpack_device__()[0] == _DLPACK_CUDA)
    except (TypeError, ValueError, NotImplementedError):  # PyArrow before 26, for types that DLPack does not know
        return False


def to_host(values: Any) -> Any:
    """Return a table from a GPU as a NumPy array or pandas frame, and anything else unchanged."""
    if not is_on_gpu(values):
        return values
    if hasattr(values, "to_pandas"):
        return values.to_pandas()
    return values.detach().cpu().numpy() if hasattr(values, "detach") else numba_array(values).copy_to_host()


def in_kind_of(X: Any, values: AnyArray) -> Any:
    """Return results as an array of X's library on X's GPU, or in NumPy if X is not on a GPU."""
    if not is_on_gpu(X):
        return values
    library = _library(X)
    if library == "torch":
        return sys.modules["torch"].as_tensor(values, device=X.device)
    if library == "numba":
        return sys.modules["numba"].cuda.to_device(values)
    import cupy  # for cuDF as well

    return cupy.asarray(values)


def numba_array(X: Any) -> Any:
    """Return a view of any library's GPU array as numba's device array."""
    from numba import cuda

    X = X.detach() if hasattr(X, "detach") else X
    if not hasattr(X, "__cuda_array_interface__"):  # numba does not read DLPack, but torch and CuPy do
        X = sys.modules["torch" if "torch" in sys.modules else "cupy"].from_dlpack(X)
    # not synchronised: the kernels run on the stream that X was made on
    return cuda.as_cuda_array(X, sync=False)


def gpu_of(X: Any) -> int:
    """Return the number of the GPU that holds `X`."""
    device = getattr(X, "device", None)
    if device is None:
        return 0
    number = getattr(device, "index", getattr(device, "id", 0))  # torch has index, CuPy has id
    return int(number or 0)


def stream_of(X: Any) -> Any:
    """Return the CUDA stream that the library of `X` currently works on."""
    from numba import cuda

    library = _library(X)
    if library == "torch":
        return cuda.external_stream(sys.modules["torch"].cuda.current_stream(X.device).cuda_stream)
    if library in ("cupy", "cudf"):
        return cuda.external_stream(sys.modules["cupy"].cuda.get_current_stream().ptr)
    return 0


def _library(X: Any) -> str:
    return type(X).__module__.partition(".")[0]
