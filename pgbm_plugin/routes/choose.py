"""Two ways through the trees, with the same bits: walk every row, or replay every tree on blocks of rows.

`choose_route` picks the faster one. The environment variable PGBM_PLUGIN_ROUTE ("walk" or "replay"), read at import,
overrules it. Rows that a GPU reads take a third, in `cuda`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..device import CudaRows
from ..parallel import run_chunks
from ..tables.rows import Rows
from ..trees.forest import Forest
from ..trees.objectives import SQUARED
from ..trees.training_spec import TrainingSpec
from .cuda import Cuda
from .replay_program import Program

# Replay pays for whole blocks, so that it loses on fewer rows than these.
_FEW_ROWS = 40

# Rows of a block: its codes should stay in the second cache, and loops over it be long enough to be worth starting.
_MIN_BLOCK, _MAX_BLOCK = 512, 2048
_CODE_BYTES = 1 << 18

# Blocks that a thread takes through one tree: enough to be worth a thread.
_BLOCKS_AT_ONCE = 16

Array = NDArray[Any]

forced = os.environ.get("PGBM_PLUGIN_ROUTE", "")
"""Which of the two is always taken, if either is."""


class Route:
    """What the ways on the CPU have in common."""

    task = 1 << 12
    """Rows that a thread predicts at once."""
    moments_task = 1 << 14
    """Rows per accumulator. Fixed, so that the moments have the same bits for any number of threads."""

    def threads(self, n_jobs: int | None) -> int | None:
        """How many tasks may run at once."""
        return n_jobs


@dataclass(frozen=True)
class Walk(Route):
    """Row by row from the roots; arrays over leaves are in the forest's order."""

    forest: Forest
    rows: Rows

    def ordered(self, per_leaf: Array) -> Array:
        """An array over the forest's leaves, in the order of this route."""
        return per_leaf

    def by_leaf(self, ordered: Array) -> Array:
        """The inverse of `ordered`."""
        return ordered

    def add_margin(self, lo: int, hi: int, value: Array, margin: Array) -> None:
        """Add the trees' values to the margins of rows lo..hi."""
        from ..kernels import cpu

        for begin, end, X in self.rows.blocks(lo, hi):
            cpu.add_margin(X, *self.forest.routing, value, margin[begin:end])

    def paired(self, value: Array, sd: Array, step: Array | None) -> Any:
        """Values, sds and steps of the leaves as `add_margin_variance` takes them."""
        return value, sd, step

    def add_margin_variance(
        self, lo: int, hi: int, weights: Any, rho: float, margin: Array, variance: Array, log_scale: Array | None
    ) -> None:
        """The same, with the variance recursion, and the sums of steps where there are any."""
        from ..kernels import cpu

        for begin, end, X in self.rows.blocks(lo, hi):
            part = margin[begin:end], variance[begin:end], None if log_scale is None else log_scale[begin:end]
            cpu.add_margin_variance(X, *self.forest.routing, *weights, rho, *part)

    def add_variances(self, lo: int, hi: int, sd: Array, rho: Array, variance: Array) -> None:
        """The recursion for several correlations: variance is (k, n)."""
        from ..kernels import cpu

        for begin, end, X in self.rows.blocks(lo, hi):
            cpu.add_variances(X, *self.forest.routing, sd, rho, variance[:, begin:end])

    def gather_moments(
        self, lo: int, hi: int, y: Array, weight: Array, spec: TrainingSpec, step: Array, margin: Array
    ) -> Array:
        """Replay training on rows lo..hi, of which `margin` holds those at the start; their accumulators per leaf."""
        from ..kernels import cpu
        from ..kernels.accumulate import accumulators, room

        sums = accumulators(self.forest.n_leaves, has_unit_hessian(spec, weight))
        for begin, end, X in self.rows.blocks(lo, hi):
            cpu.gather_moments(
                X,
                y[begin:end],
                weight[begin:end],
                *self.forest.routing,
                step,
                *gradient_arguments(spec, weight),
                np.empty(cpu.BLOCK, np.int64),
                *room(cpu.BLOCK, sums),
                margin[begin - lo : end - lo],
                sums,
            )
        return sums

    def add_tree(self, t: int, g: Array, h: Array, step: Array, margin: Array, n_jobs: int | None) -> Array:
        """The same for tree t alone and all rows, whose g and h are given."""
        from ..kernels import accumulate

        first, end = self.forest.leaf_start[t], self.forest.leaf_start[t + 1]
        sums = accumulate.accumulators(end - first, unit_hessian=False)
        accumulate.add_rows(self.leaves(t, n_jobs), g, h, step[first:end], margin, sums)
        return sums

    def leaves_by_tree(self, n_jobs: int | None) -> Iterator[NDArray[np.int64]]:
        """Tree after tree, (n,) the leaf that each row reaches, numbered within the tree."""
        for t in range(self.forest.n_trees):
            yield self.leaves(t, n_jobs)

    def leaves(self, t: int, n_jobs: int | None) -> NDArray[np.int64]:
        """The same for tree t."""
        from ..kernels import cpu

        root, *splits = self.forest.routing
        leaf = np.empty(len(self.rows), np.int64)

        def chunk(lo: int, hi: int) -> None:
            for begin, end, X in self.rows.blocks(lo, hi):
                cpu.route(X, root[t], *splits, leaf[begin:end])

        run_chunks(chunk, len(leaf), self.moments_task, n_jobs)
        leaf -= self.forest.leaf_start[t]
        return leaf


@dataclass(frozen=True)
class Replay(Route):
    """Tree by tree on blocks of codes; arrays over leaves are in the order of the program's slots."""

    forest: Forest
    rows: Rows
    program: Program

    def ordered(self, per_leaf: Array) -> Array:
        return per_leaf[self.program.slot]

    def by_leaf(self, ordered: Array) -> Array:
        out = np.empty_like(ordered)
        out[self.program.slot] = ordered
        return out

    def add_margin(self, lo: int, hi: int, value: Array, margin: Array) -> None:
        from ..kernels import replay

        for rows, *coded in self._coded(lo, hi):
            replay.add_margin(*coded, value, margin[rows])

    def paired(self, value: Array, sd: Array, step: Array | None) -> Any:
        value_sd = np.stack([value, sd], axis=1, dtype=np.float64)[self.program.slot].reshape(-1)
        return value_sd, None if step is None else step[self.program.slot]

    def add_margin_variance(
        self, lo: int, hi: int, weights: Any, rho: float, margin: Array, variance: Array, log_scale: Array | None
    ) -> None:
        from ..kernels import replay

        found = np.empty(2 * self._block(hi - lo))
        for rows, *coded in self._coded(lo, hi):
            part = margin[rows], variance[rows], None if log_scale is None else log_scale[rows]
            replay.add_margin_variance(*coded, *weights, rho, found, *part)

    def add_variances(self, lo: int, hi: int, sd: Array, rho: Array, variance: Array) -> None:
        from ..kernels import replay

        found = np.empty(self._block(hi - lo))
        for rows, *coded in self._coded(lo, hi):
            replay.add_variances(*coded, sd, rho, found, variance[:, rows])

    def gather_moments(
        self, lo: int, hi: int, y: Array, weight: Array, spec: TrainingSpec, step: Array, margin: Array
    ) -> Array:
        from ..kernels import replay
        from ..kernels.accumulate import accumulators, room

        sums = accumulators(self.forest.n_leaves, has_unit_hessian(spec, weight))
        gradient, g_h = gradient_arguments(spec, weight), room(self._block(hi - lo), sums)
        for rows, *coded in self._coded(lo, hi):
            of_rows = margin[rows.start - lo : rows.stop - lo]
            replay.gather_moments(*coded, y[rows], weight[rows], step, *gradient, *g_h, of_rows, sums)
        return self.by_leaf(sums)

    def leaves_by_tree(self, n_jobs: int | None) -> Iterator[NDArray[np.int64]]:
        """The codes of all rows are held, one or two bytes for each feature that the model uses."""
        from ..kernels import replay

        blocks = [(rows, codes.copy(), where.copy()) for rows, codes, where, *_ in self._coded(0, len(self.rows))]
        leaf = np.empty(len(self.rows), np.int64)
        for t in range(self.forest.n_trees):

            def chunk(lo: int, hi: int, t: int = t) -> None:
                at = np.empty(self._block(len(leaf)), self.program.region.dtype)
                for rows, codes, where in blocks[lo:hi]:
                    of_rows = leaf[rows]
                    replay.leaves(codes, where, self.program.splits, t, at[: len(of_rows)], of_rows)

            run_chunks(chunk, len(blocks), _BLOCKS_AT_ONCE, n_jobs)
            yield leaf

    def _coded(self, lo: int, hi: int) -> Iterator[tuple[Any, ...]]:
        """Rows lo..hi as blocks of codes: (rows, codes, where, splits, leaf_start, room for regions)."""
        from ..kernels import coding

        program, size = self.program, self._block(hi - lo)
        position = self.rows.place(program.feature)
        work = coding.workspace(size, len(program.feature), len(program.column_feature), program.code.dtype)
        codes, where = work[:2]
        at = np.empty(size, program.region.dtype)
        for begin, end, X in self.rows.blocks(lo, hi, program.feature):
            for first in range(begin, end, size):
                last = min(first + size, end)
                coding.code_block(X[first - begin : last - begin], position, *program.coding, *work)
                yield slice(first, last), codes, where, program.splits, self.forest.leaf_start, at[: last - first]

    def _block(self, rows: int) -> int:
        """Rows of a block; an even number of them if there are several, for the moments' lanes."""
        fitting = _CODE_BYTES // (len(self.program.feature) * self.program.code.itemsize)
        return min(rows, max(_MIN_BLOCK, min(_MAX_BLOCK, fitting & ~1)))


def choose_route(forest: Forest, rows: Rows) -> Walk | Replay | Cuda:
    """The faster way for this many rows; on the GPU for those that it reads."""
    if isinstance(rows, CudaRows):
        return Cuda(forest, rows)
    if forced == "walk" or (rows.n < _FEW_ROWS and forced != "replay") or forest.program is None:
        return Walk(forest, rows)
    return Replay(forest, rows, forest.program)


def tree_by_tree(forest: Forest, rows: Rows) -> Walk | Cuda:
    """The way for one tree at a time."""
    rows = rows.converted()
    return Cuda(forest, rows) if isinstance(rows, CudaRows) else Walk(forest, rows)


def has_unit_hessian(spec: TrainingSpec, weight: Array) -> bool:
    return spec.objective is not None and spec.objective.unit_hessian and len(weight) == 0


def gradient_arguments(spec: TrainingSpec, weight: Array) -> tuple[Any, ...]:
    objective = spec.objective
    assert objective is not None
    code = None if objective.code == SQUARED and len(weight) == 0 else objective.code
    return spec.new_iteration(), code, objective.value, objective.rounds_first
