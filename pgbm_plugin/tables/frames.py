"""Rows of pandas, polars and PyArrow frames: column names are checked and categories encoded."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray
from ..trees.forest import Features
from .categories import CategoricalRows, column_codes, distinct
from .number_codes import number_codes, with_marks
from .rows import Rows, check_count


class Frame(CategoricalRows):
    """A data frame: named columns, some of them categorical."""

    def __init__(self, frame: Any, features: Features):
        super().__init__(features)
        check_names([str(name) for name in self._names(frame)], features)
        self.frame, self.n = frame, len(frame)
        hashed = () if features.category_hash is None else features.category_columns or ()
        categorical = [j for j in range(features.count) if self._is_categorical(j) or j in hashed]
        for j in range(features.count):
            if j not in categorical and not self._is_numeric(j):
                raise ValueError(
                    f"column {self._name(j)!r} has type {self._type(j)}; make it numeric or categorical, as in training"
                )
        self.numbers = number_codes((j for j in range(features.count) if j not in categorical), features)
        self.codes = column_codes(categorical, features, self._name)

    def marked(self) -> Rows:
        marked = super().marked()
        assert isinstance(marked, Frame)
        marked.numbers = with_marks(self.numbers)
        return marked

    def block(self, lo: int, hi: int, columns: NDArray[np.int64] | None = None) -> AnyArray:
        wanted = range(self.features.count) if columns is None else columns.tolist()
        # columns are written one by one, so each should be contiguous
        out = np.empty((hi - lo, len(wanted)), np.float64, order="F")
        for i, j in enumerate(wanted):
            if j in self.codes:
                out[:, i] = self.codes[j].encode(*self._values(j, lo, hi))
            else:
                numbers = self._numbers(j, lo, hi)
                out[:, i] = self.numbers[j].encode(numbers) if j in self.numbers else numbers
        return out

    def _categories(self, j: int) -> Sequence[Any]:
        return self._values(j, 0, self.n)[0]

    def _values(self, j: int, lo: int, hi: int) -> tuple[Sequence[Any], AnyArray]:
        """Return what `_dictionary` does, for a column of any type."""
        if self._is_categorical(j):
            return self._dictionary(j, lo, hi)
        return distinct(self._listed(j, lo, hi))

    @staticmethod
    @abstractmethod
    def _names(frame: Any) -> Sequence[Any]: ...

    @abstractmethod
    def _name(self, j: int) -> str: ...

    @abstractmethod
    def _is_categorical(self, j: int) -> bool: ...

    @abstractmethod
    def _is_numeric(self, j: int) -> bool: ...

    @abstractmethod
    def _type(self, j: int) -> Any: ...

    @abstractmethod
    def _dictionary(self, j: int, lo: int, hi: int) -> tuple[Sequence[Any], AnyArray]:
        """Return the distinct values of a categorical column, and the number of each row's value (-1 or NaN: none)."""

    @abstractmethod
    def _numbers(self, j: int, lo: int, hi: int) -> AnyArray:
        """Return a numeric column."""

    @abstractmethod
    def _listed(self, j: int, lo: int, hi: int) -> list[Any]:
        """Return a column as a list."""


class PandasRows(Frame):
    @staticmethod
    def _names(frame: Any) -> Sequence[Any]:
        return list(frame.columns)

    def _name(self, j: int) -> str:
        return str(self.frame.columns[j])

    def _type(self, j: int) -> Any:
        return self.frame.dtypes.iloc[j]

    def _is_categorical(self, j: int) -> bool:
        return type(self._type(j)).__name__ == "CategoricalDtype"

    def _is_numeric(self, j: int) -> bool:
        return getattr(self._type(j), "kind", "O") in "fiub"

    def _dictionary(self, j: int, lo: int, hi: int) -> tuple[Sequence[Any], AnyArray]:
        column = self.frame.iloc[lo:hi, j].cat
        return column.categories.tolist(), column.codes.to_numpy()

    def _numbers(self, j: int, lo: int, hi: int) -> AnyArray:
        return self.frame.iloc[lo:hi, j].to_numpy(dtype=np.float64, na_value=np.nan)

    def _listed(self, j: int, lo: int, hi: int) -> list[Any]:
        column = self.frame.iloc[lo:hi, j]
        return column.astype(object).where(column.notna(), None).tolist()


class PolarsRows(Frame):
    @staticmethod
    def _names(frame: Any) -> Sequence[Any]:
        return frame.columns

    def _name(self, j: int) -> str:
        return self.frame.columns[j]

    def _type(self, j: int) -> Any:
        return self.frame.dtypes[j]

    def _is_categorical(self, j: int) -> bool:
        return type(self._type(j)).__name__ in ("Categorical", "Enum")

    def _is_numeric(self, j: int) -> bool:
        return self._type(j).is_numeric() or str(self._type(j)) == "Boolean"

    def _dictionary(self, j: int, lo: int, hi: int) -> tuple[Sequence[Any], AnyArray]:
        column = self.frame.to_series(j).slice(lo, hi - lo)
        values = column.drop_nulls().unique()
        codes = values.to_physical().to_numpy()
        by_code: list[Any] = [None] * (int(codes.max()) + 1 if len(codes) else 0)
        for code, value in zip(codes, values.to_list(), strict=True):
            by_code[code] = value
        return by_code, column.to_physical().cast(sys.modules["polars"].Float64).to_numpy()

    def _numbers(self, j: int, lo: int, hi: int) -> AnyArray:
        # cast to float64 first, so that a null among integers or booleans becomes NaN
        return self.frame.to_series(j).slice(lo, hi - lo).cast(sys.modules["polars"].Float64).to_numpy()

    def _listed(self, j: int, lo: int, hi: int) -> list[Any]:
        return self.frame.to_series(j).slice(lo, hi - lo).to_list()


class ArrowRows(Frame):
    def __init__(self, frame: Any, features: Features):
        if not hasattr(frame, "combine_chunks"):
            frame = sys.modules["pyarrow"].Table.from_batches([frame])
        super().__init__(frame, features)

    @staticmethod
    def _names(frame: Any) -> Sequence[Any]:
        return frame.column_names

    def _name(self, j: int) -> str:
        return self.frame.column_names[j]

    def _type(self, j: int) -> Any:
        return self.frame.schema.field(j).type

    def _is_categorical(self, j: int) -> bool:
        return bool(sys.modules["pyarrow"].types.is_dictionary(self._type(j)))

    def _is_numeric(self, j: int) -> bool:
        types, kind = sys.modules["pyarrow"].types, self._type(j)
        tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
        return any(test(kind) for test in tests)

    def _dictionary(self, j: int, lo: int, hi: int) -> tuple[Sequence[Any], AnyArray]:
        column = self.frame.column(j).slice(lo, hi - lo).unify_dictionaries().combine_chunks()
        if hasattr(column, "num_chunks"):
            column = column.chunk(0)
        return column.dictionary.to_pylist(), column.indices.cast("float64").to_numpy(zero_copy_only=False)

    def _numbers(self, j: int, lo: int, hi: int) -> AnyArray:
        return self.frame.column(j).slice(lo, hi - lo).cast("float64", safe=False).to_numpy()

    def _listed(self, j: int, lo: int, hi: int) -> list[Any]:
        return self.frame.column(j).slice(lo, hi - lo).to_pylist()


def _is_a(package: str, *names: str) -> Any:
    """Return a test for objects of an optional package, which the test does not import."""

    def test(X: Any) -> bool:
        module = sys.modules.get(package)
        return module is not None and isinstance(X, tuple(getattr(module, name) for name in names))

    return test


FRAMES = (
    (_is_a("pandas", "DataFrame"), PandasRows),
    (_is_a("polars", "DataFrame"), PolarsRows),
    (_is_a("pyarrow", "Table", "RecordBatch"), ArrowRows),
)


def columns_of(frame: Any) -> list[str]:
    """Return the names of a frame's columns."""
    names = getattr(frame, "column_names", None)
    return [str(name) for name in (frame.columns if names is None else names)]


def with_names_of(frame: Any, features: Features) -> Features:
    """Return the features under the names of a frame that has none of the model's, for columns taken by position."""
    if features.names is None or not is_frame(frame):
        return features
    names = columns_of(frame)
    if len(names) != features.count or not set(features.names).isdisjoint(features.stored_names(names)):
        return features
    return replace(features, names=tuple(names))


def check_names(names: list[str], features: Features) -> None:
    """Refuse a frame whose columns are not the model's."""
    if features.names is None:
        check_count(len(names), features)
        return
    stored, expected = features.stored_names(names), list(features.names)
    if stored == expected:
        return
    if sorted(stored) == sorted(expected):
        raise ValueError(f"X has the model's columns in another order; give X[{_listed(expected)}]")
    lost = [name for name in expected if name not in names][:5]
    extra = [name for name in names if name not in expected][:5]
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1][:5]
    way_out = "" if lost or repeated else f"; give X[{_listed(expected)}]"
    counts = f"X has {len(names)} columns, the model was trained on {features.count}"
    start = "X has other columns than the model" if len(names) == features.count else counts
    raise ValueError(
        f"{start}: missing {lost or 'none'}, unknown {extra or 'none'}"
        + (f", repeated {repeated}" if repeated else way_out)
    )


def _listed(names: Sequence[str]) -> str:
    """Return a list of names as code; of many only where to find them."""
    return str(list(names)) if len(names) <= 10 else "list(model.forest.features.names)"


def is_frame(X: Any) -> bool:
    """Tell whether `X` is a pandas, polars or PyArrow frame."""
    return any(is_kind(X) for is_kind, _ in FRAMES)
