"""Atomic writing of files: a new file is written beside the old one, and replaces it in one step."""

from __future__ import annotations

import os
import platform
import re
import secrets
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows, which refuses to delete a file that a process has open
    fcntl = None  # type: ignore[assignment]

# Seconds after which an unfinished file of another machine counts as abandoned. A process at work changes its file.
_ABANDONED = 7 * 24 * 3600.0


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse a path that no file can be written to, before any long work."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{os.fspath(path)!r} is a directory: give the path of a file in it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {str(target.parent)!r} to write {target.name!r} to")
    # `realpath` has followed all links, except those that lead back to themselves
    if os.path.lexists(target) and not stat.S_ISREG(target.lstat().st_mode):
        raise ValueError(
            f"{os.fspath(path)!r} is a device, a pipe, a socket or a link to itself, which the new file would replace: "
            f"give the path of a regular file"
        )


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file in one step, see `replacing`."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that replaces the one at `path` in one step at the end; after an error, the old file stays.

    A reader always finds complete content, old or new, even after a crash. The unfinished files that killed processes
    left beside the target are deleted.
    """
    check_place(path)
    target = Path(os.path.realpath(path))  # a symbolic link stays a link
    _sweep(target)
    part, file = _open_part(target)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            with suppress(OSError):
                part.chmod(target.stat().st_mode & 0o777)  # keeps the permissions of the old file
            check_place(target)
            if fcntl is None:
                file.close()  # Windows does not rename a file that is open; elsewhere the lock is held until the end
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


def _open_part(target: Path) -> tuple[Path, BinaryIO]:
    """Create the unfinished file beside the target, and lock it as long as it is open."""
    while True:
        part = target.with_name(f"{_prefix(target)}{_machine()}-{secrets.token_hex(6)}.part")
        file = part.open("xb")
        if fcntl is not None:
            with suppress(OSError):  # some file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX)
        if part.exists():
            return part, file
        file.close()  # another process swept it before it was locked


def _sweep(target: Path) -> None:
    """Delete unfinished files of this target whose process has died."""
    name = re.compile(re.escape(_prefix(target)) + r"([0-9a-f]{8})-[0-9a-f]{12}\.part")
    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            found = name.fullmatch(entry.name)
            if found and entry.is_file(follow_symlinks=False):
                with suppress(OSError):
                    _delete_abandoned(entry, of_this_machine=found[1] == _machine())


def _delete_abandoned(entry: os.DirEntry[str], of_this_machine: bool) -> None:
    """Delete an unfinished file if no process writes it; raise OSError if one does, or if nobody can tell.

    A process holds a lock until it dies, also in a container. On a shared file system, processes of other machines may
    not see the lock, so their files must be old as well.
    """
    if not of_this_machine and time.time() - entry.stat().st_mtime < _ABANDONED:
        return
    if fcntl is None:
        os.unlink(entry.path)
        return
    file = os.open(entry.path, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(entry.path)
    finally:
        os.close(file)


def _prefix(target: Path) -> str:
    return f".{target.name[:100]}."


@cache
def _machine() -> str:
    """Return eight digits for this machine since it was started: all of its containers see the same locks."""
    try:
        identity = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        identity = platform.node().encode()
    return f"{zlib.crc32(identity):08x}"
