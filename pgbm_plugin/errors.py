"""Exceptions of the package."""

from __future__ import annotations


class UnsupportedModelError(ValueError):
    """The model is of a kind for which no honest distribution can be given; the message names it."""
