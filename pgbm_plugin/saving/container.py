"""One file of named arrays and a header: safetensors, which readers in many languages open.

Eight bytes with the length of a JSON text, that text, then the bytes of the arrays side by side. Nothing in it is code
and nothing is compressed: no array can be larger than the file, so that there are no bombs, and reading is a copy. A
zip would have names, sizes and checksums in two places each, which a hostile file can set against each other.

Of the header only "__metadata__" is ours: {"format", "version", "written_by", "sha256", "model"}. "model" is JSON
again, because safetensors allows nothing but strings here; the digest is that of "model" and of all arrays.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

FORMAT, VERSION = "pgbm_plugin", 1

# How every file begins, after the length.
_BEGINNING = b'{"__metadata__":{"format":"pgbm_plugin",'

# As in safetensors itself; names of columns and categories are all that is long in it.
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
    """Whether a file that begins with `head` is one of ours."""
    return head[8 : 8 + len(_BEGINNING)] == _BEGINNING


def pack(arrays: Mapping[str, NDArray[Any]], model: Mapping[str, Any], written_by: str) -> bytes:
    """Arrays of one axis, and what JSON can hold besides: numbers, strings, truth values, lists, None."""
    code = {dtype: name for name, dtype in DTYPES.items()}
    little = {name: array.astype(array.dtype.newbyteorder("<"), copy=False) for name, array in arrays.items()}
    # wide numbers first, so that each array is aligned
    little = dict(sorted(little.items(), key=lambda item: -item[1].itemsize))
    data, text = b"".join(array.tobytes() for array in little.values()), _to_json(model)
    about = {"format": FORMAT, "version": str(VERSION), "written_by": written_by}
    header: dict[str, Any] = {"__metadata__": {**about, "sha256": _digest(text, data), "model": text}}
    end = 0
    for name, array in little.items():
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": code[array.dtype], "shape": [len(array)], "data_offsets": [begin, end]}
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    if len(raw) > _MAX_HEADER:
        raise ValueError(f"the names of columns and categories take {len(raw)} bytes; {_MAX_HEADER} is the most")
    return struct.pack("<Q", len(raw)) + raw + data


def unpack(file: BinaryIO, size: int) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """What was packed in a file of so many bytes. ValueError if it is damaged; of what is in it nothing is known yet.

    Before more than the header is read, the arrays that it promises are compared with the size of the file.
    """
    head = file.read(8)
    length = int.from_bytes(head, "little")
    beginning = file.read(len(_BEGINNING))
    if not is_container(head + beginning):
        raise ValueError(f"it is not a model saved by pgbm_plugin{_guess(head + beginning)}")
    if not len(_BEGINNING) < length <= min(_MAX_HEADER, size - 8):
        raise ValueError(f"it is cut off or damaged: {size} bytes, of which the header should take {length}")
    header = _from_json(beginning + file.read(length - len(beginning)))
    about = _checked_metadata(header.pop("__metadata__") if isinstance(header, dict) else None)
    layout = {name: _entry(name, entry) for name, entry in header.items()}
    end = 8 + length
    for name, (dtype, n, begin) in layout.items():
        if begin != end - 8 - length:
            raise ValueError(f"array {name!r} overlaps another or leaves a gap")
        end += n * dtype.itemsize
    if end != size:
        raise ValueError(f"it is cut off or damaged: it has {size} bytes, and its arrays end at {end}")
    data = file.read()
    if _digest(about["model"], data) != about["sha256"]:
        raise ValueError("it is damaged: its checksum differs")
    model = _from_json(about["model"])
    if not isinstance(model, dict):
        raise ValueError("its header is damaged")
    arrays = {}
    for name, (dtype, n, begin) in layout.items():
        raw = np.frombuffer(data[begin : begin + n * dtype.itemsize], np.uint8 if dtype.kind == "b" else dtype)
        if dtype.kind == "b" and np.any(raw > 1):
            raise ValueError(f"array {name!r} holds other than truth values")
        arrays[name] = raw.astype(dtype.newbyteorder("="))
    return arrays, model


def _checked_metadata(about: Any) -> dict[str, str]:
    """Our part of the header, if it is of a version that can be read."""
    if not isinstance(about, dict) or not all(isinstance(value, str) for value in about.values()):
        raise ValueError("its header is damaged")
    version = about.get("version", "")
    if not (version.isascii() and version.isdigit() and len(version) < 9 and int(version) > 0):
        raise ValueError("its header is damaged: it has no version")
    if int(version) > VERSION:
        raise ValueError(
            f"it was written by {about.get('written_by', 'a later version'):.40}, in file version {version}; this one "
            f"reads up to {VERSION}: upgrade it, pip install -U pgbm-plugin"
        )
    if about.keys() != {"format", "version", "written_by", "sha256", "model"}:
        raise ValueError("its header is damaged: it lacks entries, or has others")
    return about


def _entry(name: str, entry: Any) -> tuple[np.dtype[Any], int, int]:
    """Type, length and first byte of an array."""
    damaged = ValueError(f"the header's entry of array {name!r:.60} is damaged")
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise damaged
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    numbers = [*shape, *offsets] if isinstance(shape, list) and isinstance(offsets, list) else []
    if len(numbers) != 3 or len(offsets) != 2 or not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers):
        raise damaged
    if not isinstance(kind, str) or kind not in DTYPES or offsets[1] - offsets[0] != shape[0] * DTYPES[kind].itemsize:
        raise damaged
    return DTYPES[kind], shape[0], offsets[0]


def _digest(text: str, data: bytes) -> str:
    found = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    found.update(data)
    return found.hexdigest()


def _to_json(value: Any) -> str:
    """JSON that keeps every float: its shortest digits give it back, and NaN and inf are {"float": "nan"}..."""
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
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an entry comes twice")
    if found.keys() == {"float"} and found["float"] in ("nan", "inf", "-inf"):
        return float(found["float"])
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _guess(head: bytes) -> str:
    """What else the file may be, with the way out."""
    from ..boosters.lightgbm import model as lightgbm
    from ..boosters.xgboost import model as xgboost

    if lightgbm.is_model_text(head) or xgboost.is_model_bytes(head):
        return ", but perhaps a booster's: wrap(path, X, y) reads those"
    if head.startswith(b"\x80"):
        return ", but perhaps a pickle: open it with pickle or joblib"
    return ""


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse, before the work, a path where no file can be."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{os.fspath(path)!r} is a directory; give the path of a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {str(target.parent)!r} to write {target.name!r} to")


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a whole file, see `replacing`."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file that takes the place of the one at `path` in one step, at the end; after an error that stays as it was.

    Whoever reads it finds the old content or the new, also after a crash.
    """
    target = Path(os.path.realpath(path))  # a link stays one
    part = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.part")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with suppress(OSError):
            part.chmod(target.stat().st_mode & 0o777)  # as the old file has it
        os.replace(part, target)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    if hasattr(os, "O_DIRECTORY"):  # the new name itself is on disk only once its directory is
        with suppress(OSError):
            directory = os.open(target.parent, os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
