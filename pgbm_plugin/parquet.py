"""Parquet through PyArrow's data sets: labelled rows in, distributions out, with a few batches in memory at a time."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from .batches import feature_columns, is_stream, naming, unlabelled_stream
from .columns import level_names
from .forest import Features
from .frames import columns_of
from .parallel import progress_bar
from .response import summary

if TYPE_CHECKING:
    from .predictor import Predictor

# Batches that Arrow's own threads decode while the trees work on one.
_AHEAD = 2


@dataclass(frozen=True)
class Files:
    """A data set, and the columns of it that are read."""

    dataset: Any
    columns: list[str]

    @property
    def rows(self) -> int:
        return int(self.dataset.count_rows())

    def batches(self, rows: int) -> Iterator[tuple[str, Any]]:
        """(file, record batch) in order, of so many rows at most; the next ones are read meanwhile."""
        scanner = self.dataset.scanner(
            columns=self.columns, batch_size=rows, batch_readahead=_AHEAD, fragment_readahead=1, use_threads=True
        )
        for tagged in scanner.scan_batches():
            if tagged.record_batch.num_rows:
                yield _name(tagged.fragment), tagged.record_batch


def open_files(source: Any, features: Features, besides: Sequence[str]) -> Files:
    """The files behind a path, a pattern, a list of either, or a data set, with the model's columns and some `besides`.

    A file that lacks one of them is refused before any row is read: Arrow would take its rows for missing values.
    """
    dataset = _dataset(source)
    taken = _check_columns(dataset.schema.names, "the files", features, besides)
    for fragment in dataset.get_fragments():
        name, own = _name(fragment), getattr(fragment, "physical_schema", dataset.schema).names
        in_path = [column for column in dataset.schema.names if column not in own and f"{column}=" in name]
        _check_columns([*own, *in_path], name, features, besides)
    return Files(_with_categories(dataset, taken), list(dict.fromkeys([*taken, *besides])))


def _check_columns(columns: Sequence[str], name: str, features: Features, besides: Sequence[str]) -> list[str]:
    """The columns that the model takes."""
    with naming(name):
        lost = [column for column in besides if column not in columns]
        if lost:
            raise ValueError(f"it has no column {lost[0]!r}, only {', '.join(columns[:10])}")
        return feature_columns(columns, features, besides)


def _dataset(source: Any) -> Any:
    ds = _import_dataset()
    if isinstance(source, ds.Dataset):
        return source
    paths: list[str] = []
    for part in source if isinstance(source, (list, tuple)) else [source]:
        text = os.fspath(part)
        found = [text] if "://" in text or os.path.exists(text) else sorted(glob.glob(text, recursive=True))
        if not found:
            raise FileNotFoundError(f"no Parquet file at {text!r}")
        paths += found
    return ds.dataset(paths[0] if len(paths) == 1 else paths, format="parquet", partitioning="hive")


def _with_categories(dataset: Any, taken: Sequence[str]) -> Any:
    """The data set with text among the features read as categories, which is all that text can be to a model."""
    ds = _import_dataset()
    import pyarrow as pa

    is_text = (pa.types.is_string, pa.types.is_large_string)
    text = [name for name in taken if any(test(dataset.schema.field(name).type) for test in is_text)]
    if not text or not hasattr(dataset, "files"):
        return dataset
    kind = ds.ParquetFileFormat(dictionary_columns=text)
    return ds.dataset(dataset.files, format=kind, filesystem=dataset.filesystem, partitioning="hive")


def _name(fragment: Any) -> str:
    return repr(path) if (path := getattr(fragment, "path", None)) else "a table in memory"


def _import_dataset() -> Any:
    try:
        import pyarrow.dataset
    except ImportError as error:
        raise ImportError("Parquet files need PyArrow: pip install 'pgbm-plugin[parquet]'") from error
    return pyarrow.dataset


def write_distributions(
    model: Predictor, X: Any, path: Any, quantiles: ArrayLike, keep: Sequence[str], progress: bool
) -> int:
    """Distributions of rows as a Parquet file; see `ProbabilisticModel.predict_parquet`."""
    _import_dataset()
    import pyarrow as pa
    import pyarrow.parquet as pq

    clash = {"mean", "std", *level_names(quantiles)}.intersection(keep)
    if clash:
        raise ValueError(f"keep has {sorted(clash)[0]!r}, which is the name of a column that is written")
    target = Path(path)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    written = 0
    try:
        with ExitStack() as stack:
            advance = stack.enter_context(progress_bar(None, "rows", progress))
            writer = None
            for batch, table in unlabelled_stream(X if is_stream(X) else iter([X]), model.forest.features, keep):
                with naming(batch.name):
                    columns = {name: _as_arrow(pa, table, name) for name in keep}
                    columns |= summary(model.predict_dist(batch.X), quantiles)
                part = pa.table(columns)
                writer = writer or stack.enter_context(pq.ParquetWriter(unfinished, part.schema))
                writer.write_table(part)
                written += len(part)
                advance(len(part))
        if not written:
            raise ValueError("X has no rows")
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return written


def _as_arrow(pa: Any, table: Any, name: str) -> Any:
    if name not in columns_of(table):
        raise ValueError(f"it has no column {name!r} to keep, only {', '.join(columns_of(table)[:10])}")
    column = table[name]
    return column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.array(column.to_numpy())
