"""More rows for a wrapped model: their moments under the model's own spec, merged with those that it has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .leaves.base_score import starting_from
from .leaves.certificate import Certificate, certify
from .leaves.moments import LeafMoments, leaf_moments
from .leaves.weights import LeafWeights, leaf_weights, typical_variance
from .losses.custom_objectives import on_rows
from .sources import Given, check_moments, own_objective, streamed_moments
from .tables.labelled import read_labelled, table_or_dataset

if TYPE_CHECKING:
    from .model import ProbabilisticModel


@dataclass(frozen=True)
class Update:
    """What a model becomes; `ratio` is that of a typical row's variance, after to before."""

    moments: LeafMoments
    weights: LeafWeights
    certificate: Certificate
    ratio: float


def updated(
    model: ProbabilisticModel, X: Any, given: Given, decay: float | None, n_jobs: int | None, progress: bool
) -> Update:
    """See `ProbabilisticModel.update`; the model itself is left as it is."""
    decay = 1.0 if decay is None else float(decay)
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"decay must lie in [0, 1], not {decay}: what rows seen before still count for")
    more = _moments(model, X, given, n_jobs, progress)
    moments = model.moments.faded(decay).merge(more)
    certificate = _certificate(model, moments, more.rows)
    weights = leaf_weights(model.forest, model.spec, moments)
    before = typical_variance(model.forest, model.moments, model.weights)
    ratio = typical_variance(model.forest, moments, weights) / before if before > 0 else 1.0
    return Update(moments, weights, certificate, ratio)


def _certificate(model: ProbabilisticModel, moments: LeafMoments, further: float) -> Certificate:
    """Of all rows. If these do not reproduce the leaves, nothing is amiss: update is for rows that training had not."""
    found = certify(model.forest, model.spec, moments, weighted=True)
    brought = f"update brought the last {further:.0f} rows"
    if found.status == "certified":
        return found
    if model.spec.approximate or model.spec.subsampled:
        return replace(found, sentence=f"{found.sentence}; {brought}")
    sentence = f"the moments are those of {moments.rows:.0f} rows that are not just those of training: {brought}"
    return replace(found, status="held-out", sentence=sentence)


def _moments(model: ProbabilisticModel, X: Any, given: Given, n_jobs: int | None, progress: bool) -> LeafMoments:
    forest, spec = model.forest, model.spec
    if X is None:
        raise TypeError("update needs rows: model.update(X, y)")
    if isinstance(X, LeafMoments):
        given.refuse(("y", "sample_weight", "init_score", "label", "weight"), "moments are complete")
        check_moments(forest, X)
        return X
    custom = own_objective(spec)
    gathered = streamed_moments(
        forest, spec, X, replace(given, objective=custom), settle=False, n_jobs=n_jobs, progress=progress
    )
    if gathered is not None:
        return gathered[1]
    found = table_or_dataset(X, given.y, given.sample_weight, given.init_score)
    if found.y is None:
        raise TypeError("update needs labels: model.update(X, y)")
    data = read_labelled(found, forest, given.device)
    spec = starting_from(on_rows(spec, data), data.init_score)
    assert spec.objective is not None
    if spec.objective.diagonal is not None:
        spec = replace(spec, objective=replace(spec.objective, gradients=spec.objective.diagonal))
    return leaf_moments(forest, spec, data, n_jobs=n_jobs, progress=progress)
