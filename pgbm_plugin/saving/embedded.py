"""Moments inside a booster's own model, where `embed` stores them and `wrap` finds them."""

from __future__ import annotations

import base64
from typing import Any

from ..boosters import read_attribute, read_model, write_attribute
from ..predict.state import ModelState
from ..trees.forest import Forest
from .model_bytes import from_bytes, to_bytes

# Name of the booster's attribute.
_NAME = "pgbm_plugin"


def write_embedded(booster: Any, state: ModelState) -> None:
    """Store moments and tuned settings in a live booster; refuse them if they belong to other trees."""
    content = to_bytes(state, trees=False)
    try:
        from_bytes(content, read_model(booster)[0])
    except ValueError as error:
        raise ValueError(f"this model cannot be embedded in this booster: {error}") from error
    write_attribute(booster, _NAME, base64.b64encode(content).decode())


def read_embedded(booster: Any, forest: Forest) -> ModelState | None:
    """Return the model that `embed` stored in a booster, with `forest` as its trees; None if there is none."""
    text = read_attribute(booster, _NAME)
    if text is None:
        return None
    try:
        return from_bytes(base64.b64decode(text, validate=True), forest)
    except ValueError as error:
        raise ValueError(
            f"cannot use the moments that are embedded in this model: {error}; call wrap(booster, X, y) instead"
        ) from error


def has_embedded(booster: Any) -> bool:
    """Tell whether a booster, or a booster's file, has moments that `embed` stored."""
    return read_attribute(booster, _NAME) is not None
