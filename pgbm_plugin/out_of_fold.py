"""out_of_fold(): predictions of every row by a model that was trained without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import AnyArray, Array
from .boosters import completed, read_model, refit, with_names_of_training
from .boosters.booster import OTHER_WAY, Train
from .calibration.folds import Fold, check_cv, read_folds
from .errors import UnsupportedModelError, naming
from .losses.custom_objectives import (
    CustomObjective,
    candidate_objectives,
    on_rows,
    with_objective,
    with_usable_weights,
)
from .parallel import progress_bar
from .predict.recursion import margins
from .predict.response import to_response
from .surroundings.peel import peel
from .surroundings.surroundings import Surroundings, as_given_to_steps
from .tables.columns import read_labels
from .tables.in_memory import in_memory
from .tables.labelled import LabelledRows, RawRows, read_labelled
from .tables.rows import read_rows
from .trees.objectives import Gradients
from .trees.training_spec import TrainingSpec


def out_of_fold(
    booster: Any,
    X: Any,
    y: Any = None,
    *,
    cv: Any = 5,
    sample_weight: Any = None,
    init_score: Any = None,
    objective: CustomObjective | None = None,
    n_jobs: int | None = None,
    progress: bool = False,
) -> NDArray[np.float64]:
    """Predict each training row by a model that was trained without it, for `tune` and `conformalize`.

    The booster is trained again on every fold, with its own parameters and number of trees. This takes as long as `cv`
    trainings. ``wrap(booster, X, y, cv=5)`` does it, and tunes the model with the result.

    Parameters
    ----------
    booster : live model, estimator or path
        As in `wrap`. The file of a LightGBM model has the parameters of training, that of an XGBoost model has not.
    X, y, sample_weight, init_score, objective : table and columns
        The training rows, as in `wrap`, in one table.
    cv : int, splitter or iterable
        How rows are divided: a number of random folds; a scikit-learn splitter, such as TimeSeriesSplit; or (train,
        test) pairs of row numbers, such as ``GroupKFold(5).split(X, y, groups)``.
    n_jobs : int, optional
        Threads of the predictions. Trainings use as many as the booster was told.
    progress : bool
        Show a progress bar.

    Returns
    -------
    (n,) float array
        Predictions; NaN for the first rows of a split by time, which no fold tests.

    Examples
    --------
    >>> p = out_of_fold(booster, X, y, cv=5)
    >>> model = wrap(booster, X, y)
    >>> model.tune(X, y, out_of_fold=p)
    """
    check_cv(cv)
    booster, surroundings = peel(booster)
    forest, spec = read_model(booster)
    surroundings = surroundings.around(forest)
    train = refit_on_folds(booster, spec)
    given = RawRows(in_memory(X), y, sample_weight, init_score)
    raw = with_usable_weights(completed(surroundings.rows(given)), sample_weight, objective)
    data = read_labelled(raw, with_names_of_training(forest, raw.X), spec)
    spec = with_objective(spec, candidate_objectives(booster, spec, objective, data)[0], data)
    return predict_out_of_fold(train, spec, data, given, surroundings, cv, n_jobs, progress)


def refit_on_folds(booster: Any, spec: TrainingSpec) -> Train:
    """Return the function that trains a booster again; refuse one that cannot be, before any row is read."""
    rates = spec.alpha[~spec.constant][1:]
    if spec.sequential and len(rates) and np.ptp(rates) > 1e-3 * rates.max():
        raise UnsupportedModelError(
            f"cv= trains again with the parameters of training, but the learning rate changed from tree to tree "
            f"(a schedule), which the model does not store: {OTHER_WAY}"
        )
    return refit(booster, spec)


def predict_out_of_fold(
    train: Train,
    spec: TrainingSpec,
    data: LabelledRows,
    given: RawRows,
    surroundings: Surroundings,
    cv: Any,
    n_jobs: int | None,
    progress: bool,
) -> Array:
    """Train on every fold, and return the (n,) predictions of its test rows; NaN for rows that no fold tests.

    Predictions are on the scale of the outcomes in `given`, the rows as the user has them, which a splitter is shown.
    `data` are the rows after the surroundings. These are fitted anew on every fold, too.
    """
    folds = read_folds(cv, given.X, data.y, data.weight)
    gradients = None if spec.objective is None else spec.objective.gradients
    if gradients is not None:
        _check_separable(spec, gradients, data, folds[0])
    data, out = replace(data, rows=data.rows.on_host()), np.full(len(data), np.nan)
    with progress_bar(len(folds), "folds", progress) as advance:
        for k, fold in enumerate(folds):
            part, test, own = data.take(fold.train), data.take(fold.test), surroundings
            if surroundings:
                part, test, own = _fitted_on_fold(k, fold, part, test, given, surroundings)
            model = train(part.rows.training_table(), *_columns(spec, part))
            forest, _ = read_model(model)
            rows = test.rows.for_trained_on_table(forest.features)
            margin = margins(forest, rows, forest.leaf_value, test.init_score, n_jobs)
            out[fold.test] = own.outcome(to_response(forest, margin))
            advance(1)
    return out


def _fitted_on_fold(
    k: int, fold: Fold, part: LabelledRows, test: LabelledRows, given: RawRows, surroundings: Surroundings
) -> tuple[LabelledRows, LabelledRows, Surroundings]:
    """Return training and test rows of a fold as surroundings leave them that were fitted to its training rows."""
    from sklearn.utils import _safe_indexing

    X, y = as_given_to_steps(given.X), np.asarray(in_memory(given.y)).reshape(-1)
    with naming(f"fold {k}"):
        own, X_train, y_train = surroundings.refitted(_safe_indexing(X, fold.train), y[fold.train])
        X_test = own.table(_safe_indexing(X, fold.test))
        features = part.rows.features
        if not (features.categories or features.code_columns):
            # steps may make other columns of other rows, such as one for each category that they see
            features = replace(features, count=X_train.shape[1], names=None)
        rows, tested = read_rows(X_train, features), read_rows(X_test, features)
    y_train = read_labels("y", y_train, len(rows))
    return replace(part, rows=rows, y=y_train), replace(test, rows=tested), own


def _columns(spec: TrainingSpec, part: LabelledRows) -> tuple[Array, AnyArray | None, Array | None, Gradients | None]:
    """Return (labels, weights, init scores, custom objective) of training rows."""
    objective = on_rows(spec, part).objective
    if objective is None or objective.gradients is None:
        return part.y, part.weight, part.init_score, None
    return spec.margin_labels(part.y), part.weight, part.init_score, objective.gradients


def _check_separable(spec: TrainingSpec, gradients: Gradients, data: LabelledRows, fold: Fold) -> None:
    """Refuse a custom objective whose gradients on a fold are not those that the same rows have among all rows."""
    # noise, because at equal margins a penalty on the spread of predictions does not couple rows
    margin = spec.start + data.y.std() * np.random.default_rng(0).normal(size=len(data))
    y, part = spec.margin_labels(data.y), data.take(fold.train)
    whole = np.asarray(gradients(margin, y)[0], np.float64)[fold.train]
    try:
        own = np.asarray(_columns(spec, part)[-1](margin[fold.train], y[fold.train])[0], np.float64)  # type: ignore[misc]
    except Exception as error:
        raise UnsupportedModelError(
            f"the custom objective fails on a part of the rows ({error}), so the model cannot be trained on folds: "
            f"{OTHER_WAY}"
        ) from error
    if whole.shape != own.shape or not np.allclose(whole, own, rtol=1e-4, atol=1e-6 * np.abs(whole).max()):
        raise UnsupportedModelError(
            f"the custom objective couples rows: their gradients depend on which others are there, so a model of some "
            f"of the rows is another model. cv= cannot be used: {OTHER_WAY}"
        )
