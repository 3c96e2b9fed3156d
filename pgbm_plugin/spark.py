"""Wrapped models for Spark: moments are computed on the cluster, and predictions are lazy columns.

Each partition is one task, and rows never leave it. A task that Spark runs again, because an executor was lost or is
slow, counts no row twice. Moments are merged in an order that depends on the numbers of the partitions alone, so that
the same partitions give the same bits.

Examples
--------
>>> from pgbm_plugin import spark as pgbm_spark
>>> model = pgbm_spark.wrap(SparkXGBRegressor(features_col=names, label_col="y").fit(df), df)
>>> model.predict(df, quantiles=[0.05, 0.95])  # the Spark frame, with the columns mean, std, q05 and q95
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import ArrayLike

from .checks import interval_names, level_names
from .errors import naming
from .losses.custom_objectives import CustomObjective
from .model import ProbabilisticModel
from .predict.predictions import check_calibrated, check_init_score, check_variance_known
from .streams.spark_frames import (
    FeatureReader,
    SparkRows,
    check_frame,
    check_numbers,
    map_partitions,
    open_frame,
    spark_column,
)
from .wrap import wrap as wrap_rows


def wrap(
    model: Any,
    df: Any,
    *,
    label: str | None = None,
    weight: str | None = None,
    init_score: str | None = None,
    features: str | Sequence[str] | None = None,
    objective: CustomObjective | None = None,
    mean: Literal["booster", "pgbm"] = "booster",
    categorical: Sequence[str] | None = None,
) -> SparkModel:
    """Wrap a model with the rows of a Spark frame, for lazy predictions; see `pgbm_plugin.wrap`.

    The frame is read once. For LightGBM, which starts from the mean label, labels and weights are read before, and if
    that is not the mean of training, the rows may be read again. So cache a frame that is costly to compute, or that is
    not the same every time.

    Parameters
    ----------
    model : live model, estimator or path
        A fitted model of xgboost.spark, which is cut at its best iteration as its own predictions are, or any model
        that `wrap` takes. For models of Spark's JVM packages, give the path of the file that they save.
    df : pyspark.sql.DataFrame
        The rows. Columns of text are categories, as those of files are. Further columns are not read. For a model of
        xgboost.spark with a validation_indicator_col that the frame has, rows of validation are left out.
    label, weight, init_score : str, optional
        Columns of labels, weights, and margins that rows start from (base_margin). Default: those of a model of
        xgboost.spark; no weights and margins for other models.
    features : str or sequence of str, optional
        A column of vectors or arrays, or columns in the order of training. Default: those of a model of
        xgboost.spark, else the columns that have the names which the model stores.
    objective, mean, categorical : optional
        As in `pgbm_plugin.wrap`.
    """
    check_frame(df)
    own = _own_columns(model)
    validation = own.get("validationIndicatorCol", "")
    if validation in df.columns:
        df = df.filter(~spark_column(validation))
    label, weight = label or own.get("labelCol"), weight or own.get("weightCol")
    init_score, features = init_score or own.get("base_margin_col"), features or _own_features(own, df.columns)
    rows = SparkRows(df, label, weight, init_score, features)
    wrapped = wrap_rows(model, rows, objective=objective, mean=mean, categorical=categorical)
    return SparkModel(wrapped, features, init_score)


@dataclass(frozen=True)
class SparkModel:
    """Lazy predictions of a wrapped model for Spark frames.

    ``SparkModel(load("m.pgbm"))`` is one of a saved model.

    Attributes
    ----------
    model : ProbabilisticModel
        The wrapped model, for rows in memory, and for `tune` and `conformalize`. A lazy prediction uses the model as it
        was when the prediction was requested.
    features, init_score : str, sequence of str or None
        As in `wrap`.
    """

    model: ProbabilisticModel
    features: str | Sequence[str] | None = None
    init_score: str | None = None

    def predict(
        self,
        df: Any,
        quantiles: ArrayLike = (0.05, 0.5, 0.95),
        intervals: ArrayLike = (),
        *,
        groups: str | Sequence[str] | None = None,
    ) -> Any:
        """Return the frame with the columns of `predict_frame` added: mean, std, q05 ..., lower90, upper90 ...

        Parameters
        ----------
        df : pyspark.sql.DataFrame
            The rows, with any other columns. It is not read before Spark needs the result.
        quantiles, intervals : array-like
            Levels of quantiles, and coverages of central intervals.
        groups : str or sequence of str, optional
            Columns of the group of each row, if `conformalize` got groups.
        """
        from pyspark.sql.types import DoubleType, StructField, StructType

        names, keys = ["mean", "std", *level_names(quantiles), *interval_names(intervals)], _listed(groups)
        model, state = self.model, self.model.state
        check_variance_known(state)
        state.chosen.checked_groups(None, keys or None)
        wide, reader = open_frame(df, state.columns, self.features, [self.init_score, *keys])
        check_numbers(df, {"init_score": self.init_score})
        clash = [name for name in df.columns if name.lower() in names]  # to Spark, names in other cases are the same
        if clash:
            raise ValueError(f"df has a column {clash[0]!r}, as a predicted one is called: rename it, or drop it")
        if not state.surroundings:
            with naming("df"):
                reader.check_types(wide, model.read_rows)
        # here, because nobody sees the warnings of tasks
        if self.init_score is None:
            check_init_score(state, None)
        check_calibrated(state.chosen, vars(model))
        snapshot = copy.copy(model)
        snapshot.n_jobs, snapshot.device = 1, "cpu"
        task = _Predict(snapshot, reader, quantiles, intervals, self.init_score, keys, len(df.columns))
        fields = [StructField(name, DoubleType()) for name in names]
        return map_partitions(wide, task, StructType([*df.schema.fields, *fields]))


@dataclass(frozen=True)
class _Predict:
    """The task that adds predictions to the batches of its partition."""

    model: ProbabilisticModel
    reader: FeatureReader
    quantiles: ArrayLike
    intervals: ArrayLike
    init_score: str | None
    keys: tuple[str, ...]
    kept: int  # number of columns that are passed on

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            start = None if self.init_score is None else batch.column(self.init_score)
            keys = tuple(batch.column(name) for name in self.keys)
            columns = self.model.predict_columns(
                self.reader.table(batch),
                self.quantiles,
                self.intervals,
                init_score=start,
                groups=keys if len(keys) > 1 else keys[0] if keys else None,
            )
            arrays = [*batch.columns[: self.kept], *map(pa.array, columns.values())]
            yield pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names[: self.kept], *columns])


def _listed(names: str | Sequence[str] | None) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names or ())


def _own_columns(model: Any) -> dict[str, Any]:
    """Return the columns that a model of xgboost.spark was told in training, by the names of its parameters."""
    names = ("labelCol", "weightCol", "base_margin_col", "validationIndicatorCol", "features_cols", "featuresCol")
    if not hasattr(model, "hasParam"):
        return {}
    return {name: model.getOrDefault(name) for name in names if model.hasParam(name) and model.isDefined(name)}


def _own_features(own: dict[str, Any], columns: Sequence[str]) -> str | list[str] | None:
    """Return the feature columns of a model of xgboost.spark; its vector column where the frame has only that."""
    names, vectors = own.get("features_cols"), own.get("featuresCol")
    if not names or (vectors in columns and not {*names}.issubset(columns)):
        return vectors
    return list(names)
