"""Records: rows as dicts of plain values, such as those of a web service, read without any library of frames."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property, partial
from operator import itemgetter
from typing import Any

import numpy as np

from ..checks import missing_column
from ..errors import naming
from ..trees.forest import Features
from .categories import ColumnCodes, column_codes
from .hashed_rows import HashedRows
from .keys import is_missing
from .rows import Rows, matrix, read_rows

# Types of values that NumPy turns into the right floats by itself; None becomes NaN. An int may be too large.
_FLOATS = {float, bool, type(None)}


@dataclass(frozen=True, eq=False)
class RecordReader:
    """Reads dicts with a value for every column of a model. Threads may share it.

    Attributes
    ----------
    features : Features
        The columns of the model, with names.
    further : tuple of str
        Columns that a dict must have as well, which are read by `column`.
    """

    features: Features
    further: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.features.names is None:
            raise ValueError("the model was trained without names of columns: give NumPy rows in place of dicts")
        if self.features.categories and self.features.category_columns is None:
            raise ValueError(
                "the model stores categories, but not which columns they belong to: give wrap the frame of training"
            )

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return self.features.names or ()

    @cached_property
    def _expected(self) -> frozenset[str]:
        return frozenset((*self._names, *self.further))

    @cached_property
    def _values(self) -> Callable[[Any], tuple[Any, ...]]:
        """Return a function that returns the values of all features of a dict."""
        return itemgetter(*self._names) if len(self._names) > 1 else partial(_only_value, self._names[0])

    @cached_property
    def _codes(self) -> dict[int, ColumnCodes]:
        """Return the codes of the columns whose categories the model knows, by their values or only by their hashes."""
        features = self.features
        found = column_codes(features.category_columns or (), features, self._names.__getitem__)
        # a dict has no codes of its own, and hashes are no values
        return {
            j: replace(codes, own=False, training=None if features.hashed else codes.training)
            for j, codes in found.items()
        }

    @cached_property
    def _decoded(self) -> Features:
        return replace(self.features, numbers_are_values=False)

    def rows(self, records: Sequence[Any]) -> Rows:
        """Return the rows that a model reads; refuse dicts with other columns, and values of another type."""
        out = np.empty((len(records), self.features.count))
        for i, record in enumerate(records):
            try:
                out[i] = self._numbers(record)
            except (TypeError, ValueError):
                with naming("the row" if len(records) == 1 else f"row {i}"):
                    raise
        if self.features.hashed:
            return HashedRows(matrix(out, self.features.as_hashes()), self.features)
        return read_rows(out, self._decoded)

    def column(self, name: str, records: Sequence[Any]) -> list[Any]:
        """Return a further column of dicts that `rows` has read."""
        return [record[name] for record in records]

    def _numbers(self, record: Any) -> Sequence[Any]:
        """Return the number of each feature: categories are codes, or hashes; a missing value is None or NaN."""
        if not isinstance(record, Mapping):
            raise TypeError(f"a row must be a dict, not {type(record).__name__}")
        if len(record) != len(self._expected) or not self._expected <= record.keys():
            record = self._with_stored_names(record)
        values = self._values(record)
        if self._codes:
            coded = list(values)
            for j, codes in self._codes.items():
                coded[j] = _code(codes, values[j])
            values = tuple(coded)
        if _FLOATS.issuperset(map(type, values)):
            return values
        return [_number(name, value) for name, value in zip(self._names, values, strict=True)]

    def _with_stored_names(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a dict under the names that the booster stores, which may replace some characters."""
        stored: dict[str, Any] = {}
        for name, value in record.items():
            own = name if name in self._expected else self.features.stored_names([str(name)])[0]
            if own not in self._expected:
                near = missing_column(str(name), sorted(self._expected)).partition("; ")[2]
                raise ValueError(f"{name!r} is no column of the model" + (f"; {near}" if near else ""))
            if own in stored:
                raise ValueError(f"it has the column {own!r} under two names")
            stored[own] = value
        for name in (*self._names, *self.further):
            if name not in stored:
                raise ValueError(f"{missing_column(name, list(stored))}; for a missing value give None")
        return stored


def _only_value(name: str, record: Any) -> tuple[Any]:
    return (record[name],)


def _code(codes: ColumnCodes, value: Any) -> Any:
    """Return the code of a category, or its hash; NaN for a missing one."""
    known = codes.training or {}
    try:
        if value in known:
            return float(known[value])
        missing = is_missing(value)
        if not missing:
            _check_kind(codes.name, known, value)
        return float(codes.encode([value], np.array([-1.0 if missing else 0.0]))[0])
    except TypeError as error:
        raise TypeError(f"column {codes.name!r} holds categories, not {value!r:.60}: {error}") from None


def _check_kind(name: str, known: Mapping[Any, int], value: Any) -> None:
    """Refuse a number in a column of text, and text in a column of numbers."""
    is_text = isinstance(value, str)
    if known and not any(isinstance(category, str) is is_text for category in known if category is not None):
        other = "numbers" if is_text else "text"
        raise ValueError(f"column {name!r} held {other} in training, not {value!r:.60}: give a value as in training")


def _number(name: str, value: Any) -> float:
    """Return a value as a float; refuse text and whatever else is no real number."""
    if type(value) is float:
        return value
    if is_missing(value):
        return math.nan
    if not isinstance(value, (numbers.Real, Decimal, np.bool_)):
        raise TypeError(f"column {name!r} must be a number, not {value!r:.60}; for a missing value give None")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"column {name!r} is too large for a float: {value!s:.20}...") from None
