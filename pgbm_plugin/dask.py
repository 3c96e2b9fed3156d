"""Wrapped models for Dask: moments are computed on the cluster, predictions are lazy collections.

Each partition is one task. If a worker is lost, its tasks run again, and no row is counted twice. Moments are merged in
the order of the partitions. A `distributed.Client` is used if there is one, but is not needed.

Examples
--------
>>> from pgbm_plugin import dask as pgbm_dask
>>> model = pgbm_dask.wrap(DaskLGBMRegressor(...).fit(dX, dy), dX, dy)
>>> model.predict_dist(dX, quantiles=[0.05, 0.95])  # a Dask DataFrame: mean, std, q05, q95
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .checks import check_level, level_names
from .losses.custom_objectives import CustomObjective
from .model import ProbabilisticModel
from .predict.predictions import check_calibrated, check_init_score
from .streams.partitions import check_columns, is_dask, is_dask_frame, one_block_wide, partitions, shared
from .tables.rows import table_length
from .wrap import wrap as wrap_rows


def wrap(
    model: Any,
    dX: Any,
    dy: Any,
    *,
    sample_weight: Any = None,
    init_score: Any = None,
    objective: CustomObjective | None = None,
    mean: Literal["booster", "pgbm"] = "booster",
    device: str = "auto",
) -> DaskModel:
    """Wrap a model with rows in Dask collections, for lazy predictions; see `pgbm_plugin.wrap`.

    Parameters
    ----------
    model : live model, estimator or path
        DaskLGBMRegressor, DaskXGBRegressor, result of xgboost.dask.train, or any model that `wrap` takes.
    dX, dy, sample_weight, init_score : Dask array or DataFrame
        Rows, labels, weights and init scores, with the same partitions. Arrays with known chunks and frames with known
        divisions are repartitioned like dX. Partitions may be empty.
    objective, mean : optional
        As in `wrap`.
    device : str
        Device of each worker, as in `wrap`: "cuda" is the first GPU that the worker sees.
    """
    columns = {"sample_weight": sample_weight, "init_score": init_score}
    return DaskModel(wrap_rows(model, dX, dy, **columns, objective=objective, mean=mean, device=device))


@dataclass(frozen=True)
class DaskModel:
    """Lazy predictions of a wrapped model: frames for frames, arrays for arrays, in the same partitions.

    Attributes
    ----------
    model : ProbabilisticModel
        The wrapped model, for rows in memory, and for `tune` and `conformalize`. A lazy prediction uses the model as it
        was when the prediction was requested.
    """

    model: ProbabilisticModel

    def predict(self, dX: Any, return_std: bool = False) -> Any:
        """Return the booster's own predictions, bit for bit; with ``return_std=True``, the pair (mean, std)."""
        own = self.model.mean == "booster" and self.model.state.surroundings.transform is None
        kind = self.model.forest.leaf_value.dtype if own else np.dtype(float)
        mean = self._each(dX, lambda model, X: model.predict(X), "mean", kind)
        return (mean, self._each(dX, lambda model, X: model.predict_dist(X).std(), "std")) if return_std else mean

    def predict_dist(
        self, dX: Any, quantiles: ArrayLike = (), distribution: str | None = None, rho: float | None = None
    ) -> Any:
        """Return a Dask DataFrame with the columns mean (the prediction), std and quantiles such as q05."""

        def columns(model: ProbabilisticModel, X: Any) -> NDArray[np.float64]:
            parts = model.predict_columns(X, quantiles, distribution=distribution, rho=rho)
            return np.stack(list(parts.values()), axis=1)

        return self._each(dX, columns, ["mean", "std", *level_names(quantiles)], frame=True, rho=rho)

    def predict_var(self, dX: Any) -> Any:
        """Return the (n,) predictive variances."""
        return self._each(dX, lambda model, X: model.predict_var(X), "var")

    def predict_quantiles(self, dX: Any, q: ArrayLike) -> Any:
        """Return the (n, k) quantiles at k levels in (0, 1); for a frame, as columns such as q05."""
        return self._each(dX, lambda model, X: model.predict_quantiles(X, q), level_names(q))

    def predict_interval(self, dX: Any, coverage: float = 0.9) -> Any:
        """Return the (n, 2) central intervals; for a frame, as the columns lower and upper."""
        check_level("coverage", coverage)
        return self._each(dX, lambda model, X: model.predict_interval(X, coverage), ["lower", "upper"])

    def update(
        self, dX: Any, dy: Any = None, decay: float | None = None, *, sample_weight: Any = None, init_score: Any = None
    ) -> DaskModel:
        """Merge the moments of more rows into the model, see `ProbabilisticModel.update`."""
        self.model.update(dX, dy, decay, sample_weight=sample_weight, init_score=init_score)
        return self

    def _each(
        self,
        dX: Any,
        values: Callable[[ProbabilisticModel, Any], NDArray[Any]],
        names: str | list[str],
        dtype: np.dtype[Any] = np.dtype(float),  # noqa: B008, it is immutable
        frame: bool = False,
        rho: float | None = None,
    ) -> Any:
        """Return a lazy collection that applies `values` to each partition."""
        task = _Values(values, names, dtype)
        if not is_dask(dX):
            return (task.frame if frame or hasattr(dX, "iloc") else task.array)(dX, self.model)
        if names != "mean":
            if self.model.chosen.needs_groups:
                raise ValueError(
                    "conformalize got groups=, and predictions of Dask collections take none: predict one partition "
                    "after the other, model.predict_dist(part, groups=), or call conformalize without groups"
                )
            # here, because nobody sees the warnings of workers
            check_init_score(self.model.state, None)
            if rho is None:
                check_calibrated(self.model.chosen, vars(self.model))
        snapshot = copy.copy(self.model)
        snapshot.n_jobs = 1
        meta = task.frame(np.empty((0, 0)), snapshot)
        check_columns(dX, self.model.state.columns)
        if is_dask_frame(dX):
            return dX.map_partitions(task.frame, shared(snapshot), meta=meta)
        if frame:
            import dask
            import dask.dataframe as dd

            model = shared(snapshot)
            parts = [dask.delayed(task.frame, pure=False)(part, model) for part in partitions(dX)]
            return dd.from_delayed(parts, meta=meta, verify_meta=False)
        wide = {"chunks": (dX.chunks[0], (len(names),))} if isinstance(names, list) else {"drop_axis": 1}
        return one_block_wide(dX).map_blocks(task.array, model=shared(snapshot), dtype=dtype, **wide)


@dataclass(frozen=True)
class _Values:
    """A prediction task: the values of a partition, as an array or a frame like its collection."""

    values: Callable[[ProbabilisticModel, Any], NDArray[Any]]
    names: str | list[str]
    dtype: np.dtype[Any]

    def array(self, X: Any, model: ProbabilisticModel) -> NDArray[Any]:
        if table_length(X) == 0:
            return np.empty((0, len(self.names)) if isinstance(self.names, list) else 0, self.dtype)
        return self.values(model, X).astype(self.dtype, copy=False)

    def frame(self, X: Any, model: ProbabilisticModel) -> Any:
        import pandas as pd

        index = getattr(X, "index", None)
        if isinstance(self.names, str):
            return pd.Series(self.array(X, model), index=index, name=self.names)
        return pd.DataFrame(self.array(X, model), index=index, columns=self.names)
