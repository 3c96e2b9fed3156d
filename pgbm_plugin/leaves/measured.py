"""MeasuredLeaves: the moments of a forest's leaves on labelled rows, with their certificate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from ..losses.custom_objectives import CustomObjective, candidate_objectives, with_diagonal, with_objective
from ..tables.labelled import LabelledRows
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec
from .base_score import LabelSums, for_init_score, moments_from_mean
from .certificate import Certificate, certify
from .gather import leaf_moments
from .moments import LeafMoments
from .solve_rates import solve_rates


class MeasuredLeaves(NamedTuple):
    """The moments of leaves, how the trees were grown, and whether the moments are those of training."""

    spec: TrainingSpec
    moments: LeafMoments
    certificate: Certificate
    data: LabelledRows | None = None  # the rows that were given, if they are one table in memory
    trained: LabelledRows | None = None  # those of `data` that the leaves were measured on


def measure_table(
    booster: Any,
    forest: Forest,
    spec: TrainingSpec,
    objective: CustomObjective | None,
    data: LabelledRows,
    n_jobs: int | None,
    progress: bool,
) -> MeasuredLeaves:
    """Measure the leaves with the first spec that the rows certify; if they certify none, with the first spec.

    If training used other second derivatives than the Hessian's diagonal, the moments are gathered again with it.
    """
    tried: list[MeasuredLeaves] = []
    objectives = candidate_objectives(booster, spec, objective, data)
    for candidate in [with_objective(spec, candidate, data) for candidate in objectives]:
        tried.append(_measure(forest, candidate, data, n_jobs, progress))
        if tried[-1].certificate.status == "certified":
            break
    measured = tried[-1] if tried[-1].certificate.status == "certified" else tried[0]
    diagonal = with_diagonal(measured.spec)
    if diagonal is not measured.spec:
        rows = data.on_margin_scale(diagonal)
        measured = measured._replace(moments=leaf_moments(forest, diagonal, rows, n_jobs=n_jobs, progress=progress))
    return measured._replace(data=data, trained=data)


def _measure(
    forest: Forest, spec: TrainingSpec, data: LabelledRows, n_jobs: int | None, progress: bool
) -> MeasuredLeaves:
    rows = data.on_margin_scale(spec)

    def moments_of(forest: Forest, spec: TrainingSpec) -> LeafMoments:
        return leaf_moments(forest, spec, rows, n_jobs=n_jobs, progress=progress)

    if data.init_score is None and spec.start_is_mean:
        sums = LabelSums.of_model(spec, forest).add(rows.y, data.weight)
        spec, moments = moments_from_mean(forest, spec, sums, moments_of)
    else:
        spec = for_init_score(spec, data.init_score)
        moments = moments_of(forest, spec)
    return judge(forest, spec, moments)


def judge(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> MeasuredLeaves:
    """Certify moments; where the rates of the spec do not fit, solve them from the moments and certify again.

    Rates that the model states stay, unless others are proven.
    """
    spec = _with_scaled_lambda(forest, spec, moments)
    certificate = certify(forest, spec, moments)
    off = certificate.error > spec.tolerance or not spec.rates_known
    if certificate.status == "approximate" and not spec.approximate and off:
        solved = solve_rates(forest, spec, moments)
        if solved.rates_known or not spec.rates_known:
            spec, certificate = solved, certify(forest, solved, moments)
    return MeasuredLeaves(spec, moments, certificate)


def _with_scaled_lambda(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> TrainingSpec:
    """Return the spec with lambda times the mean weight of the rows, where the booster scales it."""
    if not spec.scaled_lambda:
        return spec
    if moments.weight is None:
        return replace(spec, scaled_lambda=False)
    leaves = slice(0, int(forest.leaf_start[1]))
    mean = float(moments.weight[leaves].sum() / moments.count[leaves].sum())
    return replace(spec, lambda_=spec.lambda_ * mean, scaled_lambda=False)
