"""Moments of rows that come in batches, gathered in one pass and merged in the order of the batches."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from ..errors import naming
from ..leaves.base_score import LabelSums, settle_base_score
from ..leaves.first_trees import FirstTrees
from ..leaves.gather import leaf_moments
from ..leaves.moments import LeafMoments, joined
from ..losses.custom_objectives import CustomObjective, check_takes_batches, on_batch, without_weights
from ..parallel import progress_bar
from ..tables.ranges import Ranges
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec
from .batches import labelled_stream, read_batches


def stream_moments(
    forest: Forest,
    spec: TrainingSpec,
    source: Any,
    objective: CustomObjective | None,
    *,
    label: str | None = None,
    weight: str | None = None,
    settle: bool = True,
    device: str = "cpu",
    n_jobs: int | None = None,
    progress: bool = False,
) -> tuple[TrainingSpec, LeafMoments]:
    """Return the spec, and the moments over all batches.

    If boosting started from the mean label, that mean is known only after the last batch. With `settle`, `FirstTrees`
    keeps what the first trees need of each row until then, so that the moments equal those of all rows at once.
    """
    check_takes_batches(spec, objective)
    stream = labelled_stream(source, forest.features, label, weight)
    moments = LeafMoments.of_nothing(forest.n_leaves)
    sums, first, weighted = LabelSums.of_model(spec, forest), None, False
    ranges: Ranges | None = None
    settle = settle and spec.start_is_mean
    has_later_trees = not settle or spec.first_iteration() < forest.n_trees
    with ExitStack() as stack:
        advance = stack.enter_context(progress_bar(stream.rows, "rows", progress))
        for name, data, own in read_batches(stream.batches, forest, spec, device, n_jobs):
            with naming(name):
                batch_spec = on_batch(spec, objective, data, probe=moments.rows == 0)
                weighted, rows = data.weight is not None, data.on_margin_scale(batch_spec)
                ranges = own if ranges is None else ranges.merge(own)
                if settle:
                    first = first or stack.enter_context(FirstTrees(forest, spec, weighted))
                    first.add(rows, n_jobs)
                    sums, batch_spec = sums.add(rows.y, data.weight), batch_spec.from_zero()
                if has_later_trees:
                    moments = moments.merge(leaf_moments(forest, batch_spec, rows, n_jobs=n_jobs))
            advance(len(data))
        if first is not None:
            spec = settle_base_score(forest, spec, sums, first.moments)
            at_start = first.moments(spec)
            moments = joined([at_start, moments.part(len(at_start.count), forest.n_leaves)])
    if moments.rows == 0:
        raise ValueError(
            "the weights of all rows are zero" if weighted else "there are no batches, or none of them has rows"
        )
    return without_weights(spec, objective), replace(moments, ranges=ranges)
