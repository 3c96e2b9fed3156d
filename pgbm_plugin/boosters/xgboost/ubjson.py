"""A reader for UBJSON, the format of XGBoost's ``save_raw("ubj")``: typed arrays become NumPy views."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

_NUMBER = {ord(c): struct.Struct(f) for c, f in zip("iUIlLdD", (">b", ">B", ">h", ">i", ">q", ">f", ">d"), strict=True)}
_ARRAY = {ord(c): np.dtype(f) for c, f in zip("iUIlLdD", ("i1", "u1", ">i2", ">i4", ">i8", ">f4", ">f8"), strict=True)}
_CONSTANT = {ord("T"): True, ord("F"): False, ord("Z"): None}
_OBJECT, _END_OBJECT, _LIST, _END_LIST, _STRING, _TYPE, _COUNT = b"{}[]S$#"
_DEEPEST = 64


def loads(buffer: bytes) -> Any:
    """Read one document. A damaged one raises ValueError."""
    try:
        value, end = _value(buffer, buffer[0], 1, 0)
    except (IndexError, KeyError, struct.error, UnicodeDecodeError) as error:
        raise ValueError("truncated or damaged UBJSON") from error
    if end != len(buffer):
        raise ValueError("UBJSON is followed by other data")
    return value


def _length(buffer: bytes, at: int) -> tuple[int, int]:
    number = _NUMBER[buffer[at]]
    length = number.unpack_from(buffer, at + 1)[0]
    end = at + 1 + number.size
    if not 0 <= length <= len(buffer) - end:  # every element takes at least a byte
        raise ValueError("truncated or damaged UBJSON")
    return length, end


def _string(buffer: bytes, at: int) -> tuple[str, int]:
    length, at = _length(buffer, at)
    return buffer[at : at + length].decode(), at + length


def _value(buffer: bytes, marker: int, at: int, depth: int) -> tuple[Any, int]:
    if marker == _OBJECT:
        return _object(buffer, at, depth + 1)
    if marker == _LIST:
        return _list(buffer, at, depth + 1)
    if marker == _STRING:
        return _string(buffer, at)
    if marker in _CONSTANT:
        return _CONSTANT[marker], at
    number = _NUMBER[marker]
    return number.unpack_from(buffer, at)[0], at + number.size


def _object(buffer: bytes, at: int, depth: int) -> tuple[dict[str, Any], int]:
    if depth > _DEEPEST:
        raise ValueError("UBJSON is nested too deeply")
    out: dict[str, Any] = {}
    remaining = -1  # not counted: ends with a brace
    if buffer[at] == _COUNT:
        remaining, at = _length(buffer, at + 1)
    while remaining:
        if remaining < 0 and buffer[at] == _END_OBJECT:
            return out, at + 1
        key, at = _string(buffer, at)
        out[key], at = _value(buffer, buffer[at], at + 1, depth)
        remaining -= 1
    return out, at


def _list(buffer: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth > _DEEPEST:
        raise ValueError("UBJSON is nested too deeply")
    if buffer[at] == _TYPE:
        dtype = _ARRAY[buffer[at + 1]]
        if buffer[at + 2] != _COUNT:
            raise ValueError("truncated or damaged UBJSON")
        length, at = _length(buffer, at + 3)
        return np.frombuffer(buffer, dtype, length, at), at + length * dtype.itemsize
    out: list[Any] = []
    remaining = -1
    if buffer[at] == _COUNT:
        remaining, at = _length(buffer, at + 1)
    while remaining:
        if remaining < 0 and buffer[at] == _END_LIST:
            return out, at + 1
        value, at = _value(buffer, buffer[at], at + 1, depth)
        out.append(value)
        remaining -= 1
    return out, at
