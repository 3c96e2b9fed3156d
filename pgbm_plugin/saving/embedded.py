"""Moments inside a booster's own model: what `embed` stores there, and `wrap` finds."""

from __future__ import annotations

import base64
from typing import Any

from ..boosters import read_attribute, read_model, write_attribute
from ..predict.state import ModelState
from ..trees.forest import Forest
from .model_bytes import from_bytes, to_bytes

# The attribute's name in the booster.
_NAME = "pgbm_plugin"


def write_embedded(booster: Any, state: ModelState) -> None:
    """Store moments and what was chosen in a live model; refuse those of other trees."""
    content = to_bytes(state, trees=False)
    try:
        from_bytes(content, read_model(booster)[0])
    except ValueError as error:
        raise ValueError(f"this model cannot be embedded in this booster: {error}") from error
    write_attribute(booster, _NAME, base64.b64encode(content).decode())


def read_embedded(booster: Any, forest: Forest) -> ModelState | None:
    """Return what a booster brings, around the trees that were read from it; None if it brings nothing."""
    text = read_attribute(booster, _NAME)
    if text is None:
        return None
    try:
        return from_bytes(base64.b64decode(text, validate=True), forest)
    except ValueError as error:
        raise ValueError(
            f"cannot use the moments that are embedded in this model: {error}; call wrap(booster, X, y)"
        ) from error


def has_embedded(booster: Any) -> bool:
    """Tell whether a booster, or the file of one, brings what `embed` stores."""
    return read_attribute(booster, _NAME) is not None
