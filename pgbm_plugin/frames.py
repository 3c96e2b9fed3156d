"""Data frames as rows: pandas, polars and PyArrow, with names to check and categories to encode."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .forest import Features
from .rows import Rows, check_count


class Frame(Rows):
    """A data frame: named columns, some of them categorical."""

    def __init__(self, frame: Any, features: Features):
        super().__init__(features)
        _check_names([str(name) for name in self._names(frame)], features)
        self.frame, self.n = frame, len(frame)
        categorical = [j for j in range(features.count) if self._is_categorical(j)]
        self.codes = {j: _code_of(values) for j, values in self._category_values(categorical).items()}

    def block(self, lo: int, hi: int) -> NDArray[Any]:
        # one column after the other is written, so they should be contiguous
        out = np.empty((hi - lo, self.features.count), np.float64, order="F")
        for j in range(self.features.count):
            if j in self.codes:
                values, index = self._dictionary(j, lo, hi)
                out[:, j] = _encode(values, index, self.codes[j], self._name(j), self.features)
            else:
                out[:, j] = self._numbers(j, lo, hi)
        return out

    def _category_values(self, columns: list[int]) -> dict[int, Sequence[Any]]:
        """Column -> the training categories, for the frame's categorical columns."""
        known, where = self.features.categories, self.features.category_columns
        if where is None:
            if len(columns) != len(known):
                raise ValueError(
                    f"X has {len(columns)} categorical columns ({self._list(columns)}), the model was trained with "
                    f"{len(known)}; give the columns the dtypes that they had in training"
                )
            return dict(zip(columns, known, strict=True))
        lost = [j for j in where if j not in columns]
        if lost:
            raise ValueError(
                f"column {self._list(lost)} was categorical in training and is not in X; give it dtype 'category'"
            )
        # a model without stored categories was trained on codes: the frame's own are used
        extra = [j for j in columns if j not in where]
        if where and extra:
            raise ValueError(f"column {self._list(extra)} is categorical in X and was not in training")
        return {**dict(zip(where, known, strict=True)), **{j: self._own_categories(j) for j in extra}}

    def _list(self, columns: list[int]) -> str:
        return ", ".join(repr(self._name(j)) for j in columns) or "none"

    def _bad_column(self, j: int, kind: Any) -> ValueError:
        return ValueError(f"column {self._name(j)!r} has type {kind}; encode it as numbers or as a categorical column")

    @staticmethod
    @abstractmethod
    def _names(frame: Any) -> Sequence[Any]: ...

    @abstractmethod
    def _name(self, j: int) -> str: ...

    @abstractmethod
    def _is_categorical(self, j: int) -> bool: ...

    @abstractmethod
    def _own_categories(self, j: int) -> Sequence[Any]: ...

    @abstractmethod
    def _dictionary(self, j: int, lo: int, hi: int) -> tuple[Sequence[Any], NDArray[Any]]:
        """A categorical column as its distinct values and, per row, which one it is (-1 or NaN for none)."""

    @abstractmethod
    def _numbers(self, j: int, lo: int, hi: int) -> NDArray[Any]:
        """A numeric column."""


class PandasRows(Frame):
    @staticmethod
    def _names(frame: Any) -> Sequence[Any]:
        return list(frame.columns)

    def _name(self, j: int) -> str:
        return str(self.frame.columns[j])

    def _is_categorical(self, j: int) -> bool:
        return type(self.frame.dtypes.iloc[j]).__name__ == "CategoricalDtype"

    def _own_categories(self, j: int) -> Sequence[Any]:
        return self.frame.iloc[:, j].cat.categories.tolist()

    def _dictionary(self, j: int, lo: int, hi: int) -> tuple[Sequence[Any], NDArray[Any]]:
        column = self.frame.iloc[lo:hi, j].cat
        return column.categories.tolist(), column.codes.to_numpy()

    def _numbers(self, j: int, lo: int, hi: int) -> NDArray[Any]:
        column = self.frame.iloc[lo:hi, j]
        if getattr(column.dtype, "kind", "O") not in "fiub":
            raise self._bad_column(j, column.dtype)
        return column.to_numpy(dtype=np.float64, na_value=np.nan)


class PolarsRows(Frame):
    @staticmethod
    def _names(frame: Any) -> Sequence[Any]:
        return frame.columns

    def _name(self, j: int) -> str:
        return self.frame.columns[j]

    def _is_categorical(self, j: int) -> bool:
        return type(self.frame.dtypes[j]).__name__ in ("Categorical", "Enum")

    def _own_categories(self, j: int) -> Sequence[Any]:
        return self.frame.to_series(j).cat.get_categories().to_list()

    def _dictionary(self, j: int, lo: int, hi: int) -> tuple[Sequence[Any], NDArray[Any]]:
        column = self.frame.to_series(j)
        index = column.slice(lo, hi - lo).to_physical().to_numpy()
        return column.cat.get_categories().to_list(), index

    def _numbers(self, j: int, lo: int, hi: int) -> NDArray[Any]:
        column = self.frame.to_series(j).slice(lo, hi - lo)
        if not (column.dtype.is_numeric() or str(column.dtype) == "Boolean"):
            raise self._bad_column(j, column.dtype)
        # through float64, so that a null in a column of integers or booleans is a NaN
        return column.cast(sys.modules["polars"].Float64).to_numpy()


class ArrowRows(Frame):
    @staticmethod
    def _names(frame: Any) -> Sequence[Any]:
        return frame.column_names

    def _name(self, j: int) -> str:
        return self.frame.column_names[j]

    def _is_categorical(self, j: int) -> bool:
        return hasattr(self.frame.schema.field(j).type, "value_type") and hasattr(
            self.frame.schema.field(j).type, "index_type"
        )

    def _own_categories(self, j: int) -> Sequence[Any]:
        return self.frame.column(j).unify_dictionaries().chunk(0).dictionary.to_pylist()

    def _dictionary(self, j: int, lo: int, hi: int) -> tuple[Sequence[Any], NDArray[Any]]:
        column = self.frame.column(j).slice(lo, hi - lo).unify_dictionaries().combine_chunks()
        if hasattr(column, "num_chunks"):
            column = column.chunk(0)
        return column.dictionary.to_pylist(), column.indices.to_numpy(zero_copy_only=False)

    def _numbers(self, j: int, lo: int, hi: int) -> NDArray[Any]:
        column = self.frame.column(j).slice(lo, hi - lo)
        try:
            return column.cast("float64", safe=False).to_numpy()
        except (ValueError, NotImplementedError) as error:  # pyarrow's errors are of both kinds
            raise self._bad_column(j, column.type) from error


def _is_a(package: str, *names: str) -> Any:
    """A test for objects of a package that may not be installed: asks only if something has imported it."""

    def test(X: Any) -> bool:
        module = sys.modules.get(package)
        return module is not None and isinstance(X, tuple(getattr(module, name) for name in names))

    return test


FRAMES = (
    (_is_a("pandas", "DataFrame"), PandasRows),
    (_is_a("polars", "DataFrame"), PolarsRows),
    (_is_a("pyarrow", "Table", "RecordBatch"), ArrowRows),
)


def _check_names(names: list[str], features: Features) -> None:
    _check_count_named(names, features)
    if features.names is None:
        return
    # LightGBM stores blanks as underscores
    given = [name.replace(" ", "_") for name in names]
    expected = [name.replace(" ", "_") for name in features.names]
    if given == expected:
        return
    if sorted(given) == sorted(expected):
        raise ValueError("X has the model's columns in another order; give X[model.forest.features.names]")
    _raise_names(names, features)


def _check_count_named(names: list[str], features: Features) -> None:
    if len(names) != features.count:
        if features.names is not None:
            _raise_names(names, features)
        check_count(len(names), features)


def _raise_names(names: list[str], features: Features) -> None:
    expected = features.names or ()
    lost = [name for name in expected if name not in names][:5]
    extra = [name for name in names if name not in expected][:5]
    raise ValueError(
        f"X has {len(names)} columns, the model was trained on {features.count}, and names differ: "
        f"missing {lost or 'none'}, unknown {extra or 'none'}"
    )


def _code_of(values: Sequence[Any]) -> dict[Any, int]:
    return {value: code for code, value in enumerate(values)}


def _encode(
    values: Sequence[Any], index: NDArray[Any], code_of: dict[Any, int], name: str, features: Features
) -> NDArray[np.float64]:
    """Rows of a categorical column -> the codes of training; NaN where there is no value."""
    codes = np.array([*(code_of.get(value, -2) for value in values), np.nan])
    index = np.where(np.isnan(index) | (index < 0), len(values), index).astype(np.int64)
    out: NDArray[np.float64] = codes[index]
    unseen = out == -2
    if unseen.any():
        if not features.unseen_is_missing:
            shown = sorted({str(values[k]) for k in np.unique(index[unseen])})[:5]
            raise ValueError(
                f"column {name!r} holds categories that training did not see: {', '.join(shown)}; "
                f"map them to known ones or to missing"
            )
        out[unseen] = np.nan
    return out
