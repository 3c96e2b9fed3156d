"""Numbers of a model document, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

_LARGEST = float(np.finfo(np.float32).max)


def whole(number: Any) -> int:
    """Return a whole number; refuse anything else."""
    if type(number) is not int:
        raise ValueError(f"{number!r:.40} is not a whole number")
    return number


def finite_single(number: Any) -> float:
    """Return a number rounded to float32, in which CatBoost holds borders; refuse what that cannot hold."""
    value = float(number)
    if not abs(value) <= _LARGEST:
        raise ValueError(f"a border is {value}")
    return float(np.float32(value))
