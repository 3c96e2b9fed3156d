"""Exceptions and warnings of the package."""

from __future__ import annotations

import os
import sys
import warnings

_PACKAGE = os.path.dirname(__file__) + os.sep


class UnsupportedModelError(ValueError):
    """The model is of a kind for which no honest distribution can be given; the message names it."""


def warn(message: str) -> None:
    """A UserWarning at the line that called the package, however deep inside the reason was found."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)
