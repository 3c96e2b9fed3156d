"""Sources: where the moments of a forest's leaves come from. `find_source` looks at what was given, once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from .boosters import completed, held_data, training_rows, with_names_of_training
from .errors import naming
from .leaves.base_score import for_init_score, with_implied_base_score
from .leaves.gather import leaf_moments, with_ranges
from .leaves.measured import MeasuredLeaves, judge, measure_table
from .leaves.moments import LeafMoments, check_moments
from .losses.custom_objectives import (
    CustomObjective,
    on_rows,
    own_objective,
    with_diagonal,
    with_usable_weights,
)
from .losses.torch_objective import TorchObjective
from .predict.state import ModelState
from .saving.embedded import read_embedded
from .streams.batches import Batch, is_labelled_stream, labelled_stream
from .streams.moments import stream_moments
from .streams.partitions import dask_moments, is_dask
from .streams.spark_frames import SparkRows
from .streams.spark_moments import spark_moments
from .surroundings.surroundings import Surroundings
from .tables.in_memory import is_stream
from .tables.labelled import LabelledRows, RawRows, read_labelled
from .training.recorded import recorded
from .trees.forest import Forest
from .trees.objectives import custom, forgotten
from .trees.training_spec import TrainingSpec


class Options(NamedTuple):
    """Options of a measurement: the custom objective of training, the device, threads, and a progress bar."""

    objective: CustomObjective | None = None
    device: str = "cpu"
    n_jobs: int | None = None
    progress: bool = False


class Further(NamedTuple):
    """Moments of further rows, and the rows themselves if they are in memory."""

    moments: LeafMoments
    data: LabelledRows | None = None


class Source(ABC):
    """Labelled rows, or moments of them, in one of the forms that users have."""

    may_be_table = False  # whether all rows may be in memory as one table
    is_remote = False  # whether other machines compute, on devices of their own

    def through(self, surroundings: Surroundings, forest: Forest) -> Source:
        """Return the source of the same rows as they are after the layers around a booster."""
        return self

    def embedded(self, booster: Any, forest: Forest, objective: CustomObjective | None) -> ModelState | None:
        """Return the whole model that `embed` stored in a booster, if it is the source; refuse what that holds."""
        return None

    @abstractmethod
    def measure(self, booster: Any, forest: Forest, spec: TrainingSpec, options: Options) -> MeasuredLeaves:
        """Measure the leaves of a booster's trees, and settle what its spec leaves open."""

    @abstractmethod
    def further(self, forest: Forest, spec: TrainingSpec, options: Options) -> Further:
        """Return the moments of further rows, under the settled spec of a wrapped model."""


def find_source(raw: RawRows, label: str | None, weight: str | None) -> Source:
    """Return the source behind what was given; refuse arguments that do not belong to it."""
    X = raw.X
    columns = {"label": label, "weight": weight}
    given = {"y": raw.y, "sample_weight": raw.sample_weight, "init_score": raw.init_score}
    if X is None:
        return Held(raw, columns)
    if isinstance(X, LeafMoments):
        refuse(given | columns, "moments are complete: give it to partial_moments")
        return Given(X)
    if is_dask(X):
        refuse(columns, "Dask collections take y= and sample_weight=")
        return Partitions("a Dask collection", partial(dask_moments, raw=raw))
    if isinstance(X, SparkRows):
        refuse(given | columns, "the columns of a Spark frame are named in its SparkRows")
        return Partitions("a Spark frame", partial(spark_moments, frame=X))
    if hasattr(X, "mapInArrow"):
        raise TypeError("X is a Spark frame: call pgbm_plugin.spark.wrap(model, df, label='y')")
    if is_stream(X) or (raw.y is None and is_labelled_stream(X)):
        refuse(
            {name: given[name] for name in ("y", "sample_weight")},
            "batches bring their own: (X, y, weight), or label= and weight= of files",
        )
        refuse(
            {"init_score": raw.init_score},
            "batches have none: give each to partial_moments(booster, X, y, init_score=...)",
        )
        return Batches(X, label, weight)
    refuse(columns, "X is no file or batch: give y= and sample_weight=")
    return Table(raw)


def refuse(arguments: dict[str, Any], reason: str) -> None:
    """Raise TypeError for the first argument that was given, with the reason why it must not be."""
    for name, value in arguments.items():
        if value is not None:
            raise TypeError(f"{name} was given, but {reason}")


@dataclass(frozen=True)
class Table(Source):
    """One table in memory, or a booster's own data set."""

    raw: RawRows
    may_be_table = True

    def through(self, surroundings: Surroundings, forest: Forest) -> Source:
        return Table(surroundings.rows(self.raw)) if surroundings else self

    def measure(self, booster: Any, forest: Forest, spec: TrainingSpec, options: Options) -> MeasuredLeaves:
        raw, objective = completed(self.raw), options.objective
        if raw.y is None and raw.X is self.raw.X:
            raise TypeError("wrap(booster, X) needs labels: wrap(booster, X, y)")
        raw = with_usable_weights(raw, self.raw.sample_weight, objective)
        forest = with_names_of_training(forest, raw.X)
        data = read_labelled(raw, forest, spec, options.device)
        kept = training_rows(booster, len(data))
        trained = data if kept is None else data.take(kept)
        measured = measure_table(booster, forest, spec, objective, trained, options.n_jobs, options.progress)
        measured = measured._replace(moments=with_ranges(measured.moments, forest, trained, options.n_jobs))
        return measured if kept is None else _of_kept_rows(measured, data)

    def further(self, forest: Forest, spec: TrainingSpec, options: Options) -> Further:
        raw = completed(self.raw)
        if raw.y is None:
            raise TypeError("update needs labels: model.update(X, y)")
        data = read_labelled(raw, forest, spec, options.device)
        spec = with_diagonal(for_init_score(on_rows(spec, data), data.init_score))
        rows = data.on_margin_scale(spec)
        moments = leaf_moments(forest, spec, rows, n_jobs=options.n_jobs, progress=options.progress)
        return Further(with_ranges(moments, forest, data, options.n_jobs), data)


def _of_kept_rows(measured: MeasuredLeaves, data: LabelledRows) -> MeasuredLeaves:
    """Return the leaves of some of the given rows, for all of them; the certificate says how many they are."""
    kept = 0 if measured.trained is None else len(measured.trained)
    certificate = measured.certificate
    sentence = (
        f"{certificate.sentence}; training held {len(data) - kept} of the {len(data)} rows back to stop early, so "
        f"these are the moments of the other {kept}"
    )
    return measured._replace(data=data, certificate=replace(certificate, sentence=sentence))


@dataclass(frozen=True)
class Held(Source):
    """Moments or training data that a live booster holds itself."""

    raw: RawRows
    columns: dict[str, str | None]
    may_be_table = True

    def embedded(self, booster: Any, forest: Forest, objective: CustomObjective | None) -> ModelState | None:
        found = read_embedded(booster, forest) if self.raw.y is None else None
        if found is not None:
            self.refuse_arguments(objective)
        return found

    def measure(self, booster: Any, forest: Forest, spec: TrainingSpec, options: Options) -> MeasuredLeaves:
        if self.raw.y is not None:
            raise TypeError("wrap got y without X")
        found = recorded(booster, forest, spec)
        if found is not None:
            self.refuse_arguments(options.objective)
            return judge(forest, *found)
        refuse(self.columns, "X is no file or batch: give y= and sample_weight=")
        data = held_data(booster)
        return Table(replace(self.raw, X=data.X).completed_by(data)).measure(booster, forest, spec, options)

    def refuse_arguments(self, objective: CustomObjective | None) -> None:
        """Refuse what the recorded or embedded moments hold already."""
        columns = {"sample_weight": self.raw.sample_weight, "init_score": self.raw.init_score, "objective": objective}
        refuse(
            columns | self.columns,
            "the booster brings its recorded moments, which hold weights, init scores and objective of training: "
            "leave it out, or give the rows as well, wrap(booster, X, y)",
        )

    def further(self, forest: Forest, spec: TrainingSpec, options: Options) -> Further:
        raise TypeError("update needs rows: model.update(X, y)")


@dataclass(frozen=True)
class Given(Source):
    """Moments that someone else has gathered and merged."""

    moments: LeafMoments

    def measure(self, booster: Any, forest: Forest, spec: TrainingSpec, options: Options) -> MeasuredLeaves:
        refuse({"objective": options.objective}, "moments are complete: give it to partial_moments")
        moments = self.further(forest, spec, options).moments
        if spec.objective is None:
            spec = replace(spec, objective=custom(forgotten))
        if spec.start_is_mean:
            spec = with_implied_base_score(forest, spec, moments)
        return judge(forest, spec, moments)

    def further(self, forest: Forest, spec: TrainingSpec, options: Options) -> Further:
        check_moments(forest, self.moments)
        return Further(self.moments)


@dataclass(frozen=True)
class Batches(Source):
    """Rows that come in parts: an iterator, files, a list of batches. In frames and files, columns are named."""

    X: Any
    label: str | None
    weight: str | None

    def through(self, surroundings: Surroundings, forest: Forest) -> Source:
        if not surroundings:
            return self
        parts = labelled_stream(self.X, surroundings.columns(forest.features), self.label, self.weight).batches
        return Batches(_passed(parts, surroundings), None, None)

    def measure(self, booster: Any, forest: Forest, spec: TrainingSpec, options: Options) -> MeasuredLeaves:
        return judge(forest, *self._gather(forest, spec, _objective(booster, options), options, settle=True))

    def further(self, forest: Forest, spec: TrainingSpec, options: Options) -> Further:
        return Further(self._gather(forest, spec, own_objective(spec), options, settle=False)[1])

    def _gather(
        self,
        forest: Forest,
        spec: TrainingSpec,
        objective: CustomObjective | None,
        options: Options,
        settle: bool,
    ) -> tuple[TrainingSpec, LeafMoments]:
        return stream_moments(
            forest,
            for_init_score(spec, None),
            self.X,
            objective,
            label=self.label,
            weight=self.weight,
            settle=settle,
            device=options.device,
            n_jobs=options.n_jobs,
            progress=options.progress,
        )


@dataclass(frozen=True)
class Partitions(Source):
    """Partitions on a cluster: a Dask collection with its columns as others, or a Spark frame."""

    name: str
    moments: Callable[..., tuple[TrainingSpec, LeafMoments]]
    is_remote = True

    def through(self, surroundings: Surroundings, forest: Forest) -> Source:
        if surroundings:
            raise TypeError(
                f"{self.name} cannot pass through the layers around a booster: give wrap the booster alone, with "
                "the rows as its training saw them, or give them as batches, ((X, y) for ...)"
            )
        return self

    def measure(self, booster: Any, forest: Forest, spec: TrainingSpec, options: Options) -> MeasuredLeaves:
        objective = _objective(booster, options)
        return judge(forest, *self.moments(forest, spec, objective=objective, device=options.device))

    def further(self, forest: Forest, spec: TrainingSpec, options: Options) -> Further:
        objective = own_objective(spec)
        return Further(self.moments(forest, spec, objective=objective, settle=False, device=options.device)[1])


def _passed(batches: Iterator[Batch], surroundings: Surroundings) -> Iterator[tuple[Any, ...]]:
    """Yield (X, y) or (X, y, weight) of each batch, as they are after the layers around a booster."""
    for name, raw in batches:
        with naming(name):
            raw = surroundings.rows(raw)
        yield (raw.X, raw.y) if raw.sample_weight is None else (raw.X, raw.y, raw.sample_weight)


def _objective(booster: Any, options: Options) -> CustomObjective | None:
    """Return the custom objective of training: the one given, or the torch objective that an estimator holds."""
    attribute = getattr(booster, "objective", None)
    return attribute if options.objective is None and isinstance(attribute, TorchObjective) else options.objective
