"""Arguments as numba passes them to a kernel, and their memory kept apart while it runs."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import TracebackType

import numpy as np

from .reading import width
from .translate import Translation

Argument = np.ndarray | np.generic | float | bool
GAP = 1 << 16  # bytes between arrays: more than an index that is off by a row
GRAIN = 256  # addresses keep their remainder, and so their alignment


def flatten(translation: Translation, signature, arguments: Sequence[Argument]) -> list[Argument]:
    """A value for each parameter: an array is (0, 0, size, item size, address, shape, strides), a scalar is itself.

    The place of an address holds the array.
    """
    if signature is not None:
        _check(signature, arguments)
    values: list[Argument] = []
    for number, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            if not 1 <= argument.ndim <= 3:
                raise TypeError(f"argument {number} has {argument.ndim} dimensions: 1 to 3")
            values += [np.int64(0), np.int64(0), np.int64(argument.size), np.int64(argument.itemsize), argument]
            values += [np.int64(length) for length in (*argument.shape, *argument.strides)]
        elif isinstance(argument, np.generic | float | bool):
            values.append(np.asarray(argument)[()])
        else:
            raise TypeError(f"argument {number} is {argument!r}: an array, or a scalar of NumPy, such as np.int32(3)")
    params = translation.entry.params
    if len(values) != len(params):
        raise TypeError(f"the kernel takes {len(params)} parameters, and the arguments make {len(values)}")
    for value, param, loads in zip(values, params, translation.loads, strict=True):
        size = 8 if isinstance(value, np.ndarray) else value.dtype.itemsize
        kinds = {param.type[0], *(type_[0] for type_ in loads)}
        is_float = not isinstance(value, np.ndarray) and value.dtype.kind == "f"
        if param.count is not None or size != width(param.type) // 8:
            raise TypeError(f"{value!r} for {param.name}, which has {param.size} bytes")
        if ("f" in kinds and not is_float) or (kinds & {"u", "s"} and "f" not in kinds and is_float):
            raise TypeError(f"{value!r} for {param.name}, which the kernel reads as {', '.join(sorted(loads))}")
    return values


def _check(signature, arguments: Sequence[Argument]) -> None:
    from numba import types
    from numba.np import numpy_support

    if len(signature.args) != len(arguments):
        raise TypeError(f"{len(arguments)} arguments for {signature}")
    for number, (wanted, argument) in enumerate(zip(signature.args, arguments, strict=True)):
        given = np.asarray(argument)
        dtype = numpy_support.from_dtype(given.dtype)
        is_array = isinstance(wanted, types.Array)
        fits = isinstance(argument, np.ndarray) == is_array and dtype == (wanted.dtype if is_array else wanted)
        if fits and is_array:
            fits = given.ndim == wanted.ndim and (wanted.layout == "A" or given.flags[f"{wanted.layout}_CONTIGUOUS"])
        if not fits:
            raise TypeError(f"argument {number} is {given.dtype} of shape {given.shape}, and the kernel takes {wanted}")


def _span(array: np.ndarray) -> tuple[int, int]:
    """The bytes from the first element to the last, as addresses."""
    start = end = array.ctypes.data
    if array.size == 0:
        return start, start
    for length, stride in zip(array.shape, array.strides, strict=True):
        reach = (length - 1) * stride
        start, end = start + min(reach, 0), end + max(reach, 0)
    return start, end + array.itemsize


class Guarded:
    """Arrays in memory of their own for as long as the context lasts, with gaps between them.

    Arrays that share memory share it here too. With `apart=False` they stay where they are.
    """

    def __init__(self, arrays: Sequence[np.ndarray], apart: bool):
        self.spans: list[list[int]] = []
        for start, end in sorted(_span(array) for array in arrays):
            if self.spans and start < self.spans[-1][1]:
                self.spans[-1][1] = max(end, self.spans[-1][1])
            else:
                self.spans.append([start, end])
        writable = [_span(array) for array in arrays if array.flags.writeable]
        self.written = [any(start < e and s < end for s, e in writable) for start, end in self.spans]
        self.apart = apart

    def __enter__(self) -> Guarded:
        self.moves = [0] * len(self.spans)
        if not self.apart:
            return self
        room = sum(end - start + GAP + 2 * GRAIN for start, end in self.spans) + GAP
        self.arena = ctypes.create_string_buffer(room)
        at = ctypes.addressof(self.arena)
        for i, (start, end) in enumerate(self.spans):
            at += GAP
            at += (start - at) % GRAIN
            ctypes.memmove(at, start, end - start)
            self.moves[i] = at - start
            at += end - start
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for (start, end), move, written in zip(self.spans, self.moves, self.written, strict=True):
            if self.apart and written:
                ctypes.memmove(start, start + move, end - start)

    def _move(self, address: int, end: int) -> int:
        for (start, stop), move in zip(self.spans, self.moves, strict=True):
            if start <= address and end <= stop:
                return move
        raise AssertionError("an array that was not guarded")

    def ranges(self, arguments: Sequence[Argument]) -> list[tuple[int, int, bool, int]]:
        """(start, end, writable, number of the argument) of every array."""
        rows = []
        for number, argument in enumerate(arguments):
            if isinstance(argument, np.ndarray):
                start, end = _span(argument)
                move = self._move(start, end)
                rows.append((start + move, end + move, bool(argument.flags.writeable), number))
        return rows

    def params(self, translation: Translation, values: Sequence[Argument]) -> ctypes.Array:
        """The bytes of all parameters."""
        params = ctypes.create_string_buffer(max(translation.params_size, 1))
        for value, offset in zip(values, translation.offsets, strict=True):
            if isinstance(value, np.ndarray):
                value = np.uint64(value.ctypes.data + self._move(*_span(value)))
            params[offset : offset + value.dtype.itemsize] = value.tobytes()
        return params
