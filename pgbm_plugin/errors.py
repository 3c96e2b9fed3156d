"""The error and warning classes of the package, and its ways to warn and to say where an error is."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_PACKAGE = os.path.dirname(__file__) + os.sep


class UnsupportedModelError(ValueError):
    """Raised for a kind of model that no honest distribution can be given for; the message names it."""


class UntunedWarning(UserWarning):
    """Warns, once per model, that nothing has calibrated its spread: intervals are usually too narrow.

    Calibrate the model with ``wrap(booster, X, y, cv=5)``, with `tune` or with `conformalize`. If you set `rho` or
    `calibration` yourself, or load a model that was calibrated, there is no warning.
    """


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Put the name of a file or batch in front of the errors that are raised inside."""
    try:
        yield
    except UnsupportedModelError:
        raise
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}: {error}") from error


@contextmanager
def needing(message: str) -> Iterator[None]:
    """Say in the error what an import inside is needed for, and how to install it."""
    try:
        yield
    except ImportError as error:
        raise ImportError(message) from error


def warn(message: str, category: type[UserWarning] = UserWarning) -> None:
    """Emit a warning that points at the user's own line, however deep in the package it was found."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
