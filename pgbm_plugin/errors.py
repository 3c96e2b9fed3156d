"""The error class of the package, and its way to warn."""

from __future__ import annotations

import os
import sys
import warnings

_PACKAGE = os.path.dirname(__file__) + os.sep


class UnsupportedModelError(ValueError):
    """Raised for a kind of model that no honest distribution can be given for; the message names it."""


def warn(message: str) -> None:
    """Emit a UserWarning that points at the user's own line, however deep in the package it was found."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)
