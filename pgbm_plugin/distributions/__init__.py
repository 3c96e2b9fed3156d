"""Predictive distributions: one family a file."""

from __future__ import annotations

from .base import Distribution
from .normal import Normal

FAMILIES: dict[str, type[Distribution]] = {family.name: family for family in (Normal,)}

__all__ = ["FAMILIES", "Distribution", "Normal", "family"]


def family(name: str) -> type[Distribution]:
    """The family of a name."""
    if name not in FAMILIES:
        raise ValueError(f"unknown distribution {name!r}; known: {', '.join(sorted(FAMILIES))}")
    return FAMILIES[name]
