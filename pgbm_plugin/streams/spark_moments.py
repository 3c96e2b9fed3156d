"""Moments of Spark frames: one task per partition, and only merged sums travel to the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from ..errors import naming
from ..leaves.base_score import LabelSums, for_init_score
from ..leaves.moments import LeafMoments
from ..losses.custom_objectives import CustomObjective, check_takes_batches
from ..tables.rows import read_rows
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec
from .batches import batch_rows
from .partitions import Task, label_sums, partition_moments, settled
from .spark_frames import FeatureReader, SparkRows, check_numbers, map_partitions, open_frame, spark_column

# Number of tasks that merge the moments of the partitions, so that the driver never gets more results than these.
_MERGERS = 8

# What a task returns: the number of its partition, and its result or an error in words. An error that is raised in a
# task would make Spark try again, and then show the tracebacks of two languages.
_RESULT = "number int, result binary, error string"


def spark_moments(
    forest: Forest,
    spec: TrainingSpec,
    frame: SparkRows,
    objective: CustomObjective | None,
    *,
    settle: bool = True,
    device: str = "cpu",
) -> tuple[TrainingSpec, LeafMoments]:
    """Return the spec, and the moments over all partitions, merged in an order that depends on their numbers alone."""
    check_takes_batches(spec, objective)
    names = _Names(frame.label, frame.weight, frame.init_score)
    if names.label is None:
        raise TypeError("a Spark frame needs the name of the column of labels: label='y'")
    df, reader = open_frame(frame.df, forest.features, frame.features, names.present())
    check_numbers(df, vars(names))
    with naming("df"):
        reader.check_types(df, lambda table: read_rows(table, forest.features))
    spec = for_init_score(spec, names.init_score)
    df = df.select(*map(spark_column, dict.fromkeys([*reader.columns, *names.present()])))

    def moments_of(forest: Forest, spec: TrainingSpec) -> LeafMoments:
        merge = _Merge(forest.n_leaves)
        work = _PartitionMoments(Task(forest, spec, objective, device), names, reader)
        parts = map_partitions(df, work, _RESULT).repartition(_MERGERS, spark_column("number") % _MERGERS)
        return merge.of(_results(parts.sortWithinPartitions("number").mapInArrow(merge, _RESULT)))

    def sums() -> LabelSums:
        labels = _Names(names.label, names.weight)
        work = _PartitionLabels(Task(forest, spec, None, device), labels)
        columns = df.select(*map(spark_column, dict.fromkeys(labels.present())))
        parts = _results(map_partitions(columns, work, _RESULT))
        return reduce(LabelSums.merge, map(_unpacked, parts), LabelSums.of_model(spec, forest))

    settle = settle and spec.start_is_mean and names.init_score is None
    return settled(forest, spec, objective, moments_of, sums if settle else None)


@dataclass(frozen=True)
class _Names:
    """Columns that belong to rows, by name; None for those that there are not."""

    label: str | None
    weight: str | None = None
    init_score: str | None = None

    def present(self) -> list[str]:
        return [name for name in vars(self).values() if name is not None]

    def of(self, table: Any) -> tuple[Any, ...]:
        """Return label, weight and init_score of a table."""
        return tuple(None if name is None else table.column(name) for name in vars(self).values())


@dataclass(frozen=True)
class _PartitionLabels:
    """The task that sums the labels of its partition, for boosting that started from the mean label."""

    task: Task
    names: _Names

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        yield _result(self.sums, batches)

    def sums(self, number: int, batches: Iterator[Any]) -> bytes:
        sums = LabelSums.of_model(self.task.spec, self.task.forest)
        for table in self.tables(number, batches):
            y, weight, _ = self.names.of(table)
            sums = sums.merge(label_sums(self.task, number, y, weight))
        return np.array([sums.origin, sums.weight, sums.label]).tobytes()

    def tables(self, number: int, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield joined batches; at the end, refuse a partition where labels or the like are missing."""
        rows, missing = 0, dict.fromkeys(self.names.present(), 0)
        for table in _joined(batches, batch_rows(self.task.forest.features)):
            rows += len(table)
            for name in missing:
                missing[name] += _count_missing(table.column(name))
            if not any(missing.values()):
                yield table
        for name, count in missing.items():
            if count:
                raise ValueError(
                    f"partition {number}: {name!r} is null or NaN in {count} of {rows} rows; leave such rows out, "
                    f"df.dropna(subset=[{name!r}])"
                )


@dataclass(frozen=True)
class _PartitionMoments(_PartitionLabels):
    """The task that computes the moments of its partition."""

    reader: FeatureReader

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        yield _result(self.moments, batches)

    def moments(self, number: int, batches: Iterator[Any]) -> bytes:
        moments = LeafMoments.of_nothing(self.task.forest.n_leaves)
        for table in self.tables(number, batches):
            with naming(f"partition {number}"):
                X = self.reader.table(table)
            moments = moments.merge(partition_moments(self.task, number, X, *self.names.of(table)))
        return moments.to_bytes()


@dataclass(frozen=True)
class _Merge:
    """The task that merges the moments of several partitions, of a model with this many leaves."""

    leaves: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        first, moments = None, LeafMoments.of_nothing(self.leaves)
        for batch in batches:
            for i in range(batch.num_rows):
                (row,) = batch.slice(i, 1).to_pylist()
                if row["error"] is not None:
                    yield _one_row(**row)
                else:
                    first = row["number"] if first is None else first
                    moments = moments.merge(LeafMoments.from_bytes(row["result"]))
        if first is not None:
            yield _one_row(first, moments.to_bytes(), None)

    def of(self, results: list[bytes]) -> LeafMoments:
        """Return the moments of all results."""
        return reduce(LeafMoments.merge, map(LeafMoments.from_bytes, results), LeafMoments.of_nothing(self.leaves))


def _results(parts: Any) -> list[bytes]:
    """Return the results of all tasks in order, or raise the first error.

    A task that Spark runs again, or twice, gives one result all the same.
    """
    rows = sorted(parts.collect(), key=lambda row: row["number"])
    errors = [row["error"] for row in rows if row["error"] is not None]
    if errors:
        raise ValueError(errors[0] + (f" ({len(errors) - 1} further partitions fail)" if len(errors) > 1 else ""))
    return [bytes(row["result"]) for row in rows]


def _result(compute: Callable[[int, Iterator[Any]], bytes], batches: Iterator[Any]) -> Any:
    """Return what was computed of a partition, or the error, as a batch of one row."""
    from pyspark import TaskContext

    number = TaskContext.get().partitionId()
    try:
        return _one_row(number, compute(number, batches), None)
    except (TypeError, ValueError) as error:
        return _one_row(number, None, str(error))


def _one_row(number: int, result: bytes | None, error: str | None) -> Any:
    import pyarrow as pa

    schema = pa.schema([("number", pa.int32()), ("result", pa.binary()), ("error", pa.string())])
    return pa.RecordBatch.from_pylist([{"number": number, "result": result, "error": error}], schema)


def _unpacked(sums: bytes) -> LabelSums:
    return LabelSums(*np.frombuffer(sums).tolist())


def _joined(batches: Iterator[Any], rows: int) -> Iterator[Any]:
    """Yield the rows of all batches in tables of at least `rows` rows; the last may be smaller."""
    import pyarrow as pa

    parts: list[Any] = []
    for batch in batches:
        if batch.num_rows:
            parts.append(batch)
        if sum(part.num_rows for part in parts) >= rows:
            yield pa.Table.from_batches(parts)
            parts = []
    if parts:
        yield pa.Table.from_batches(parts)


def _count_missing(values: Any) -> int:
    """Return how many values of an Arrow column are null or NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    nans = pc.sum(pc.is_nan(values)).as_py() if pa.types.is_floating(values.type) else None
    return int(values.null_count + (nans or 0))
