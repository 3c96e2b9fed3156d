"""ProbabilisticModel: a wrapped booster."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .adapters import read_dataset
from .batches import is_stream, naming, unlabelled_stream
from .calibration import Calibration
from .certificate import Certificate
from .columns import check_levels, read_column
from .conformal import ConformalScores, conformal_scores, variance_floor
from .forest import Forest
from .moments import LeafMoments
from .objectives import LOG
from .propagate import LeafWeights, are_wrapped_rows, margins, paper_leaf_values, typical_variance, variances
from .response import Margins, to_response
from .rows import Rows, read_rows
from .training import TrainingSpec

if TYPE_CHECKING:
    from .distributions import Distribution
    from .tuneresult import TuneResult


class ProbabilisticModel:
    """Predicts a distribution per row, around the booster's own prediction. Made by `wrap`.

    Attributes
    ----------
    forest : the trees.
    spec : how they were grown.
    moments : sample moments of gradient and hessian per leaf.
    weights : mean and variance of each leaf's weight.
    certificate : whether the moments are those of training.
    rho : correlation between successive trees (paper eq. 12), in [-1, 1].
    default_rho : its value unless set, log10(rows) / 100.
    distribution : name of the family that `predict_dist` returns unless told otherwise.
    calibration : power map on the variance, set by `tune`.
    """

    def __init__(
        self,
        forest: Forest,
        spec: TrainingSpec,
        moments: LeafMoments,
        weights: LeafWeights,
        certificate: Certificate,
        *,
        mean: Literal["booster", "pgbm"] = "booster",
        n_jobs: int | None = None,
    ):
        self.forest = forest
        self.spec = spec
        self.moments = moments
        self.weights = weights
        self.certificate = certificate
        self.n_jobs = n_jobs
        self.mean = mean
        self.rho = self.default_rho = _default_rho(moments)
        self.distribution = "normal"
        self.calibration = Calibration()
        self._residuals: NDArray[np.float64] | None = None  # the shape of "empirical"
        self._conformal: ConformalScores | None = None
        self._tuned_on: bytes | None = None  # a digest of the labels
        self._leaf_value = self._leaf_values()

    def _leaf_values(self) -> NDArray[Any]:
        if self.mean == "booster":
            return self.forest.leaf_value
        return paper_leaf_values(self.forest, self.spec, self.weights)

    @property
    def rho(self) -> float:
        return self._rho

    @rho.setter
    def rho(self, value: float) -> None:
        self._rho = _check_rho(value)

    @property
    def distribution(self) -> str:
        return self._distribution

    @distribution.setter
    def distribution(self, name: str) -> None:
        from .distributions import family

        self._family = family(name)
        self._distribution = name

    @property
    def calibration(self) -> Calibration:
        return self._calibration

    @calibration.setter
    def calibration(self, value: Calibration) -> None:
        if not isinstance(value, Calibration):
            raise TypeError(f"calibration must be a Calibration(b, c), not {value!r}")
        self._calibration = value

    def predict(self, X: Any, return_std: bool = False, *, init_score: Any = None) -> Any:
        """What the booster predicts, bit for bit; with ``return_std=True`` the pair (mean, std).

        `init_score` is per row, for models trained with LightGBM's init_score or XGBoost's base_margin.
        """
        if return_std:
            family = self._checked_family(None, self.rho)
            margins_ = self._margins(X, self.rho, init_score)
            return margins_.prediction, self._around(margins_, *family).std()
        rows, score = self._read(X, init_score)
        margin, _ = margins(self.forest, rows, self._leaf_value, score, n_jobs=self.n_jobs)
        return to_response(self.forest, margin)

    def predict_dist(
        self,
        X: Any,
        distribution: str | None = None,
        rho: float | None = None,
        device: str | None = None,
        *,
        init_score: Any = None,
    ) -> Distribution:
        """A distribution per row: ``d.mean()``, ``d.std()``, ``d.ppf([.05, .95])``, ``d.rvs(100)``, ``d.crps(y)``...

        `distribution` is a family's name, such as "normal" or "studentt(df=5)"; it and `rho` default to the model's.
        If `X` is an iterator of tables, or a path or pattern of Parquet files, an iterator: the distributions of one
        batch after the other, as they are read; of those that have rows.
        """
        if device not in (None, "auto", "cpu"):
            raise ValueError(f"device must be 'auto' or 'cpu', not {device!r}: this version has CPU kernels only")
        rho = self.rho if rho is None else _check_rho(rho)
        family = self._checked_family(distribution, rho)
        if is_stream(X):
            if init_score is not None:
                raise TypeError("init_score belongs to one table: predict batch by batch, predict_dist(X, init_score=)")
            return self._of_batches(X, rho, family)
        return self._around(self._margins(X, rho, init_score), *family)

    def _of_batches(self, X: Any, rho: float, family: tuple[type[Distribution], dict[str, Any]]) -> Any:
        for batch, _ in unlabelled_stream(X, self.forest.features):
            with naming(batch.name):
                distribution = self._around(self._margins(batch.X, rho, None), *family)
            yield distribution

    def predict_parquet(
        self,
        X: Any,
        path: Any,
        *,
        quantiles: ArrayLike = (0.05, 0.5, 0.95),
        keep: Sequence[str] = (),
        progress: bool = False,
    ) -> int:
        """Write the distributions of rows to a Parquet file; returns how many.

        Columns are mean, std and quantiles, such as q05, q50 and q95. `X` is a table, an iterator of tables, or a path
        or pattern of Parquet files; a few batches are in memory at a time. `keep` are columns of these tables that are
        copied, such as a key. The file appears when it is complete.
        """
        from .parquet import write_distributions

        return write_distributions(self, X, path, quantiles, keep, progress)

    def predict_var(self, X: Any, *, init_score: Any = None) -> NDArray[np.float64]:
        """(n,) predictive variances."""
        return self.predict_dist(X, init_score=init_score).var()

    def predict_quantiles(self, X: Any, q: ArrayLike, *, init_score: Any = None) -> NDArray[np.float64]:
        """(n, k) quantiles at k levels in (0, 1)."""
        levels = np.atleast_1d(check_levels("q", q))
        return self.predict_dist(X, init_score=init_score).ppf(levels)

    def predict_interval(self, X: Any, coverage: float = 0.9, *, init_score: Any = None) -> NDArray[np.float64]:
        """(n, 2) lower and upper end of the central interval."""
        check_levels("coverage", coverage)
        return np.stack(self.predict_dist(X, init_score=init_score).interval(coverage), axis=1)

    def tune(
        self,
        X_val: Any,
        y_val: Any,
        *,
        score: Literal["crps", "nll"] = "crps",
        distributions: Sequence[str] | str | None = None,
        rho: ArrayLike | None = None,
        calibrate: bool = True,
        sample_weight: Any = None,
        init_score: Any = None,
        progress: bool = False,
    ) -> TuneResult:
        """Choose family, correlation and a power map on the variance by their score on held-out rows.

        Sets `rho`, `distribution` and `calibration`, and takes back `conformalize`. Predictions of the mean stay.

        Parameters
        ----------
        X_val, y_val : at least 6 rows that training did not see. The search looks at 2,000 of them at most.
        score : "crps" or "nll".
        distributions : families to try; None for all.
        rho : correlations to try, a number or a list; None for a grid. The grid is refined around its best.
        calibrate : fit the map sigma^2 -> c sigma^(2 b) as well.
        """
        from .tune import MIN_ROWS, SEARCH_ROWS, Validation, families, rho_grid, tune

        if score not in ("crps", "nll"):
            raise ValueError(f"score must be 'crps' or 'nll', not {score!r}")
        names, grid = families(distributions), rho_grid(rho)
        rows, y, margins_ = self._held_out("tune", X_val, y_val, "y_val", init_score, MIN_ROWS)
        weight = read_column("sample_weight", sample_weight, len(rows))
        weight = np.ones(len(rows)) if weight is None else weight
        if not np.any(margins_.variance > 0):
            raise ValueError(
                "there is no variance to tune: every leaf that these rows reach held one row; train with more rows a "
                "leaf, or wrap held-out rows"
            )

        def validation(index: NDArray[np.int64]) -> Validation:
            part = rows if len(index) == len(rows) else rows.sample(index)
            w = weight[index]
            return Validation(
                margins_.take(index),
                y[index],
                w / w.sum(),
                score,
                self._variance_floor(),
                lambda rho: variances(self.forest, part, self.weights.sd, rho, self.n_jobs),
            )

        used = np.flatnonzero(weight)
        everything = validation(used)
        sample = everything
        if len(used) > SEARCH_ROWS:
            sample = validation(np.sort(np.random.default_rng(0).choice(used, SEARCH_ROWS, replace=False)))
        result = tune(
            everything,
            sample,
            self.default_rho,
            names=names,
            grid=grid,
            calibrate=calibrate,
            progress=progress,
        )
        self.rho, self.calibration = result.best.rho, result.best.calibration
        self.distribution = result.best.distribution
        self._residuals, self._conformal, self._tuned_on = result.residuals, None, _digest(y)
        return result

    def conformalize(self, X_cal: Any, y_cal: Any, *, init_score: Any = None) -> ProbabilisticModel:
        """Make intervals and quantiles hold: split-conformal calibration on rows that nothing else has seen.

        `predict_interval`, `predict_quantiles` and `predict_dist` then have their coverage on exchangeable rows, for
        any model and any number of rows: at least the level, and above it by at most 1 / (n + 1) a side. Sets
        `distribution` to "conformal"; works after or without `tune`.
        """
        _, y, margins_ = self._held_out("conformalize", X_cal, y_cal, "y_cal", init_score, 2)
        if _digest(y) == self._tuned_on:
            warnings.warn(
                "these are the rows that tune saw: coverage is not guaranteed; keep rows for conformalize alone",
                UserWarning,
                stacklevel=2,
            )
        self._conformal = conformal_scores(
            self._floored(margins_), y, self._support(), self.rho, self.calibration, self.distribution
        )
        self._residuals = self._conformal.residuals
        self.distribution = "conformal"
        return self

    def update(
        self,
        X: Any,
        y: Any = None,
        decay: float | None = None,
        *,
        sample_weight: Any = None,
        init_score: Any = None,
        label: str | None = None,
        weight: str | None = None,
        n_jobs: int | None = None,
        progress: bool = False,
    ) -> ProbabilisticModel:
        """Merge the moments of more labelled rows, without retraining: the spread changes, the mean does not.

        With `decay`, each row seen before counts that many times what it did, so that the moments follow a noise that
        changes: after k updates, a row of the first counts decay^k of a new one. Leaves that no new row reaches keep
        their spread. 0 forgets all rows seen before, 1 (or None) none.

        `default_rho` follows the rows, and `rho` if it was the default. What `tune` chose stays: the map on the
        variance keeps its place relative to the typical one, so that twice the variance stays twice the variance.
        `conformalize` holds for the old spread only, and must be called again. The certificate is that of all rows. If
        anything fails, in an iterator for instance, the model is what it was.

        Parameters
        ----------
        X, y, sample_weight, init_score, label, weight : whatever `wrap` takes: tables, batches, files, Dask, moments.
        decay : in [0, 1].
        """
        from .gathered import Besides
        from .update import updated

        besides = Besides(y, sample_weight, init_score, None, label, weight)
        new = updated(self, X, besides, decay, n_jobs or self.n_jobs, progress)
        was_default = self.rho == self.default_rho
        self.calibration = self.calibration.moved(new.ratio)
        self.moments, self.weights, self.certificate = new.moments, new.weights, new.certificate
        self._leaf_value, self.default_rho = self._leaf_values(), _default_rho(new.moments)
        self.rho = self.default_rho if was_default else self.rho
        self._conformal = None
        return self

    def _held_out(
        self, name: str, X: Any, y: Any, y_name: str, init_score: Any, at_least: int
    ) -> tuple[Rows, NDArray[np.float64], Margins]:
        """Labelled rows that training should not have seen, and what the trees say of them."""
        if y is None:
            raise TypeError(f"{name} needs labels: model.{name}(X, y)")
        rows, _ = self._read(X, init_score)
        if len(rows) < at_least:
            raise ValueError(f"{name} needs at least {at_least} rows, it got {len(rows)}")
        label = read_column(y_name, y, len(rows))
        assert label is not None
        if self.spec.objective is not None:
            self.spec.objective.check_labels(label)
        if are_wrapped_rows(self.forest, self.moments, rows) and self.certificate.status != "held-out":
            warnings.warn(
                "these are the rows that wrap saw: residuals of training rows are too small, and so will be the "
                f"spread; give {name} held-out rows",
                UserWarning,
                stacklevel=3,
            )
        return rows, label, self._margins(X, self.rho, init_score)

    def _support(self) -> float:
        """Below this no outcome can lie: the objective's word, not that of a family that someone chose."""
        return 0.0 if self.forest.link == LOG else -np.inf

    def _read(self, X: Any, init_score: Any) -> tuple[Rows, NDArray[np.float64] | None]:
        found = read_dataset(X)
        if found is not None:
            X, init_score = found.X, found.init_score if init_score is None else init_score
        rows = read_rows(X, self.forest.features)
        return rows, read_column("init_score", init_score, len(rows))

    def _margins(self, X: Any, rho: float, init_score: Any) -> Margins:
        """The walk: margins, predictions and variances of rows."""
        rows, score = self._read(X, init_score)
        margin, variance = margins(self.forest, rows, self._leaf_value, score, self.weights.sd, rho, n_jobs=self.n_jobs)
        assert variance is not None
        return Margins(self.forest, margin, to_response(self.forest, margin), variance)

    def _checked_family(self, name: str | None, rho: float) -> tuple[type[Distribution], dict[str, Any]]:
        """A family and what to make it with; refuses, before any work, what cannot be made."""
        cls, options = self._family
        if name is not None:
            from .distributions import family

            cls, options = family(name)
        if not cls.needs_residuals:
            return cls, options
        from .distributions import Conformal

        if issubclass(cls, Conformal):
            scores = self._conformal
            if scores is None:
                raise ValueError(
                    "there are no conformal scores, or update took them back: call model.conformalize first"
                )
            if (scores.rho, scores.calibration) != (rho, self.calibration):
                raise ValueError("rho or calibration changed after conformalize: call it again")
            return cls, {"residuals": scores.residuals, "lower": scores.lower}
        if self._residuals is None:
            raise ValueError(f"{cls.name} needs residuals of validation rows: call model.tune or conformalize first")
        return cls, {"residuals": self._residuals, "lower": self._support()}

    def _around(self, margins_: Margins, family: type[Distribution], options: dict[str, Any]) -> Distribution:
        """A family's distributions around the predictions."""
        if family.needs_residuals:
            margins_ = self._floored(margins_)
        return margins_.distribution(family, self.calibration, **options)

    def _floored(self, margins_: Margins) -> Margins:
        return replace(margins_, variance=np.maximum(margins_.variance, self._variance_floor()))

    def _variance_floor(self) -> float:
        return variance_floor(typical_variance(self.forest, self.moments, self.weights))

    def __repr__(self) -> str:
        objective = self.spec.objective.name if self.spec.objective else "custom"
        return (
            f"ProbabilisticModel: {self.forest.booster}, {objective}, {self.forest.n_trees} trees, "
            f"{self.forest.n_leaves} leaves\n"
            f"  rows seen:    {self.moments.rows:.0f}\n"
            f"  certificate:  {self.certificate}\n"
            f"  rho:          {self.rho:.4g}\n"
            f"  distribution: {self.distribution}{self._calibration_words()}"
        )

    def _calibration_words(self) -> str:
        if self.distribution == "conformal" and self._conformal is not None:
            rows, around = len(self._conformal.residuals), self._conformal.family
            return f" on {rows} rows around {around}, variance -> {self.calibration}"
        return ", untuned" if self._tuned_on is None else f", variance -> {self.calibration}"


def _digest(y: NDArray[np.float64]) -> bytes:
    return hashlib.sha256(y.tobytes()).digest()


def _default_rho(moments: LeafMoments) -> float:
    return math.log10(moments.rows) / 100.0


def _check_rho(value: float) -> float:
    value = float(value)
    if not -1.0 <= value <= 1.0:
        raise ValueError(f"rho must lie in [-1, 1], not {value}")
    return value
