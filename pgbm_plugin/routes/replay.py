"""The route for many rows: blocks of rows become codes, and every tree is replayed on a block at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray as Array
from ..parallel import run_chunks
from ..tables.rows import Rows
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec
from .base import Route, has_unit_hessian, loss_arguments
from .replay_program import ReplayProgram

T = TypeVar("T")

# Rows of a block: few enough for its codes to stay in the L2 cache, and enough for loops that pay off.
_MIN_BLOCK, _MAX_BLOCK = 512, 2048
_CODE_BYTES = 1 << 18

# Blocks that a thread sends through one tree: enough to be worth a thread.
_BLOCKS_AT_ONCE = 16
# What is kept of each kind: a service may use a model beside one that is tuned otherwise, with the same trees.
_KEPT = 2


@dataclass(frozen=True)
class Replay(Route):
    """A replay of each tree on blocks of codes. Leaves are in the order of the program's slots."""

    forest: Forest
    rows: Rows
    program: ReplayProgram

    def ordered(self, per_leaf: Array) -> Array:
        return self._kept("ordered", (per_leaf,), lambda: per_leaf[self.program.slot])

    def by_leaf(self, ordered: Array) -> Array:
        out = np.empty_like(ordered)
        out[self.program.slot] = ordered
        return out

    def packed(self, value: Array, sd: Array, step: Array | None) -> tuple[Any, ...]:
        def pack() -> tuple[Any, ...]:
            value_sd = np.stack([value, sd], axis=1, dtype=np.float64)[self.program.slot].reshape(-1)
            return value_sd, None if step is None else step[self.program.slot]

        return self._kept("packed", (value, sd, step), pack)

    def add_margin(self, lo: int, hi: int, value: Array, margin: Array) -> None:
        from ..kernels import replay

        for rows, *coded in self._coded(lo, hi):
            replay.add_margin(*coded, value, margin[rows])

    def add_margin_variance(
        self, lo: int, hi: int, packed: tuple[Any, ...], rho: float, margin: Array, variance: Array, log_scale: Any
    ) -> None:
        from ..kernels import replay

        for rows, *coded in self._coded(lo, hi):
            out = margin[rows], variance[rows], None if log_scale is None else log_scale[rows]
            replay.add_margin_variance(*coded, *packed, rho, *out)

    def add_variances(self, lo: int, hi: int, sd: Array, rho: Array, variance: Array) -> None:
        from ..kernels import replay

        for rows, *coded in self._coded(lo, hi):
            replay.add_variances(*coded, sd, rho, rows.start, rows.stop, variance)

    def gather_moments(
        self, lo: int, hi: int, y: Array, weight: Array, spec: TrainingSpec, step: Array, restarts: bool, margin: Array
    ) -> Array:
        from ..kernels import replay
        from ..kernels.accumulate import accumulators, gradient_buffers

        sums = accumulators(self.forest.n_leaves, has_unit_hessian(spec, weight), len(weight) > 0)
        loss = spec.new_iteration(), *loss_arguments(spec, weight)
        buffers = gradient_buffers(self._block(hi - lo), sums)
        for rows, *coded in self._coded(lo, hi):
            block_margin = margin[rows.start - lo : rows.stop - lo]
            replay.gather_moments(*coded, y[rows], weight[rows], step, *loss, restarts, *buffers, block_margin, sums)
        return self.by_leaf(sums)

    def leaves_by_tree(self, n_jobs: int | None) -> Iterator[NDArray[np.int64]]:
        """Yield the leaves of each tree; the codes of all rows stay in memory, one or two bytes per feature."""
        from ..kernels import replay
        from ..kernels.coding import regions

        blocks = [(rows, codes.copy(), where.copy()) for rows, codes, where, *_ in self._coded(0, len(self.rows))]
        leaf = np.empty(len(self.rows), np.int64)
        for t in range(self.forest.n_trees):

            def chunk(lo: int, hi: int, t: int = t) -> None:
                at = regions(blocks[lo][1])  # the first block has the most rows
                for rows, codes, where in blocks[lo:hi]:
                    replay.leaves(codes, where, self.program.splits, self.forest.leaf_start, t, at, leaf[rows])

            run_chunks(chunk, len(blocks), _BLOCKS_AT_ONCE, n_jobs)
            yield leaf

    def _kept(self, name: str, of: tuple[Array | None, ...], make: Callable[[], T]) -> T:
        """Return what was made of the same arrays before, or make it; for few rows, it costs more than they.

        Only of arrays that nobody can change meanwhile.
        """
        if any(array is not None and array.flags.writeable for array in of):
            return make()
        kept: tuple[tuple[tuple[Array | None, ...], T], ...] = self.forest.cache.get(name, ())
        for arrays, made in kept:
            if all(a is b for a, b in zip(arrays, of, strict=True)):
                return made
        made = make()
        self.forest.cache[name] = ((of, made), *kept)[:_KEPT]  # at once, for other threads
        return made

    def _coded(self, lo: int, hi: int) -> Iterator[tuple[Any, ...]]:
        """Yield rows lo..hi as blocks of codes: (rows, codes, where, splits, leaf_start, buffer for regions)."""
        from ..kernels import coding

        program, size = self.program, self._block(hi - lo)
        position = self.rows.place(program.feature)
        work = coding.workspace(size, len(program.feature), len(program.column_feature), program.code.dtype)
        codes, where, at = *work[:2], coding.regions(work[0])
        for begin, end, X in self.rows.blocks(lo, hi, program.feature):
            for first in range(begin, end, size):
                last = min(first + size, end)
                coding.code_block(X[first - begin : last - begin], position, *program.coding, *work)
                yield slice(first, last), codes, where, program.splits, self.forest.leaf_start, at

    def _block(self, rows: int) -> int:
        """Return the number of rows of a block: full packs if there are several blocks, and even for the moments."""
        fitting = _CODE_BYTES // (len(self.program.feature) * self.program.code.itemsize)
        return min(rows, max(_MIN_BLOCK, min(_MAX_BLOCK, fitting & -_MIN_BLOCK)))
