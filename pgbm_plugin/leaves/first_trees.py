"""FirstTrees: the first trees' leaves of rows that are read only once, stored until the base score is known."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np

from ..arrays import AnyArray
from ..routes.base import has_unit_hessian, loss_arguments
from ..routes.choose import choose_route
from ..tables.labelled import LabelledRows
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec
from .moments import LeafMoments, from_sums

# Rows that are read back at a time, and bytes that stay in memory.
_CHUNK = 1 << 14
_IN_MEMORY = 1 << 26


class FirstTrees:
    """Label, weight and leaves of every row in the trees of the first iteration, for moments at any base score.

    Many rows go to a temporary file: 4 bytes per row, 4 more with weights, and 2 more for each tree of the first
    iteration. A random forest has all its trees in the first iteration.
    """

    def __init__(self, forest: Forest, spec: TrainingSpec, weighted: bool):
        trees = spec.first_iteration()
        self.forest = forest.first_trees(trees)
        self.spec = spec.first_trees(trees, self.forest.n_leaves)
        leaf = np.uint16 if np.diff(self.forest.leaf_start).max() <= 1 << 16 else np.uint32
        number = spec.label_dtype
        columns = [("y", number), *([("weight", number)] if weighted else []), ("leaf", leaf, (trees,))]
        self._row = np.dtype(columns)
        self._file: Any = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115, see __exit__

    def __enter__(self) -> FirstTrees:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, data: LabelledRows, n_jobs: int | None) -> None:
        """Store rows, whose labels are on the margin's scale."""
        stored = np.empty(len(data), self._row)
        stored["y"] = data.y
        if data.weight is not None:
            stored["weight"] = data.weight
        route = choose_route(self.forest, data.rows)
        leaf_numbers = route.ordered(np.arange(self.forest.n_leaves))
        for t, leaf in enumerate(route.leaves_by_tree(n_jobs)):
            first = self.forest.leaf_start[t]
            stored["leaf"][:, t] = leaf_numbers[first + leaf] - first
        self._file.write(stored.tobytes())

    def moments(self, spec: TrainingSpec) -> LeafMoments:
        """Return the moments of the spec's trees, which are the first ones, at its base score."""
        return reduce(LeafMoments.merge, (self._chunk_moments(rows, spec) for rows in self._read()))

    def _read(self) -> Iterator[AnyArray]:
        self._file.seek(0)
        while raw := self._file.read(_CHUNK * self._row.itemsize):
            yield np.frombuffer(raw, self._row)

    def _chunk_moments(self, rows: AnyArray, spec: TrainingSpec) -> LeafMoments:
        from ..kernels.accumulate import accumulators, gradient_buffers
        from ..kernels.cpu import BLOCK
        from ..kernels.record import add_trees

        y = rows["y"].astype(np.float64)
        weight = rows["weight"].astype(np.float64) if "weight" in (rows.dtype.names or ()) else np.empty(0)
        bounds = self.forest.leaf_start[: len(spec.alpha) + 1]
        sums = accumulators(int(bounds[-1]), has_unit_hessian(spec, weight), len(weight) > 0)
        start, margin = np.full(len(y), spec.start), np.zeros(len(y))
        for t, (lo, hi) in enumerate(pairwise(bounds)):
            add_trees(
                np.arange(hi - lo, dtype=np.int32)[None],
                rows["leaf"][:, t].astype(np.uint32),
                y,
                weight,
                start,
                np.ones(1, bool),
                *loss_arguments(spec, weight),
                np.empty(BLOCK, np.int32),
                *gradient_buffers(BLOCK, sums),
                np.zeros(hi - lo),  # every tree sees the gradients at the base score
                margin,
                sums[lo:hi],
            )
        return from_sums(sums, int(np.count_nonzero(weight)) if len(weight) else len(y))
