"""Run a compiled kernel on the CPU: its PTX as C, one fibre for each thread, in any order that a seed asks for.

What runs is the PTX as written. ptxas may still fuse a product and a sum, and a GPU's approximations differ in their
last bits. Memory has one order here: a race shows by the order of threads, a missing fence does not.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .arguments import Argument, Guarded, flatten
from .translate import translate

MAXIMUM_THREADS = 1024


class KernelFault(RuntimeError):
    """What a GPU would stop at, hang on, or quietly get wrong."""


class _Range(ctypes.Structure):
    _fields_ = (
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("writable", ctypes.c_int),
        ("argument", ctypes.c_int),
    )


def find_compiler() -> str | None:
    """A C compiler, if there is one."""
    return shutil.which("gcc")


class Kernel:
    """The one kernel of a PTX file, ready to run: `Kernel(ptx)(blocks, threads, *arguments)`.

    Parameters
    ----------
    ptx
        What NVVM made, or what was written by hand.
    signature
        The numba signature it was compiled for, if arguments shall be checked against it: PTX itself knows the width
        of a scalar but not the type of an array.
    """

    def __init__(self, ptx: str, signature=None):
        self.lines = ptx.splitlines()
        self.signature = signature
        self.translation = translate(ptx)
        self._library = _compile(self.translation.source)

    def __call__(
        self,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        *arguments: Argument,
        seed: int = 0,
        checked: bool = True,
        shared: int = 0,
        jumps: int = 10**9,
    ) -> None:
        """Run all threads.

        Parameters
        ----------
        grid, block
            Blocks, and threads of a block, along up to three axes.
        arguments
            Arrays, which the kernel writes into, and scalars of NumPy, each as numba passes it.
        seed
            0 runs threads and blocks in turn, each as far as it gets. Any other runs them in an order of its own,
            two blocks at once, and stops threads at loads and stores to let others run.
        checked
            Move the arrays apart while the kernel runs, and raise `KernelFault` at an access outside of them.
        shared
            Bytes of dynamic shared memory.
        jumps
            Give up after about as many jumps of all threads together.
        """
        grid, block = _axes("grid", grid), _axes("block", block)
        threads = int(np.prod(block))
        most = min(self.translation.entry.threads or MAXIMUM_THREADS, MAXIMUM_THREADS)
        if threads > most:
            raise ValueError(f"a block of {threads} threads, where this kernel takes {most}")
        values = flatten(self.translation, self.signature, arguments)
        arrays = [argument for argument in arguments if isinstance(argument, np.ndarray)]
        with Guarded(arrays, apart=checked) as guarded:
            params = guarded.params(self.translation, values)
            ranges = self._ranges(guarded.ranges(arguments))
            where = (ctypes.c_uint32 * 6)()
            failed = self._library.launch(
                (ctypes.c_uint32 * 3)(*grid),
                (ctypes.c_uint32 * 3)(*block),
                ctypes.c_uint64(self.translation.shared_size + shared),
                ctypes.c_uint64(self.translation.local_size),
                params,
                ranges,
                len(ranges),
                int(checked),
                ctypes.c_uint64(seed),
                ctypes.c_uint64(jumps),
                where,
            )
        if failed:
            raise self._fault(tuple(where))

    def _ranges(self, ranges: Sequence[tuple[int, int, bool, int]]) -> ctypes.Array:
        own = (_Range * 64)()
        count = self._library.module_ranges(own)
        return (_Range * (count + len(ranges)))(*own[:count], *(_Range(*row) for row in ranges))

    def _fault(self, where: tuple[int, ...]) -> KernelFault:
        line = self._library.fault_line()
        message = self._library.fault_message().decode()
        statement = " ".join(self.lines[line - 1].split()) if line else ""
        return KernelFault(f"{message}: block {where[:3]}, thread {where[3:]}, line {line}, {statement!r}")


def _axes(name: str, value: int | tuple[int, ...]) -> tuple[int, ...]:
    axes = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(axes) <= 3 or any(axis < 1 for axis in axes):
        raise ValueError(f"{name} is {value}: one to three axes, each of at least 1")
    return (*axes, 1, 1)[:3]


def _compile(source: str) -> ctypes.CDLL:
    compiler = find_compiler()
    if compiler is None:
        raise RuntimeError("no gcc to run PTX with")
    with tempfile.TemporaryDirectory() as folder:
        path, library = Path(folder, "kernel.c"), Path(folder, "kernel.so")
        path.write_text(source)
        # wrapping integers and unfused floats are PTX's; a frame must fit on a fibre's stack, with room for calls
        flags = "-O1 -std=gnu11 -fPIC -shared -w -fwrapv -fno-strict-aliasing -ffp-contract=off -frounding-math"
        command = [compiler, *flags.split(), "-Werror=frame-larger-than=65536", f"-I{Path(__file__).parent}"]
        run = subprocess.run([*command, str(path), "-o", str(library), "-lm"], capture_output=True, text=True)
        if run.returncode:
            raise RuntimeError(f"the C that the PTX became does not compile:\n{run.stderr}")
        loaded = ctypes.CDLL(str(library))
    loaded.fault_message.restype = ctypes.c_char_p
    return loaded
