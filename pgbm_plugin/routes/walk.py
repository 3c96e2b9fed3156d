"""The route for few rows: every row walks from the root of each tree to a leaf."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray as Array
from ..parallel import run_chunks
from ..tables.rows import Rows
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec
from .base import Route, has_unit_hessian, loss_arguments


@dataclass(frozen=True)
class Walk(Route):
    """A walk of row after row. Leaves are in the forest's order."""

    forest: Forest
    rows: Rows

    def add_margin(self, lo: int, hi: int, value: Array, margin: Array) -> None:
        from ..kernels import cpu

        for begin, end, X in self.rows.blocks(lo, hi):
            cpu.add_margin(X, *self.forest.routing, value, margin[begin:end])

    def add_margin_variance(
        self, lo: int, hi: int, packed: tuple[Any, ...], rho: float, margin: Array, variance: Array, log_scale: Any
    ) -> None:
        from ..kernels import cpu

        for begin, end, X in self.rows.blocks(lo, hi):
            out = margin[begin:end], variance[begin:end], None if log_scale is None else log_scale[begin:end]
            cpu.add_margin_variance(X, *self.forest.routing, *packed, rho, *out)

    def add_variances(self, lo: int, hi: int, sd: Array, rho: Array, variance: Array) -> None:
        from ..kernels import cpu

        for begin, end, X in self.rows.blocks(lo, hi):
            cpu.add_variances(X, *self.forest.routing, sd, rho, variance[:, begin:end])

    def gather_moments(
        self, lo: int, hi: int, y: Array, weight: Array, spec: TrainingSpec, step: Array, restarts: bool, margin: Array
    ) -> Array:
        from ..kernels import cpu
        from ..kernels.accumulate import accumulators, gradient_buffers

        sums = accumulators(self.forest.n_leaves, has_unit_hessian(spec, weight), len(weight) > 0)
        for begin, end, X in self.rows.blocks(lo, hi):
            cpu.gather_moments(
                X,
                y[begin:end],
                weight[begin:end],
                *self.forest.routing,
                step,
                spec.new_iteration(),
                *loss_arguments(spec, weight),
                restarts,
                np.empty(cpu.BLOCK, np.int64),
                *gradient_buffers(cpu.BLOCK, sums),
                margin[begin - lo : end - lo],
                sums,
            )
        return sums

    def leaves_by_tree(self, n_jobs: int | None) -> Iterator[NDArray[np.int64]]:
        from ..kernels import cpu

        root, *splits = self.forest.routing
        rows, leaf = self.rows.converted(), np.empty(len(self.rows), np.int64)
        for t in range(self.forest.n_trees):

            def chunk(lo: int, hi: int, t: int = t) -> None:
                for begin, end, X in rows.blocks(lo, hi):
                    cpu.route(X, root[t], *splits, leaf[begin:end])

            run_chunks(chunk, len(rows), self.moments_task, n_jobs)
            np.subtract(leaf, self.forest.leaf_start[t], out=leaf)
            yield leaf
