"""wrap(): a trained booster and labelled rows -> a model that predicts distributions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .adapters import TrainingData, held_data, read_dataset, read_model
from .autograd import TorchObjective, remembered
from .certificate import Certificate, certify, contains_training_rows, leaf_errors
from .columns import read_column
from .device import check_device, read_rows_for
from .embed import embedded
from .errors import UnsupportedModelError
from .forest import Forest
from .model import ProbabilisticModel
from .moments import LabelledRows, LeafMoments, leaf_moments
from .objectives import IDENTITY, LOG, Gradients, custom
from .propagate import leaf_weights
from .rates import solve_rates
from .recording import recorded
from .training import TrainingSpec


def wrap(
    booster: Any,
    X: Any = None,
    y: Any = None,
    *,
    sample_weight: Any = None,
    init_score: Any = None,
    objective: Gradients | TorchObjective | None = None,
    mean: Literal["booster", "pgbm"] = "booster",
    device: str = "auto",
    n_jobs: int | None = None,
    progress: bool = False,
) -> ProbabilisticModel:
    """Add a predictive distribution to a trained model, in one pass over labelled rows.

    Parameters
    ----------
    booster : lgb.Booster, lgb.LGBMRegressor, xgb.Booster, xgb.XGBRegressor, or the path of a saved model of either.
    X : the training rows (or held-out rows; `certificate` tells which): NumPy, pandas, polars, PyArrow, SciPy sparse;
        or an lgb.Dataset / xgb.DMatrix, which bring their own y. May be omitted if the booster was trained with
        `record`, holds what `embed` stored in it, or still holds its data.
    y : (n,) labels.
    sample_weight : (n,) weights of training, if it had any.
    init_score : (n,) LightGBM's init_score or XGBoost's base_margin, if training had one.
    objective : the custom objective of training, if it had one: ``(margin, y) -> (g, h)``, or a `torch_objective`
        (which is found if it still lives).
    mean : "booster" leaves point predictions as they are, to the bit; "pgbm" uses the paper's expected leaf weights.
    device : "cpu", "cuda", "cuda:1"..., or "auto": the GPU for tables that lie on one (torch, CuPy, cuDF) and for very
        large ones where there is one, else the CPU. Predictions use the same unless told otherwise.
    n_jobs : threads; None for all cores.
    progress : show a progress bar.
    """
    if mean not in ("booster", "pgbm"):
        raise ValueError(f"mean must be 'booster' or 'pgbm', not {mean!r}")
    check_device(device)
    forest, spec = read_model(booster)
    kept = embedded(booster, forest) if X is None and y is None else None
    told = recorded(booster, forest, spec) if X is None and y is None and kept is None else None
    if (kept or told) and not (sample_weight is init_score is objective is None):
        raise TypeError(
            "the booster brings its recorded moments, which hold weights, init scores and objective of training: "
            "leave these arguments out, or give the rows as well, wrap(booster, X, y)"
        )
    if kept is not None:
        if mean != kept.mean:
            raise ValueError(f"the embedded model has mean={kept.mean!r}: call wrap(booster, mean={kept.mean!r})")
        kept.device, kept.n_jobs = device, n_jobs
        return _warned(kept)
    if told is not None:
        spec, moments, weighted = told
        spec, certificate = _judged(forest, spec, moments, weighted)
        return _model(forest, spec, moments, certificate, mean, device, n_jobs)
    found = _training_data(booster, X, y, sample_weight, init_score)
    rows = read_rows_for(found.X, forest, device)
    label = _labels(found.y, len(rows))
    weight = _weights(found.sample_weight, len(rows), objective, explicit=sample_weight is not None)
    data = LabelledRows(rows, label, weight, read_column("init_score", found.init_score, len(rows)))

    candidates = [_with_objective(spec, known, data) for known in _objectives(booster, spec, objective, label)]
    tried = []
    for candidate in candidates:
        tried.append(_certified(forest, candidate, data, n_jobs, progress))
        if tried[-1][2].status == "certified":
            break
    spec, moments, certificate = tried[-1] if tried[-1][2].status == "certified" else tried[0]
    if spec.objective is not None and spec.objective.diagonal is not None:
        steps = replace(spec.objective, gradients=spec.objective.diagonal)
        moments = leaf_moments(forest, replace(spec, objective=steps), data, n_jobs=n_jobs, progress=progress)
    return _model(forest, spec, moments, certificate, mean, device, n_jobs)


def _model(
    forest: Forest,
    spec: TrainingSpec,
    moments: LeafMoments,
    certificate: Certificate,
    mean: Literal["booster", "pgbm"],
    device: str,
    n_jobs: int | None,
) -> ProbabilisticModel:
    weights = leaf_weights(forest, spec, moments)
    given = forest, spec, moments, weights, certificate
    return _warned(ProbabilisticModel(*given, mean=mean, device=device, n_jobs=n_jobs), 4)


def _warned(model: ProbabilisticModel, stacklevel: int = 3) -> ProbabilisticModel:
    if model.certificate.status != "certified":
        warnings.warn(f"not certified: {model.certificate}", UserWarning, stacklevel=stacklevel)
    return model


def _certified(
    forest: Forest, spec: TrainingSpec, data: LabelledRows, n_jobs: int | None, progress: bool
) -> tuple[TrainingSpec, LeafMoments, Certificate]:
    """The moments, and whether they are those of training; start and rates of the spec as the rows tell them."""
    spec = _with_start(forest, spec, data, n_jobs)
    moments = leaf_moments(forest, spec, data, n_jobs=n_jobs, progress=progress)
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
    if spec.objective is None:  # LightGBM does not store a custom one
        return remembered(label) or [None]
    if spec.objective.name == "reg:squarederror":  # which XGBoost also writes for a custom one
        return [None, *remembered(label)]
    return [None]


def _with_objective(
    spec: TrainingSpec, objective: Gradients | TorchObjective | None, data: LabelledRows
) -> TrainingSpec:
    if objective is None:
        if spec.objective is None:
            raise UnsupportedModelError(
                "the model was trained with a custom objective, which it does not store, and none that lives saw these "
                "labels: give wrap(..., objective=f), a torch_objective or a function (margin, y) -> (g, h)"
            )
        spec.objective.check_labels(data.y)
        return spec
    if not callable(objective):
        raise TypeError(
            f"objective must be a function (margin, y) -> (g, h), not {objective!r}; built-in objectives are read "
            f"from the model"
        )
    if spec.objective is not None and spec.objective.link != IDENTITY:
        raise ValueError(f"the model has a built-in objective, {spec.objective.name!r}; leave objective= out")
    if not isinstance(objective, TorchObjective):
        return replace(spec, objective=custom(objective))
    steps = partial(objective.derivatives, sample_weight=data.weight)
    coupled = objective.levels is not None and objective.hessian == "rowsum"
    return replace(spec, objective=custom(steps, partial(steps, hessian="diagonal") if coupled else None))


def _training_data(booster: Any, X: Any, y: Any, sample_weight: Any, init_score: Any) -> TrainingData:
    """The rows given, or found in a booster's own data set."""
    if X is None:
        if y is not None:
            raise TypeError("wrap got y without X")
        found: TrainingData | None = held_data(booster)
    else:
        found = read_dataset(X)
    if found is None:
        if y is None:
            raise TypeError("wrap(booster, X) needs labels: wrap(booster, X, y)")
        return TrainingData(X, y, sample_weight, init_score)
    return found.replaced_by(y, sample_weight, init_score)


def _labels(y: Any, n: int) -> NDArray[np.float64]:
    if y is None:
        raise ValueError("the data set has no labels; give y")
    label = read_column("y", y, n)
    assert label is not None
    return label


def _weights(
    values: Any, n: int, objective: Gradients | TorchObjective | None, *, explicit: bool
) -> NDArray[np.float64] | None:
    """Weights in the float32 in which both boosters hold them."""
    if objective is not None and not isinstance(objective, TorchObjective):
        if explicit:
            raise ValueError(
                "sample_weight has no effect with a custom objective, because neither booster applies it; multiply g "
                "and h by the weights in objective, if training did"
            )
        return None
    weight = read_column("sample_weight", values, n)
    return None if weight is None else weight.astype(np.float32).astype(np.float64)


def _with_start(forest: Forest, spec: TrainingSpec, data: LabelledRows, n_jobs: int | None) -> TrainingSpec:
    """The margin before the first tree, as exactly as the rows allow."""
    if data.init_score is not None:
        if np.any(spec.folded & ~spec.constant) and not np.all(spec.alpha == 1.0):
            raise ValueError(
                "init_score was given, but the model was trained without one: its first tree holds the mean label"
            )
        return replace(spec, folded=np.zeros_like(spec.folded))
    if not spec.start_is_mean or spec.objective is None:
        return spec
    label_mean = float(np.average(spec.objective.margin_labels(data.y), weights=data.weight))
    if forest.link == LOG:
        label_mean = float(np.log(label_mean)) if label_mean > 0 else spec.start
    from_labels = replace(spec, start=label_mean)
    first = forest.first_tree()

    def typical_error(spec: TrainingSpec) -> float:
        """Of a leaf of the first tree; a wrong label spoils one leaf, a wrong start all of them."""
        spec = spec.first_tree(first.n_leaves)
        moments = leaf_moments(first, spec, data, n_jobs=n_jobs)
        if not contains_training_rows(spec, moments):
            return np.inf
        return float(np.median(leaf_errors(first, spec, moments)))

    error = typical_error(from_labels)
    if error > spec.tolerance and (np.isinf(error) or typical_error(spec) <= spec.tolerance):
        return spec
    return from_labels
