"""Spark frames: which columns are read, checked before any work, and how tasks read them from Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import AnyArray
from ..checks import missing_column
from ..errors import naming
from ..tables.rows import check_count
from ..trees.forest import Features
from .batches import feature_places
from .categories import category_columns, encoded

BatchTask = Callable[[Iterator[Any]], Iterator[Any]]
"""A function that runs on the Arrow batches of one partition, and yields others."""

# The column that a column of vectors becomes.
_VECTOR = "_pgbm_plugin_vector"


@dataclass(frozen=True)
class SparkRows:
    """The rows of a Spark frame, and the names of the columns that are read.

    Attributes
    ----------
    df : pyspark.sql.DataFrame
        The frame.
    label, weight, init_score : str or None
        Columns of labels, weights and margins that rows start from.
    features : str, sequence of str or None
        A vector or array column that holds all features, or columns in the order of training; None for the columns
        that have the model's names.
    """

    df: Any
    label: str | None = None
    weight: str | None = None
    init_score: str | None = None
    features: str | Sequence[str] | None = None


@dataclass(frozen=True)
class FeatureReader:
    """Reads the model's features from Arrow batches of a Spark frame, in a task.

    Attributes
    ----------
    count : int
        Number of features that the model expects.
    columns : tuple of str
        The frame's columns in the model's order, or one column of arrays.
    names : tuple of str or None
        The names of the columns in the tables that are read; None for a column of arrays.
    categories : mapping
        Categorical columns among `names`, see `streams.categories.category_columns`.
    """

    count: int
    columns: tuple[str, ...]
    names: tuple[str, ...] | None
    categories: Mapping[str, tuple[Any, ...] | None]

    def table(self, batch: Any) -> Any:
        """Return the features of a batch: an Arrow table, or a matrix if they are in one column of arrays."""
        import pyarrow as pa

        if self.names is None:
            return _matrix(batch.column(self.columns[0]), self.count)
        columns = [batch.column(own) for own in self.columns]
        for j, name in enumerate(self.names):
            if name in self.categories:
                columns[j] = encoded(columns[j], name, self.categories[name], is_csv=False)
        return pa.Table.from_arrays(columns, names=list(self.names))

    def check_types(self, df: Any, read: Callable[[Any], Any]) -> None:
        """Let `read` refuse a table without rows whose columns have the types of the frame's."""
        import pyarrow as pa

        read(self.table(pa.table({name: pa.array([], _arrow_type(df, name)) for name in self.columns})))


def open_frame(
    df: Any, features: Features, given: str | Sequence[str] | None, besides: Sequence[str | None]
) -> tuple[Any, FeatureReader]:
    """Return the frame, with a column of arrays added for vectors, and the reader of its features.

    `given` is `SparkRows.features`, and `besides` are further columns that must be there.
    """
    check_frame(df)
    with naming("df"):
        vectors = given if isinstance(given, str) else None
        names = [given] if isinstance(given, str) else [*(given or ())]
        for name in filter(None, [*names, *besides]):
            if name not in df.columns:
                raise ValueError(missing_column(name, df.columns))
        if vectors is not None and (arrays := _arrays(df, vectors, features)) is not None:
            return df.withColumn(_VECTOR, arrays), FeatureReader(features.count, (_VECTOR,), None, {})
        if given is not None:
            check_count(len(names), features)
        elif features.names is None:
            raise TypeError(
                "the model stores no column names: give features=, the columns in the order of training, or the name "
                "of a column of vectors"
            )
        columns = names or [df.columns[place] for place in feature_places(df.columns, features, ())]
        stored = columns if given is None or features.names is None else features.names
        types = {name: _arrow_type(df, own) for own, name in zip(columns, stored, strict=True)}
        return df, FeatureReader(features.count, tuple(columns), tuple(stored), category_columns(types, features))


def check_numbers(df: Any, columns: Mapping[str, str | None]) -> None:
    """Refuse columns that do not hold numbers, given by the names of the arguments that name them."""
    from pyspark.sql.types import BooleanType, NumericType

    for argument, name in columns.items():
        if name is not None and not isinstance(kind := df.schema[name].dataType, (NumericType, BooleanType)):
            raise TypeError(f"df: {argument}={name!r} is a column of type {kind.simpleString()}, not of numbers")


def spark_column(name: str) -> Any:
    """Return the Spark column of this name, in which dots and backticks mean nothing."""
    from pyspark.sql import functions

    return functions.col("`" + name.replace("`", "``") + "`")


def map_partitions(df: Any, task: BatchTask, schema: Any) -> Any:
    """Return the lazy frame of what a task makes of the batches of each partition."""
    # mapInArrow itself takes dots and backticks in the names of columns for more than that
    plain = df.toDF(*(f"c{i}" for i in range(len(df.columns))))
    return plain.mapInArrow(_Named(task, tuple(df.columns)), schema)


@dataclass(frozen=True)
class _Named:
    """A task on batches with these names."""

    task: BatchTask
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        return self.task(pa.RecordBatch.from_arrays(batch.columns, names=list(self.names)) for batch in batches)


def check_frame(df: Any) -> None:
    """Refuse what is not a Spark frame, and the frame of a session that was stopped."""
    if not hasattr(df, "mapInArrow"):
        way_out = "df.to_spark()" if hasattr(df, "to_spark") else "a pyspark.sql.DataFrame (Spark 3.5 or later)"
        raise TypeError(f"df is a {type(df).__module__.partition('.')[0]} {type(df).__name__}: give {way_out}")
    session = df.sparkSession
    # a session of Spark Connect has no context, and says itself whether it was stopped
    stopped = session.is_stopped if hasattr(session, "is_stopped") else session.sparkContext._jsc is None
    if stopped:
        raise ValueError("the SparkSession of df was stopped: make df again, in a session that runs")


def _arrays(df: Any, name: str, features: Features) -> Any:
    """Return a column of vectors or arrays as one of arrays of numbers; None if it holds neither."""
    from pyspark.sql.types import ArrayType, NumericType

    field = df.schema[name]
    size = field.metadata.get("ml_attr", {}).get("num_attrs")  # VectorAssembler stores it
    if size not in (None, features.count):
        raise ValueError(f"column {name!r} has vectors of {size} numbers, the model was trained on {features.count}")
    if type(field.dataType).__name__ == "VectorUDT":
        from pyspark.ml.functions import vector_to_array

        return vector_to_array(spark_column(name))
    if not isinstance(field.dataType, ArrayType):
        return None
    if not isinstance(field.dataType.elementType, NumericType):
        raise TypeError(f"column {name!r} holds arrays of {field.dataType.elementType.simpleString()}, not of numbers")
    return spark_column(name).cast("array<double>")


def _arrow_type(df: Any, name: str) -> Any:
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(df.schema[name].dataType)


def _matrix(arrays: Any, width: int) -> AnyArray:
    """Return an Arrow column of lists as a matrix; refuse lists of another length."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if arrays.null_count:
        raise ValueError(f"{arrays.null_count} vectors are null")
    wrong = [length for length in pc.unique(pc.list_value_length(arrays)).to_pylist() if length != width]
    if wrong:
        raise ValueError(f"a vector has {wrong[0]} numbers, the model was trained on {width}")
    chunks = arrays.chunks if isinstance(arrays, pa.ChunkedArray) else [arrays]
    parts = [chunk.flatten().to_numpy(zero_copy_only=False).reshape(-1, width) for chunk in chunks]
    return np.concatenate([np.empty((0, width)), *parts])
