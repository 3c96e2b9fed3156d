"""ProbabilisticModel: a wrapped booster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .calibration.conformal import conformal_scores
from .calibration.held_out import check_aligned, check_centred, held_out_labels
from .errors import warn
from .predict.chosen import Settings, digest
from .predict.response import Margins
from .predictor import Predictor, Variance, check_variance, default_rho
from .tables.columns import read_weights
from .tables.rows import Rows

if TYPE_CHECKING:
    from .calibration.tune_result import TuneResult


class ProbabilisticModel(Predictor):
    """Predicts a distribution per row, around the booster's own prediction. Made by `wrap` or `load`.

    Pickles, and copies of any depth, predict the same bits. A pickle leaves a custom objective's function behind.

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
    mean : "booster" or "pgbm", which leaf values predictions are made of.
    variance : "pgbm", "boosted" or "auto": what `tune` chooses among unless told otherwise.
    training_scale : the boosted scale of the rows that `wrap` saw, or None.
    device : where predictions are made unless told otherwise: "auto", "cpu", "cuda" or "cuda:1"...
    """

    def tune(
        self,
        X_val: Any,
        y_val: Any,
        *,
        score: Literal["crps", "nll"] = "crps",
        distributions: Sequence[str] | str | None = None,
        rho: ArrayLike | None = None,
        calibrate: bool = True,
        variance: Variance | None = None,
        sample_weight: Any = None,
        init_score: Any = None,
        device: str | None = None,
        progress: bool = False,
    ) -> TuneResult:
        """Choose family, correlation and a power map on the variance by their score on held-out rows.

        Sets `rho`, `distribution` and `calibration`, and discards any `conformalize`. Mean predictions do not change.

        Parameters
        ----------
        X_val, y_val : at least 6 rows that training did not see. The search looks at 2,000 of them at most.
        score : "crps" or "nll".
        distributions : families to try; None for all that fit whatever the model may predict. Those that need a
            positive mean, such as lognormal and gamma, do so under a log link, or where the leaves add up to more than
            0 for every row; elsewhere they are tried if named.
        rho : correlations to try, a number or a list; None for a grid. The grid is refined around its best.
        calibrate : fit the map sigma^2 -> c sigma^(2 b) as well.
        variance : "pgbm", the paper's recursion; "boosted", a log-variance boosted on the same trees, from the
            residuals of these rows and of those that ``wrap(..., variance=)`` saw; "auto", the better of both, or a
            blend. None for what `wrap` was told. Of the rows, 262,144 are used at most.
        """
        from .calibration.search import families, rho_grid, tune
        from .calibration.validation import MIN_ROWS, validation_rows

        if score not in ("crps", "nll"):
            raise ValueError(f"score must be 'crps' or 'nll', not {score!r}")
        names, grid = families(distributions), rho_grid(rho)
        chosen = self.variance if variance is None else check_variance(variance)
        if chosen != "pgbm" and not calibrate:
            raise ValueError(f"variance={chosen!r} is a calibration: leave calibrate=True")
        rows, y, margins_ = self._held_out("tune", X_val, y_val, "y_val", init_score, device, MIN_ROWS, recursion=True)
        weight = read_weights("sample_weight", sample_weight, len(rows))
        positive = distributions is not None or self._predicts_positive()
        known = margins_, score, self._variance_floor(), self.weights.sd, positive
        held_out = validation_rows(rows, y, weight, *known, self.n_jobs)
        options: dict[str, Any] = {"names": names, "calibrate": calibrate, "progress": progress}
        result, scale = tune(*held_out, self.default_rho, grid=grid, **options), None
        if chosen != "pgbm":
            from .calibration.blend import blended

            scale, result = blended(
                *held_out,
                result,
                self.training_scale,
                recursion=chosen == "auto",
                families_of=lambda all_, some, rho: tune(all_, some, rho, grid=np.array([rho]), **options),
                n_jobs=self.n_jobs,
            )
        best = result.best
        self._settings = Settings(
            best.rho, best.distribution, best.calibration, result.residuals, tuned_on=digest(y), scale=scale
        )
        return result

    def conformalize(
        self, X_cal: Any, y_cal: Any, *, init_score: Any = None, device: str | None = None
    ) -> ProbabilisticModel:
        """Make intervals and quantiles hold: split-conformal calibration on rows that nothing else has seen.

        `predict_interval`, `predict_quantiles` and `predict_dist` then have their coverage on exchangeable rows, for
        any model and any number of rows: at least the level, and above it by at most 1 / (n + 1) a side. Sets
        `distribution` to "conformal"; works after or without `tune`.
        """
        _, y, margins_ = self._held_out("conformalize", X_cal, y_cal, "y_cal", init_score, device, 2)
        if digest(y) == self._settings.tuned_on:
            warn(
                "these are the rows that tune saw: coverage is not guaranteed; keep rows for conformalize alone",
            )
        before = self._settings.conformal
        around = self.distribution if before is None or self.distribution != "conformal" else before.family
        scores = conformal_scores(self._floored(margins_), y, self._support(), self.rho, self.calibration, around)
        self._settings = replace(self._settings, distribution="conformal", residuals=scores.residuals, conformal=scores)
        return self

    def explain_variance(self, X: Any) -> NDArray[np.float64]:
        """(n, features + 1): which features a row's variance comes from, and last the variance of an average row.

        A row of it sums to the calibrated variance of the margin: to the variance of ``predict_dist(X, "normal")``
        where there is no link, and to that of the logarithm under a log link.

        In each tree these are the Shapley values of the leaf's variance, exact, with the expectation over features
        that are not known taken as the boosters' ``pred_contrib`` takes it: by the shares of the rows that `wrap` saw
        on either side of a split. At ``rho = 0`` they add up, and are the Shapley values of the variance. Otherwise
        trees interact through rho, and with `calibration`. How to attribute those interactions is a convention: both
        use the slope of the secant between this row and the average row, so that the parts sum exactly.
        """
        from .predict.explain import explain_variance

        if self._settings.scale is not None:
            raise ValueError(
                "explain_variance is of the paper's recursion, and this model has a boosted scale: tune it with "
                "variance='pgbm'"
            )
        rows, _ = self._read(X, None, "cpu")
        weights = self.weights.sd, self.moments.count
        return explain_variance(self.forest, rows, *weights, self.rho, self.calibration, self.n_jobs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file, for `pgbm_plugin.load`, which needs neither booster nor pickle.

        The file is complete or not there: a crash leaves the old one. All that predicting needs is in it. Not in it
        are a custom objective's function and the code of a family that was registered by its user, only their names.
        """
        from .saving.model_bytes import save

        save(self, path)

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

        With `decay`, the weight of every earlier row is multiplied by it, so that the moments follow a noise that
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
        from .sources import Given
        from .update import updated

        if self._settings.scale is not None or self.training_scale is not None:
            raise ValueError(
                "update changes the moments, and a boosted scale would stay behind: wrap the model with "
                "variance='pgbm', or tune it again with newer rows"
            )
        given = Given(y, sample_weight, init_score, None, label, weight, self.device)
        new = updated(self, X, given, decay, self.n_jobs if n_jobs is None else n_jobs, progress)
        rho = default_rho(new.moments) if self.rho == self.default_rho else self.rho
        calibration = self.calibration.moved(new.ratio)
        self._settings = replace(self._settings, rho=rho, calibration=calibration, conformal=None)
        self.moments, self.weights, self.certificate = new.moments, new.weights, new.certificate
        self._leaf_value, self.default_rho = self._leaf_values(), default_rho(new.moments)
        return self

    def _held_out(
        self,
        name: str,
        X: Any,
        y: Any,
        y_name: str,
        init_score: Any,
        device: str | None,
        at_least: int,
        *,
        recursion: bool = False,
    ) -> tuple[Rows, NDArray[np.float64], Margins]:
        """Labelled rows that training should not have seen, and what the trees say of them."""
        if y is None:
            raise TypeError(f"{name} needs labels: model.{name}(X, y)")
        check_aligned(name, X, y)
        rows, score = self._read(X, init_score, device)
        label = held_out_labels(self, name, y_name, y, rows, at_least)
        margins_ = self._margins(rows, score, self.rho, None if recursion else self._settings.scale)
        if score is not None or not self.spec.own_starts:  # else what is amiss has been said
            check_centred(name, label, margins_.prediction)
        return rows, label, margins_

    def __repr__(self) -> str:
        objective = self.spec.objective.name if self.spec.objective else "custom"
        return (
            f"ProbabilisticModel: {self.forest.booster}, {objective}, {self.forest.n_trees} trees, "
            f"{self.forest.n_leaves} leaves\n"
            f"  rows seen:    {self.moments.rows:.0f}\n"
            f"  certificate:  {self.certificate}\n"
            f"  rho:          {self.rho:.4g}\n"
            f"  distribution: {self._settings}"
        )
