"""The command line `pgbm-plugin`; each of its commands is a file here, with `add` (its options) and `run`."""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
import warnings
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..interrupt import end_quietly, is_command
from ..version import __version__
from . import inspect, observe, predict, report, tune, wrap
from .options import PROGRAM, Help

_COMMANDS = (wrap, tune, predict, observe, inspect, report)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code: 0, 1 after an error, 2 for wrong usage, 130 after Ctrl-C."""
    try:
        with _raising_interrupts():
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="backslashreplace")  # names may hold letters that the terminal lacks
            try:
                return _run(argv)
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has stopped, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        if is_command():
            end_quietly()  # Python itself may end with another code, if Ctrl-C came while a package was imported
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return 130


def parser() -> ArgumentParser:
    """Return the parser of all commands; they import what they need only when they run."""
    out = ArgumentParser(
        PROGRAM,
        formatter_class=Help,
        description="Predictive distributions from trained LightGBM and XGBoost models.",
        epilog=f"""\
examples:
  {PROGRAM} wrap model.txt --data train.parquet --label y -o model.pgbm
  {PROGRAM} tune model.pgbm --data val.parquet --label y
  {PROGRAM} predict model.pgbm new.parquet -o out.parquet

{PROGRAM} COMMAND --help explains each command. Data is Parquet or CSV.""",
    )
    out.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = out.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add(commands)
    return out


def _run(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    try:
        with _one_line_warnings():
            args.run(args)
    except BrokenPipeError:
        raise
    except Exception as error:
        if args.debug:
            traceback.print_exc()
        print(f"{PROGRAM}: error: {_sentence(error)}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def _raising_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt inside, so that unfinished files are deleted, instead of ending at once."""
    at_once = signal.getsignal(signal.SIGINT) is end_quietly
    try:
        if at_once:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    finally:
        if at_once:
            signal.signal(signal.SIGINT, end_quietly)


def _sentence(error: Exception) -> str:
    """Return an error as one line."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename!r}: {error.strerror}"
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return f"out of memory {text}".strip()
    expected = isinstance(error, (ValueError, TypeError, OSError, ImportError, NotImplementedError))
    return text if expected and text else f"{type(error).__name__} {text} (--debug shows where)"


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Print each warning inside as one line, and only once."""
    seen: set[str] = set()

    def show(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        text = " ".join(str(message).split())
        if text not in seen:
            print(f"{PROGRAM}: warning: {text}", file=sys.stderr)
        seen.add(text)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of other packages are for programmers
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield
