"""wrap(): a trained booster and labelled rows -> a model that predicts distributions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .boosters import read_model
from .device import check_device
from .embed import embedded
from .errors import warn
from .leaves.base_score import LabelSums, settled_moments, starting_from
from .leaves.certificate import Certificate, certify
from .leaves.moments import LabelledRows, LeafMoments, leaf_moments
from .leaves.solve_rates import solve_rates
from .losses.custom_objectives import with_objective
from .losses.torch_objective import TorchObjective, remembered
from .model import ProbabilisticModel
from .predictor import Variance, check_variance
from .sources import Given, is_streamed, moments_from
from .streams.categories import with_category_columns
from .streams.partitions import is_dask
from .tables.frames import with_seen_categories
from .tables.labelled import read_labelled, training_data
from .trees.forest import Forest
from .trees.objectives import Gradients
from .trees.training_spec import TrainingSpec

_NEEDS_TABLE = (
    "variance='boosted' goes through the rows tree by tree, and needs them in one table: wrap(booster, X, y). With "
    "batches, files or moments, let tune boost the scale from held-out rows: model.tune(X_val, y_val, variance='auto')"
)


def wrap(
    booster: Any,
    X: Any = None,
    y: Any = None,
    *,
    sample_weight: Any = None,
    init_score: Any = None,
    objective: Gradients | TorchObjective | None = None,
    mean: Literal["booster", "pgbm"] = "booster",
    variance: Variance = "pgbm",
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
    booster : lgb.Booster, lgb.LGBMRegressor, xgb.Booster, xgb.XGBRegressor, a Dask model of either, or the path of a
        saved model of either.
    X : the training rows (or held-out rows; `certificate` tells which): NumPy, pandas, polars, PyArrow, SciPy sparse,
        Dask; or an lgb.Dataset / xgb.DMatrix, which bring their own y. May be omitted if the booster was trained with
        `record`, holds what `embed` stored in it, or still holds its data.
        Rows that do not fit memory come in batches: an iterator of ``(X, y)`` or ``(X, y, weight)``, or of frames with
        the label among their columns; or Parquet or CSV files, "data/*.parquet". They are read once, and results are
        those of all rows at once. LightGBM starts from the mean label, which is only known after the last batch; until
        then, 6 to 10 bytes per row are kept in a temporary file. Merged moments from `partial_moments` are used as they
        are.
    y : (n,) labels.
    sample_weight : (n,) weights of training, if it had any.
    init_score : (n,) LightGBM's init_score or XGBoost's base_margin, if training had one.
    objective : the custom objective of training, if it had one: ``(margin, y) -> (g, h)``, or a `torch_objective`
        (which is found if it still lives).
    mean : "booster" leaves point predictions as they are, to the bit; "pgbm" uses the paper's expected leaf weights.
    variance : "pgbm", the paper's recursion. "boosted": a log-variance boosted on the same trees, from the residuals of
        these rows (at most 262,144), each scaled to what it would be had its row been left out; needs a table.
        "auto": the recursion until `tune` has chosen the better of both, or a blend.
    device : "cpu", "cuda", "cuda:1"..., or "auto": the GPU for tables that lie on one (torch, CuPy, cuDF) and for very
        large ones where there is one, else the CPU. Predictions use the same unless told otherwise.
    n_jobs : threads; None for all cores.
    progress : show a progress bar: rows, rows a second, and the time left where the number of rows is known.
    label, weight : names of columns, where batches are frames or files.
    categorical : names of all categorical columns of a LightGBM model, where files hold some of them as numbers. Not
        needed for text, for frames, nor for XGBoost, whose models store this.
    """
    if mean not in ("booster", "pgbm"):
        raise ValueError(f"mean must be 'booster' or 'pgbm', not {mean!r}")
    check_variance(variance)
    check_device(device, here=not is_dask(X))
    forest, spec = read_model(booster)
    if categorical is not None:
        forest = forest.with_features(with_category_columns(forest.features, categorical))
    given = Given(y, sample_weight, init_score, objective, label, weight, device)
    options: dict[str, Any] = {"mean": mean, "variance": variance, "device": device, "n_jobs": n_jobs}
    kept = embedded(booster, forest) if X is None and y is None else None
    if kept is not None:
        given.refuse_with_moments()
        _check_embedded(kept, mean, variance)
        kept.device, kept.n_jobs = device, n_jobs
        return _warned(kept)
    if variance == "boosted" and (isinstance(X, LeafMoments) or is_streamed(X, given)):
        raise TypeError(_NEEDS_TABLE)
    gathered = moments_from(booster, forest, spec, X, given, n_jobs, progress)
    if gathered is not None:
        if variance == "boosted":
            raise TypeError(_NEEDS_TABLE)
        spec, moments, weighted = gathered
        spec, certificate = _judged(forest, spec, moments, weighted)
        return _warned(ProbabilisticModel(forest, spec, moments, certificate, **options))
    found = training_data(booster, X, y, sample_weight, init_score)
    plain = objective is not None and not isinstance(objective, TorchObjective)
    data = read_labelled(found, forest, device, custom=plain, explicit=sample_weight is not None)
    candidates = [with_objective(spec, known, data) for known in _objectives(booster, spec, objective, data.y)]
    spec, moments, certificate = _first_certified(forest, candidates, data, n_jobs, progress)
    forest = forest.with_features(with_seen_categories(forest.features, data.rows, certificate.status == "certified"))
    model = ProbabilisticModel(forest, spec, moments, certificate, **options)
    return _warned(model if variance == "pgbm" else _with_scale(model, data))


def _check_embedded(kept: ProbabilisticModel, mean: str, variance: Variance) -> None:
    """What was embedded is what was asked for."""
    if mean != kept.mean:
        raise ValueError(f"the embedded model has mean={kept.mean!r}: call wrap(booster, mean={kept.mean!r})")
    if variance not in ("pgbm", kept.variance):
        raise ValueError(
            f"the embedded model has variance={kept.variance!r}: leave variance out and tune it, "
            f"model.tune(X_val, y_val, variance={variance!r}), or wrap the booster with its rows"
        )


def _with_scale(model: ProbabilisticModel, data: LabelledRows) -> ProbabilisticModel:
    """The model with a scale boosted from the rows, which "boosted" takes at once and "auto" keeps for `tune`."""
    from .calibration.boosted_scale import training_scale

    known = model.forest, model.spec, model.moments, model.certificate
    model.training_scale = training_scale(*known, model._leaf_value, data, model.n_jobs)
    if model.variance == "boosted":
        model._settings = replace(model._settings, scale=model.training_scale)
        if model.training_scale is None:
            warn(
                "no scale was boosted, and the variance is the paper's: residuals of these rows are all zero, or not "
                "finite; let tune boost one from held-out rows",
            )
    return model


def _warned(model: ProbabilisticModel) -> ProbabilisticModel:
    if model.certificate.status != "certified":
        warn(f"not certified: {model.certificate}")
    return model


def _first_certified(
    forest: Forest, candidates: Sequence[TrainingSpec], data: LabelledRows, n_jobs: int | None, progress: bool
) -> tuple[TrainingSpec, LeafMoments, Certificate]:
    """Of the first spec that the rows certify, or the first of all; with the exact diagonal if steps had another."""
    tried = []
    for candidate in candidates:
        tried.append(_certified(forest, candidate, data, n_jobs, progress))
        if tried[-1][2].status == "certified":
            break
    spec, moments, certificate = tried[-1] if tried[-1][2].status == "certified" else tried[0]
    if spec.objective is not None and spec.objective.diagonal is not None:
        steps = replace(spec.objective, gradients=spec.objective.diagonal)
        moments = leaf_moments(forest, replace(spec, objective=steps), data, n_jobs=n_jobs, progress=progress)
    return spec, moments, certificate


def _certified(
    forest: Forest, spec: TrainingSpec, data: LabelledRows, n_jobs: int | None, progress: bool
) -> tuple[TrainingSpec, LeafMoments, Certificate]:
    """The moments, and whether they are those of training; start and rates of the spec as the rows tell them."""

    def moments_of(forest: Forest, spec: TrainingSpec) -> LeafMoments:
        return leaf_moments(forest, spec, data, n_jobs=n_jobs, progress=progress)

    if data.init_score is None and spec.start_is_mean:
        sums = LabelSums.of_model(spec, forest).add(spec, data.y, data.weight)
        spec, moments = settled_moments(forest, spec, sums, moments_of)
    else:
        spec = starting_from(spec, data.init_score)
        moments = moments_of(forest, spec)
    spec, certificate = _judged(forest, spec, moments, data.weight is not None)
    return spec, moments, certificate


def _judged(
    forest: Forest, spec: TrainingSpec, moments: LeafMoments, weighted: bool
) -> tuple[TrainingSpec, Certificate]:
    """The certificate, with rates solved from the moments where those of the spec do not fit."""
    certificate = certify(forest, spec, moments, weighted)
    if certificate.status == "approximate" and not spec.approximate:
        solved = solve_rates(forest, spec, moments)
        if solved.rates_known or not spec.rates_known:
            return solved, certify(forest, solved, moments, weighted)
    return spec, certificate


def _objectives(
    booster: Any, spec: TrainingSpec, objective: Gradients | TorchObjective | None, label: NDArray[np.float64]
) -> Sequence[Gradients | TorchObjective | None]:
    """Which objectives training may have had; None is the model's own. The certificate decides between several."""
    held = getattr(booster, "objective", None)
    if objective is not None or isinstance(held, TorchObjective):
        return [held if objective is None else objective]
    if spec.objective is None:
        return remembered(label) or [None]
    return [None, *remembered(label)] if spec.objective.may_be_custom else [None]
