"""Codes of categories that a table holds as numbers, for boosters that look the numbers up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray, Array
from ..trees.forest import Features


@dataclass(frozen=True)
class NumberCodes:
    """Translates the numbers of one categorical column into codes.

    Attributes
    ----------
    value : (k,) float array
        The categories of training, sorted.
    code : (k,) float array
        Their codes.
    unseen : float
        Code of a number that training did not see. NaN: it counts as missing.
    """

    value: Array
    code: Array
    unseen: float = math.nan

    def encode(self, numbers: AnyArray) -> Array:
        """Return the codes of numbers; NaN for missing ones."""
        at = np.minimum(np.searchsorted(self.value, numbers), len(self.value) - 1)
        unseen = self.unseen if math.isnan(self.unseen) else np.where(np.isnan(numbers), np.nan, self.unseen)
        return np.where(self.value[at] == numbers, self.code[at], unseen)


def number_codes(columns: Iterable[int], features: Features) -> dict[int, NumberCodes]:
    """Return the codes of those of the columns that are categorical in the model and hold numbers in a table."""
    if not features.numbers_are_values or not features.categories:
        return {}
    held = dict(zip(features.category_columns or (), features.categories, strict=True))
    return {j: _codes_of(j, held[j], features) for j in columns if j in held}


def with_marks(codes: Mapping[int, NumberCodes]) -> dict[int, NumberCodes]:
    """Return codes with -inf for numbers that training did not see."""
    return {j: replace(column, unseen=-math.inf) for j, column in codes.items()}


def hash_codes(features: Features) -> dict[int, NumberCodes]:
    """Return the codes of the categorical columns of a model that knows categories by their hashes."""
    held = zip(features.category_columns or (), features.categories, strict=True)
    return {j: _sorted_codes(hashes) for j, hashes in held if hashes}


def _codes_of(j: int, values: tuple[object, ...], features: Features) -> NumberCodes:
    if not values or not all(isinstance(value, (int, float)) for value in values):
        name = f"column {j}" if features.names is None else f"column {features.names[j]!r}"
        raise ValueError(
            f"{name} holds numbers, but in training it held {_shown(values)}: give a frame in which it has dtype "
            f"'category'"
        )
    return _sorted_codes(values)


def _sorted_codes(values: tuple[object, ...]) -> NumberCodes:
    numbers = np.array(values, np.float64)
    order = np.argsort(numbers)
    return NumberCodes(numbers[order], order.astype(np.float64))


def _shown(values: tuple[object, ...]) -> str:
    return f"categories such as {values[0]!r:.40}" if values else "no category"


def with_codes(block: AnyArray, codes: Mapping[int, NumberCodes], columns: NDArray[np.int64] | None = None) -> AnyArray:
    """Return a copy of a matrix of these columns, or of all, in which categories are codes."""
    block = block.astype(np.float64)
    for i, j in enumerate(range(block.shape[1]) if columns is None else columns.tolist()):
        if j in codes:
            block[:, i] = codes[j].encode(block[:, i])
    return block
