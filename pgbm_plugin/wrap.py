"""wrap(): a trained booster and labelled rows become a model that predicts distributions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from .boosters import read_model
from .boosters.booster import Train
from .calibration.boosted_scale import training_scale
from .calibration.folds import check_cv
from .checks import Variance, check_variance, names_init_score
from .device import check_device
from .errors import warn
from .leaves.measured import MeasuredLeaves
from .losses.custom_objectives import CustomObjective
from .model import ProbabilisticModel
from .out_of_fold import predict_out_of_fold, refit_on_folds
from .predict.state import ModelState, check_recursion
from .saving.container import is_container
from .sources import Options, find_source
from .streams.categories import with_category_columns
from .surroundings.peel import peel
from .surroundings.surroundings import Surroundings
from .tables.categories import with_seen_categories
from .tables.labelled import LabelledRows, RawRows
from .trees.forest import Forest


@names_init_score
def wrap(
    booster: Any,
    X: Any = None,
    y: Any = None,
    *,
    sample_weight: Any = None,
    init_score: Any = None,
    objective: CustomObjective | None = None,
    mean: Literal["booster", "pgbm"] = "booster",
    variance: Variance | None = None,
    cv: Any = None,
    device: str = "auto",
    n_jobs: int | None = None,
    progress: bool = False,
    label: str | None = None,
    weight: str | None = None,
    categorical: Sequence[str] | None = None,
) -> ProbabilisticModel:
    """Add a predictive distribution to a trained model, in one pass over labelled rows.

    Parameters
    ----------
    booster : live model, estimator or path
        An lgb.Booster, lgb.LGBMRegressor, xgb.Booster, xgb.XGBRegressor, CatBoost, CatBoostRegressor, a fitted
        HistGradientBoostingRegressor, a Dask model of LightGBM or XGBoost, a model of xgboost.spark, or the path of a
        saved model. Also what scikit-learn keeps around a fitted estimator of these: a Pipeline that ends with it, a
        GridSearchCV or another search, a TransformedTargetRegressor with a monotone transform, a FrozenEstimator, or
        several of them. Rows are then those that it takes, and outcomes are on its scale.
    X : table, data set or stream, optional
        The training rows, or held-out rows; `certificate` tells which. A table is NumPy, pandas, polars, PyArrow, SciPy
        sparse, torch, CuPy, cuDF or Dask. An lgb.Dataset, xgb.DMatrix or catboost.Pool brings its own y. `X` may be
        left out if the booster was trained with `record`, if `embed` stored moments in it, or if it still holds its
        data (LightGBM with keep_training_booster=True and free_raw_data=False).

        Rows that do not fit into memory come in batches: an iterator of ``(X, y)`` or ``(X, y, weight)``, or of frames
        with the label among their columns; or Parquet or CSV files, "data/*.parquet". They are read once, and results
        are those of all rows at once. LightGBM starts from the mean label, which is known only after the last batch;
        until then, 6 to 10 bytes per row are kept in a temporary file.

        Moments that `partial_moments` gathered elsewhere, merged, may be passed as `X` as well.
    y : column, optional
        Labels.
    sample_weight : column, optional
        Weights of training, if it had any.
    init_score : column, optional
        LightGBM's init_score, XGBoost's base_margin or CatBoost's baseline, if training had one.
    objective : callable or torch_objective, optional
        The custom objective of training, if it had one: ``(margin, y) -> (g, h)``, or a `torch_objective`. The latter
        need not be passed while the object that training used is still in memory.
    mean : {"booster", "pgbm"}
        "booster" leaves point predictions as they are, to the bit. "pgbm" uses the paper's expected leaf weights.
    variance : {"pgbm", "boosted", "auto"}, optional
        "pgbm" is the paper's recursion, in `tune` as well. "boosted" is a log-variance boosted on the same trees. It is
        fitted to the residuals of at most 262,144 of these rows, corrected as if each row had been left out of
        training, and needs one table. "auto" is the recursion until `tune` has chosen the better of both, or a blend.
        Default: as "auto", but without a scale from these rows, which costs up to half as much again. Models trained
        with dropout (dart) have no recursion: "pgbm" is refused, and all others use a scale from these rows at once.
    cv : int, splitter or iterable, optional
        Calibrate the model on its own training rows. The booster is trained again on every fold, with its own
        parameters and number of trees, and family, spread and shape are chosen by how well they foretell the rows that
        a fold left out. With ``cv=5`` this takes as long as five trainings. A number stands for that many random folds.
        Rows in the order of time, or in groups, need a scikit-learn splitter, such as TimeSeriesSplit(), or pairs of
        (train, test) row numbers, such as ``GroupKFold(5).split(X, y, groups)``. Default: no calibration, `tune` does
        it with held-out rows.
    device : str
        "cpu", "cuda", "cuda:1", or "auto": the GPU for tables that lie on one (torch, CuPy, cuDF) and for very large
        ones, else the CPU. Predictions use the same device unless told otherwise.
    n_jobs : int, optional
        Threads; None for all cores.
    progress : bool
        Show a progress bar: rows, rows per second, and the time left where the number of rows is known.
    label, weight : str, optional
        Names of columns, where batches are frames or files.
    categorical : sequence of str, optional
        Names of all categorical columns of a LightGBM model. Only needed if X is files in which some of these columns
        hold numbers: text columns, frames and XGBoost's models tell it themselves.

    Returns
    -------
    ProbabilisticModel
        The model. Its point predictions are those of the booster.

    Examples
    --------
    >>> model = wrap(lgb.train(params, lgb.Dataset(X, y), 200), X, y, cv=5)
    >>> model.predict_interval(X_new, coverage=0.9)

    With held-out rows, which is faster:

    >>> model = wrap(lgb.train(params, lgb.Dataset(X, y), 200), X, y)
    >>> model.tune(X_val, y_val)
    """
    _check_words(mean, variance, cv)
    raw = RawRows(X, y, sample_weight, init_score)
    source = find_source(raw, label, weight)
    check_device(device, here=not source.is_remote)
    _check_is_booster(booster)
    booster, surroundings = peel(booster)
    forest, spec = read_model(booster)
    if categorical is not None:
        forest = forest.with_features(with_category_columns(forest.features, categorical))
    check_recursion(spec, mean, variance)
    surroundings = surroundings.around(forest)
    embedded = source.embedded(booster, forest, objective)
    if embedded is not None:
        _check_needs_no_table("pgbm", cv)
        _check_embedded(embedded, mean, variance)
        return _new_model(replace(embedded, surroundings=surroundings), device, n_jobs)
    if not source.may_be_table:
        _check_needs_no_table(variance, cv)
    train = None if cv is None else refit_on_folds(booster, spec)
    options = Options(objective, device, n_jobs, progress)
    leaves = source.through(surroundings, forest).measure(booster, forest, spec, options)
    if leaves.data is None:
        _check_needs_no_table(variance, cv)
    kind: dict[str, Any] = {"mean": mean, "variance": variance or "auto"}
    state = ModelState.new(_as_wrapped(forest, leaves), leaves.spec, leaves.moments, leaves.certificate, **kind)
    if leaves.trained is not None and cv is None and (variance not in (None, "pgbm") or not state.spec.sequential):
        state = _with_scale(state, leaves.trained, n_jobs)
    model = _new_model(state, device, n_jobs)
    if train is not None and leaves.data is not None:
        _calibrate(model, train, leaves.data, raw, surroundings, cv, progress)
    model.state = replace(model.state, surroundings=surroundings)
    return model


def _check_words(mean: str, variance: Variance | None, cv: Any) -> None:
    """Refuse unknown values of options, before anything is read."""
    if mean not in ("booster", "pgbm"):
        raise ValueError(f"mean must be 'booster' or 'pgbm', not {mean!r}")
    if cv is not None:
        check_cv(cv)
    if variance is not None:
        check_variance(variance)


def _as_wrapped(forest: Forest, leaves: MeasuredLeaves) -> Forest:
    """Return the forest with what it learns from the rows of one table: names and categories of columns."""
    if leaves.data is None:
        return forest
    rows = leaves.data.rows
    if rows.features.names != forest.features.names and leaves.certificate.status != "certified":
        warn(f"X has none of the model's column names: they are taken by position, as {forest.booster} does")
    return forest.with_features(with_seen_categories(rows.features, rows))


def _calibrate(
    model: ProbabilisticModel,
    train: Train,
    data: LabelledRows,
    raw: RawRows,
    surroundings: Surroundings,
    cv: Any,
    progress: bool,
) -> None:
    """Tune a model on its training rows, with predictions by models that were trained without them.

    The model has no surroundings yet: the rows of `data` have passed through them.
    """
    if model.certificate.status == "held-out":
        raise ValueError(
            f"cv= trains again on the rows of training, but {model.certificate.sentence}. Rows that training did not "
            f"see need no cv=: wrap(booster, X, y).tune(X, y)"
        )
    predicted = predict_out_of_fold(train, model.spec, data, raw, surroundings, cv, model.n_jobs, progress)
    model.tune(
        data.rows,
        data.y,
        out_of_fold=surroundings.forward(predicted),
        sample_weight=data.weight,
        init_score=data.init_score,
        progress=progress,
    )


def _check_needs_no_table(variance: Variance | None, cv: Any) -> None:
    """Refuse what goes through the rows several times, if these are not one table."""
    if variance == "boosted":
        raise TypeError(
            "variance='boosted' goes through the rows tree by tree, and needs them in one table: wrap(booster, X, y). "
            "With batches, files or moments, let tune boost the scale from held-out rows: model.tune(X_val, y_val, "
            "variance='auto')"
        )
    if cv is not None:
        raise TypeError(
            "cv= trains again on folds, and needs the rows in one table: wrap(booster, X, y, cv=5). Batches, files, "
            "Dask collections, moments and recorded trainings do not have them: tune with held-out rows, "
            "model.tune(X_val, y_val)"
        )


def _check_is_booster(booster: Any) -> None:
    """Refuse a model that is wrapped already, live or as a file."""
    if isinstance(booster, ProbabilisticModel):
        raise TypeError("this model is wrapped already: predict with it, or call its tune, conformalize or update")
    if isinstance(booster, (str, os.PathLike)) and "\n" not in str(booster) and Path(booster).is_file():
        with Path(booster).open("rb") as file:
            if is_container(file.read(64)):
                path = str(booster)
                raise ValueError(f"{path!r} is a whole ProbabilisticModel: pgbm_plugin.load(path) gives it back")


def _check_embedded(embedded: ModelState, mean: str, variance: Variance | None) -> None:
    """Refuse to return another kind of model than was asked for."""
    if mean != embedded.mean:
        raise ValueError(f"the embedded model has mean={embedded.mean!r}: call wrap(booster, mean={embedded.mean!r})")
    if variance not in (None, embedded.variance):
        raise ValueError(
            f"the embedded model has variance={embedded.variance!r}: leave variance out and tune it, "
            f"model.tune(X_val, y_val, variance={variance!r}), or wrap the booster with its rows"
        )


def _with_scale(state: ModelState, data: LabelledRows, n_jobs: int | None) -> ModelState:
    """Return the state with a scale boosted from the rows.

    "boosted" uses it at once. "auto" keeps it for `tune`, unless there is no recursion to predict with until then.
    """
    scale = training_scale(state, data, n_jobs)
    if state.variance != "boosted" and state.spec.sequential:
        return replace(state, training_scale=scale)
    if scale is None:
        instead = "the variance is the paper's" if state.spec.sequential else "there is no variance"
        warn(
            f"no scale was boosted, and {instead}: residuals of these rows are all zero, or not finite; let tune boost "
            f"one from held-out rows",
        )
    return replace(state, training_scale=scale, chosen=replace(state.chosen, scale=scale))


def _new_model(state: ModelState, device: str, n_jobs: int | None) -> ProbabilisticModel:
    """Return a model of this state; warn if its moments may not be those of training."""
    if state.certificate.status != "certified":
        warn(f"not certified: {state.certificate}")
    return ProbabilisticModel(state, device=device, n_jobs=n_jobs)
