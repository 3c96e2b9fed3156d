"""Options that commands share, and the functions that read their values."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from typing import Any

from ..calibration.folds import check_cv
from ..checks import interval_names, level_names
from ..device import check_device
from ..predict.correlation import check_names

PROGRAM = "pgbm-plugin"

Help = RawDescriptionHelpFormatter


def new_command(commands: Any, name: str, run: Callable[[Namespace], None], help: str, about: str) -> ArgumentParser:
    """Return a new command with the options of all commands; `about` is its description, a blank line, and examples."""
    description, _, examples = about.partition("\n\n")
    command: ArgumentParser = commands.add_parser(
        name, help=help, description=description, epilog=examples, formatter_class=Help
    )
    command.set_defaults(run=run, usage_error=command.error)
    command.add_argument("--debug", action="store_true", help="show where in the code an error came from")
    return command


def add_common(command: ArgumentParser, output: str, *, required: bool = True) -> None:
    """Add the options of all commands that compute; `output` is the help of -o."""
    command.add_argument("-o", "--output", required=required, metavar="FILE", help=output)
    command.add_argument(
        "--categorical",
        type=names,
        metavar="COL,COL",
        help="all categorical columns; only for LightGBM models with categories that are numbers",
    )
    command.add_argument("--n-jobs", type=_jobs, metavar="N", help="threads (default: all cores)")
    command.add_argument("--device", type=_device, default="auto", help="auto, cpu, cuda or cuda:1 (default: auto)")
    command.add_argument("--quiet", action="store_true", help="print nothing but warnings and errors")


def shows_progress(args: Namespace) -> bool:
    """Return whether to draw a progress bar: someone sees it, and tqdm is installed."""
    if args.quiet or sys.stderr is None or not sys.stderr.isatty():
        return False
    try:
        import tqdm  # noqa: F401
    except ImportError:
        return False
    return True


def names(text: str) -> list[str]:
    """Read names separated by commas."""
    parts = text.split(",")
    if not all(parts):
        raise ArgumentTypeError(f"names must be separated by single commas, not {text!r}")
    return parts


def level_columns(text: str) -> dict[str, list[str]]:
    """Read levels separated by commas: columns joined by +, after a name and = if the level has another name."""
    levels: dict[str, list[str]] = {}
    for part in text.split(","):
        name, is_named, joined = part.rpartition("=")
        columns = joined.split("+")
        if not all(columns) or (is_named and not name):
            raise ArgumentTypeError(f"levels must look like day,shop=day+shop, not {text!r}")
        if (name or joined) in levels:
            raise ArgumentTypeError(f"the level {name or joined!r} comes twice")
        levels[name or joined] = columns
    try:
        check_names(levels)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    return levels


def families(text: str) -> list[str]:
    """Read families separated by commas; their options in parentheses may hold commas, too."""
    return re.split(r",(?![^(]*\))", text)


def folds(text: str) -> int:
    """Read a number of folds."""
    if not re.fullmatch(r"[1-9]\d*", text):
        raise ArgumentTypeError(f"must be a number of folds, not {text!r}")
    _check(check_cv, int(text))
    return int(text)


def quantiles(text: str) -> tuple[float, ...]:
    """Read levels separated by commas, or the word none."""
    return () if text == "none" else _levels(text, level_names)


def intervals(text: str) -> tuple[float, ...]:
    """Read coverages separated by commas."""
    return _levels(text, interval_names)


def _levels(text: str, check: Callable[[Any], Any]) -> tuple[float, ...]:
    try:
        levels = tuple(map(float, text.split(",")))
    except ValueError:
        raise ArgumentTypeError(f"levels must be numbers separated by commas, not {text!r}") from None
    _check(check, levels)
    return levels


def _jobs(text: str) -> int:
    if not re.fullmatch(r"-?[1-9]\d*", text):
        raise ArgumentTypeError(f"must be a number of threads, or -1 for all cores, not {text!r}")
    return int(text)


def _device(text: str) -> str:
    _check(lambda device: check_device(device, here=False), text)
    return text


def _check(check: Callable[[Any], Any], value: Any) -> None:
    """Call `check`, and turn its error into one that argparse shows."""
    try:
        check(value)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
