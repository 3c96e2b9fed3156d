"""The rows that an estimator held back to stop early, found again from its seed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def training_rows(estimator: Any, n: int) -> NDArray[np.int64] | None:
    """Return which of the n rows given to `fit` the trees were grown on; None for all of them, or for other rows."""
    grown_on, share = int(estimator._predictors[0][0].nodes["count"][0]), estimator.validation_fraction
    if not estimator.do_early_stopping_ or share is None or n <= grown_on:
        return None
    from sklearn.model_selection import train_test_split

    try:
        rows, _ = train_test_split(np.arange(n), test_size=share, random_state=estimator._random_seed)
    except ValueError:  # so few rows that nothing can be held back
        return None
    return np.sort(rows) if len(rows) == grown_on else None
