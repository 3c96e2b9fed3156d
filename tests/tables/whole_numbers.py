"""Rows of small integers, whole or with gaps."""

from __future__ import annotations

import numpy as np


def integers():
    """Return small integers with zeros, which are the same numbers in every dtype, and labels."""
    rng = np.random.default_rng(8)
    X = rng.integers(-3, 4, (300, 4))
    return X, X[:, 0] + 0.5 * X[:, 1] ** 2 + rng.normal(size=300)


def with_gaps():
    """Return the integers in float64 with about a fifth of them NaN, and labels."""
    X, y = integers()
    X = X.astype(float)
    X[np.random.default_rng(9).random(X.shape) < 0.2] = np.nan
    return X, y
