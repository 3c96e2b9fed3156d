"""partial_moments(): the part of `wrap` that any engine can run on some of the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .boosters import completed, read_model, with_names_of_training
from .device import check_device
from .leaves.base_score import for_init_score
from .leaves.gather import leaf_moments, with_ranges
from .leaves.moments import LeafMoments
from .losses.custom_objectives import CustomObjective, check_takes_batches, on_batch, own_objective
from .model import ProbabilisticModel
from .surroundings.peel import peel
from .tables.labelled import RawRows, read_labelled
from .tables.rows import table_length


def partial_moments(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    init_score: Any = None,
    objective: CustomObjective | None = None,
    start: float | None = None,
    device: str = "auto",
    n_jobs: int | None = 1,
) -> LeafMoments:
    """Return the moments of some of the rows. `LeafMoments.merge` joins them, in any order, to those of all rows.

    ``wrap(model, moments)`` makes a model of the merged moments, and ``model.update(moments)`` adds them to one.
    `LeafMoments.to_bytes` and `from_bytes` take them from machine to machine.

    Parameters
    ----------
    model : booster or ProbabilisticModel
        What `wrap` takes as booster, or a wrapped model.
    X, y, sample_weight, init_score : table and columns
        Some of the rows, as in `wrap`. There may be none.
    objective : torch_objective, optional
        The custom objective of training, if it had one. Its loss must not couple rows.
    start : float, optional
        The mean label of *all* rows (its logarithm under a log link), from which LightGBM starts. Default: what the
        model's leaves imply. That is the same to about 1e-9 under most objectives, but not under huber and fair.
    device : str
        As in `wrap`.
    n_jobs : int
        Threads. Default: one, because engines start as many tasks as there are cores.
    """
    if isinstance(model, ProbabilisticModel):
        forest, spec, objective = model.forest, model.spec, objective or own_objective(model.spec)
        surroundings = model.state.surroundings
    else:
        model, surroundings = peel(model)
        forest, spec = read_model(model)
        surroundings = surroundings.around(forest)
    check_takes_batches(spec, objective)
    if start is not None and spec.start_is_mean:
        spec = replace(spec, start=float(start))
    raw = RawRows(X, y, sample_weight, init_score)
    raw = surroundings.rows(raw) if table_length(X) != 0 else raw  # steps refuse tables without rows
    raw = completed(raw)
    if table_length(raw.X) == 0:
        return LeafMoments.of_nothing(forest.n_leaves)
    forest = with_names_of_training(forest, raw.X)
    data = read_labelled(raw, forest, spec, check_device(device), part=True)
    spec = on_batch(for_init_score(spec, data.init_score), objective, data, probe=True)
    moments = leaf_moments(forest, spec, data.on_margin_scale(spec), n_jobs=n_jobs)
    return with_ranges(moments, forest, data, n_jobs)
