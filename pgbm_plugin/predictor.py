"""Predictor: a wrapped booster, as far as it predicts. `model` has what can be done to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .boosters import read_dataset
from .calibration.conformal import variance_floor
from .device import check_device, in_kind_of, read_rows_for
from .errors import warn
from .leaves.certificate import Certificate
from .leaves.moments import LeafMoments
from .leaves.weights import LeafWeights, leaf_weights, margins, paper_leaf_values, typical_variance
from .predict.chosen import Settings
from .predict.power_map import Calibration
from .predict.response import Margins, summary, to_response
from .streams.batches import is_stream, naming, unlabelled_stream
from .tables.columns import check_level, check_levels, read_column
from .tables.rows import Rows
from .trees.forest import Forest
from .trees.objectives import LOG
from .trees.training_spec import TrainingSpec

if TYPE_CHECKING:
    from .calibration.boosted_scale import LogScale
    from .distributions import Distribution

Variance = Literal["pgbm", "boosted", "auto"]
"""Where the variance comes from: the paper's recursion, a boosted scale, or whichever blend scores best."""


class Predictor:
    """The attributes of `ProbabilisticModel`, and its predictions."""

    def __init__(
        self,
        forest: Forest,
        spec: TrainingSpec,
        moments: LeafMoments,
        certificate: Certificate,
        *,
        weights: LeafWeights | None = None,
        mean: Literal["booster", "pgbm"] = "booster",
        device: str = "auto",
        n_jobs: int | None = None,
        settings: Settings | None = None,
        variance: Variance = "pgbm",
        training_scale: LogScale | None = None,
    ):
        self.forest = forest
        self.spec = spec
        self.moments = moments
        self.weights = leaf_weights(forest, spec, moments) if weights is None else weights
        self.certificate = certificate
        self.mean = mean
        self.device = device
        self.n_jobs = n_jobs
        self._variance = variance
        self.training_scale = training_scale
        self.default_rho = default_rho(moments)
        self._settings = Settings(self.default_rho) if settings is None else settings
        self._leaf_value = self._leaf_values()

    def _leaf_values(self) -> NDArray[Any]:
        if self.mean == "booster":
            return self.forest.leaf_value
        return paper_leaf_values(self.forest, self.spec, self.weights)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self.mean == "booster":
            self._leaf_value = self.forest.leaf_value  # of one array joblib makes two

    @property
    def variance(self) -> Variance:
        """What `wrap` was told, and `tune` does unless told otherwise."""
        return self._variance

    @property
    def rho(self) -> float:
        return self._settings.rho

    @rho.setter
    def rho(self, value: float) -> None:
        self._settings.check_effect(value)
        self._settings = replace(self._settings, rho=value)

    @property
    def distribution(self) -> str:
        return self._settings.distribution

    @distribution.setter
    def distribution(self, name: str) -> None:
        self._settings = replace(self._settings, distribution=name)

    @property
    def calibration(self) -> Calibration:
        return self._settings.calibration

    @calibration.setter
    def calibration(self, value: Calibration) -> None:
        self._settings = replace(self._settings, calibration=value)

    def predict(self, X: Any, return_std: bool = False, *, init_score: Any = None, device: str | None = None) -> Any:
        """What the booster predicts, bit for bit; with ``return_std=True`` the pair (mean, std).

        `init_score` is per row, for models trained with LightGBM's init_score or XGBoost's base_margin. Results for a
        table on a GPU are arrays of its library, there.
        """
        if return_std:
            prediction, distribution = self._of_table(X, init_score, device)
            return in_kind_of(X, prediction), in_kind_of(X, distribution.std())
        rows, score = self._read(X, init_score, device)
        margin, _, _ = margins(self.forest, rows, self._leaf_value, score, n_jobs=self.n_jobs)
        return in_kind_of(X, to_response(self.forest, margin))

    def predict_dist(
        self,
        X: Any,
        distribution: str | None = None,
        rho: float | None = None,
        device: str | None = None,
        *,
        init_score: Any = None,
        dtype: Any = np.float64,
    ) -> Distribution:
        """A distribution per row: ``d.mean()``, ``d.std()``, ``d.ppf([.05, .95])``, ``d.rvs(100)``, ``d.crps(y)``...

        `distribution` is a family's name, such as "normal" or "studentt(df=5)"; it, `rho` and `device` default to the
        model's. If `X` is an iterator of tables, or a path or pattern of Parquet or CSV files, an iterator: the
        distributions of one batch after the other, as they are read.

        `dtype` float32 lets a GPU take the variances in single precision, to about 1e-5 (means stay as they are); many
        GPUs are far slower in double precision. Distributions live on the host.
        """
        if dtype is not np.float64 and np.dtype(dtype) not in (np.float32, np.float64):
            raise ValueError(f"dtype must be float64 or float32, not {dtype!r}")
        if not is_stream(X):
            return self._of_table(X, init_score, device, distribution, rho, dtype)[1]
        if init_score is not None:
            raise TypeError("init_score belongs to one table: predict batch by batch, predict_dist(X, init_score=)")
        self._settings.checked_family(distribution, rho, self._support())  # before a batch is read
        return self._of_batches(X, device, distribution, rho, dtype, self._settings)

    def _of_batches(self, X: Any, *how: Any) -> Any:
        for batch, _ in unlabelled_stream(X, self.forest.features):
            with naming(batch.name):
                _, found = self._of_table(batch.X, None, *how)
            yield found

    def predict_parquet(
        self,
        X: Any,
        path: Any,
        *,
        quantiles: ArrayLike = (0.05, 0.5, 0.95),
        intervals: ArrayLike = (),
        keep: Sequence[str] = (),
        init_score: str | None = None,
        progress: bool = False,
    ) -> int:
        """Write the distributions of rows to a Parquet file; returns how many.

        Columns are mean, which is the prediction, std, quantiles, such as q05, q50 and q95, and the ends of central
        intervals, such as lower90 and upper90 for 0.9. `X` is a table, an iterator of tables, or a path or pattern of
        Parquet or CSV files; a few batches are in memory at a time. Of the columns of these tables, `keep` are copied,
        such as a key, and `init_score` holds that of each row. The file appears when it is complete.
        """
        from .streams.csvfiles import is_csv
        from .streams.predictions import Columns, write_distributions

        if is_csv(str(path)):
            raise ValueError(f"predict_parquet writes Parquet, and {path} is named as CSV: name it .parquet")
        columns = Columns(quantiles, intervals, tuple(keep), init_score)
        return write_distributions(self, X, path, columns, csv=False, progress=progress)

    def _summary(
        self,
        X: Any,
        quantiles: ArrayLike,
        intervals: ArrayLike = (),
        distribution: str | None = None,
        rho: float | None = None,
        init_score: Any = None,
    ) -> dict[str, NDArray[np.float64]]:
        """What is written of rows, and given to Dask, as columns."""
        return summary(*self._of_table(X, init_score, None, distribution, rho), quantiles, intervals)

    def predict_var(self, X: Any, *, init_score: Any = None, device: str | None = None) -> Any:
        """(n,) predictive variances."""
        return in_kind_of(X, self._of_table(X, init_score, device)[1].var())

    def predict_quantiles(self, X: Any, q: ArrayLike, *, init_score: Any = None, device: str | None = None) -> Any:
        """(n, k) quantiles at k levels in (0, 1)."""
        levels = np.atleast_1d(check_levels("q", q))
        return in_kind_of(X, self._of_table(X, init_score, device)[1].ppf(levels))

    def predict_interval(
        self, X: Any, coverage: float = 0.9, *, init_score: Any = None, device: str | None = None
    ) -> Any:
        """(n, 2) lower and upper end of the central interval."""
        check_level("coverage", coverage)
        return in_kind_of(X, np.stack(self._of_table(X, init_score, device)[1].interval(coverage), axis=1))

    def _of_table(
        self,
        X: Any,
        init_score: Any,
        device: str | None,
        distribution: str | None = None,
        rho: float | None = None,
        dtype: Any = np.float64,
        settings: Settings | None = None,
    ) -> tuple[NDArray[Any], Distribution]:
        """The booster's predictions for rows that are all here, and the distributions around them."""
        settings = self._settings if settings is None else settings  # once, as another thread may tune meanwhile
        rho, family, options = settings.checked_family(distribution, rho, self._support())
        margins_ = self._margins(*self._read(X, init_score, device), rho, settings.scale, dtype)
        if family.needs_residuals:
            margins_ = self._floored(margins_)
        return margins_.prediction, margins_.distribution(family, settings.calibration, **options)

    def _support(self) -> float:
        """Below this no outcome can lie: the objective's word, not that of a family that someone chose."""
        return 0.0 if self.forest.link == LOG else -np.inf

    def _predicts_positive(self) -> bool:
        """Whether the prediction for any row is positive."""
        if self.forest.link == LOG:
            return True
        lowest = np.minimum.reduceat(self._leaf_value.astype(np.float64), self.forest.leaf_start[:-1]).sum()
        return not self.spec.own_starts and bool(lowest + self.forest.base_margin > 0.0)

    def _read(self, X: Any, init_score: Any, device: str | None) -> tuple[Rows, NDArray[np.float64] | None]:
        if is_stream(X):
            raise TypeError(
                "this takes one table; for batches and files there are predict_dist(batches), which gives the "
                "distributions of one after the other, and predict_parquet; read those of tune and conformalize first"
            )
        found = read_dataset(X)
        if found is not None:
            X, init_score = found.X, found.init_score if init_score is None else init_score
        rows = read_rows_for(X, self.forest, self.device if device is None else check_device(device))
        return rows, read_column("init_score", init_score, len(rows))

    def _margins(
        self,
        rows: Rows,
        init_score: NDArray[np.float64] | None,
        rho: float,
        scale: LogScale | None,
        dtype: Any = np.float64,
    ) -> Margins:
        """The walk: margins, predictions and variances of rows, of the recursion or with a `scale` in its place."""
        self._check_start(init_score)
        values = self._leaf_value, init_score, self.weights.sd, rho, None if scale is None else scale.step
        margin, variance, steps = margins(self.forest, rows, *values, n_jobs=self.n_jobs, dtype=dtype)
        assert variance is not None
        if scale is not None:
            assert steps is not None
            variance = scale(variance, steps)
        return Margins(self.forest, margin, to_response(self.forest, margin), variance)

    def _check_start(self, init_score: Any) -> None:
        """Warn of rows without the scores that training started from; `predict` says nothing, as the boosters do."""
        if init_score is None and self.spec.own_starts:
            warn(
                "training had an init_score (base_margin), and these rows have none: their distributions are those of "
                "what the trees add to it; give init_score=",
            )

    def _floored(self, margins_: Margins) -> Margins:
        return replace(margins_, variance=np.maximum(margins_.variance, self._variance_floor()))

    def _variance_floor(self) -> float:
        return variance_floor(typical_variance(self.forest, self.moments, self.weights))


def check_variance(variance: Variance) -> Variance:
    if variance not in get_args(Variance):
        raise ValueError(f"variance must be 'pgbm', 'boosted' or 'auto', not {variance!r}")
    return variance


def default_rho(moments: LeafMoments) -> float:
    """The paper's choice for the correlation between trees."""
    return math.log10(moments.rows) / 100.0
