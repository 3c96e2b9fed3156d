"""LeafMoments as bytes: a versioned header, arrays, a checksum. No pickle: bytes from anywhere can do no harm.

All numbers are little-endian. Header: magic, version, flags, leaves, rows; then the arrays of `LeafMoments` in order,
(L,) each; then the CRC-32 of all before. Flag 1: moments have decayed, so that counts are float64 and freedom follows.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from .moments import LeafMoments

_MAGIC = b"PGBMmom\n"
_VERSION = 1
_DECAYED = 1
_HEADER = struct.Struct("<8sHHQd")
_CHECKSUM = struct.Struct("<I")

# Counts that have decayed are sums of fractions: together they may exceed the rows by rounding.
_SLACK = 1e-9


def to_bytes(moments: LeafMoments) -> bytes:
    """See `LeafMoments.to_bytes`."""
    flags = 0 if moments.freedom is None else _DECAYED
    header = _HEADER.pack(_MAGIC, _VERSION, flags, len(moments.count), moments.rows)
    arrays = (values.astype(values.dtype.newbyteorder("<")).tobytes() for values in moments.arrays().values())
    body = b"".join([header, *arrays])
    return body + _CHECKSUM.pack(zlib.crc32(body))


def from_bytes(raw: bytes) -> LeafMoments:
    """See `LeafMoments.from_bytes`. Every number is checked: kernels and formulas rely on them."""
    if not isinstance(raw, (bytes, bytearray, memoryview)):
        raise TypeError(f"moments are read from bytes, not from {type(raw).__name__}")
    raw = bytes(raw)
    if len(raw) < _HEADER.size or raw[: len(_MAGIC)] != _MAGIC:
        raise ValueError("these bytes are not moments: give what LeafMoments.to_bytes returned")
    _, version, flags, leaves, rows = _HEADER.unpack_from(raw)
    if version != _VERSION:
        raise ValueError(f"moments of format {version}; this version of pgbm_plugin reads format {_VERSION}")
    if flags not in (0, _DECAYED):
        raise ValueError(f"damaged moments: unknown flags {flags}")
    names = ["count", "g_mean", "h_mean", "gg", "hh", "gh", *(["freedom"] if flags else [])]
    end = _HEADER.size + 8 * leaves * len(names)
    if len(raw) != end + _CHECKSUM.size:
        raise ValueError(f"damaged moments: {len(raw)} bytes, {leaves} leaves need {end + _CHECKSUM.size}")
    if _CHECKSUM.unpack_from(raw, end)[0] != zlib.crc32(raw[:end]):
        raise ValueError("damaged moments: the checksum does not fit")
    kinds = {"count": "<f8" if flags else "<i8"}
    arrays: dict[str, NDArray[np.float64]] = {}
    for i, name in enumerate(names):
        found = np.frombuffer(raw, kinds.get(name, "<f8"), leaves, _HEADER.size + 8 * leaves * i)
        arrays[name] = found.astype(found.dtype.newbyteorder("="))
    moments = LeafMoments(rows if flags else int(rows) if np.isfinite(rows) else rows, **arrays)
    _check(moments, rows)
    return moments


def _check(moments: LeafMoments, rows: float) -> None:
    """Refuse numbers that no rows can have."""
    arrays = moments.arrays()
    finite = all(np.all(np.isfinite(values)) for values in arrays.values())
    if not (finite and 0 <= rows < 2**53 and rows == moments.rows):
        raise ValueError("damaged moments: a number is not finite, or there is no such number of rows")
    if np.any(moments.count > rows * (1 + _SLACK)) or any(
        np.any(arrays[name] < 0) for name in ("count", "gg", "hh", "freedom") if name in arrays
    ):
        raise ValueError("damaged moments: a count or a sum of squares is out of range")
    if moments.freedom is not None and np.any(moments.freedom > moments.count):
        raise ValueError("damaged moments: a leaf has more freedom than rows")
    empty = moments.count == 0
    if any(np.any(arrays[name][empty] != 0) for name in arrays):
        raise ValueError("damaged moments: a leaf without rows has moments")
