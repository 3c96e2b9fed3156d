"""Categorical columns of files, converted to the values that the model stores.

In a data frame, the column types say which columns are categorical. In a file, columns of text are categorical, and
columns of numbers only where the model says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..checks import missing_column
from ..trees.forest import Features
from .csvfiles import missing_spellings

_TEXT, _NUMBERS, _TRUTH = "text", "numbers", "truth values"


def with_category_columns(features: Features, names: Sequence[str]) -> Features:
    """Return the features with `names` as their categorical columns, which LightGBM does not store."""
    if isinstance(names, str):
        raise TypeError(f"categorical must be a list of names, not {names!r}")
    own = [] if features.names is None else list(features.names)
    stored = features.stored_names(names)
    for name, stored_name in zip(names, stored, strict=True):
        if stored_name not in own:
            raise ValueError(f"categorical: {missing_column(name, own)}")
    columns = tuple(sorted({own.index(name) for name in stored}))
    if features.category_columns is not None:
        if columns != features.category_columns:
            shown = ", ".join(repr(own[j]) for j in features.category_columns) or "none"
            raise ValueError(f"the model already stores its categorical columns ({shown}): leave categorical= out")
        return features
    if len(columns) != len(features.categories):
        raise ValueError(
            f"categorical has {len(columns)} columns, but the model was trained with {len(features.categories)} of "
            f"category type: name exactly these"
        )
    return replace(features, category_columns=columns)


def category_columns(types: Mapping[str, Any], features: Features) -> dict[str, tuple[Any, ...] | None]:
    """Return column -> stored values of the categorical columns, None for hashes; `types` are in the model's order."""
    import pyarrow as pa

    names = list(types)
    text = [j for j, name in enumerate(names) if _kind_of_type(types[name]) == _TEXT]
    code_columns = [j for j in text if j in features.code_columns and not pa.types.is_dictionary(types[names[j]])]
    if code_columns:
        raise ValueError(
            f"column {names[code_columns[0]]!r} holds text, but for its categories the model stores only codes: give "
            f"the codes of training"
        )
    if features.category_hash is not None:
        return {names[j]: None for j in features.category_columns or () if j < len(names)}
    if not features.categories:
        return {}
    where = features.category_columns
    if where is None:
        where = tuple(j for j, name in enumerate(names) if j in text or pa.types.is_dictionary(types[name]))
        if len(where) != len(features.categories):
            shown = ", ".join(repr(names[j]) for j in where) or "none"
            raise ValueError(
                f"the model was trained with {len(features.categories)} categorical columns, but in the files "
                f"{len(where)} hold text or categories ({shown}); if some categories are numbers, name all categorical "
                f"columns: wrap(..., categorical=[...]), or --categorical on the command line"
            )
    return {names[j]: values for j, values in zip(where, features.categories, strict=True) if j < len(names)}


def encoded(column: Any, name: str, values: Sequence[Any] | None, is_csv: bool) -> Any:
    """Return a column as an Arrow dictionary whose values have the type of the stored ones; else of any type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if values is None:
        return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()

    expected, kind = _kind_of_values(values), _kind_of_type(column.type)
    if kind is None:  # all values are missing
        return column.cast(pa.string()).dictionary_encode()
    if kind == expected and not is_csv:
        return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    if kind != _TEXT or expected is None:
        raise ValueError(
            f"column {name!r} holds {kind}, but the model's categories are {expected or 'of several types'}, such as "
            f"{values[0]!r}"
        )
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_csv:
        missing = pc.is_in(column, value_set=pa.array(missing_spellings(values), column.type))
        column = pc.if_else(missing, pa.scalar(None, column.type), column)
    return column.dictionary_encode() if expected == _TEXT else _parsed(column, name, expected)


def _parsed(column: Any, name: str, expected: str) -> Any:
    """Parse text as numbers or truth values."""
    import pyarrow as pa

    # whole numbers first, because floats beyond 2^53 are not exact
    for kind in (pa.int64(), pa.float64()) if expected == _NUMBERS else (pa.bool_(),):
        try:
            return column.cast(kind).dictionary_encode()
        except pa.ArrowInvalid as error:
            reason = error
    raise ValueError(f"column {name!r} holds text, but the model's categories are {expected}: {reason}")


def _kind_of_values(values: Sequence[Any]) -> str | None:
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {str}:
        return _TEXT
    return _TRUTH if kinds == {bool} else _NUMBERS if kinds <= {int, float} else None


def _kind_of_type(kind: Any) -> str | None:
    """Return what a column of this Arrow type holds; None if the type has no values but missing ones."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_null(kind):
        return None
    if types.is_string(kind) or types.is_large_string(kind):
        return _TEXT
    if types.is_boolean(kind):
        return _TRUTH
    return _NUMBERS if types.is_integer(kind) or types.is_floating(kind) else str(kind)
