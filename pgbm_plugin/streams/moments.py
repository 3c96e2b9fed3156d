"""Moments of rows that come in batches: one pass, merged in the order of the batches, in memory for a few of them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np

from ..leaves.base_score import FirstTrees, LabelSums, settle_start
from ..leaves.moments import LeafMoments, joined, leaf_moments
from ..losses.custom_objectives import Objective, check_takes_batches, on_batch, without_weights
from ..parallel import progress_bar
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec
from .batches import labelled_stream, naming, read_batches


def stream_moments(
    forest: Forest,
    spec: TrainingSpec,
    source: Any,
    objective: Objective | None,
    *,
    label: str | None = None,
    weight: str | None = None,
    settle: bool = True,
    device: str = "cpu",
    n_jobs: int | None = None,
    progress: bool = False,
) -> tuple[TrainingSpec, LeafMoments, bool]:
    """How the trees were grown, their moments over all batches, and whether rows were weighted.

    Where boosting started from the mean label, that is known after the last batch only; then `settle` keeps what the
    first trees need of each row (`FirstTrees`), so that the moments are those of all rows at once.
    """
    check_takes_batches(spec, objective)
    stream = labelled_stream(source, forest.features, label, weight)
    moments = LeafMoments.of_nothing(forest.n_leaves)
    sums, first, weighted = LabelSums.of_model(spec, forest), None, False
    settle = settle and spec.start_is_mean
    later = not settle or spec.first_iteration() < forest.n_trees
    with ExitStack() as stack:
        advance = stack.enter_context(progress_bar(stream.rows, "rows", progress))
        for name, data in read_batches(stream.batches, forest, device):
            with naming(name):
                of_batch = on_batch(spec, objective, data, probe=moments.rows == 0)
                weighted = data.weight is not None
                if settle:
                    first = first or stack.enter_context(FirstTrees(forest, spec, weighted))
                    first.add(data, n_jobs)
                    sums, of_batch = sums.add(spec, data.y, data.weight), of_batch.from_zero()
                if later:
                    moments = moments.merge(leaf_moments(forest, of_batch, data, n_jobs=n_jobs))
            advance(len(data))
        if first is not None:
            spec = settle_start(forest, spec, sums, first.moments)
            at_start = first.moments(spec)
            moments = joined([at_start, moments.part(len(at_start.count), forest.n_leaves)])
    if moments.rows == 0:
        raise ValueError("there are no batches, or none of them has rows")
    if weighted and not np.any(moments.h_mean):
        raise ValueError("the weights of all rows are zero")
    return without_weights(spec, objective), moments, weighted
