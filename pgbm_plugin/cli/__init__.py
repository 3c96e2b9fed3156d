"""The command `pgbm-plugin`: a file here for each of its own commands, with what it takes and what it does."""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..version import __version__
from . import inspect, predict, report, tune, wrap
from .options import PROGRAM, Help

_COMMANDS = (wrap, tune, predict, inspect, report)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, 1 after an error (2 if the usage is wrong), 130 after Ctrl-C."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of columns and files, on terminals that lack a letter
    try:
        try:
            return _run(argv)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def parser() -> ArgumentParser:
    """All commands; built without importing what they need."""
    out = ArgumentParser(
        PROGRAM,
        formatter_class=Help,
        description="Predictive distributions from trained LightGBM and XGBoost models.",
        epilog=f"""\
examples:
  {PROGRAM} wrap model.txt --data train.parquet --label y -o model.pgbm
  {PROGRAM} tune model.pgbm --data val.parquet --label y
  {PROGRAM} predict model.pgbm new.parquet -o out.parquet

{PROGRAM} COMMAND --help says more of each. Data is Parquet or CSV.""",
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
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if args.debug:
            traceback.print_exc()
        print(f"{PROGRAM}: error: {_sentence(error)}", file=sys.stderr)
        return 1
    return 0


def _sentence(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename!r}: {error.strerror}"
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return f"out of memory {text}".strip()
    expected = isinstance(error, (ValueError, TypeError, OSError, ImportError, NotImplementedError))
    return text if expected and text else f"{type(error).__name__} {text} (--debug shows where)"


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Inside, each warning is one line, and comes once."""
    seen: set[str] = set()

    def show(message: Warning | str, *where: Any, **besides: Any) -> None:
        text = " ".join(str(message).split())
        if text not in seen:
            print(f"{PROGRAM}: warning: {text}", file=sys.stderr)
        seen.add(text)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of other packages are for programmers
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield
