"""ProbabilisticModel: a wrapped booster. Every method is a call into the room that does the work."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .checks import Variance, check_level, check_levels, names_init_score
from .device import check_device, in_kind_of
from .leaves.certificate import Certificate
from .leaves.moments import LeafMoments
from .leaves.weights import LeafWeights
from .predict.chosen import Chosen
from .predict.correlation import Correlation
from .predict.log_scale import LogScale
from .predict.observed import Observed
from .predict.power_map import Calibration
from .predict.predictions import (
    check_calibrated,
    check_variance_known,
    predict_distributions,
    predict_mean,
    read_unlabelled,
    summary_of,
)
from .predict.state import Mean, ModelState
from .sources import Options, find_source
from .streams.batches import each_batch
from .surroundings.surroundings import Surroundings
from .tables.in_memory import in_memory, is_stream
from .tables.labelled import RawRows
from .tables.rows import Rows
from .trees.forest import Features, Forest
from .trees.training_spec import TrainingSpec
from .update import updated

if TYPE_CHECKING:
    from .calibration.metric import Score
    from .calibration.tune_result import TuneResult
    from .distributions import Distribution
    from .predict.row_support import RowSupport
    from .predict.served_model import ServedModel
    from .predict.variance_parts import VarianceParts


T = TypeVar("T")


class _FromState(Generic[T]):
    """A read-only attribute of a model that is the field of the same name in its state."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, model: ProbabilisticModel | None, owner: type | None = None) -> T:
        return self if model is None else getattr(model.state, self.name)  # type: ignore[return-value]

    def __set__(self, model: ProbabilisticModel, value: T) -> None:
        raise AttributeError(f"{self.name} of a model is read-only")


class _Setting(_FromState[T]):
    """An attribute of a model that is the field of the same name in its chosen settings, and may be set."""

    def __get__(self, model: ProbabilisticModel | None, owner: type | None = None) -> T:
        return self if model is None else getattr(model.chosen, self.name)  # type: ignore[return-value]

    def __set__(self, model: ProbabilisticModel, value: T) -> None:
        model._choose(model.chosen.set_by_user(self.name, value))


@names_init_score
class ProbabilisticModel:
    """Predicts a distribution per row, around the booster's own prediction. Made by `wrap` or `load`.

    Pickles and copies predict the same bits. A pickle leaves out the function of a custom objective.

    Attributes
    ----------
    forest : Forest
        The trees.
    spec : TrainingSpec
        How the trees were grown.
    moments : LeafMoments
        Sample moments of gradient and hessian per leaf.
    weights : LeafWeights
        Mean and variance of each leaf's weight.
    certificate : Certificate
        Whether the moments are those of training.
    chosen : Chosen
        All that `tune`, `conformalize` and the user chose, read-only: `rho`, `distribution`, `calibration` and more.
    rho : float
        Correlation between successive trees (paper eq. 12), in [-1, 1]. May be set.
    default_rho : float
        Value of `rho` unless set, log10(rows) / 100.
    distribution : str
        Name of the family that `predict_dist` returns. May be set.
    calibration : Calibration
        Power map on the variance, set by `tune`. May be set.
    mean : {"booster", "pgbm"}
        Which leaf values predictions are made of.
    variance : {"pgbm", "boosted", "auto"}
        What `wrap` was told, and the default of `tune`'s argument of this name.
    training_scale : LogScale or None
        The boosted scale of the rows that `wrap` saw.
    observed : Observed or None
        How many of the rows that `observe` saw lay inside their intervals, over all and lately; None before.
    surroundings : Surroundings
        What rows and outcomes pass through around the booster: steps of a pipeline, transforms of the target.
    device : str
        Where predictions are made: "auto", "cpu", "cuda" or "cuda:1". May be set.
    n_jobs : int or None
        Threads; None for all cores. May be set.
    """

    forest = _FromState[Forest]()
    spec = _FromState[TrainingSpec]()
    moments = _FromState[LeafMoments]()
    weights = _FromState[LeafWeights]()
    certificate = _FromState[Certificate]()
    chosen = _FromState[Chosen]()
    rho = _Setting[float]()
    distribution = _Setting[str]()
    calibration = _Setting[Calibration]()
    default_rho = _FromState[float]()
    mean = _FromState[Mean]()
    variance = _FromState[Variance]()
    training_scale = _FromState[LogScale | None]()
    observed = _FromState[Observed | None]()
    surroundings = _FromState[Surroundings]()

    def __init__(self, state: ModelState, *, device: str = "auto", n_jobs: int | None = None):
        self.state = state
        self.device = device
        self.n_jobs = n_jobs
        vars(self)["untold"] = True  # until the first distribution, see `check_calibrated`

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("state", "device", "n_jobs") and not hasattr(type(self), name):
            raise AttributeError(
                f"a model has no attribute {name!r}; rho, distribution, calibration, device and n_jobs can be set"
            )
        super().__setattr__(name, value)

    def _choose(self, chosen: Chosen) -> None:
        self.state = replace(self.state, chosen=chosen)

    def with_features(self, features: Features) -> ProbabilisticModel:
        """Return a model that expects other features of a row, such as other categorical columns."""
        forest = self.forest.with_features(features)
        return ProbabilisticModel(replace(self.state, forest=forest), device=self.device, n_jobs=self.n_jobs)

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        *,
        init_score: Any = None,
        device: str | None = None,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> Any:
        """Return what the booster predicts, bit for bit; with ``return_std=True`` the pair (mean, std).

        Parameters
        ----------
        X : table
            Rows, in any form that `wrap` takes. Results for a table on a GPU are arrays of its library, there.
        return_std : bool
            Return the standard deviations as well.
        init_score : column, optional
            Score that each row starts from, for models trained with LightGBM's init_score or XGBoost's base_margin.
        device : str, optional
            Where to compute. Default: the model's own.
        sample_weight : column, optional
            Precision of each row: its variance is divided by the weight. Give 4 for the mean of four measurements if
            training and `tune` saw single ones. The mean does not depend on it.
        groups : column, or tuple of columns, optional
            Group of each row, if `conformalize` got groups: a column of keys, or several for their combination, as
            there. The mean does not depend on it. Rows of a group that `conformalize` did not see, or of which it saw
            too few rows, get the intervals of all rows.
        """
        if return_std:
            prediction, distribution = self._distributions(X, init_score, device, sample_weight, groups)
            return in_kind_of(X, prediction), in_kind_of(X, distribution.std())
        rows = self.read_rows(X, init_score, device)
        return in_kind_of(X, predict_mean(self.state, *rows, self.n_jobs))

    def predict_dist(
        self,
        X: Any,
        distribution: str | None = None,
        rho: float | None = None,
        device: str | None = None,
        *,
        init_score: Any = None,
        dtype: Any = np.float64,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> Distribution:
        """Return a distribution per row: ``d.mean()``, ``d.std()``, ``d.ppf([.05, .95])``, ``d.rvs(100)``...

        Parameters
        ----------
        X : table or stream
            Rows. For an iterator of tables, or a path or pattern of Parquet or CSV files, the result is an iterator
            over the distributions of one batch after the other.
        distribution : str, optional
            A family's name, such as "normal" or "studentt(df=5)". Default: the model's.
        rho : float, optional
            Correlation between trees. Default: the model's.
        device, init_score, sample_weight, groups
            As in `predict`. Families whose variance follows from the mean, such as "poisson", do not depend on weights.
        dtype : dtype
            float32 lets a GPU compute the variances in single precision, to about 1e-5, which is far faster on many
            GPUs. It does not change the means. Distributions are always in the memory of the CPU.
        """
        if dtype is not np.float64 and np.dtype(dtype) not in (np.float32, np.float64):
            raise ValueError(f"dtype must be float64 or float32, not {dtype!r}")
        if not is_stream(X):
            return self._distributions(X, init_score, device, sample_weight, groups, distribution, rho, dtype)[1]
        for name, column in (("init_score", init_score), ("sample_weight", sample_weight), ("groups", groups)):
            if column is not None:
                raise TypeError(f"{name} belongs to one table: predict batch by batch, predict_dist(X, {name}=)")
        check_variance_known(self.state)  # before a batch is read
        self.chosen.checked_family(distribution, rho, self.state.support)
        self.chosen.checked_groups(distribution, None)
        if rho is None:
            check_calibrated(self.chosen, vars(self))
        snapshot = copy.copy(self)  # this model may be tuned
        options = None, device, None, None, distribution, rho, dtype
        each = each_batch(X, self.state.columns, lambda rows: snapshot._distributions(rows, *options)[1])
        return each  # type: ignore[return-value]

    def predict_var(
        self,
        X: Any,
        *,
        init_score: Any = None,
        device: str | None = None,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> Any:
        """Return the (n,) predictive variances; parameters as in `predict`."""
        return in_kind_of(X, self._distributions(X, init_score, device, sample_weight, groups)[1].var())

    def predict_quantiles(
        self,
        X: Any,
        q: ArrayLike,
        *,
        init_score: Any = None,
        device: str | None = None,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> Any:
        """Return the (n, k) quantiles at k levels `q` in (0, 1); other parameters as in `predict`."""
        levels = np.atleast_1d(check_levels("q", q))
        return in_kind_of(X, self._distributions(X, init_score, device, sample_weight, groups)[1].ppf(levels))

    def predict_interval(
        self,
        X: Any,
        coverage: float = 0.9,
        *,
        init_score: Any = None,
        device: str | None = None,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> Any:
        """Return the (n, 2) ends of the central intervals of this coverage; other parameters as in `predict`."""
        check_level("coverage", coverage)
        distribution = self._distributions(X, init_score, device, sample_weight, groups)[1]
        ends = np.empty((len(distribution), 2))
        ends[:, 0], ends[:, 1] = distribution.interval(coverage)
        return in_kind_of(X, ends)

    def predict_total(
        self,
        X: Any,
        groups: Any,
        levels: Any,
        *,
        init_score: Any = None,
        device: str | None = None,
        sample_weight: Any = None,
    ) -> Distribution:
        """Return a distribution per group: that of the sum of its rows, which err together as `correlate` measured.

        The mean is the sum of the rows' means, and the variance that of the sum under the factors. The family is a
        negative binomial for sums of counts, a gamma for sums of rows that cannot be negative, and else a normal. These
        are exact for many rows of any family. For few rows with heavy tails, add up samples of `sample`.

        Parameters
        ----------
        groups : column, or tuple of columns
            Key of the total that each row belongs to. A tuple stands for the combination of its columns.
        levels : dict
            Group of each row at every level that `correlate` was told, by the same names. Groups may be new.
        X, init_score, device, sample_weight
            As in `predict_dist`.

        Returns
        -------
        Distribution
            One row per group, in the order in which the groups first appear. Its attribute ``groups`` has their keys.
        """
        from .predict.totals import predict_totals

        state = self.state
        state.chosen.checked_correlation()
        rows = self.read_rows(X, init_score, device)
        check_calibrated(state.chosen, vars(self))
        return predict_totals(state, *rows, sample_weight, self.n_jobs, groups, levels)

    def sample(
        self,
        X: Any,
        size: int | None = None,
        *,
        levels: Any,
        random_state: Any = None,
        init_score: Any = None,
        device: str | None = None,
        sample_weight: Any = None,
    ) -> NDArray[np.float64]:
        """Draw joint samples of rows, which err together as `correlate` measured: their sums are samples of totals.

        Each row alone has the distribution of `predict_dist`.

        Parameters
        ----------
        size : int, optional
            Number of samples. The result has shape (n, size), or (n,) by default, as that of ``predict_dist(X).rvs``.
        levels : dict
            Group of each row at every level, as in `predict_total`.
        random_state : int or numpy.random.Generator, optional
            Seed or generator.
        X, init_score, device, sample_weight
            As in `predict_dist`.
        """
        from .predict.totals import joint_samples

        state = self.state
        state.chosen.checked_correlation()
        rows = self.read_rows(X, init_score, device)
        check_calibrated(state.chosen, vars(self))
        return joint_samples(state, *rows, sample_weight, self.n_jobs, size, levels, random_state)

    def predict_columns(
        self,
        X: Any,
        quantiles: ArrayLike = (),
        intervals: ArrayLike = (),
        init_score: Any = None,
        distribution: str | None = None,
        rho: float | None = None,
        groups: Any = None,
    ) -> dict[str, NDArray[np.float64]]:
        """Return columns: mean, which is the prediction, std, quantiles such as q05, ends such as lower90, upper90."""
        columns = summary_of(quantiles, intervals)
        return columns(*self._distributions(X, init_score, None, None, groups, distribution, rho))

    def predict_frame(
        self,
        X: Any,
        quantiles: ArrayLike = (0.05, 0.5, 0.95),
        intervals: ArrayLike = (),
        *,
        init_score: Any = None,
        device: str | None = None,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> Any:
        """Return a frame: mean, which is the prediction, std, quantiles such as q05, ends such as lower90 and upper90.

        Parameters
        ----------
        X : table
            Rows. The result is a polars frame or a PyArrow table if `X` is one, and else a pandas frame with the index
            of `X`.
        quantiles, intervals : array-like
            Levels of quantiles, and coverages of central intervals.
        init_score, device, sample_weight, groups
            As in `predict`.
        """
        from .tables.frame_like import frame_like

        columns, X = summary_of(quantiles, intervals), in_memory(X)
        return frame_like(X, columns(*self._distributions(X, init_score, device, sample_weight, groups)))

    def predict_parquet(
        self,
        X: Any,
        path: Any,
        *,
        quantiles: ArrayLike = (0.05, 0.5, 0.95),
        intervals: ArrayLike = (),
        keep: Sequence[str] = (),
        init_score: str | None = None,
        groups: str | Sequence[str] | None = None,
        progress: bool = False,
    ) -> int:
        """Write the distributions of rows to a Parquet file, and return how many rows there were.

        The columns are mean, which is the prediction, std, quantiles, such as q05, and the ends of central intervals,
        such as lower90 and upper90. A few batches are in memory at a time. The file appears when it is complete.

        Parameters
        ----------
        X : table or stream
            A table, an iterator of tables, or a path or pattern of Parquet or CSV files.
        path : str or path
            The file to write.
        quantiles, intervals : array-like
            Levels of quantiles, and coverages of central intervals.
        keep : sequence of str
            Columns of the tables that are copied, such as a key.
        init_score : str, optional
            The column with the score that each row starts from.
        groups : str or sequence of str, optional
            The column, or columns, with the group of each row, if `conformalize` got groups.
        progress : bool
            Show a progress bar.
        """
        from .streams.csvfiles import is_csv
        from .streams.predictions import Columns, write_distributions

        if is_csv(str(path)):
            raise ValueError(f"predict_parquet writes Parquet, and {path} is named as CSV: name it .parquet")
        names = (groups,) if isinstance(groups, str) else tuple(groups or ())
        self.chosen.checked_groups(None, names or None)
        columns = Columns(quantiles, intervals, tuple(keep), init_score, names)
        features = self.state.columns
        return write_distributions(self.predict_columns, features, X, path, columns, csv=False, progress=progress)

    def serve(
        self,
        quantiles: ArrayLike = (0.05, 0.5, 0.95),
        intervals: ArrayLike = (),
        *,
        init_score: str | None = None,
        groups: str | Sequence[str] | None = None,
    ) -> ServedModel:
        """Return a prepared call for services: from dicts or NumPy rows to plain floats, without any frame.

        ``served({"age": 31, "city": "Paris"})`` is a dict: mean, which is the prediction, std, quantiles such as q05,
        ends such as lower90 and upper90. A list of dicts gives a list. Threads may share the call. It holds the model
        as it is now: what `tune` or `update` change later needs a new call.

        Parameters
        ----------
        quantiles, intervals : array-like
            Levels of quantiles, and coverages of central intervals.
        init_score : str, optional
            The key of a dict with the score that its row starts from.
        groups : str or sequence of str, optional
            The key, or keys, with the group of a row, if `conformalize` got groups.
        """
        from .predict.served_model import ServedModel

        names = (groups,) if isinstance(groups, str) else tuple(groups or ())
        served = ServedModel(self.state, summary_of(quantiles, intervals), init_score, names, self.n_jobs)
        check_calibrated(self.chosen, vars(self))
        return served

    def read_rows(
        self, X: Any, init_score: Any = None, device: str | None = None
    ) -> tuple[Rows, NDArray[np.float64] | None]:
        """Check one table, and return it as methods of this model read it, with the scores that its rows start from."""
        return read_unlabelled(self.state, X, init_score, self._device(device))

    def _distributions(
        self,
        X: Any,
        init_score: Any,
        device: str | None,
        sample_weight: Any,
        groups: Any = None,
        distribution: str | None = None,
        rho: float | None = None,
        dtype: Any = np.float64,
    ) -> tuple[NDArray[Any], Distribution]:
        state = self.state  # once, as another thread may tune meanwhile
        check_variance_known(state)
        keyed = state.chosen.checked_groups(distribution, groups)
        rows = read_unlabelled(state, X, init_score, self._device(device))
        bins = None if keyed is None else keyed.bins_of_keys(groups, len(rows[0]), vars(self))
        if rho is None:  # a rho of this call is the user's choice
            check_calibrated(state.chosen, vars(self))
        return predict_distributions(state, *rows, sample_weight, self.n_jobs, distribution, rho, dtype, bins)

    def _device(self, device: str | None) -> str:
        return self.device if device is None else check_device(device)

    def tune(
        self,
        X_val: Any,
        y_val: Any,
        *,
        out_of_fold: Any = None,
        score: Score = "auto",
        distributions: Sequence[str] | str | None = None,
        rho: ArrayLike | None = None,
        calibrate: bool = True,
        variance: Variance | None = None,
        sample_weight: Any = None,
        init_score: Any = None,
        device: str | None = None,
        progress: bool = False,
        lower: float | None = None,
        upper: float | None = None,
    ) -> TuneResult:
        """Choose family, correlation and a power map on the variance by their score on held-out rows.

        Sets `rho`, `distribution` and `calibration`, and discards any `conformalize`. Mean predictions do not change.

        Parameters
        ----------
        X_val, y_val : table and column
            At least 6 rows that training did not see, and their labels. The search looks at 2,000 of them at most.
            With fewer than 200, less is fitted, so that noise does not decide; the result says what was held back.
            With `out_of_fold`, these are the rows of training.
        out_of_fold : column, optional
            Predictions of these rows by models that were trained without them, with the settings of this one: from
            `pgbm_plugin.out_of_fold`, ``cross_val_predict`` or the folds of a competition. They replace the model's
            own, whose residuals are too small on rows that training saw; the spreads are those of the model. NaN for a
            row without one, which is then left out.
        score : {"auto", "crps", "nll"}
            The continuous ranked probability score, or the negative log likelihood. "auto" is the first, but relative
            to the typical spread of rows with the same mean if the objective has a log link, or if the labels are
            counts whose means span orders of magnitude: otherwise the largest rows would decide alone.
        distributions : str or sequence of str, optional
            Families to try. Default: all, but those that need a positive mean, such as lognormal and gamma, only if
            the model predicts more than 0 for every possible row. To try them on other models, name them. By default,
            bounds or a lattice of few values that the labels show are used as well, if they improve the score.
        rho : float or array-like, optional
            Correlations to try. Default: a grid from -0.1 to 0.9, which is refined around its best.
        calibrate : bool
            Fit the power map sigma^2 -> c sigma^(2 b) as well.
        variance : {"pgbm", "boosted", "auto"}, optional
            "pgbm" is the paper's recursion. "boosted" is a log-variance boosted on the same trees, from the residuals
            of these rows and of those that ``wrap(..., variance=)`` saw; at most 262,144 rows are used. "auto" is the
            better of both, or a blend. Default: what `wrap` was told, else "auto"; "pgbm" if `calibrate` is False.
        sample_weight : column, optional
            How much each row counts: in the score, in the power map and in the shape of "empirical". A weight of 2 is
            a row that comes twice.
        init_score, device
            As in `predict`.
        progress : bool
            Show a progress bar.
        lower, upper : float, optional
            Bounds of the outcomes, if you know them. Distributions of every family are then clipped: what would lie
            beyond a bound lies on it. Point predictions do not change.
        """
        from .calibration.tune import tune

        chosen, result = tune(
            self.state,
            RawRows(X_val, y_val, sample_weight, init_score),
            out_of_fold=out_of_fold,
            score=score,
            distributions=distributions,
            rho=rho,
            calibrate=calibrate,
            variance=variance,
            device=self._device(device),
            n_jobs=self.n_jobs,
            progress=progress,
            bounds=self.state.bounds(lower, upper, "y_val", y_val),
        )
        self._choose(chosen)
        return result

    def conformalize(
        self,
        X_cal: Any,
        y_cal: Any,
        *,
        groups: Any = None,
        out_of_fold: Any = None,
        sample_weight: Any = None,
        init_score: Any = None,
        device: str | None = None,
        lower: float | None = None,
        upper: float | None = None,
    ) -> ProbabilisticModel:
        """Make intervals and quantiles hold, by split-conformal calibration on rows that nothing else has seen.

        `predict_interval`, `predict_quantiles` and `predict_dist` then have their coverage on exchangeable rows, for
        any model and any number of rows: at least the level, and above it by at most 1 / (n + 1) per side. Sets
        `distribution` to "conformal"; works after `tune` or without it. Returns the model.

        Parameters
        ----------
        X_cal, y_cal : table and column
            At least 2 rows that neither training nor `tune` saw, and their labels. With `out_of_fold`, these are the
            rows of training, and `tune` may have seen them.
        groups : column, tuple of columns, "mean" or "spread", optional
            Group of each row, such as a shop. The coverage then holds in every group, because its quantiles are those
            of its own rows (Mondrian conformal prediction). A tuple of columns stands for their combination. Keys are
            compared as text, and must not be missing. Groups of fewer than 100 rows, and new ones, get the quantiles of
            all rows, and a warning says so. Predictions then need ``groups=`` as well. "mean" and "spread" stand for
            bins of the predicted mean or standard deviation: up to 10, of about 100 rows or more each. These the model
            finds itself. In place of the bins that `tune` may have chosen.
        out_of_fold : column, optional
            Predictions of these rows by models that were trained without them, as in `tune`. The promise is then
            weaker. In practice, intervals hold their level. In theory, methods of this kind promise 1 - 2 a where the
            level is 1 - a, for models that change little if one fold is left out.
        sample_weight : column, optional
            How much each row counts, where a new row counts 1: a weight of 2 is a row that comes twice. If new rows
            like this one are w times as frequent as among these rows, give w. The promise is then that of weighted
            conformal prediction, if the weights are right: intervals hold at least their coverage for new rows whose
            own w is at most 1. So for a promise to all new rows, divide the weights by the largest w that a row can
            have. Scaled to a mean of 1 they are sharper, and hold up to about w / n.
        init_score, device
            As in `predict`.
        lower, upper : float, optional
            Bounds of the outcomes, as in `tune`. Default: each the one that `tune` was told.
        """
        from .calibration.conformal import conformalize

        raw = RawRows(X_cal, y_cal, sample_weight, init_score)
        bounds = self.state.bounds(lower, upper, "y_cal", y_cal, default=self.chosen.bounds)
        chosen = conformalize(self.state, raw, groups, out_of_fold, self._device(device), self.n_jobs, bounds)
        self._choose(chosen)
        return self

    def correlate(
        self,
        X_val: Any,
        y_val: Any,
        levels: Any,
        *,
        out_of_fold: Any = None,
        sample_weight: Any = None,
        init_score: Any = None,
        device: str | None = None,
    ) -> Correlation:
        """Measure how much rows of one group err together, for `predict_total` and `sample`.

        Predictions of single rows do not change. Call it last: `tune`, `conformalize` and `update` discard the result,
        and if `rho`, `calibration` or `distribution` is set to another value, totals are refused. What one group
        counts is limited, so that a single strange day does not decide.

        Parameters
        ----------
        X_val, y_val : table and column
            At least 20 rows that training did not see, and their labels. The rows of `tune` are welcome. A level needs
            many groups, such as weeks of days. With `out_of_fold`, these are the rows of training.
        levels : dict
            Column of keys by name, such as ``{"day": day, "department": (day, department)}``: rows with the same key
            share what the model does not know. A tuple of columns stands for their combination, here a department on
            one day. Levels may be nested or crossed.
        out_of_fold : column, optional
            Predictions of these rows by models that were trained without them, as in `tune`.
        sample_weight : column, optional
            How much each row counts. A pair of rows counts as much as the product of their weights.
        init_score, device
            As in `predict`.

        Returns
        -------
        Correlation
            One correlation per level, with its standard error. The model keeps it, also in its file, as
            ``model.chosen.correlation``.
        """
        from .calibration.correlate import correlate

        raw = RawRows(X_val, y_val, sample_weight, init_score)
        found = correlate(self.state, raw, levels, out_of_fold, self._device(device), self.n_jobs)
        self._choose(replace(self.chosen, correlation=found))
        return found

    def observe(
        self,
        X: Any,
        y: Any,
        *,
        groups: Any = None,
        window: int | None = None,
        step: float | None = None,
        init_score: Any = None,
        device: str | None = None,
    ) -> ProbabilisticModel:
        """Adapt intervals and quantiles to labels as they arrive, so that coverage holds while the noise changes.

        Call it for every batch of new labels, after `conformalize` or `tune`. Point predictions do not change. The
        residuals of calibration are moved, in one monotone map for all levels, to the latest residuals. If then more
        outcomes than a twentieth lie below the 90 % interval, or above it, this end moves outwards, and inwards if
        there are fewer. So quantiles stay in order, and `predict_interval`, `predict_quantiles` and `predict_dist`
        agree. Sets `distribution` to "conformal". Returns the model; `model.observed` has the cover so far.

        The rows of one call count as arriving together, and their order does not matter. Labels of older rows may come
        late. They are compared with what the model would have predicted just before this call.

        A batch of 10 rows or more is refused if it is that of the last call, or the rows of calibration. Other
        repetitions are not noticed and count twice. `tune` and `conformalize` start anew. `update` keeps the record,
        in the unit of the new spread. Call it from one thread at a time; predictions may go on meanwhile.

        Parameters
        ----------
        X, y : table and column
            At least one row, and the labels. Leave out rows whose label is not known yet.
        groups : column, or tuple of columns, optional
            Group of each row, as in `predict`, if `conformalize` got groups. All groups follow the labels together.
        window : int, optional
            Number of latest residuals that the shape is taken from, at least 50. At the start, they are the last ones
            of calibration. Default: that of the last call, at first 1000. A smaller one follows faster and is noisier.
        step : float, optional
            How fast the ends move, in (0, 1]: a row outside multiplies the distance of its end from the median by about
            1 + step, and a row inside divides it by 1 + step / 20. Of a larger batch 25 rows count. Default: that of
            the last call, at first 0.02.
        init_score, device
            As in `predict`.
        """
        from .calibration.observe import observe

        raw = RawRows(X, y, None, init_score)
        device = self._device(device)
        self._choose(observe(self.state, raw, groups, window, step, device, self.n_jobs, vars(self)))
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

        With `decay`, the weight of every earlier row is multiplied by it, so that the moments follow a noise that
        changes: after k updates, a row that `wrap` saw counts decay^k times as much as a new one. Leaves that no new
        row reaches keep their spread; with a decay of 0, they get the average spread of their tree.

        `default_rho` is computed anew from the number of rows, and so is `rho` if it was the default. What `tune` chose
        stays, and is rescaled: if all variances double, so do the calibrated ones. A boosted scale is rescaled, too.

        New rows have larger residuals than training rows, even if the noise is the same, and `tune` has corrected for
        that. So if the model is tuned or has a boosted scale, and the rows are one table, their residuals decide by how
        much the calibrated variances change, and a boosted scale gets further steps from them. From batches, files,
        Dask or moments only the moments are known. Then variances may become too large: tune again.

        `conformalize` holds for the old spread only, and must be called again, unless `observe` has adapted it: then
        the latest residuals are rescaled, and `observe` goes on. The certificate is that of all rows. If
        anything fails, the model is what it was.

        Parameters
        ----------
        X, y, sample_weight, init_score, label, weight : table and columns
            Rows in any form that `wrap` takes: tables, batches, files, Dask, moments.
        decay : float, optional
            In [0, 1]. 0 forgets all rows seen before, 1 (or None) none.
        n_jobs : int, optional
            Threads. Default: the model's.
        progress : bool
            Show a progress bar.
        """
        source = find_source(RawRows(X, y, sample_weight, init_score), label, weight)
        options = Options(None, self.device, self.n_jobs if n_jobs is None else n_jobs, progress)
        self.state = updated(self.state, source, decay, options)
        return self

    def explain_variance(self, X: Any) -> VarianceParts:
        """Return how much of a row's variance comes from each feature, and from an average row.

        The result is read as an (n, features + 1) array. It has the names of the features, ``std()`` for parts of the
        standard deviation, and ``to_shap()``; `pgbm_plugin.plot.contributions` draws it.

        A row sums to the calibrated variance of the margin: to the variance of ``predict_dist(X, "normal")`` where
        there is no link, and to that of the logarithm under a log link.

        In each tree the parts are the exact Shapley values of the leaf's variance. The expectation over features that
        are not known is taken as in the boosters' ``pred_contrib``: by the shares of the rows that `wrap` saw on either
        side of a split. At ``rho = 0`` without a power map they add up to the Shapley values of the variance. Otherwise
        trees interact, through rho and through the power map. The parts are then scaled by the slope of the straight
        line from the average row to this row, so that they sum exactly.

        With a boosted scale, the parts are first those of the logarithm of the variance: the exact Shapley values of
        the sum of the steps, and the recursion's parts as above. Each row is then scaled by the slope of the straight
        line from the average row to this row, as for the power map. The average row is that of the logarithm.
        """
        from .predict.explain import explain_variance

        state = self.state
        check_variance_known(state)
        return explain_variance(state, self.read_rows(X, None, "cpu")[0], self.n_jobs)

    def predict_support(self, X: Any, *, device: str | None = None) -> RowSupport:
        """Return how many training rows stand behind each prediction, and which values lie outside what training saw.

        Distributions say how far outcomes of rows *like those of training* scatter. Of rows that are unlike them they
        know nothing: use this to find such rows.

        A training row has a share of its own in each leaf that it reaches, and so in its own prediction: its leverage.
        The effective rows are the inverse of what these shares come to over all trees. They are many where leaves hold
        many rows, and near 1 where a row decides alone. Compare rows of one model, because more trees and smaller
        leaves lower the numbers of all rows.

        A number lies outside if it is smaller or larger than all that training had in this feature, a category if
        training did not have it, and a missing value if training had none there. "Training" stands for the rows that
        `wrap` and `update` saw. Features that no tree splits on count as well: a model cannot learn from a feature that
        is constant in training, and would not notice that it changes.

        Parameters
        ----------
        X : table
            Rows, as in `predict`. Features are those that reach the booster: behind the steps of a pipeline, they have
            the names that the steps give them.
        device : str, optional
            Where to send the rows through the trees. Ranges are compared on the CPU.

        Returns
        -------
        RowSupport
            `rows` has the effective rows, and `outside` the names of the features that lie outside, for each row.
        """
        from .predict.row_support import predict_support

        return predict_support(self.state, self.read_rows(X, None, device)[0], self.n_jobs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file, for `pgbm_plugin.load`, which needs neither booster nor pickle.

        The file is complete or not there: a crash leaves the old one. It holds all that predicting needs. It does not
        hold a custom objective's function, nor the code of a family that its user registered, only their names. Nor
        does it hold the steps of a pipeline or a transform of the target, but it names them, and `load` asks for them.
        A pickle holds them.
        """
        from .saving.model_bytes import save

        save(self.state, path)

    def __repr__(self) -> str:
        return f"ProbabilisticModel: {self.state}"
