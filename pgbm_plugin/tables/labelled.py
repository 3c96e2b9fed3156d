"""Labelled rows as users give them: checked tables, labels and weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..boosters import TrainingData, held_data, read_dataset
from ..device import read_rows_for
from ..leaves.moments import LabelledRows
from ..trees.forest import Forest
from .columns import read_column, read_weights


def read_labelled(
    found: TrainingData,
    forest: Forest,
    device: str,
    *,
    custom: bool = False,
    explicit: bool = False,
    part: bool = False,
) -> LabelledRows:
    """Check rows against the model, and the columns that belong to them against the rows.

    `custom` says that an objective is a plain function, which no weights are applied to; `explicit` that the user gave
    weights nonetheless; `part` that the rows are some of many, whose weights may all be 0.
    """
    rows = read_rows_for(found.X, forest, device)
    if found.y is None:
        raise ValueError("the data set has no labels; give y")
    label = read_column("y", found.y, len(rows))
    assert label is not None
    if custom and explicit:
        raise ValueError(
            "sample_weight has no effect with a custom objective, because neither booster applies it; multiply g "
            "and h by the weights in objective, if training did"
        )
    name = "weight" if part else "sample_weight"
    weight = None if custom else read_weights(name, found.sample_weight, len(rows), part=part)
    return LabelledRows(rows, label, as_held(weight), read_column("init_score", found.init_score, len(rows)))


def as_held(weight: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    """Weights in the float32 in which both boosters hold them."""
    return None if weight is None else weight.astype(np.float32).astype(np.float64)


def training_data(booster: Any, X: Any, y: Any, sample_weight: Any, init_score: Any) -> TrainingData:
    """The rows given, or found in a booster's own data set."""
    if X is not None:
        found = table_or_dataset(X, y, sample_weight, init_score)
        if found.X is X and y is None:
            raise TypeError("wrap(booster, X) needs labels: wrap(booster, X, y)")
        return found
    if y is not None:
        raise TypeError("wrap got y without X")
    return held_data(booster).replaced_by(y, sample_weight, init_score)


def table_or_dataset(X: Any, y: Any, sample_weight: Any, init_score: Any) -> TrainingData:
    """A table and what belongs to it, some of which an lgb.Dataset or xgb.DMatrix brings itself."""
    found = read_dataset(X)
    given = y, sample_weight, init_score
    return TrainingData(X, *given) if found is None else found.replaced_by(*given)
