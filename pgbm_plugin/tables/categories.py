"""Codes of categories: those of training, whatever the order of categories in a new table."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arrays import AnyArray, Array
from ..trees.forest import Features
from .rows import Rows

# Types of categories that a saved model can hold.
_PLAIN = (str, int, float, bool, type(None))

# Marks of values that have no code.
_UNSEEN, _OTHER_CODE = -2.0, -3.0


@dataclass(frozen=True)
class ColumnCodes:
    """Translates the categories of one column of a table into codes.

    Attributes
    ----------
    name : str
        The column, for errors.
    training : mapping of value to code, or None
        The codes of training, where they are known.
    own : bool
        Whether the booster takes a table's own codes as they are. They must then mean what they meant in training.
    unseen_is_missing : bool
        Whether a category that training did not see counts as missing. Otherwise it is an error.
    hash : callable or None
        The hashes by which the booster knows categories. They are then in the place of codes.
    unseen : float
        Code of a category that training did not see, where it counts as missing.
    """

    name: str
    training: Mapping[Any, int] | None
    own: bool
    unseen_is_missing: bool
    hash: Callable[[Sequence[Any]], AnyArray] | None = None
    unseen: float = math.nan

    def encode(self, values: Sequence[Any], index: AnyArray) -> Array:
        """Return the (n,) codes of rows whose values are ``values[index]``; NaN for missing ones (index -1 or NaN)."""
        if self.hash is not None:
            return self._hashed(values, index)
        own = np.arange(len(values), dtype=np.float64)
        if self.training is None:
            codes = own
        else:
            codes = np.array([self.training.get(value, _UNSEEN) for value in values], np.float64)
            if self.own:
                codes = np.where((codes == own) | (codes == _UNSEEN), codes, _OTHER_CODE)
        # scikit-learn makes null a category of its own, if training saw it as None
        missing = np.nan if self.training is None else self.training.get(None, np.nan)
        index = np.where(np.isnan(index) | (index < 0), len(values), index).astype(np.int64)
        out: Array = np.append(codes, missing)[index]
        if np.any(out < 0.0):
            self._refuse_others(values, index, out)
            out[out == _UNSEEN] = self.unseen
        return out

    def _hashed(self, values: Sequence[Any], index: AnyArray) -> Array:
        """Return the (n,) hashes of rows; refuse missing values."""
        assert self.hash is not None
        if np.any(np.isnan(index) | (index < 0)):
            raise ValueError(
                f"column {self.name!r} misses categories, which the booster refuses: give them a value of their own, "
                f"as in training"
            )
        try:
            hashes = self.hash(values).astype(np.float64)
        except ValueError as error:
            raise ValueError(f"column {self.name!r}: {error}") from error
        return hashes[np.asarray(index).astype(np.int64)]

    def _refuse_others(self, values: Sequence[Any], index: AnyArray, codes: Array) -> None:
        def shown(mark: float) -> str:
            return ", ".join(sorted({str(values[k]) for k in np.unique(index[codes == mark])})[:5])

        if np.any(codes == _OTHER_CODE):
            trained = list(self.training or ())
            listed = trained if len(trained) <= 10 else "those of the frame that was wrapped"
            raise ValueError(
                f"column {self.name!r} has other codes for {shown(_OTHER_CODE)} than the frame that was wrapped, and "
                f"the model stores codes in place of categories: give it the same categories in the same order, "
                f"X[{self.name!r}].cat.set_categories({listed})"
            )
        if not self.unseen_is_missing:
            raise ValueError(
                f"column {self.name!r} holds categories that training did not see: {shown(_UNSEEN)}; "
                f"map them to known ones or to missing"
            )


def column_codes(columns: Sequence[int], features: Features, name: Callable[[int], str]) -> dict[int, ColumnCodes]:
    """Return the codes of a table's categorical columns; refuse columns that are not categorical in both places.

    `name` returns the name of a column.
    """

    def listed(numbers: Sequence[int]) -> str:
        return ", ".join(repr(name(j)) for j in numbers) or "none"

    trained, own = features.category_columns, features.code_columns
    if trained is None:
        if len(columns) != len(features.categories):
            raise ValueError(
                f"X has {len(columns)} categorical columns ({listed(columns)}), the model was trained with "
                f"{len(features.categories)}; give the columns the dtypes that they had in training"
            )
        trained = tuple(columns)
    lost = [j for j in trained if j not in columns and j not in own and not features.numbers_are_values]
    if lost:
        raise ValueError(f"column {listed(lost)} was categorical in training but is not in X; give it dtype 'category'")
    extra = [j for j in columns if j not in trained and j not in own]
    if extra:
        raise ValueError(f"column {listed(extra)} is categorical in X but was not in training; give it a numeric dtype")
    stored = {
        j: {value: code for code, value in enumerate(values)}
        for j, values in zip(trained, features.categories, strict=True)
    }
    further = features.unseen_is_missing, features.category_hash
    return {j: ColumnCodes(name(j), stored.get(j), j in own, *further) for j in columns}


def distinct(column: Sequence[Any]) -> tuple[list[Any], Array]:
    """Return the distinct values of a column, and the number of each row's value; -1 for None."""
    number: dict[tuple[type, Any], int] = {}  # with the type, because True and 1.0 equal 1
    index = [-1 if value is None else number.setdefault((type(value), value), len(number)) for value in column]
    return [value for _, value in number], np.array(index, np.float64)


class CategoricalRows(Rows):
    """Rows of which some columns are categorical, with codes for them."""

    codes: dict[int, ColumnCodes]  # by column

    def marked(self) -> Rows:
        marked = copy.copy(self)
        marked.codes = {j: replace(codes, unseen=-math.inf) for j, codes in self.codes.items()}
        return marked

    def own_categories(self) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield (column, categories) where the booster takes the table's own codes, 0, 1, ... of these categories."""
        for j, codes in self.codes.items():
            values = self._categories(j) if codes.own else None
            if values is not None:
                yield j, values

    def own_codes(self) -> Iterator[tuple[str, int, Any]]:
        """Yield (column, code, value) of the categories whose values the model has not stored."""
        for j, values in self.own_categories():
            yield from ((self.codes[j].name, code, value) for code, value in enumerate(values) if value is not None)

    def _categories(self, j: int) -> Sequence[Any] | None:
        """Return the categories behind the codes 0, 1, ... of a column; None if they are not known."""
        return None


def with_seen_categories(features: Features, rows: Rows) -> Features:
    """Return the features with what the model does not store of its categories, read from the rows that were wrapped.

    Some models store the categories but not their columns, which any frame has. Others store only codes. What these
    mean in the first frame is what they must mean in later ones.
    """
    rows = rows.on_host()
    if not isinstance(rows, CategoricalRows) or not rows.codes:
        return features
    if features.category_columns is None:
        return replace(features, category_columns=tuple(rows.codes))
    stored = dict(zip(features.category_columns, features.categories, strict=True))
    for j, values in rows.own_categories():
        if j not in stored and all(isinstance(value, _PLAIN) for value in values):
            stored[j] = tuple(values)
    columns = tuple(sorted(stored))
    return replace(features, category_columns=columns, categories=tuple(stored[j] for j in columns))
