"""`report`: one page of HTML that says how far a model's distributions can be trusted. Needs matplotlib."""

from __future__ import annotations

from .build import report

__all__ = ["report"]
