"""Files that are written in one step: places that are refused, and unfinished files of killed processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from pgbm_plugin import writing
from pgbm_plugin.writing import check_place, replacing, write_atomically

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="special files, signals and locks of POSIX")


def special_file(kind, path):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        os.chdir(path.parent)  # the name of a socket must be short
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    elif kind == "device":
        path.symlink_to("/dev/null")
    elif kind == "loop":
        path.symlink_to("other")
        (path.parent / "other").symlink_to(path.name)


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "loop"])
def test_only_regular_files_are_replaced(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "out"
    special_file(kind, path)
    before = os.lstat(path)
    for write in (check_place, lambda path: write_atomically(path, b"new")):
        with pytest.raises(ValueError, match=r"out' is a device, a pipe, a socket or a link .* regular file"):
            write(path)
    assert os.lstat(path) == before
    assert {p.name for p in tmp_path.iterdir()} <= {"out", "other"}


def test_a_place_that_changes_while_the_file_is_written(tmp_path):
    path = tmp_path / "out"

    def write():
        with replacing(path) as file:
            file.write(b"new")
            os.mkfifo(path)

    with pytest.raises(ValueError, match="a pipe"):
        write()
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_to_a_file_that_is_not_there_yet(tmp_path):
    (tmp_path / "link").symlink_to("new")
    write_atomically(tmp_path / "link", b"content")
    assert (tmp_path / "new").read_bytes() == b"content"
    assert (tmp_path / "link").is_symlink()


def unfinished(path):
    return sorted(p.name for p in path.parent.iterdir() if p.name.endswith(".part"))


WRITER = """
import sys, time
from pgbm_plugin.writing import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half")
    print("writing", flush=True)
    time.sleep(600)
"""


def test_files_of_killed_processes_are_swept(tmp_path):
    """And those of living processes are not."""
    path = tmp_path / "m.pgbm"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"writing\n"
            (left,) = unfinished(path)
            write_atomically(path, b"first")
            write_atomically(tmp_path / "m", b"another target")
            assert unfinished(path) == [left]
        finally:
            process.send_signal(signal.SIGTERM)
    assert unfinished(path) == [left]
    write_atomically(tmp_path / "m", b"another target")
    assert unfinished(path) == [left]
    write_atomically(path, b"second")
    assert unfinished(path) == []
    assert path.read_bytes() == b"second"


def test_files_of_other_machines_are_swept_when_they_are_old(tmp_path, monkeypatch):
    path = tmp_path / "m.pgbm"
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(writing, "_machine", lambda: "0123abcd")
        part, file = writing._open_part(path)
    file.close()  # as if locks were not seen from here
    write_atomically(path, b"new")
    assert unfinished(path) == [part.name]
    week_ago = time.time() - 7 * 24 * 3600 - 60
    os.utime(part, (week_ago, week_ago))
    own = tmp_path / ".m.pgbm.backup.part"
    own.touch()
    os.utime(own, (week_ago, week_ago))
    write_atomically(path, b"new")
    assert unfinished(path) == [own.name]


def test_a_new_file_that_is_swept_before_it_is_locked(tmp_path, monkeypatch):
    path, locked = tmp_path / "m.pgbm", []
    lock = writing.fcntl.flock

    def sweep_first(file, how):
        if not locked:
            locked.append(unfinished(path))
            (tmp_path / locked[0][0]).unlink()
        lock(file, how)

    monkeypatch.setattr(writing.fcntl, "flock", sweep_first)
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert unfinished(path) == []


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    """Files can be written, and unfinished ones stay, because nobody can tell whether their process is alive."""
    path = tmp_path / "m.pgbm"
    part, file = writing._open_part(path)
    file.close()

    def refuse(file, how):
        raise OSError("no locks available")

    monkeypatch.setattr(writing.fcntl, "flock", refuse)
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert unfinished(path) == [part.name]
