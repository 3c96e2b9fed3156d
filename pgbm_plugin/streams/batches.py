"""Batches: rows that come one part after the other, from iterators and files, each part checked and named."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..boosters import TrainingData
from ..device import CudaRows
from ..errors import UnsupportedModelError
from ..leaves.moments import LabelledRows
from ..tables.columns import no_column
from ..tables.frames import FRAMES, Frame, as_stored, columns_of
from ..tables.labelled import read_labelled
from ..tables.rows import Rows, matrix_rows, table_length
from ..trees.forest import Features, Forest

if TYPE_CHECKING:
    from .files import Files

# Rows of a batch that keeps all threads busy, and numbers that it may hold.
_MOST_ROWS, _NUMBERS = 1 << 17, 1 << 22
_LEAST_ROWS = 1 << 10


@dataclass(frozen=True)
class Batch:
    """A part of the rows as it came; `name` tells it from the others in errors."""

    name: str
    X: Any
    y: Any = None
    weight: Any = None


def is_stream(X: Any) -> bool:
    """Whether rows come in parts: an iterator, a path or pattern of files, a PyArrow data set or reader."""
    if type(X) is np.ndarray:  # the short way for single rows
        return False
    if isinstance(X, (str, os.PathLike)) or hasattr(X, "__next__") or hasattr(X, "read_next_batch"):
        return True
    dataset = sys.modules.get("pyarrow.dataset")
    return dataset is not None and isinstance(X, dataset.Dataset)


def is_labelled_stream(X: Any) -> bool:
    """The same for rows that bring their labels: also any list or loader of batches, or a list of files."""
    if is_stream(X):
        return True
    if isinstance(X, (list, tuple)):
        return all(isinstance(part, (tuple, str, os.PathLike)) or _is_frame(part) for part in X)
    return isinstance(X, Iterable) and not any(hasattr(X, name) for name in ("shape", "get_label", "__array__", "dask"))


@dataclass(frozen=True)
class Stream:
    """Batches, and how many rows they have in all, if that is known."""

    batches: Iterator[Batch]
    rows: int | None


def labelled_stream(source: Any, features: Features, label: str | None, weight: str | None) -> Stream:
    """Batches of a source with their labels; of frames and files, these are columns of the names given."""
    if is_files(source):
        from .files import open_files

        if label is None:
            raise TypeError("files need the name of the label's column: label='y'")
        files = open_files(source, features, [label, *([] if weight is None else [weight])])
        parts = (_of_file(files, *part, label, weight) for part in files.batches(batch_rows(features)))
        return Stream(parts, files.rows)
    known = isinstance(source, (list, tuple)) and all(isinstance(part, tuple) for part in source)
    rows = sum(table_length(part[0]) for part in source if part) if known else None
    return Stream((_labelled(i, part, features, label, weight) for i, part in enumerate(source)), rows)


def unlabelled_stream(
    source: Any, features: Features, keep: Sequence[str] = (), numbers: Sequence[str] = ()
) -> Iterator[tuple[Batch, Any]]:
    """Batches of a source without labels, each with the table it was taken from.

    `keep` are columns of that table, as they are, and `numbers` such that hold numbers.
    """
    if is_files(source):
        from .files import open_files

        files = open_files(source, features, numbers, keep)
        for name, table in files.batches(batch_rows(features)):
            with naming(name):
                batch = Batch(name, files.features(table))
            yield batch, table
        return
    for i, part in enumerate(source):
        table = part[0] if isinstance(part, tuple) else part
        if table_length(table) == 0:
            continue
        with naming(f"batch {i}"):
            X = _features_of(table, features, [*keep, *numbers]) if _is_frame(table) else table
        yield Batch(f"batch {i}", X), table


def batch_rows(features: Features) -> int:
    """How many rows to take at a time."""
    return int(np.clip(_NUMBERS // max(1, features.count), _LEAST_ROWS, _MOST_ROWS))


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Errors inside say which batch they are about."""
    try:
        yield
    except UnsupportedModelError:
        raise
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}: {error}") from error


def read_batches(batches: Iterable[Batch], forest: Forest, device: str) -> Iterator[tuple[str, LabelledRows]]:
    """Checked batches of a good size: small ones are put together, empty ones left out, with or without weights all."""
    wanted = batch_rows(forest.features)
    codes = _Codes()
    small: list[LabelledRows] = []
    weighted: bool | None = None
    first = last = ""
    for batch in batches:
        with naming(batch.name):
            if table_length(batch.X) == 0:
                continue
            data = read_labelled(TrainingData(batch.X, batch.y, batch.weight, None), forest, device, part=True)
            codes.check(data.rows.table if isinstance(data.rows, CudaRows) else data.rows)
            if weighted is not None and weighted != (data.weight is not None):
                raise ValueError(f"it has {'no' if weighted else 'a'} weight, unlike those before")
            weighted = data.weight is not None
            # what a GPU reads is not put together: it would have to come back
            is_small = 2 * len(data) < wanted and not isinstance(data.rows, CudaRows)
            if is_small:
                first, last = first or batch.name, batch.name
                # a copy, because the next batch may come in the same array
                small.append(LabelledRows(matrix_rows([data.rows]), data.y, data.weight, None))
        if not is_small:
            yield batch.name, data
        elif sum(map(len, small)) >= wanted:
            yield f"{first} to {last}", _together(small)
            small, first = [], ""
    if small:
        yield first if first == last else f"{first} to {last}", _together(small)


def _together(parts: list[LabelledRows]) -> LabelledRows:
    """One batch of several, whose rows are converted."""
    if len(parts) == 1:
        return parts[0]
    rows = matrix_rows([part.rows for part in parts])
    label = np.concatenate([part.y for part in parts])
    weights: list[NDArray[np.float64]] = [part.weight for part in parts if part.weight is not None]
    return LabelledRows(rows, label, np.concatenate(weights) if weights else None, None)


class _Codes:
    """Whether batches agree on what a category's code stands for, where the model has only codes."""

    def __init__(self) -> None:
        self.value: dict[tuple[str, int], Any] = {}

    def check(self, rows: Rows | None) -> None:
        for column, code, value in rows.own_codes() if isinstance(rows, Frame) else ():
            if self.value.setdefault((column, code), value) != value:
                raise ValueError(
                    f"column {column!r} has other categories than in the batches before, and the model has stored "
                    f"none, only codes: give all batches the same categories, as in training"
                )


def _labelled(i: int, part: Any, features: Features, label: str | None, weight: str | None) -> Batch:
    """A batch of an iterator: a tuple, or a frame with the label among its columns."""
    name = f"batch {i}"
    if isinstance(part, (tuple, list)) and len(part) in (2, 3):
        return Batch(name, *part)
    if _is_frame(part):
        if label is None:
            raise TypeError(f"{name} is a table without labels: give (X, y), or the name of its column, label='y'")
        return _split(name, part, features, label, weight)
    shown = f"a tuple of {len(part)}" if isinstance(part, tuple) else f"a {type(part).__name__}"
    raise TypeError(f"{name} is {shown}: batches are (X, y) or (X, y, weight), or frames with label='column'")


def _of_file(files: Files, name: str, table: Any, label: str, weight: str | None) -> Batch:
    with naming(name):
        return Batch(name, files.features(table), table[label], None if weight is None else table[weight])


def _split(name: str, table: Any, features: Features, label: str, weight: str | None) -> Batch:
    """Features, labels and weights out of one table."""
    columns = [label, *([] if weight is None else [weight])]
    with naming(name):
        found = columns_of(table)
        lost = [column for column in columns if column not in found]
        if lost:
            raise ValueError(no_column(lost[0], found))
        X = _features_of(table, features, columns)
    return Batch(name, X, table[label], None if weight is None else table[weight])


def _features_of(table: Any, features: Features, besides: Sequence[str]) -> Any:
    columns = columns_of(table)
    places = feature_places(columns, features, besides)
    if hasattr(table, "iloc"):  # pandas, whose names need not be strings, nor be there once
        return table.iloc[:, places]
    return table.select([columns[place] for place in places])


def feature_places(columns: Sequence[str], features: Features, besides: Sequence[str]) -> list[int]:
    """Which of a table's columns the model takes, in its order: by name if it has names, else all `besides` some."""
    if features.names is None:
        return [i for i, column in enumerate(columns) if column not in besides]
    places: dict[str, list[int]] = {}
    for i, name in enumerate(as_stored(columns, features)):
        places.setdefault(name, []).append(i)
    lost = [name for name in features.names if name not in places]
    if lost:
        raise ValueError(f"it lacks columns of the model: {', '.join(map(repr, lost[:5]))}")
    # a column of the very name that is stored is meant before one with blanks
    found = [[i for i in places[name] if columns[i] == name] or places[name] for name in features.names]
    twice = [name for name, several in zip(features.names, found, strict=True) if len(several) > 1]
    if twice:
        raise ValueError(f"it has columns of the model more than once: {', '.join(map(repr, twice[:5]))}")
    return [place for (place,) in found]


def is_files(source: Any) -> bool:
    """Whether rows are in files or a PyArrow data set."""
    if isinstance(source, (list, tuple)):
        return bool(source) and all(isinstance(part, (str, os.PathLike)) for part in source)
    return is_stream(source) and not hasattr(source, "__next__") and not hasattr(source, "read_next_batch")


def _is_frame(X: Any) -> bool:
    return any(is_kind(X) for is_kind, _ in FRAMES)
