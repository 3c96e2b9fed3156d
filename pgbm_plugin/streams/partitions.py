"""Moments of partitions. Of Dask collections: one task per partition, and tasks that merge neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any
from uuid import uuid4

import numpy as np

from ..errors import naming
from ..leaves.base_score import LabelSums, MomentsOf, for_init_score, moments_from_mean
from ..leaves.gather import leaf_moments, with_ranges
from ..leaves.moments import LeafMoments
from ..losses.custom_objectives import CustomObjective, check_takes_batches, on_batch, without_weights
from ..tables.columns import read_labels, read_weights
from ..tables.frames import check_names
from ..tables.labelled import RawRows, read_labelled
from ..tables.rows import check_count, table_length
from ..trees.forest import Features, Forest
from ..trees.training_spec import TrainingSpec

# Number of results that one task merges.
_WIDTH = 8


@dataclass(frozen=True)
class Task:
    """Carries the parts of a model that tasks on the rows of a partition need."""

    forest: Forest
    spec: TrainingSpec
    objective: CustomObjective | None
    device: str  # of the worker that runs the task


def dask_moments(
    forest: Forest,
    spec: TrainingSpec,
    raw: RawRows,
    objective: CustomObjective | None,
    *,
    settle: bool = True,
    device: str = "cpu",
) -> tuple[TrainingSpec, LeafMoments]:
    """Return the spec, and the moments over all partitions."""
    check_takes_batches(spec, objective)
    if raw.y is None:
        raise TypeError("a Dask collection needs labels: wrap(model, dX, dy)")
    check_columns(raw.X, forest.features)
    parts = _aligned(raw)
    spec = for_init_score(spec, raw.init_score)

    def moments_of(forest: Forest, spec: TrainingSpec) -> LeafMoments:
        return _reduced(partition_moments, Task(forest, spec, objective, device), *vars(parts).values())

    def sums() -> LabelSums:
        return _reduced(label_sums, Task(forest, spec, None, device), parts.y, parts.sample_weight)

    settle = settle and spec.start_is_mean and raw.init_score is None
    return settled(forest, spec, objective, moments_of, sums if settle else None)


def settled(
    forest: Forest,
    spec: TrainingSpec,
    objective: CustomObjective | None,
    moments_of: MomentsOf,
    sums: Callable[[], LabelSums] | None,
) -> tuple[TrainingSpec, LeafMoments]:
    """Return the spec, and the moments over the rows of all partitions.

    `sums` is a pass over labels and weights only, for boosting that started from the mean label; else None.
    """

    def of_some_rows(forest: Forest, spec: TrainingSpec) -> LeafMoments:
        moments = moments_of(forest, spec)
        if moments.rows == 0:
            raise ValueError("there are no rows, or the weights of all rows are zero")
        return moments

    if sums is None:
        return without_weights(spec, objective), of_some_rows(forest, spec)
    return moments_from_mean(forest, spec, sums(), of_some_rows)


def _reduced(task: Callable[..., Any], task_model: Task, *columns: list[Any]) -> Any:
    """Run a task on every partition, and merge the results of neighbours until one result is left."""
    import dask

    model, task, merge = shared(task_model), dask.delayed(task, pure=False), dask.delayed(_merged, pure=False)
    results = [task(model, i, *parts) for i, parts in enumerate(zip(*columns, strict=True))]
    while len(results) > 1:
        results = [merge(results[i : i + _WIDTH]) for i in range(0, len(results), _WIDTH)]
    return dask.compute(results[0])[0]


def shared(thing: Any) -> Any:
    """Put an object that many tasks need into the Dask graph, once."""
    import dask

    return dask.delayed(thing, name=f"{type(thing).__name__}-{uuid4().hex}", traverse=False)


def label_sums(model: Task, number: int, y: Any, weight: Any) -> LabelSums:
    """Return the sums over the labels of one partition, for boosting that started from the mean label."""
    sums, n = LabelSums.of_model(model.spec, model.forest), table_length(y)
    if n == 0:
        return sums
    with naming(f"partition {number}"):
        label, weights = read_labels("y", y, n), read_weights("weight", weight, n, part=True)
        return sums.add(model.spec.margin_labels(label), model.spec.held(weights))


def partition_moments(model: Task, number: int, X: Any, y: Any, weight: Any, init_score: Any) -> LeafMoments:
    """Return the moments of one partition, computed on one thread."""
    with naming(f"partition {number}"):
        if table_length(X) == table_length(y) == 0:
            return LeafMoments.of_nothing(model.forest.n_leaves)
        raw = RawRows(X, y, weight, init_score)
        data = read_labelled(raw, model.forest, model.spec, model.device, part=True)
        spec = on_batch(model.spec, model.objective, data, probe=True)
        moments = leaf_moments(model.forest, spec, data.on_margin_scale(spec), n_jobs=1)
        return with_ranges(moments, model.forest, data, n_jobs=1)


def _merged(parts: Sequence[Any]) -> Any:
    return reduce(lambda total, part: total.merge(part), parts)


def is_dask(X: Any) -> bool:
    """Tell whether `X` is a Dask collection."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "to_delayed")


def is_dask_frame(X: Any) -> bool:
    """Tell whether a Dask collection is a DataFrame."""
    return hasattr(X, "map_partitions")


def one_block_wide(X: Any) -> Any:
    """Return an array whose blocks hold whole rows."""
    return X if X.ndim == 1 or X.numblocks[1] == 1 else X.rechunk({1: -1})


def partitions(X: Any) -> list[Any]:
    """Return the delayed partitions of a frame, or the delayed blocks of rows of an array."""
    return list(X.to_delayed() if is_dask_frame(X) else one_block_wide(X).to_delayed().ravel())


def check_columns(X: Any, features: Features) -> None:
    """Refuse columns that are not the model's, and categories whose codes may differ between partitions.

    Codes matter only for columns whose categories the model does not store.
    """
    if not is_dask_frame(X):
        check_count(X.shape[1] if X.ndim == 2 else 1, features)
        return
    check_names([str(name) for name in X.columns], features)
    for name in (X.columns[j] for j in features.code_columns):
        if str(X.dtypes[name]) == "category" and not X[name].cat.known:
            raise ValueError(
                f"column {name!r} has categories that Dask does not know, and the model stores only codes: call "
                f"dX.categorize() first"
            )


def _aligned(raw: RawRows) -> RawRows:
    """Replace each collection by the list of its delayed partitions, and None by a list of None."""
    parts = partitions(raw.X)
    columns = {"y": raw.y, "sample_weight": raw.sample_weight, "init_score": raw.init_score}
    return RawRows(parts, *(_column_parts(name, column, raw.X, len(parts)) for name, column in columns.items()))


def _column_parts(name: str, column: Any, X: Any, count: int) -> list[Any]:
    """Return the partitions of a column, changed to match those of X where Dask knows their sizes."""
    if column is None:
        return [None] * count
    if not is_dask(column):
        raise TypeError(f"{name} is a {type(column).__name__}: give a Dask collection with the partitions of X")
    if is_dask_frame(column) and is_dask_frame(X):
        if column.known_divisions and X.known_divisions and column.divisions != X.divisions:
            with naming(f"{name} has other divisions than X"):
                column = column.repartition(divisions=X.divisions)
    elif not is_dask_frame(column) and not is_dask_frame(X):
        lengths, wanted = column.chunks[0], X.chunks[0]
        if not np.isnan([*lengths, *wanted]).any() and lengths != wanted:
            if sum(lengths) != sum(wanted):
                raise ValueError(f"{name} has {sum(lengths)} values, X has {sum(wanted)} rows")
            column = column.rechunk({0: wanted})
    parts = partitions(column)
    if len(parts) != count:
        raise ValueError(
            f"{name} has {len(parts)} partitions, X has {count}, and Dask does not know the rows in each: take both "
            f"from one collection, or give them the same partitions with repartition or rechunk"
        )
    return parts
