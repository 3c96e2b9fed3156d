"""Predicted distributions, written to a Parquet or CSV file batch by batch."""

from __future__ import annotations

import csv as csv_module
import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, BinaryIO

from numpy.typing import ArrayLike

from ..checks import interval_names, level_names, missing_column
from ..errors import naming
from ..parallel import progress_bar
from ..tables.frames import columns_of
from ..tables.in_memory import is_stream
from ..trees.forest import Features
from ..writing import check_place, replacing
from .batches import is_files, unlabelled_stream
from .files import import_dataset, is_read

Summarise = Callable[..., dict[str, Any]]
"""``(rows, quantiles, intervals, init_score, groups=) -> columns`` that summarise the distributions of the rows."""


@dataclass(frozen=True)
class Columns:
    """Columns to write besides mean and std, and the column of init scores to read."""

    quantiles: ArrayLike = ()  # levels, for columns such as q05
    intervals: ArrayLike = ()  # coverages, for columns such as lower90 and upper90
    keep: tuple[str, ...] = ()  # columns of the input to copy
    init_score: str | None = None  # column of the margins that rows start from, not written
    groups: tuple[str, ...] = ()  # columns of the groups of conformal scores, not written
    further: tuple[str, ...] = ()  # other columns that are written

    def __post_init__(self) -> None:
        predicted = {"mean", "std", *level_names(self.quantiles), *interval_names(self.intervals), *self.further}
        clash = predicted.intersection(self.keep)
        if clash:
            raise ValueError(
                f"a column to keep is called {sorted(clash)[0]!r}, as a predicted one is: rename it in the input"
            )


def write_distributions(
    summarise: Summarise,
    features: Features,
    X: Any,
    target: str | os.PathLike[str] | BinaryIO,
    columns: Columns,
    *,
    csv: bool,
    progress: bool,
) -> int:
    """Write distributions to an open stream, or to a file that appears when it is complete; return the rows written.

    See `ProbabilisticModel.predict_parquet`.
    """
    import_dataset()
    if isinstance(target, (str, os.PathLike)):
        check_place(target)
        if is_files(X) and is_read(X, target):
            raise ValueError(f"{str(target)!r} is also an input, and would be lost: write to another name")
    return write_tables(_tables(summarise, features, X, columns), target, csv=csv, progress=progress)


def write_tables(
    tables: Iterable[Any], target: str | os.PathLike[str] | BinaryIO, *, csv: bool, progress: bool = False
) -> int:
    """Write Arrow tables below each other to an open stream, or to a file that appears when it is complete."""
    written, write = 0, None
    with ExitStack() as stack:
        advance = stack.enter_context(progress_bar(None, "rows", progress))
        stream = stack.enter_context(replacing(target)) if isinstance(target, (str, os.PathLike)) else target
        for part in tables:
            write = write or _new_writer(stack, stream, part.schema, csv)
            write(part)
            written += len(part)
            advance(len(part))
        if write is None:
            raise ValueError("X has no tables")
    return written


def _tables(summarise: Summarise, features: Features, X: Any, columns: Columns) -> Iterator[Any]:
    import pyarrow as pa

    source, init_score = X if is_stream(X) or is_files(X) else iter([X]), columns.init_score
    numbers = () if init_score is None else (init_score,)
    for name, rows, table in unlabelled_stream(source, features, (*columns.keep, *columns.groups), numbers):
        with naming(name):
            out = {kept: _as_arrow(pa, table, kept) for kept in columns.keep}
            start = None if init_score is None else _as_arrow(pa, table, init_score)
            out |= summarise(rows, columns.quantiles, columns.intervals, start, groups=_keys(pa, table, columns.groups))
        yield pa.table(out)


def _new_writer(stack: ExitStack, stream: BinaryIO, schema: Any, csv: bool) -> Callable[[Any], None]:
    """Return a function that writes a table to the stream; the end of the stack completes the file."""
    if not csv:
        import pyarrow.parquet as pq

        return stack.enter_context(pq.ParquetWriter(stream, schema)).write_table  # type: ignore[no-any-return]
    header = io.StringIO()
    csv_module.writer(header, lineterminator="\n").writerow(schema.names)
    stream.write(header.getvalue().encode())
    return lambda table: _write_csv(table, stream)


def _write_csv(table: Any, stream: BinaryIO) -> None:
    """Write a part of a CSV file: floats with all their digits, and quotes only if the part needs them."""
    import pyarrow as pa
    from pyarrow.csv import WriteOptions, write_csv

    for quotes in ("none", "needed"):
        text = io.BytesIO()
        try:
            write_csv(table, text, WriteOptions(include_header=False, quoting_style=quotes))
            break
        except pa.ArrowInvalid as error:
            if quotes == "needed":
                raise ValueError(f"a column to keep cannot be written as CSV: {error}") from error
    stream.write(text.getbuffer())


def _keys(pa: Any, table: Any, names: tuple[str, ...]) -> Any:
    """Return the keys of the rows' groups: None, a column, or a tuple of columns."""
    keys = tuple(_as_arrow(pa, table, name) for name in names)
    return keys if len(keys) > 1 else keys[0] if keys else None


def _as_arrow(pa: Any, table: Any, name: str) -> Any:
    if name not in columns_of(table):
        raise ValueError(missing_column(name, columns_of(table)))
    column = table[name]
    return column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.array(column.to_numpy())
