"""The Newton step of a leaf. Training stores it times the learning rate: -alpha soft(G, l1) / (H + lambda)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..trees.training_spec import TrainingSpec
from .moments import LeafMoments


def soft_threshold(g: Array, l1: Array | float) -> Array:
    """Return gradients after L1 regularisation: sign(g) max(|g| - l1, 0)."""
    return np.sign(g) * np.maximum(np.abs(g) - l1, 0.0)


def newton_weights(spec: TrainingSpec, moments: LeafMoments) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return the (L,) weights soft(G, l1) / (H + lambda), their denominators, and whether these are positive.

    The weights are not clipped to `max_step`. The denominator of an empty leaf, or one that is not positive, becomes 1.
    """
    denominator = moments.h_sum + spec.lambda_
    defined = (moments.mass > 0) & (denominator > 0)
    denominator = np.where(defined, denominator, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        return soft_threshold(moments.g_sum, spec.l1) / denominator, denominator, defined
