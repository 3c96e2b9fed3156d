"""Categorical columns of an estimator: scikit-learn encodes categories as numbers, and puts these columns first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import AnyArray
from ...errors import UnsupportedModelError
from .layout import refuse

# An estimator has at most 255 categories in a column, which it numbers; a set of them has this many bits.
_BITS = 256


@dataclass(frozen=True)
class Categories:
    """The categorical columns of an estimator, k of d.

    Attributes
    ----------
    column : (d,) int array
        The user's column behind each feature of the trees.
    values : mapping of int to tuple
        The values behind our codes, by the user's column.
    code : mapping of int to int array
        Our code of each of scikit-learn's numbers, by the user's column.
    """

    column: NDArray[np.int64]
    values: dict[int, tuple[Any, ...]]
    code: dict[int, NDArray[np.int64]]

    def sets(self, column: int, left: NDArray[np.uint32], known: NDArray[np.bool_]) -> NDArray[np.uint32]:
        """Return the (m, words) category sets of m splits on a column, in our codes.

        Parameters
        ----------
        column : int
            The user's column.
        left : (m, 8) uint32 array
            Bits of the categories that go left, in scikit-learn's numbers.
        known : (m,) bool array
            Splits whose set is that of the categories that go right.
        """
        code = self.code[column]
        bits = np.unpackbits(left.astype("<u4").view(np.uint8), axis=1, bitorder="little")[:, : len(code)]
        words = int(code.max(initial=0)) // 32 + 1
        members = np.zeros((len(left), 32 * words), np.uint8)
        members[:, code] = bits ^ known[:, None]
        return np.packbits(members, axis=1, bitorder="little").view("<u4").astype(np.uint32)


def read_categories(estimator: Any) -> Categories:
    """Return the categorical columns of a fitted estimator, which may have none."""
    count, mask = int(estimator.n_features_in_), estimator.is_categorical_
    if mask is None:
        return Categories(np.arange(count), {}, {})
    mask = np.asarray(mask, bool)
    columns = np.flatnonzero(mask)
    encoder = getattr(estimator._preprocessor, "named_transformers_", {}).get("encoder")
    held = getattr(encoder, "categories_", ())
    if len(mask) != count or len(held) != len(columns):
        refuse("_preprocessor does not encode the categorical columns")
    values: dict[int, tuple[Any, ...]] = {}
    code: dict[int, NDArray[np.int64]] = {}
    for j, categories in zip(columns.tolist(), held, strict=True):
        _check_numbered(estimator, len(code), _without_nan(categories))
        values[j], code[j] = _numbered(_without_nan(categories))
    return Categories(np.concatenate([columns, np.flatnonzero(~mask)]), values, code)


def _without_nan(categories: AnyArray) -> list[Any]:
    """Return the categories of a column but NaN, which the encoder lists last and the trees take for missing."""
    values: list[Any] = np.asarray(categories).tolist()
    return values[:-1] if values and isinstance(values[-1], float) and np.isnan(values[-1]) else values


def _check_numbered(estimator: Any, feature: int, values: list[Any]) -> None:
    """Check that the trees know the categories of a feature as 0, 1, 2, ..."""
    numbers = np.asarray(estimator._bin_mapper.bin_thresholds_[feature])
    if len(values) >= _BITS or not np.array_equal(numbers, np.arange(len(values))):
        refuse("the categories are not numbered 0, 1, 2, ...")


def _numbered(values: list[Any]) -> tuple[tuple[Any, ...], NDArray[np.int64]]:
    """Return the values behind our codes, and our codes of scikit-learn's numbers.

    Small whole numbers are their own codes. A model that is trained again on codes then has the codes of the first.
    """
    if not all(value is None or type(value) in (str, int, float, bool) for value in values):
        raise UnsupportedModelError(
            f"categories of type {type(values[0]).__name__} cannot be stored: make them strings or numbers"
        )
    whole = all(type(value) in (int, float) and 0 <= value < _BITS and value == int(value) for value in values)
    if not whole or not values:
        return tuple(values), np.arange(len(values))
    codes = np.array(values).astype(np.int64)
    return tuple(range(int(codes.max()) + 1)), codes
