"""The file format: named arrays and a JSON header, in the safetensors format, which many languages can read.

A file is eight bytes with the length of the header, the header, then the bytes of the arrays side by side. Nothing in
it is code and nothing is compressed, so no array can be larger than the file. A zip file stores names, sizes and
checksums twice, and a hostile one can make the two disagree.

In the header, only "__metadata__" is ours: {"format", "version", "sha256", "written_by", "model"}. "model" is JSON
inside a string, because safetensors allows only strings there. The checksum is that of the whole file, with 64 zeros
in its own place, right after the version. In files of version 1 it covers only "model" and all arrays.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..boosters import booster_of_file

FORMAT, VERSION = "pgbm_plugin", 2

# Every file begins with this, after the length.
_BEGINNING = b'{"__metadata__":{"format":"pgbm_plugin",'
# Files with a checksum of the whole go on with this, and then with the checksum.
_BEFORE_CHECKSUM = _BEGINNING + b'"version":"2","sha256":"'
_NO_CHECKSUM = "0" * 64

# The limit of safetensors itself. Only names of columns and categories can make a header long.
_MAX_HEADER = 100_000_000

DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}


def is_container(head: bytes) -> bool:
    """Tell whether a file that begins with `head` is a saved model of this package."""
    return head[8 : 8 + len(_BEGINNING)] == _BEGINNING


def pack(arrays: Mapping[str, NDArray[Any]], model: Mapping[str, Any], written_by: str) -> bytes:
    """Return the bytes of a file with these arrays of one axis; `model` is anything that JSON can hold."""
    code = {dtype: name for name, dtype in DTYPES.items()}
    little = {name: array.astype(array.dtype.newbyteorder("<"), copy=False) for name, array in arrays.items()}
    # wide numbers first, so that each array is aligned
    little = dict(sorted(little.items(), key=lambda item: -item[1].itemsize))
    data = b"".join(array.tobytes() for array in little.values())
    about = {"format": FORMAT, "version": str(VERSION), "sha256": _NO_CHECKSUM, "written_by": written_by}
    header: dict[str, Any] = {"__metadata__": {**about, "model": _to_json(model)}}
    end = 0
    for name, array in little.items():
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": code[array.dtype], "shape": [len(array)], "data_offsets": [begin, end]}
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    if len(raw) > _MAX_HEADER:
        raise ValueError(f"the names of columns and categories take {len(raw)} bytes, more than {_MAX_HEADER}")
    raw = struct.pack("<Q", len(raw)) + raw
    at = 8 + len(_BEFORE_CHECKSUM)
    return raw[:at] + _whole_digest(raw, data).encode() + raw[at + len(_NO_CHECKSUM) :] + data


def unpack(file: BinaryIO, size: int) -> tuple[dict[str, NDArray[Any]], dict[str, Any], int]:
    """Return the arrays, the JSON and the version of a file of `size` bytes; ValueError if it is damaged.

    The sizes of the arrays are checked against the size of the file before anything but the header is read. The
    meaning of arrays and JSON is checked by `layout`.
    """
    head = file.read(8)
    length = int.from_bytes(head, "little")
    beginning = file.read(len(_BEGINNING))
    if not is_container(head + beginning):
        raise ValueError(f"it is not a model saved by pgbm_plugin{_guess(head + beginning)}")
    if not len(_BEGINNING) < length <= min(_MAX_HEADER, size - 8):
        raise ValueError(f"it is cut off or damaged: {size} bytes, of which the header should take {length}")
    raw_header = beginning + file.read(length - len(beginning))
    header = _from_json(raw_header)
    about = _checked_metadata(header.pop("__metadata__") if isinstance(header, dict) else None)
    layout = {name: _entry(name, entry) for name, entry in header.items()}
    end = 8 + length
    for name, (dtype, n, begin) in layout.items():
        if begin != end - 8 - length:
            raise ValueError(f"array {name!r} overlaps another or leaves a gap")
        end += n * dtype.itemsize
    if end != size:
        raise ValueError(f"it is cut off or damaged: it has {size} bytes, and its arrays end at {end}")
    data, version = file.read(), int(about["version"])
    if about["sha256"] != (_whole_digest(head + raw_header, data) if version > 1 else _digest(about["model"], data)):
        raise ValueError("it is damaged: its checksum differs")
    model = _from_json(about["model"])
    if not isinstance(model, dict):
        raise ValueError("its header is damaged")
    arrays = {}
    for name, (dtype, n, begin) in layout.items():
        raw = np.frombuffer(data[begin : begin + n * dtype.itemsize], np.uint8 if dtype.kind == "b" else dtype)
        if dtype.kind == "b" and np.any(raw > 1):
            raise ValueError(f"array {name!r} holds bytes other than 0 and 1")
        arrays[name] = raw.astype(dtype.newbyteorder("="))
    return arrays, model, version


def _checked_metadata(about: Any) -> dict[str, str]:
    """Return our part of the header; refuse a version that cannot be read."""
    if not isinstance(about, dict) or not all(isinstance(value, str) for value in about.values()):
        raise ValueError("its header is damaged")
    version = about.get("version", "")
    if not (version.isascii() and version.isdigit() and len(version) < 9 and int(version) > 0):
        raise ValueError("its header is damaged: it has no version")
    if int(version) > VERSION:
        raise ValueError(
            f"it was written by {about.get('written_by', 'a later version'):.40}, in file version {version}; this "
            f"installation reads up to {VERSION}: upgrade it, pip install -U pgbm-plugin"
        )
    if about.keys() != {"format", "version", "written_by", "sha256", "model"}:
        raise ValueError("its header is damaged: it has missing or unknown entries")
    return about


def _entry(name: str, entry: Any) -> tuple[np.dtype[Any], int, int]:
    """Return type, length and first byte of an array."""
    damaged = ValueError(f"its header is damaged: the entry of array {name!r:.60}")
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise damaged
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    numbers = [*shape, *offsets] if isinstance(shape, list) and isinstance(offsets, list) else []
    if len(numbers) != 3 or len(offsets) != 2 or not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers):
        raise damaged
    if not isinstance(kind, str) or kind not in DTYPES or offsets[1] - offsets[0] != shape[0] * DTYPES[kind].itemsize:
        raise damaged
    return DTYPES[kind], shape[0], offsets[0]


def _whole_digest(beginning: bytes, data: bytes) -> str:
    """Return the checksum of a file of two parts, whatever checksum it has."""
    if not beginning[8:].startswith(_BEFORE_CHECKSUM):
        raise ValueError("its header is damaged: the checksum is not in its place")
    at = 8 + len(_BEFORE_CHECKSUM)
    digest = hashlib.sha256(beginning[:at] + _NO_CHECKSUM.encode() + beginning[at + len(_NO_CHECKSUM) :])
    digest.update(data)
    return digest.hexdigest()


def _digest(text: str, data: bytes) -> str:
    """Return the checksum of files of version 1."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    digest.update(data)
    return digest.hexdigest()


def _to_json(value: Any) -> str:
    """Return JSON that keeps every float exactly; NaN and infinities become {"float": "nan"} and the like."""
    return json.dumps(_plain(value), separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return {"float": str(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _from_json(text: bytes | str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its header is damaged: {error}"[:200]) from None


def _object(pairs: list[tuple[str, Any]]) -> Any:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("an entry comes twice")
    if entries.keys() == {"float"} and entries["float"] in ("nan", "inf", "-inf"):
        return float(entries["float"])
    return entries


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _guess(head: bytes) -> str:
    """Return the end of an error message: what else the file may be, and how to open it."""
    if booster_of_file(head) is not None:
        return ", but perhaps a booster's: wrap(path, X, y) reads it"
    if head.startswith(b"\x80"):
        return ", but perhaps a pickle: open it with pickle or joblib"
    return ""
