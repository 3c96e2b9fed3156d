"""ServedModel: a prepared call for services, from rows as dicts to plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..tables.columns import read_column
from ..tables.records import RecordReader
from .predictions import Summary, check_variance_known, predict_distributions, read_unlabelled
from .state import ModelState

Prediction = dict[str, float]
"""The numbers of one row: mean, std, quantiles such as q05, ends such as lower90 and upper90."""


@dataclass(frozen=True, eq=False, repr=False)
class ServedModel:
    """Predicts rows as they arrive in a service. Made by `ProbabilisticModel.serve`; threads may share it.

    Call it with one row, as a dict or as a NumPy array of one dimension, for a dict of plain floats: mean, which is the
    prediction, std, quantiles such as q05, ends of intervals such as lower90 and upper90. Call it with a list of dicts,
    or with a NumPy matrix, for a list of such dicts.

    A dict needs a value for every column of the model, by name, and no others. None and NaN are missing values.
    Categories are given as in training, and a category that training did not see counts as the booster counts it.
    NumPy rows are read as by `predict`. The numbers have the bits of `predict_frame`.
    """

    state: ModelState
    summary: Summary
    init_score: str | None
    groups: tuple[str, ...]
    n_jobs: int | None
    _told: dict[str, Any] = field(default_factory=dict)  # warnings that were given

    def __post_init__(self) -> None:
        check_variance_known(self.state)
        self.state.chosen.checked_family(None, None, self.state.support)
        self.state.chosen.checked_groups(None, self.groups or None)

    def __call__(self, rows: Any) -> Any:
        """Return the prediction of a row, or a list of predictions."""
        if isinstance(rows, Mapping):
            return self._of_records([rows])[0]
        if isinstance(rows, np.ndarray):
            return self._of_matrix(rows.reshape(1, -1))[0] if rows.ndim == 1 else self._of_matrix(rows)
        if isinstance(rows, (list, tuple)):
            return self._of_records(rows)
        raise TypeError(
            f"give a dict, a list of dicts or a NumPy array, not {type(rows).__name__}; predict_frame takes frames"
        )

    def __repr__(self) -> str:
        return f"<ServedModel of {', '.join(self.summary.names)}>"

    @cached_property
    def _reader(self) -> RecordReader:
        """Return the reader of dicts, which NumPy rows do not need."""
        steps = self.state.surroundings.described_steps
        if steps:
            raise TypeError(f"dicts cannot pass through {steps} of a pipeline: give NumPy rows, or use predict_frame")
        further = (*self.groups, *(() if self.init_score is None else (self.init_score,)))
        return RecordReader(self.state.forest.features, further)

    def _of_records(self, records: Any) -> list[Prediction]:
        reader = self._reader
        rows, start, keys = reader.rows(records), None, None
        if self.init_score is not None:
            start = read_column(self.init_score, reader.column(self.init_score, records), len(records))
        if self.groups:
            keys = tuple(reader.column(name, records) for name in self.groups)
        return self._predict(rows, start, keys)

    def _of_matrix(self, X: Any) -> list[Prediction]:
        if self.groups or self.init_score is not None:
            raise TypeError("NumPy rows have no columns for groups or init_score: give dicts")
        return self._predict(*read_unlabelled(self.state, X, None, "cpu"), None)

    def _predict(self, rows: Any, init_score: Any, keys: Any) -> list[Prediction]:
        state = self.state
        keyed = state.chosen.checked_groups(None, keys)
        bins = None if keyed is None else keyed.bins_of_keys(keys, len(rows), self._told)
        found = predict_distributions(state, rows, init_score, None, self.n_jobs, bins=bins)
        columns = self.summary(*found)
        table = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in table]
