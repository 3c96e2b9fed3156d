"""Labelled rows, as users pass them and after checks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray, Array
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec
from .columns import read_column, read_labels, read_weights
from .cuda_rows import read_rows_for
from .rows import Rows, some_rows


@dataclass(frozen=True)
class RawRows:
    """Labelled rows as the user passed them, not checked yet; None for missing columns."""

    X: Any  # table of features
    y: Any = None  # labels
    sample_weight: Any = None
    init_score: Any = None  # margins that rows start from (LightGBM's init_score, XGBoost's base_margin)

    def completed_by(self, other: RawRows) -> RawRows:
        """Return these rows, with the columns of `other` where these are None."""
        return RawRows(
            self.X,
            other.y if self.y is None else self.y,
            other.sample_weight if self.sample_weight is None else self.sample_weight,
            other.init_score if self.init_score is None else self.init_score,
        )


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Checked rows and the columns that belong to them; n rows."""

    rows: Rows  # features
    y: Array  # (n,) labels
    weight: Array | None  # (n,) weights, rounded as the booster rounds them
    init_score: Array | None  # (n,) margins that rows start from

    def __len__(self) -> int:
        return len(self.rows)

    def effective(self, lo: int, hi: int) -> int:
        """Return how many of the rows lo..hi count: all without weights, else those with a weight above 0."""
        return hi - lo if self.weight is None else int(np.count_nonzero(self.weight[lo:hi]))

    def sample(self, most: int) -> LabelledRows:
        """Return at most `most` of the rows, a random sample that is the same every time."""
        return self if len(self) <= most else self.take(some_rows(len(self), most))

    def take(self, index: NDArray[np.int64]) -> LabelledRows:
        """Return the rows with these numbers, which must be in rising order."""
        weight, init_score = (None if column is None else column[index] for column in (self.weight, self.init_score))
        return LabelledRows(self.rows.sample(index), self.y[index], weight, init_score)

    def on_margin_scale(self, spec: TrainingSpec) -> LabelledRows:
        """Return the rows with the labels that the derivatives of the loss see."""
        return replace(self, y=spec.margin_labels(self.y))

    def initial_margin(self, forest: Forest, spec: TrainingSpec, lo: int, hi: int) -> AnyArray:
        """Return the margins of rows lo..hi before the first tree, in the precision in which the booster sums."""
        if self.init_score is not None:
            return forest.held_starts(self.init_score[lo:hi]).astype(forest.leaf_value.dtype)
        return np.full(hi - lo, spec.start, forest.leaf_value.dtype)


def read_labelled(
    raw: RawRows, forest: Forest, spec: TrainingSpec, device: str = "cpu", *, part: bool = False, suffix: str = ""
) -> LabelledRows:
    """Check rows against the model, and their columns against the rows.

    Weights may all be 0 if the rows are a `part` of a larger table. `suffix` ends the names in errors ("_val").
    """
    rows = read_rows_for(raw.X, forest, device)
    if len(rows) == 0:
        raise ValueError("X has no rows")
    if raw.y is None:
        raise ValueError(f"the data has no labels; give y{suffix}")
    y = read_labels(f"y{suffix}", raw.y, len(rows))
    weight = read_weights(("weight" if part else "sample_weight") + suffix, raw.sample_weight, len(rows), part=part)
    init_score = read_column(f"init_score{suffix}", raw.init_score, len(rows))
    return LabelledRows(rows, y, spec.held(weight), init_score)
