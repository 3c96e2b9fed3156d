"""Rows of pandas, polars and PyArrow frames: column names are checked and categories encoded."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray, Array
from ..trees.forest import Features
from .rows import Rows, check_count

# Types of categories that a saved model can hold.
_PLAIN = (str, int, float, bool, type(None))


class Frame(Rows):
    """A data frame: named columns, some of them categorical."""

    def __init__(self, frame: Any, features: Features):
        super().__init__(features)
        check_names([str(name) for name in self._names(frame)], features)
        self.frame, self.n = frame, len(frame)
        categorical = [j for j in range(features.count) if self._is_categorical(j)]
        for j in range(features.count):
            if j not in categorical and not self._is_numeric(j):
                raise ValueError(
                    f"column {self._name(j)!r} has type {self._type(j)}; make it numeric or categorical, as in training"
                )
        self.codes = {j: _code_of(values) for j, values in self._category_values(categorical).items()}
        self.coded = [j for j in categorical if j in features.code_columns]

    def block(self, lo: int, hi: int, columns: NDArray[np.int64] | None = None) -> AnyArray:
        wanted = range(self.features.count) if columns is None else columns.tolist()
        # columns are written one by one, so each should be contiguous
        out = np.empty((hi - lo, len(wanted)), np.float64, order="F")
        for i, j in enumerate(wanted):
            if j in self.codes:
                values, index = self._dictionary(j, lo, hi)
                out[:, i] = _encode(values, index, self.codes[j], self._name(j), self.features)
            elif j in self.coded:
                codes = self._dictionary(j, lo, hi)[1]
                out[:, i] = np.where(codes < 0, np.nan, codes)
            else:
                out[:, i] = self._numbers(j, lo, hi)
        return out

    def own_codes(self) -> Iterator[tuple[str, int, Any]]:
        """Yield (column, code, value) of the categories whose values the model has not stored."""
        for j in self.coded:
            values = self._dictionary(j, 0, self.n)[0]
            yield from ((self._name(j), code, value) for code, value in enumerate(values) if value is not None)

    def _category_values(self, columns: list[int]) -> dict[int, Sequence[Any]]:
        """Return column -> training categories, for the frame's categorical columns."""
        categories, trained = self.features.categories, self.features.category_columns
        if trained is None:
            if len(columns) != len(categories):
                raise ValueError(
                    f"X has {len(columns)} categorical columns ({self._list(columns)}), the model was trained with "
                    f"{len(categories)}; give the columns the dtypes that they had in training"
                )
            return dict(zip(columns, categories, strict=True))
        lost = [j for j in trained if j not in columns]
        if lost:
            raise ValueError(
                f"column {self._list(lost)} was categorical in training but is not in X; give it dtype 'category'"
            )
        extra = [j for j in columns if j not in trained and j not in self.features.code_columns]
        if extra:
            raise ValueError(
                f"column {self._list(extra)} is categorical in X but was not in training; give it a numeric dtype"
            )
        return dict(zip(trained, categories, strict=True))

    def _list(self, columns: list[int]) -> str:
        return ", ".join(repr(self._name(j)) for j in columns) or "none"

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


def with_seen_categories(features: Features, rows: Rows, certified: bool) -> Features:
    """Return the features with what the model does not store of its categories, read from a frame.

    Some models store the categories but not their columns, which any frame has. Others store only codes, whose values
    are read from the frame of training, that is, if the rows are `certified`.
    """
    if not isinstance(rows, Frame):
        return features
    if features.category_columns is None:
        return replace(features, category_columns=tuple(rows.codes)) if rows.codes else features
    if not rows.coded or not certified:
        return features
    stored = dict(zip(features.category_columns, features.categories, strict=True))
    seen = {j: tuple(rows._dictionary(j, 0, len(rows))[0]) for j in rows.coded}
    stored |= {j: values for j, values in seen.items() if all(isinstance(v, _PLAIN) for v in values)}
    columns = tuple(sorted(stored))
    codes = tuple(j for j in features.code_columns if j not in stored)
    return replace(features, category_columns=columns, categories=tuple(stored[j] for j in columns), code_columns=codes)


def columns_of(frame: Any) -> list[str]:
    """Return the names of a frame's columns."""
    names = getattr(frame, "column_names", None)
    return [str(name) for name in (frame.columns if names is None else names)]


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


def _code_of(values: Sequence[Any]) -> dict[Any, int]:
    return {value: code for code, value in enumerate(values)}


def _encode(values: Sequence[Any], index: AnyArray, code_of: dict[Any, int], name: str, features: Features) -> Array:
    """Return the (n,) codes of training for a categorical column; NaN for missing values."""
    codes = np.array([*(code_of.get(value, -2) for value in values), np.nan])
    index = np.where(np.isnan(index) | (index < 0), len(values), index).astype(np.int64)
    out: Array = codes[index]
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


def is_frame(X: Any) -> bool:
    """Tell whether `X` is a pandas, polars or PyArrow frame."""
    return any(is_kind(X) for is_kind, _ in FRAMES)
