"""Compile Python kernels to PTX and assemble them to machine code, with neither a GPU nor a driver."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from types import FunctionType, SimpleNamespace

# Compute capabilities that every kernel is compiled for: Turing to Blackwell.
ARCHITECTURES = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]


@contextlib.contextmanager
def current_device(cc: tuple[int, int]) -> Iterator[None]:
    """Answer for the current device, whose architecture numba-cuda asks for when a kernel calls a device function.

    Parameters
    ----------
    cc : (int, int)
        The compute capability, (8, 0) for sm_80.
    """
    from numba.cuda import dispatcher

    name = "get_current_device"
    if not callable(getattr(dispatcher, name, None)):
        raise RuntimeError(
            f"numba-cuda {metadata.version('numba-cuda')} has no numba.cuda.dispatcher.{name} to answer for: "
            "find where compile_device() learns the compute capability now, and answer there"
        )
    asked = getattr(dispatcher, name)
    setattr(dispatcher, name, lambda: SimpleNamespace(compute_capability=cc))
    try:
        yield
    finally:
        setattr(dispatcher, name, asked)


def compile_ptx(function: FunctionType, signature, cc: tuple[int, int]) -> str:
    """Return the PTX that NVVM makes of a kernel.

    Parameters
    ----------
    function : function
        A plain Python function; what it calls may be `cuda.jit(device=True)`.
    signature : numba signature
        Its numba signature, `void(float64[::1], int32)`.
    cc : (int, int)
        The compute capability, (8, 0) for sm_80.
    """
    if not isinstance(function, FunctionType):
        raise TypeError(f"{function!r} is not a plain function: pass kernel.py_func, not the jitted kernel")
    from numba import cuda

    with current_device(cc):
        ptx, _ = cuda.compile(function, signature, cc=cc, device=False, abi="numba", output="ptx")
    target = re.search(r"^\.target\s+(\w+)", ptx, re.MULTILINE)
    if target is None or target[1] != architecture(cc):
        raise RuntimeError(f"asked for {architecture(cc)}, but NVVM made code for {target and target[1]}")
    return ptx


def architecture(cc: tuple[int, int]) -> str:
    """Return the name of an architecture: sm_80 for (8, 0)."""
    return f"sm_{cc[0]}{cc[1]}"


def find_ptxas() -> str | None:
    """Return the assembler: of the wheels first, which is as new as the NVVM beside it, else the one on the path."""
    nvidia = util.find_spec("nvidia")
    for folder in nvidia.submodule_search_locations or () if nvidia else ():
        for path in sorted(Path(folder).glob("cu*/bin/ptxas"), reverse=True):
            if os.access(path, os.X_OK):
                return str(path)
    return shutil.which("ptxas")


@dataclass(frozen=True)
class Resources:
    """What ptxas says that a kernel takes: registers, else bytes; `shared` per block, the others per thread."""

    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int


def assemble(ptx: str, cc: tuple[int, int]) -> Resources:
    """Assemble PTX for one architecture, and return what it takes; the machine code is dropped.

    Where the PTX calls functions, the stack is that of the deepest frame, and spills are summed.
    """
    ptxas = find_ptxas()
    if ptxas is None:
        raise RuntimeError("no ptxas: pip install nvidia-cuda-nvcc, at least as new as the NVVM that made the PTX")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        command = [ptxas, "-v", f"-arch={architecture(cc)}", str(source), "-o", str(source.with_suffix(".cubin"))]
        run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"ptxas refuses the PTX for {architecture(cc)}:\n{run.stdout}{run.stderr}")
    said = run.stdout + run.stderr
    frames = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", said)
    registers = re.findall(r"Used (\d+) registers", said)
    if not frames or not registers:
        raise RuntimeError(f"ptxas no longer reports resources as it did:\n{said}")
    stack, stores, loads = (tuple(map(int, column)) for column in zip(*frames, strict=True))
    return Resources(
        registers=max(map(int, registers)),
        shared=max(map(int, re.findall(r"(\d+) bytes smem", said)), default=0),
        stack=max(stack),
        spill_stores=sum(stores),
        spill_loads=sum(loads),
    )
