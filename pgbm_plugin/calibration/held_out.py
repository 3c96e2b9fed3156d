"""Held-out rows: their labels, and whether they are held out, and meant for this model, at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import warn
from ..leaves.weights import are_wrapped_rows
from ..tables.columns import read_column
from ..tables.rows import Rows

if TYPE_CHECKING:
    from ..predictor import Predictor

_ENOUGH = 20
"""Fewer rows may be off by chance."""


def held_out_labels(model: Predictor, name: str, y_name: str, y: Any, rows: Rows, at_least: int) -> NDArray[np.float64]:
    """(n,) checked labels for the method `name`; warns of rows that the model's moments were taken from."""
    if len(rows) < at_least:
        raise ValueError(f"{name} needs at least {at_least} rows, it got {len(rows)}")
    label = read_column(y_name, y, len(rows))
    assert label is not None
    if model.spec.objective is not None:
        model.spec.objective.check_labels(label)
    if model.certificate.status != "held-out" and are_wrapped_rows(model.forest, model.moments, rows):
        warn(
            "these are the rows that wrap saw: residuals of training rows are too small, and so will be the "
            f"spread; give {name} held-out rows",
        )
    return label


def check_aligned(name: str, X: Any, y: Any) -> None:
    """Warns of labels whose index has the rows of X in another order: rows are taken by their place."""
    index, of_labels = getattr(X, "index", None), getattr(y, "index", None)
    if index is None or of_labels is None or callable(index) or callable(of_labels) or len(index) != len(of_labels):
        return
    if not index.equals(of_labels) and index.is_unique and set(index) == set(of_labels):
        warn(f"{name}: the index of y has the rows of X in another order, and is not looked at; give y.loc[X.index]")


def check_centred(name: str, y: NDArray[np.float64], prediction: NDArray[np.float64]) -> None:
    """Warns where outcomes are off by more than they scatter: a spread around the wrong place is of no use."""
    residual = y - prediction
    off, scatter = float(residual.mean()), float(residual.std())
    if abs(off) > max(scatter, 1e-6 * float(np.abs(y).max())) and len(y) >= _ENOUGH:
        warn(
            f"the {len(y)} outcomes that {name} got are {off:+.3g} off the predictions on average, with a scatter of "
            f"only {scatter:.3g}: are they in the unit of training? If it had an init_score (base_margin), give "
            f"init_score=",
        )
