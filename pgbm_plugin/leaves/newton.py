"""The Newton step of a leaf, which training stores times the learning rate: -alpha soft(G, l1) / (H + lambda)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..trees.training_spec import TrainingSpec
from .moments import LeafMoments


def soft_threshold(g: Array, l1: Array | float) -> Array:
    """Return what L1 regularisation leaves of a gradient: sign(g) max(|g| - l1, 0)."""
    return np.sign(g) * np.maximum(np.abs(g) - l1, 0.0)


def newton_weights(spec: TrainingSpec, moments: LeafMoments) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return for each of the L leaves soft(G, l1) / (H + lambda), its denominator, and whether that is positive.

    The weight is not yet clipped to `max_step`. Where a leaf is empty or its denominator not positive, the latter is 1.
    """
    denominator = moments.h_sum + spec.lambda_
    defined = (moments.count > 0) & (denominator > 0)
    denominator = np.where(defined, denominator, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        return soft_threshold(moments.g_sum, spec.l1) / denominator, denominator, defined
