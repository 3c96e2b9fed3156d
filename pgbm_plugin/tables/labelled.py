"""Labelled rows: as users give them, and checked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arrays import AnyArray, Array
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec
from .columns import read_column, read_labels, read_weights
from .cuda_rows import read_rows_for
from .rows import Rows, some_rows


@dataclass(frozen=True)
class RawRows:
    """Labelled rows as someone gave them, in whatever kind of table; None for what was not given.

    Attributes
    ----------
    X : table
        The features.
    y, sample_weight, init_score : column
        Labels, weights, and the margins that rows start from (LightGBM's init_score, XGBoost's base_margin).
    """

    X: Any
    y: Any = None
    sample_weight: Any = None
    init_score: Any = None

    def completed_by(self, other: RawRows) -> RawRows:
        """Return these rows, with columns of `other` in the place of those that were not given."""
        return RawRows(
            self.X,
            other.y if self.y is None else self.y,
            other.sample_weight if self.sample_weight is None else self.sample_weight,
            other.init_score if self.init_score is None else self.init_score,
        )


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Checked rows and the columns that belong to them; n rows.

    Attributes
    ----------
    rows : Rows
        The features.
    y : (n,) float array
        Labels.
    weight, init_score : (n,) float array or None
        Weights, in the precision of the booster, and the margins that rows start from.
    """

    rows: Rows
    y: Array
    weight: Array | None
    init_score: Array | None

    def __len__(self) -> int:
        return len(self.rows)

    def sample(self, most: int) -> LabelledRows:
        """Return at most so many of the rows, drawn by chance, the same every time."""
        if len(self) <= most:
            return self
        index = some_rows(len(self), most)
        weight, init_score = (None if column is None else column[index] for column in (self.weight, self.init_score))
        return LabelledRows(self.rows.sample(index), self.y[index], weight, init_score)

    def on_margin_scale(self, spec: TrainingSpec) -> LabelledRows:
        """Return the rows with the labels that the derivatives of the loss see."""
        return replace(self, y=spec.margin_labels(self.y))

    def initial_margin(self, forest: Forest, spec: TrainingSpec, lo: int, hi: int) -> AnyArray:
        """Return the margins of rows lo..hi before the first tree, in the precision in which the booster sums."""
        if self.init_score is not None:
            return self.init_score[lo:hi].astype(forest.leaf_value.dtype)
        return np.full(hi - lo, spec.start, forest.leaf_value.dtype)


def read_labelled(
    raw: RawRows, forest: Forest, spec: TrainingSpec, device: str = "cpu", *, part: bool = False, suffix: str = ""
) -> LabelledRows:
    """Check rows against the model, and the columns that belong to them against the rows.

    Parameters
    ----------
    raw : RawRows
        What was given.
    forest, spec : Forest, TrainingSpec
        The model.
    device : str
        Where the rows are read, see `read_rows_for`.
    part : bool
        Whether the rows are a part of all rows, whose weights may all be 0.
    suffix : str
        What follows the names of the columns in errors, such as "_val".
    """
    rows = read_rows_for(raw.X, forest, device)
    if raw.y is None:
        raise ValueError(f"the data set has no labels; give y{suffix}")
    y = read_labels(f"y{suffix}", raw.y, len(rows))
    weight = read_weights(("weight" if part else "sample_weight") + suffix, raw.sample_weight, len(rows), part=part)
    init_score = read_column(f"init_score{suffix}", raw.init_score, len(rows))
    return LabelledRows(rows, y, spec.held(weight), init_score)
