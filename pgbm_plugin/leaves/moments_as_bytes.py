"""Moments as bytes: a versioned header, arrays and a checksum. Without pickle, so that unknown bytes can do no harm.

All numbers are little-endian. The header is magic, version, flags, leaves, rows. Then come the (L,) arrays of
`LeafMoments` in order, and the CRC-32 of all bytes before it. Flag 1: the moments have decayed, so counts are float64
and there is an array `freedom`. Flag 2: rows have weights, so there are `weight` and `freedom`, and with flag 1 also
`effective`. Version 2 has the ranges of features before the checksum: their numbers of features, of categorical columns
and of categories, and the arrays of `Ranges` in order.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping

import numpy as np

from ..arrays import AnyArray
from ..tables.ranges import Ranges

_MAGIC = b"PGBMmom\n"
_VERSION, _WITH_RANGES = 1, 2
_DECAYED, _WEIGHTED = 1, 2
_HEADER = struct.Struct("<8sHHQd")
_CHECKSUM = struct.Struct("<I")
_RANGES = struct.Struct("<QQQ")

# The arrays after those that all moments have, by flags.
_FURTHER = {
    0: (),
    _DECAYED: ("freedom",),
    _WEIGHTED: ("weight", "freedom"),
    _DECAYED | _WEIGHTED: ("weight", "freedom", "effective"),
}

# After a decay, counts are sums of fractions, which may exceed the number of rows by rounding.
_SLACK = 1e-9


def pack_moments(rows: float, arrays: Mapping[str, AnyArray], ranges: Ranges | None) -> bytes:
    """Return the bytes of moments; `arrays` are those of `LeafMoments` in order."""
    decayed, weighted = arrays["count"].dtype.kind == "f", "weight" in arrays
    flags = decayed * _DECAYED | weighted * _WEIGHTED
    header = _HEADER.pack(_MAGIC, _VERSION if ranges is None else _WITH_RANGES, flags, len(arrays["count"]), rows)
    body = b"".join([header, *map(_little, arrays.values())])
    if ranges is not None:
        sizes = _RANGES.pack(len(ranges.low), len(ranges.column), len(ranges.category))
        body = b"".join([body, sizes, *map(_little, vars(ranges).values())])
    return body + _CHECKSUM.pack(zlib.crc32(body))


def _little(array: AnyArray) -> bytes:
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def unpack_moments(raw: bytes) -> tuple[float, dict[str, AnyArray], Ranges | None]:
    """Return (rows, arrays, ranges) from the bytes of `pack_moments`, after a check of every number."""
    if not isinstance(raw, (bytes, bytearray, memoryview)):
        raise TypeError(f"moments are read from bytes, not from {type(raw).__name__}")
    raw = bytes(raw)
    if len(raw) < _HEADER.size or raw[: len(_MAGIC)] != _MAGIC:
        raise ValueError("these bytes are not moments: give what LeafMoments.to_bytes returned")
    _, version, flags, leaves, rows = _HEADER.unpack_from(raw)
    if not _VERSION <= version <= _WITH_RANGES:
        raise ValueError(f"moments of format {version}; this version of pgbm_plugin reads up to {_WITH_RANGES}")
    if flags & ~(_DECAYED | _WEIGHTED):
        raise ValueError(f"damaged moments: unknown flags {flags}")
    names = ["count", "g_mean", "h_mean", "gg", "hh", "gh", *_FURTHER[flags]]
    begin = _HEADER.size + 8 * leaves * len(names)
    shapes = _range_shapes(raw, begin) if version == _WITH_RANGES else []
    end = begin + (_RANGES.size if shapes else 0) + sum(np.dtype(dtype).itemsize * n for dtype, n in shapes)
    if len(raw) != end + _CHECKSUM.size:
        raise ValueError(f"damaged moments: {len(raw)} bytes, {leaves} leaves need {end + _CHECKSUM.size}")
    if _CHECKSUM.unpack_from(raw, end)[0] != zlib.crc32(raw[:end]):
        raise ValueError("damaged moments: the checksum does not match")
    arrays: dict[str, AnyArray] = {}
    for i, name in enumerate(names):
        dtype = "<i8" if name == "count" and not flags & _DECAYED else "<f8"
        array = np.frombuffer(raw, dtype, leaves, _HEADER.size + 8 * leaves * i)
        arrays[name] = array.astype(array.dtype.newbyteorder("="))
    _check(rows, arrays)
    return rows if flags & _DECAYED else int(rows), arrays, _read_ranges(raw, begin, shapes) if shapes else None


def _range_shapes(raw: bytes, begin: int) -> list[tuple[str, int]]:
    """Return type and length of the arrays of ranges, whose sizes are at `begin`."""
    if len(raw) < begin + _RANGES.size:
        raise ValueError(f"damaged moments: {len(raw)} bytes end before the ranges of features")
    features, columns, categories = _RANGES.unpack_from(raw, begin)
    counts = features, features, features, columns, columns + 1, categories
    return list(zip(("<f8", "<f8", "u1", "<i4", "<i8", "<f8"), counts, strict=True))


def _read_ranges(raw: bytes, begin: int, shapes: list[tuple[str, int]]) -> Ranges:
    at, arrays = begin + _RANGES.size, []
    for dtype, n in shapes:
        array = np.frombuffer(raw, dtype, n, at)
        at += array.nbytes
        arrays.append(array != 0 if dtype == "u1" else array.astype(array.dtype.newbyteorder("=")))
    try:
        return Ranges(*arrays)
    except ValueError as error:
        raise ValueError(f"damaged moments: {error}") from None


def _check(rows: float, arrays: Mapping[str, AnyArray]) -> None:
    """Refuse numbers that moments of rows cannot have."""
    finite = np.isfinite(rows) and all(np.all(np.isfinite(array)) for array in arrays.values())
    decayed, count = arrays["count"].dtype.kind == "f", arrays["count"]
    if not (finite and 0 <= rows < 2**53 and (decayed or rows == int(rows))):
        raise ValueError("damaged moments: a number is not finite, or the number of rows is impossible")
    too_many = "weight" not in arrays and np.any(count > rows * (1 + _SLACK))  # weights of 0 count no row
    if too_many or any(np.any(arrays[name] < 0) for name in arrays if name not in ("g_mean", "h_mean", "gh")):
        raise ValueError("damaged moments: a count, a weight or a sum of squares is out of range")
    mass = arrays.get("weight", count)
    if "freedom" in arrays and np.any(arrays["freedom"] > mass * (1 + _SLACK)):
        raise ValueError("damaged moments: a leaf has more degrees of freedom than rows")
    if any(np.any(array[mass == 0] != 0) for name, array in arrays.items() if name != "count" or mass is count):
        raise ValueError("damaged moments: a leaf without rows has moments")
