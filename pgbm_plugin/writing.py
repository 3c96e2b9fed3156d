"""Files that are complete or not there: written beside the old one, which they replace in one step."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse, before the work, a path where no file can be."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{os.fspath(path)!r} is a directory; give the path of a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {str(target.parent)!r} to write {target.name!r} to")


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a whole file in one step, see `replacing`."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that replaces the one at `path` in one step at the end; after an error, the old one stays.

    A reader finds the old content or the new one, even after a crash.
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
