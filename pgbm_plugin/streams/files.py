"""Parquet and CSV files, read through PyArrow with a few batches in memory at a time."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..checks import missing_column
from ..errors import naming, needing
from ..trees.forest import Features
from .batches import feature_places
from .categories import category_columns, encoded
from .csvfiles import check_separated, csv_format, csv_schema, is_csv, plain_reason

# Number of batches that Arrow's own threads decode ahead.
_AHEAD = 2


@dataclass(frozen=True)
class Files:
    """Opened files, and the columns that are read from them."""

    dataset: Any  # pyarrow.dataset.Dataset
    schema: Any  # pyarrow.Schema, the types that columns are read in
    taken: list[str]  # the model's columns, in its order
    besides: list[str]  # further columns
    categories: dict[str, tuple[Any, ...] | None]  # categorical columns -> the values that the model stores, if it does

    @property
    def rows(self) -> int | None:
        """Return the number of rows; None for CSV, where all rows would have to be read to count them."""
        return None if _is_csv(self.dataset) else int(self.dataset.count_rows())

    @property
    def columns(self) -> list[str]:
        """Return the names of all columns that are read."""
        return list(dict.fromkeys([*self.taken, *self.besides]))

    def batches(self, rows: int) -> Iterator[tuple[str, Any]]:
        """Yield (file name, record batch) in order, with at most `rows` rows each, and at least one."""
        for fragment in self.dataset.get_fragments():
            name, own = _name(fragment), fragment.physical_schema.names
            scanner = fragment.scanner(
                schema=self.schema, columns=self.columns, batch_size=rows, batch_readahead=_AHEAD, use_threads=True
            )
            with naming(name), plain_reason(own):
                for batch in scanner.to_batches():
                    if batch.num_rows:
                        yield name, batch

    def empty_batch(self) -> Any:
        """Return a batch without rows."""
        import pyarrow as pa

        return pa.RecordBatch.from_pylist([], pa.schema([self.schema.field(name) for name in self.columns]))

    def features(self, batch: Any) -> Any:
        """Return the model's columns of a batch."""
        import pyarrow as pa

        columns = [batch.column(name) for name in self.taken]
        for i, name in enumerate(self.taken):
            if name in self.categories:
                columns[i] = encoded(columns[i], name, self.categories[name], _is_csv(self.dataset))
        return pa.RecordBatch.from_arrays(columns, names=self.taken)

    def table(self, rows: int) -> tuple[Any, Any]:
        """Return all rows as two tables: the model's columns, and the further ones."""
        import pyarrow as pa

        parts, besides = [], []
        for name, batch in self.batches(rows):
            with naming(name):
                parts.append(self.features(batch))
            besides.append(batch.select(self.besides))
        if not parts:
            first = next(map(_name, self.dataset.get_fragments()), "the data set")
            raise ValueError(f"{first} has no rows, nor has any other file")
        return pa.Table.from_batches(parts), pa.Table.from_batches(besides)


def open_files(source: Any, features: Features, numbers: Sequence[str] = (), keep: Sequence[str] = ()) -> Files:
    """Open the files behind a path, a pattern, a list of either, or a data set.

    The model's columns are read, further `numbers`, such as labels, and columns to `keep`, which are not converted. A
    file that lacks a column is refused before any row is read, because Arrow would fill it with missing values.
    """
    dataset, besides = _dataset(source), [*numbers, *keep]
    fragments = list(dataset.get_fragments())
    together = _name(fragments[0]) if len(fragments) == 1 else "the files"
    if _is_csv(dataset):
        with naming(together):
            check_separated(dataset.schema.names)
    taken = _check_columns(dataset.schema.names, together, features, besides)
    for fragment in fragments:
        name = _name(fragment)
        with naming(name), plain_reason(()):
            own = getattr(fragment, "physical_schema", dataset.schema).names
        in_path = [column for column in dataset.schema.names if column not in own and f"{column}=" in name]
        _check_columns([*own, *in_path], name, features, besides)
    schema = dataset.schema
    with naming(together):
        categories = category_columns({name: schema.field(name).type for name in taken}, features)
        if _is_csv(dataset):
            schema = csv_schema(schema, [*taken, *numbers], categories, keep)
    return Files(dataset, schema, taken, list(dict.fromkeys(besides)), categories)


def _check_columns(columns: Sequence[str], name: str, features: Features, besides: Sequence[str]) -> list[str]:
    """Return the columns that the model takes; refuse a file that lacks one."""
    with naming(name):
        lost = [column for column in besides if column not in columns]
        if lost:
            raise ValueError(missing_column(lost[0], columns))
        return [columns[place] for place in feature_places(columns, features, besides)]


def find_files(source: Any) -> list[str]:
    """Return the paths behind a path, a pattern, or a list of either; paths of a pattern are sorted."""
    paths: list[str] = []
    for part in source if isinstance(source, (list, tuple)) else [source]:
        text = os.fspath(part)
        matches = [text] if "://" in text or os.path.exists(text) else sorted(glob.glob(text, recursive=True))
        if not matches:
            raise FileNotFoundError(f"no Parquet or CSV file at {text!r}")
        if os.path.exists(text) and not (os.path.isfile(text) or os.path.isdir(text)):
            raise ValueError(f"{text!r} is a pipe or a device, which cannot be read twice: give a file")
        paths += matches
    return paths


def is_read(source: Any, path: str | os.PathLike[str]) -> bool:
    """Tell whether the file at `path` exists and is among the files of `source`."""
    target = os.path.realpath(path)
    is_path = isinstance(source, (str, os.PathLike, list, tuple))
    paths = find_files(source) if is_path else getattr(source, "files", [])  # some data sets do not list their files
    read = map(os.path.realpath, paths)
    return os.path.exists(target) and any(os.path.commonpath([target, place]) == place for place in read)


def _dataset(source: Any) -> Any:
    ds = import_dataset()
    if isinstance(source, ds.Dataset):
        return source
    paths = find_files(source)
    kinds = {is_csv(path): path for path in paths}
    if len(kinds) > 1:
        raise ValueError(f"{kinds[True]!r} is CSV and {kinds[False]!r} is not: give files of one kind")
    kind = {"format": csv_format()} if True in kinds else {"format": "parquet", "partitioning": "hive"}
    with plain_reason((), paths[0]):
        dataset = ds.dataset(paths[0] if len(paths) == 1 else paths, **kind)
        _ = dataset.schema.names  # raises if the names are not UTF-8
    return dataset


def _is_csv(dataset: Any) -> bool:
    return getattr(getattr(dataset, "format", None), "default_extname", "") == "csv"


def _name(fragment: Any) -> str:
    return repr(path) if (path := getattr(fragment, "path", None)) else "a table in memory"


def import_dataset() -> Any:
    with needing("Parquet and CSV files need PyArrow: pip install 'pgbm-plugin[parquet]'"):
        import pyarrow.dataset
    return pyarrow.dataset
