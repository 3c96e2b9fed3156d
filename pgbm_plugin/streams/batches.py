"""Batches of rows, from iterators and files; each batch is checked, and errors name the batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..checks import missing_column
from ..errors import naming
from ..tables.frames import Frame, columns_of, is_frame
from ..tables.in_memory import in_memory, is_stream
from ..tables.labelled import LabelledRows, RawRows, read_labelled
from ..tables.ranges import Ranges, ranges_of
from ..tables.rows import Rows, table_length
from ..trees.forest import Features, Forest
from ..trees.training_spec import TrainingSpec

if TYPE_CHECKING:
    from .files import Files

# Limits on the rows of a batch, and on the numbers that it holds. The most rows keep all threads busy.
_LEAST_ROWS, _MOST_ROWS, _NUMBERS = 1 << 10, 1 << 17, 1 << 22

Batch = tuple[str, RawRows]
"""A batch of unchecked rows, after the name that errors call it by."""


def is_labelled_stream(X: Any) -> bool:
    """Tell whether rows with labels come in parts: a stream, a list or loader of batches, or a list of files."""
    if is_stream(X):
        return True
    if isinstance(X, (list, tuple)):
        return all(isinstance(part, (tuple, str, os.PathLike)) or is_frame(part) for part in X)
    return isinstance(X, Iterable) and not any(hasattr(X, name) for name in ("shape", "get_label", "__array__", "dask"))


@dataclass(frozen=True)
class Stream:
    """Batches of labelled rows."""

    batches: Iterator[Batch]
    rows: int | None  # in all batches; None if unknown


def labelled_stream(source: Any, features: Features, label: str | None, weight: str | None) -> Stream:
    """Return the batches of a source with their labels; in frames and files, `label` and `weight` name columns."""
    if is_files(source):
        from .files import open_files

        if label is None:
            raise TypeError("files need the name of the label's column: label='y'")
        files = open_files(source, features, _present(label, weight))
        parts = (_file_batch(files, *part, label, weight) for part in files.batches(batch_rows(features)))
        return Stream(parts, files.rows)
    countable = isinstance(source, (list, tuple)) and all(isinstance(part, tuple) for part in source)
    rows = sum(table_length(part[0]) for part in source if part) if countable else None
    return Stream((_labelled(i, part, features, label, weight) for i, part in enumerate(source)), rows)


def unlabelled_stream(
    source: Any, features: Features, keep: Sequence[str] = (), numbers: Sequence[str] = ()
) -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, features, table) for each batch of a source without labels.

    Batches without rows are left out; if no batch has any, one of them is yielded. `keep` and `numbers` are further
    columns of the tables: the first are not converted, the second are read as numbers.
    """
    if is_files(source):
        from .files import open_files

        files = open_files(source, features, numbers, keep)
        batches, features_of = files.batches(batch_rows(features)), files.features
        last: tuple[str, Any] | None = ("the files", files.empty_batch())
    else:
        tables = (in_memory(part[0] if isinstance(part, tuple) else part) for part in source)
        batches, last = ((f"batch {i}", table) for i, table in enumerate(tables)), None
        features_of = partial(_features_of, features=features, besides=[*keep, *numbers])

    def read(name: str, table: Any) -> tuple[str, Any, Any]:
        with naming(name):
            return name, features_of(table), table

    found = False
    for last in batches:
        if table_length(last[1]) != 0:
            found = True
            yield read(*last)
    if last is not None and not found:
        yield read(*last)


def each_batch(source: Any, features: Features, predict: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield what `predict` returns for one batch after the other; errors name the batch."""
    for name, rows, _ in unlabelled_stream(source, features):
        with naming(name):
            result = predict(rows)
        yield result


def batch_rows(features: Features) -> int:
    """Return the number of rows to read at a time."""
    return int(np.clip(_NUMBERS // max(1, features.count), _LEAST_ROWS, _MOST_ROWS))


def read_batches(
    batches: Iterable[Batch], forest: Forest, spec: TrainingSpec, device: str, n_jobs: int | None
) -> Iterator[tuple[str, LabelledRows, Ranges]]:
    """Yield (name, rows, ranges of the rows) of checked batches; small batches are joined, empty ones left out."""
    wanted = batch_rows(forest.features)
    codes: dict[tuple[str, int], Any] = {}
    small: list[LabelledRows] = []
    ranges: Ranges | None = None
    weighted: bool | None = None
    first = last = ""
    for name, raw in batches:
        with naming(name):
            if table_length(raw.X) == 0:
                continue
            data = read_labelled(raw, forest, spec, device, part=True)
            _check_codes(data.rows.on_host(), codes)
            if weighted is not None and weighted != (data.weight is not None):
                raise ValueError(f"it has {'no' if weighted else 'a'} weight, unlike the batches before")
            weighted = data.weight is not None
            own = ranges_of(data.rows, forest, data.weight, n_jobs)  # before small batches are converted
            # rows on a GPU are not joined, because they would have to be copied back
            is_small = 2 * len(data) < wanted and not data.rows.on_gpu
            if is_small:
                first, last = first or name, name
                # a copy, because an iterator may reuse its array for the next batch
                small.append(LabelledRows(data.rows.joined(), data.y, data.weight, None))
                ranges = own if ranges is None else ranges.merge(own)
        if not is_small:
            yield name, data, own
        elif ranges is not None and sum(map(len, small)) >= wanted:
            yield f"{first} to {last}", _together(small), ranges
            small, first, ranges = [], "", None
    if ranges is not None:
        yield first if first == last else f"{first} to {last}", _together(small), ranges


def _together(parts: list[LabelledRows]) -> LabelledRows:
    """Join several batches of converted rows into one."""
    if len(parts) == 1:
        return parts[0]
    rows = parts[0].rows.joined([part.rows for part in parts[1:]])
    label = np.concatenate([part.y for part in parts])
    weights: list[NDArray[np.float64]] = [part.weight for part in parts if part.weight is not None]
    return LabelledRows(rows, label, np.concatenate(weights) if weights else None, None)


def _check_codes(rows: Rows, codes: dict[tuple[str, int], Any]) -> None:
    """Refuse a batch whose category codes mean other values than in the batches before, collected in `codes`."""
    for column, code, value in rows.own_codes() if isinstance(rows, Frame) else ():
        if codes.setdefault((column, code), value) != value:
            raise ValueError(
                f"column {column!r} has other categories than in the batches before, and the model stores codes "
                f"instead of categories: give all batches the categories of training"
            )


def _labelled(i: int, part: Any, features: Features, label: str | None, weight: str | None) -> Batch:
    """Return a batch from an item of an iterator: a tuple, or a frame with the label among its columns."""
    name, part = f"batch {i}", in_memory(part)
    if isinstance(part, (tuple, list)) and len(part) in (2, 3):
        return name, RawRows(*part)
    if is_frame(part):
        if label is None:
            raise TypeError(
                f"{name} is a table without labels: give (X, y), or the name of the label's column, label='y'"
            )
        return _split(name, part, features, label, weight)
    shown = f"a tuple of {len(part)}" if isinstance(part, tuple) else f"a {type(part).__name__}"
    raise TypeError(f"{name} is {shown}: batches are (X, y) or (X, y, weight), or frames with label='column'")


def _file_batch(files: Files, name: str, table: Any, label: str, weight: str | None) -> Batch:
    with naming(name):
        return name, RawRows(files.features(table), *(table[column] for column in _present(label, weight)))


def _split(name: str, table: Any, features: Features, label: str, weight: str | None) -> Batch:
    """Split a table into features, labels and weights."""
    columns = _present(label, weight)
    with naming(name):
        present = columns_of(table)
        lost = [column for column in columns if column not in present]
        if lost:
            raise ValueError(missing_column(lost[0], present))
        X = _features_of(table, features, columns)
    return name, RawRows(X, *(table[column] for column in columns))


def _present(*names: str | None) -> list[str]:
    return [name for name in names if name is not None]


def _features_of(table: Any, features: Features, besides: Sequence[str]) -> Any:
    """Return the model's columns of a frame; any other table has no others."""
    if not is_frame(table):
        return table
    columns = columns_of(table)
    places = feature_places(columns, features, besides)
    if hasattr(table, "iloc"):  # pandas, whose names may be repeated or not be strings
        return table.iloc[:, places]
    return table.select([columns[place] for place in places])


def feature_places(columns: Sequence[str], features: Features, besides: Sequence[str]) -> list[int]:
    """Return the positions of the model's columns in a table: found by name, or all but `besides` without names."""
    if features.names is None:
        return [i for i, column in enumerate(columns) if column not in besides]
    places: dict[str, list[int]] = {}
    for i, name in enumerate(features.stored_names(columns)):
        places.setdefault(name, []).append(i)
    lost = [name for name in features.names if name not in places]
    if lost:
        raise ValueError(f"it lacks columns of the model: {', '.join(map(repr, lost[:5]))}")
    # a column with exactly the stored name goes before one whose name was changed on storing
    chosen = [[i for i in places[name] if columns[i] == name] or places[name] for name in features.names]
    twice = [name for name, several in zip(features.names, chosen, strict=True) if len(several) > 1]
    if twice:
        raise ValueError(f"it has duplicate columns: {', '.join(map(repr, twice[:5]))}")
    return [place for (place,) in chosen]


def is_files(source: Any) -> bool:
    """Tell whether rows are in files or in a PyArrow data set."""
    if isinstance(source, (list, tuple)):
        return bool(source) and all(isinstance(part, (str, os.PathLike)) for part in source)
    return is_stream(source) and not hasattr(source, "__next__") and not hasattr(source, "read_next_batch")
