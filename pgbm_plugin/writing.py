"""Atomic writing of files: a new file is written beside the old one, and replaces it in one step."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse a path that no file can be written to, before any long work."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{os.fspath(path)!r} is a directory: give the path of a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {str(target.parent)!r} to write {target.name!r} to")


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file in one step, see `replacing`."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that replaces the one at `path` in one step at the end; after an error, the old file stays.

    A reader always finds complete content, old or new, even after a crash.
    """
    target = Path(os.path.realpath(path))  # a symbolic link stays a link
    part = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.part")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with suppress(OSError):
            part.chmod(target.stat().st_mode & 0o777)  # keeps the permissions of the old file
        os.replace(part, target)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    if hasattr(os, "O_DIRECTORY"):  # after a crash, the new name is there only if its directory was written
        with suppress(OSError):
            directory = os.open(target.parent, os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
