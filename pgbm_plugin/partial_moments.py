"""partial_moments(): the part of `wrap` that any engine can run on some of the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .boosters import read_model
from .device import check_device
from .leaves.base_score import starting_from
from .leaves.moments import LeafMoments, leaf_moments
from .losses.custom_objectives import Objective, check_takes_batches, on_batch
from .model import ProbabilisticModel
from .sources import own_objective
from .tables.labelled import read_labelled, table_or_dataset
from .tables.rows import table_length


def partial_moments(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    init_score: Any = None,
    objective: Objective | None = None,
    start: float | None = None,
    device: str = "auto",
    n_jobs: int | None = 1,
) -> LeafMoments:
    """Moments of some of the rows; those of all rows are their `LeafMoments.merge`, in any order.

    ``wrap(model, moments)`` makes a model of the merged ones and ``model.update(moments)`` adds them to one.
    `LeafMoments.to_bytes` and `from_bytes` take them from machine to machine.

    Parameters
    ----------
    model : what `wrap` takes as booster, or a wrapped model.
    X, y, sample_weight, init_score : some of the rows; none of them is fine, too.
    objective : a `torch_objective` of single rows, if training had one.
    start : the mean label of *all* rows (its logarithm under a log link), from which LightGBM starts. By default what
        the model's leaves imply: the same to about 1e-9 under most objectives, but not under huber and fair.
    device : as in `wrap`.
    n_jobs : threads; one, because engines start as many tasks as there are cores.
    """
    if isinstance(model, ProbabilisticModel):
        forest, spec, objective = model.forest, model.spec, objective or own_objective(model.spec)
    else:
        forest, spec = read_model(model)
    check_takes_batches(spec, objective)
    if start is not None and spec.start_is_mean:
        spec = replace(spec, start=float(start))
    found = table_or_dataset(X, y, sample_weight, init_score)
    if table_length(found.X) == 0:
        return LeafMoments.of_nothing(forest.n_leaves)
    data = read_labelled(found, forest, check_device(device), part=True)
    spec = starting_from(spec, data.init_score)
    return leaf_moments(forest, on_batch(spec, objective, data, probe=True), data, n_jobs=n_jobs)
