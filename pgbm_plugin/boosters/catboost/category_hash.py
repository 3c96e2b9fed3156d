"""The hash by which CatBoost knows a category: the low half of CityHash64 of its text.

CityHash, version 1, is by Geoff Pike and Jyrki Alakuijala. The constants are theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_K0, _K1, _K2, _K3 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F, 0xC949D7C7509E6557
_KMUL = 0x9DDFEA08EB382D69
_MASK = (1 << 64) - 1


# So many texts of one length are hashed at once. A single one is faster without arrays.
_MANY, _LONGEST = 32, 64


def category_hashes(values: Sequence[Any]) -> NDArray[np.int64]:
    """Return the hashes of categories, as model files store them: signed numbers of 32 bits."""
    if len(values) < _MANY:
        return np.array([_category_hash(value) for value in values], np.int64)
    texts = [_text(value) for value in values]
    length = np.array([len(text) for text in texts])
    order = np.argsort(length, kind="stable")
    out = np.empty(len(values), np.int64)
    for group in np.split(order, np.flatnonzero(np.diff(length[order])) + 1):
        n = int(length[group[0]])
        if len(group) < _MANY or not 0 < n <= _LONGEST:
            out[group] = [_signed(city_hash(texts[i])) for i in group]
            continue
        table = np.frombuffer(b"".join([texts[i] for i in group]), np.uint8).reshape(len(group), n)
        out[group] = city_hash(table).astype(np.uint32).view(np.int32)
    return out


@lru_cache(maxsize=1 << 16, typed=True)  # True and 1.0 equal 1
def _category_hash(value: Any) -> int:
    return _signed(city_hash(_text(value)))


def _text(value: Any) -> bytes:
    """Return the text by which CatBoost knows a category."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bool, np.bool_)):
        value = int(value)
    if not isinstance(value, (int, np.integer)):
        raise ValueError(
            f"{value!r:.40} is a {type(value).__name__}, and CatBoost takes integers and text as categories: turn them "
            f"into what they were in training"
        )
    return str(value).encode()


def _signed(hash_: int) -> int:
    low = hash_ & 0xFFFFFFFF
    return low - (1 << 32) if low >= 1 << 31 else low


def city_hash(s: Any) -> Any:
    """Return the 64-bit hash of some bytes, or the hashes of texts of one length of up to 64, (k, length) bytes.

    The functions below take both, and work on Python's integers or on arrays of uint64.
    """
    n = len(s) if isinstance(s, bytes) else s.shape[1]
    if n <= 16:
        return _up_to_16(s, n)
    if n <= 32:
        a, b = _word(s, 0) * _K1, _word(s, 8)
        c, d = _word(s, n - 8) * _K2, _word(s, n - 16) * _K0
        return _pair(_turn(a - b, 43) + _turn(c, 30) + d, a + _turn(b ^ _K3, 20) - c + n)
    return _up_to_64(s, n) if n <= 64 else _long(s, n)


def _up_to_16(s: Any, n: int) -> Any:
    if n > 8:
        a, b = _word(s, 0), _word(s, n - 8)
        return _pair(a, _turn(b + n, n)) ^ b
    if n >= 4:
        return _pair(n + (_half(s, 0) << 3), _half(s, n - 4))
    if n > 0:
        y, z = _byte(s, 0) + (_byte(s, n >> 1) << 8), n + (_byte(s, n - 1) << 2)
        return _mix((y * _K2 ^ z * _K3) & _MASK) * _K2 & _MASK
    return _K2


def _up_to_64(s: Any, n: int) -> Any:
    first = _four_words(_word(s, 24), _word(s, 0) + (n + _word(s, n - 16)) * _K0, _word(s, 8), _word(s, 16))
    second = _four_words(_word(s, n - 8), _word(s, 16) + _word(s, n - 32), _word(s, n - 24), _word(s, n - 16))
    r = _mix((first[0] + second[1]) * _K2 + (second[0] + first[1]) * _K0 & _MASK)
    return _mix(r * _K0 + first[1] & _MASK) * _K2 & _MASK


def _four_words(z: Any, a: Any, p: Any, q: Any) -> tuple[Any, Any]:
    b, c = _turn(a + z, 52), _turn(a, 37)
    a = a + p
    c = c + _turn(a, 7)
    a = a + q
    return a + z & _MASK, b + _turn(a, 31) + c & _MASK


def _long(s: bytes, n: int) -> int:
    """Hash the end first, then the rest in pieces of 64 bytes."""
    x, y, z = _word(s, 0), _word(s, n - 16) ^ _K1, _word(s, n - 56) ^ _K0
    v = _seeded(s, n - 64, n, y)
    w = _seeded(s, n - 32, n * _K1, _K0)
    z += _mix(v[1]) * _K1
    x, y = _turn(z + x, 39) * _K1, _turn(y, 33) * _K1
    for i in range(0, (n - 1) & ~63, 64):
        x = _turn(x + y + v[0] + _word(s, i + 16), 37) * _K1 & _MASK
        y = _turn(y + v[1] + _word(s, i + 48), 42) * _K1 & _MASK
        x, y = x ^ w[1], y ^ v[0]
        z = _turn(z ^ w[0], 33)
        v = _seeded(s, i, v[1] * _K1, x + w[0])
        w = _seeded(s, i + 32, z + w[1], y)
        z, x = x, z
    return _pair(_pair(v[0], w[0]) + _mix(y & _MASK) * _K1 + z, _pair(v[1], w[1]) + x)


def _seeded(s: bytes, i: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = (_word(s, i + k) for k in (0, 8, 16, 24))
    a += w
    b = _turn(b + a + z, 21)
    c = a
    a += x + y
    b += _turn(a, 44)
    return a + z & _MASK, b + c & _MASK


def _pair(u: Any, v: Any) -> Any:
    a = _mix((u ^ v) * _KMUL & _MASK)
    b = _mix((v ^ a) * _KMUL & _MASK)
    return b * _KMUL & _MASK


def _mix(a: Any) -> Any:
    return a ^ (a >> 47)


def _turn(a: Any, bits: int) -> Any:
    a = a & _MASK
    return (a >> bits | a << (64 - bits)) & _MASK


def _word(s: Any, i: int) -> Any:
    if isinstance(s, bytes):
        return int.from_bytes(s[i : i + 8], "little")
    return np.ascontiguousarray(s[:, i : i + 8]).view("<u8")[:, 0].astype(np.uint64)


def _half(s: Any, i: int) -> Any:
    if isinstance(s, bytes):
        return int.from_bytes(s[i : i + 4], "little")
    return np.ascontiguousarray(s[:, i : i + 4]).view("<u4")[:, 0].astype(np.uint64)


def _byte(s: Any, i: int) -> Any:
    return s[i] if isinstance(s, bytes) else s[:, i].astype(np.uint64)
