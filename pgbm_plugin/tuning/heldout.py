"""Held-out rows: their labels, and whether they are held out at all."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..certificate import Certificate
from ..forest import Forest
from ..moments import LeafMoments
from ..propagate import are_wrapped_rows
from ..tables.columns import read_column
from ..tables.rows import Rows
from ..training import TrainingSpec


def held_out_labels(
    name: str,
    y_name: str,
    y: Any,
    rows: Rows,
    at_least: int,
    forest: Forest,
    spec: TrainingSpec,
    moments: LeafMoments,
    certificate: Certificate,
) -> NDArray[np.float64]:
    """(n,) checked labels for the method `name`; warns of rows that the moments were taken from."""
    if len(rows) < at_least:
        raise ValueError(f"{name} needs at least {at_least} rows, it got {len(rows)}")
    label = read_column(y_name, y, len(rows))
    assert label is not None
    if spec.objective is not None:
        spec.objective.check_labels(label)
    if are_wrapped_rows(forest, moments, rows) and certificate.status != "held-out":
        warnings.warn(
            "these are the rows that wrap saw: residuals of training rows are too small, and so will be the "
            f"spread; give {name} held-out rows",
            UserWarning,
            stacklevel=4,
        )
    return label
