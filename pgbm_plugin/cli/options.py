"""Options that commands share, and how their values are read."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from typing import Any

from ..checks import interval_names, level_names
from ..device import check_device

PROGRAM = "pgbm-plugin"

Help = RawDescriptionHelpFormatter


def new_command(commands: Any, name: str, run: Callable[[Namespace], None], help: str, about: str) -> ArgumentParser:
    """A command with what all of them take; `about` is its description, a blank line, and examples."""
    description, _, examples = about.partition("\n\n")
    command: ArgumentParser = commands.add_parser(
        name, help=help, description=description, epilog=examples, formatter_class=Help
    )
    command.set_defaults(run=run, usage_error=command.error)
    command.add_argument("--debug", action="store_true", help="show where in the code an error came from")
    return command


def add_computing(command: ArgumentParser) -> None:
    """Where and how it is computed."""
    command.add_argument("--n-jobs", type=_jobs, metavar="N", help="threads (default: all cores)")
    command.add_argument("--device", type=_device, default="auto", help="auto, cpu, cuda or cuda:1 (default: auto)")
    command.add_argument("--quiet", action="store_true", help="print nothing but warnings and errors")


def add_output(command: ArgumentParser, metavar: str, help: str, required: bool = True) -> None:
    command.add_argument("-o", "--output", required=required, metavar=metavar, help=help)


def add_categorical(command: ArgumentParser) -> None:
    command.add_argument(
        "--categorical",
        type=names,
        metavar="COL,COL",
        help="all categorical columns, where LightGBM was trained with categories that are numbers; text is known",
    )


def shows_progress(args: Namespace) -> bool:
    """Whether someone sees a bar, and it can be drawn."""
    if args.quiet or sys.stderr is None or not sys.stderr.isatty():
        return False
    try:
        import tqdm  # noqa: F401
    except ImportError:
        return False
    return True


def names(text: str) -> list[str]:
    """Names separated by commas."""
    found = text.split(",")
    if not all(found):
        raise ArgumentTypeError(f"names must be separated by single commas, not {text!r}")
    return found


def families(text: str) -> list[str]:
    """Names of families separated by commas, perhaps with options, which may hold commas in parentheses."""
    return re.split(r",(?![^(]*\))", text)


def quantiles(text: str) -> tuple[float, ...]:
    """Levels separated by commas, or none."""
    return () if text == "none" else _levels(text, level_names)


def intervals(text: str) -> tuple[float, ...]:
    """Coverages separated by commas."""
    return _levels(text, interval_names)


def _levels(text: str, check: Callable[[Any], Any]) -> tuple[float, ...]:
    try:
        found = tuple(map(float, text.split(",")))
    except ValueError:
        raise ArgumentTypeError(f"levels must be numbers separated by commas, not {text!r}") from None
    _checked(check, found)
    return found


def _jobs(text: str) -> int:
    if not re.fullmatch(r"-?[1-9]\d*", text):
        raise ArgumentTypeError(f"it must be a number of threads, or -1 for all cores, not {text!r}")
    return int(text)


def _device(text: str) -> str:
    _checked(lambda device: check_device(device, here=False), text)
    return text


def _checked(check: Callable[[Any], Any], value: Any) -> None:
    try:
        check(value)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
