"""Moments of Dask collections: one task a partition, merged by a tree. Needs nothing of Dask until it is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from ..boosters import TrainingData
from ..leaves.base_score import LabelSums, settled_moments, starting_from
from ..leaves.moments import LeafMoments, leaf_moments
from ..losses.custom_objectives import Objective, check_takes_batches, on_batch, without_weights
from ..tables.columns import read_column, read_weights
from ..tables.frames import check_names
from ..tables.labelled import as_held, read_labelled
from ..tables.rows import check_count, table_length
from ..trees.forest import Features, Forest
from ..trees.training_spec import TrainingSpec
from .batches import naming

if TYPE_CHECKING:
    from ..sources import Gathered, Given

# Results that one task merges.
_WIDTH = 8


def dask_moments(forest: Forest, spec: TrainingSpec, dX: Any, given: Given, *, settle: bool = True) -> Gathered:
    """How the trees were grown, their moments over all partitions, and whether rows were weighted."""
    check_takes_batches(spec, given.objective)
    if given.y is None:
        raise TypeError("a Dask collection needs labels: wrap(model, dX, dy)")
    check_columns(dX, forest.features)
    rows = _aligned(dX, given)
    spec, weighted = starting_from(spec, given.init_score), given.sample_weight is not None
    if not (settle and spec.start_is_mean and given.init_score is None):
        moments = rows.moments(_Training(forest, spec, given.objective, given.device))
        return without_weights(spec, given.objective), moments, weighted
    sums = rows.label_sums(_Training(forest, spec, None, given.device))

    def moments_of(forest: Forest, spec: TrainingSpec) -> LeafMoments:
        return rows.moments(_Training(forest, spec, None, given.device))

    return *settled_moments(forest, spec, sums, moments_of), weighted


@dataclass(frozen=True)
class _Training:
    """What tasks know of the model; a `device` is one of the worker that runs them."""

    forest: Forest
    spec: TrainingSpec
    objective: Objective | None
    device: str


@dataclass(frozen=True)
class _Partitions:
    """Delayed partitions of rows and of what belongs to them; lists of None where nothing does."""

    X: list[Any]
    y: list[Any]
    weight: list[Any]
    init_score: list[Any]

    def label_sums(self, training: _Training) -> LabelSums:
        """A pass of its own over labels and weights: features stay where they are."""
        sums: LabelSums = _reduced(_label_sums, training, self.y, self.weight)
        return sums

    def moments(self, training: _Training) -> LeafMoments:
        moments: LeafMoments = _reduced(_partition_moments, training, self.X, self.y, self.weight, self.init_score)
        if moments.rows == 0:
            raise ValueError("the collection has no rows")
        return moments


def _reduced(task: Callable[..., Any], training: _Training, *columns: list[Any]) -> Any:
    """Compute a task of every partition, and merge the results of neighbours until one is left."""
    import dask

    model, task, merge = shared(training), dask.delayed(task, pure=False), dask.delayed(_merged, pure=False)
    results = [task(model, i, *parts) for i, parts in enumerate(zip(*columns, strict=True))]
    while len(results) > 1:
        results = [merge(results[i : i + _WIDTH]) for i in range(0, len(results), _WIDTH)]
    return dask.compute(results[0])[0]


def shared(thing: Any) -> Any:
    """Something that many tasks need: in the graph once, so that it can be made again wherever it was lost."""
    import dask

    return dask.delayed(thing, name=f"{type(thing).__name__}-{uuid4().hex}", traverse=False)


def _label_sums(training: _Training, number: int, y: Any, weight: Any) -> LabelSums:
    """The task that comes first where boosting started from the mean label; it needs no features."""
    sums, spec, n = LabelSums.of_model(training.spec, training.forest), training.spec, table_length(y)
    if n == 0:
        return sums
    with naming(f"partition {number}"):
        label, of_rows = read_column("y", y, n), read_weights("weight", weight, n, part=True)
        assert label is not None
        return sums.add(spec, label, as_held(of_rows))


def _partition_moments(training: _Training, number: int, X: Any, y: Any, weight: Any, init_score: Any) -> LeafMoments:
    """The task: moments of one partition, on one thread."""
    with naming(f"partition {number}"):
        if table_length(X) == table_length(y) == 0:
            return LeafMoments.of_nothing(training.forest.n_leaves)
        data = read_labelled(TrainingData(X, y, weight, init_score), training.forest, training.device, part=True)
        spec = on_batch(training.spec, training.objective, data, probe=True)
        return leaf_moments(training.forest, spec, data, n_jobs=1)


def _merged(parts: Sequence[Any]) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = total.merge(part)
    return total


def is_dask(X: Any) -> bool:
    return hasattr(X, "__dask_graph__") and hasattr(X, "to_delayed")


def is_frame(X: Any) -> bool:
    return hasattr(X, "map_partitions")


def one_block_wide(X: Any) -> Any:
    """An array whose blocks hold whole rows."""
    return X if X.ndim == 1 or X.numblocks[1] == 1 else X.rechunk({1: -1})


def partitions(X: Any) -> list[Any]:
    """The delayed partitions of a frame, or blocks of rows of an array."""
    delayed = X.to_delayed() if is_frame(X) else one_block_wide(X).to_delayed().ravel()
    return list(delayed)


def check_columns(X: Any, features: Features) -> None:
    """Refuse, before the work, other columns than the model's, and categories that each partition codes in its own way.

    The latter only where the model has stored no categories, so that codes are all that there is.
    """
    if not is_frame(X):
        check_count(X.shape[1] if X.ndim == 2 else 1, features)
        return
    check_names([str(name) for name in X.columns], features)
    for name in (X.columns[j] for j in features.code_columns):
        if str(X.dtypes[name]) == "category" and not X[name].cat.known:
            raise ValueError(
                f"column {name!r} has categories that Dask does not know, and the model has stored none, only codes: "
                f"call dX.categorize() first"
            )


def _aligned(X: Any, given: Given) -> _Partitions:
    parts = partitions(X)
    columns = {"y": given.y, "sample_weight": given.sample_weight, "init_score": given.init_score}
    return _Partitions(parts, *(_column_parts(name, column, X, len(parts)) for name, column in columns.items()))


def _column_parts(name: str, column: Any, X: Any, count: int) -> list[Any]:
    """The partitions of a column, in those of X as far as they are known."""
    if column is None:
        return [None] * count
    if not is_dask(column):
        raise TypeError(f"{name} is a {type(column).__name__}: give a Dask collection with the partitions of X")
    if is_frame(column) and is_frame(X):
        if column.known_divisions and X.known_divisions and column.divisions != X.divisions:
            with naming(f"{name} has other divisions than X"):
                column = column.repartition(divisions=X.divisions)
    elif not is_frame(column) and not is_frame(X):
        lengths, wanted = column.chunks[0], X.chunks[0]
        if not np.isnan([*lengths, *wanted]).any() and lengths != wanted:
            if sum(lengths) != sum(wanted):
                raise ValueError(f"{name} has {sum(lengths)} values, X has {sum(wanted)} rows")
            column = column.rechunk({0: wanted})
    parts = partitions(column)
    if len(parts) != count:
        raise ValueError(
            f"{name} has {len(parts)} partitions, X has {count}, and Dask does not know how they fit: make both of one "
            f"collection, or bring them to the same partitions with repartition or rechunk"
        )
    return parts
