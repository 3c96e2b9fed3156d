"""The form of CatBoost's callbacks, for `crps_callback`, which they cannot serve."""

from __future__ import annotations

from typing import Any

from ..booster import shows_no_trees


class CatBoostScoring:
    """Answers CatBoost's callback protocol, which has one argument, and hands others on."""

    @classmethod
    def register(cls) -> None:
        """Make the class a callback of the boosters that need it."""
        getattr(super(), "register", lambda: None)()

    def after_iteration(self, info: Any, *others: Any) -> Any:
        """Refuse CatBoost's training by name."""
        if others:
            return super().after_iteration(info, *others)  # type: ignore[misc]
        raise shows_no_trees("CatBoost", "crps_callback")
