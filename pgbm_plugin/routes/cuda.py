"""The route on a GPU, with one thread per row; the kernels are in `kernels.cuda`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray as Array
from ..tables.cuda_rows import CudaRows
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec
from .base import Route, loss_arguments

# A task may take this share of the free memory, and at most so many rows.
_SHARE, _MAX_ROWS = 0.5, 1 << 22

# Blocks per multiprocessor: enough for its schedulers to hide the latency of memory.
_BLOCKS_PER_PROCESSOR = 32


@dataclass(frozen=True)
class Cuda(Route):
    """A walk with one thread per row. Leaves are in the forest's order; arrays come from the host and go back there."""

    forest: Forest
    rows: CudaRows

    @cached_property
    def task(self) -> int:  # type: ignore[override]
        return self._fitting(2 * 8)

    @cached_property
    def moments_task(self) -> int:  # type: ignore[override]
        """Return how many rows fit into the GPU's memory, with their columns and the accumulators of their block."""
        from ..kernels.accumulate import WEIGHTED_COLUMNS
        from ..kernels.cuda import BLOCK_ROWS, SEGMENTS

        return self._fitting(5 * 8 + self._most_leaves() * SEGMENTS * WEIGHTED_COLUMNS * 8 // BLOCK_ROWS)

    def threads(self, n_jobs: int | None) -> int:
        """Return 1, because calls do not share a GPU."""
        return 1

    def add_margin(self, lo: int, hi: int, value: Array, margin: Array) -> None:
        from ..kernels import cuda

        with self._device():
            value = self._send(value)
            for begin, end, X in self.rows.sent(lo, hi):
                margin_ = self._send(margin[begin:end])
                cuda.add_margin[self._launch(end - begin)](X, *self._trees(), value, margin_)
                self._fetch(margin_, margin[begin:end])

    def add_margin_variance(
        self, lo: int, hi: int, packed: tuple[Any, ...], rho: float, margin: Array, variance: Array, log_scale: Any
    ) -> None:
        """Compute the recursion in the precision of `variance`, and sum the steps in a separate pass."""
        from ..kernels import cuda

        if log_scale is not None:
            self.add_margin(lo, hi, packed[2], log_scale)
        number = variance.dtype.type
        with self._device():
            value, sd = self._send(packed[0]), self._send(packed[1].astype(number, copy=False))
            for begin, end, X in self.rows.sent(lo, hi):
                margin_, variance_ = self._send(margin[begin:end]), self._send(variance[begin:end])
                arguments = X, *self._trees(), value, sd, number(rho), margin_, variance_
                cuda.add_margin_variance[self._launch(end - begin)](*arguments)
                self._fetch(margin_, margin[begin:end])
                self._fetch(variance_, variance[begin:end])

    def add_variances(self, lo: int, hi: int, sd: Array, rho: Array, variance: Array) -> None:
        from ..kernels import cuda

        lines = -(-len(rho) // cuda.CORRELATIONS)
        padded = np.resize(rho, lines * cuda.CORRELATIONS)
        size = self._fitting(8 * len(padded))
        with self._device():
            sd, rho_ = self._send(sd), self._send(padded)
            for first in range(lo, hi, size):
                for begin, end, X in self.rows.sent(first, min(first + size, hi)):
                    variance_ = self._send(np.resize(variance[:, begin:end], (len(padded), end - begin)))
                    blocks, *rest = self._launch(end - begin)
                    cuda.add_variances[((blocks, lines), *rest)](X, *self._trees(), sd, rho_, variance_)
                    variance[:, begin:end] = variance_.copy_to_host(stream=self.rows.stream)[: len(rho)]

    def gather_moments(
        self, lo: int, hi: int, y: Array, weight: Array, spec: TrainingSpec, step: Array, restarts: bool, margin: Array
    ) -> Array:
        """Return accumulators (leaves, lanes, columns), with a lane for each block of rows that is sent."""
        from ..kernels import cuda
        from ..kernels.accumulate import COLUMNS, WEIGHTED_COLUMNS

        objective, new_iteration, lanes = spec.objective, spec.new_iteration(), []
        assert objective is not None
        loss = objective.code, *loss_arguments(spec, weight)[1:]
        with self._device():
            step = self._send(step)
            for begin, end, X in self.rows.sent(lo, hi):
                y_, weight_ = self._send(y[begin:end]), self._send(weight[begin:end])
                margin_ = self._send(margin[begin - lo : end - lo])
                g, h = (self._empty((end - begin,), np.float64) for _ in range(2))
                lane = self._empty((self.forest.n_leaves, WEIGHTED_COLUMNS), np.float64)
                # the accumulators of all blocks, enough for the tree with the most leaves
                accumulators = -(-(end - begin) // cuda.BLOCK_ROWS) * self._most_leaves() * cuda.SEGMENTS
                sums = self._empty((accumulators, WEIGHTED_COLUMNS), np.float64)
                for t in range(self.forest.n_trees):
                    if new_iteration[t]:
                        cuda.gradients[self._launch(end - begin)](y_, weight_, margin_, *loss, g, h)
                    if restarts and t == 0:
                        margin_ = self._send(np.zeros(end - begin, margin.dtype))
                    leaves = slice(self.forest.leaf_start[t], self.forest.leaf_start[t + 1])
                    self._add_rows(t, X, step, g, h, weight_, margin_, sums, lane[leaves])
                self._fetch(margin_, margin[begin - lo : end - lo])
                lanes.append(lane.copy_to_host(stream=self.rows.stream))
        return np.stack(lanes, axis=1)[:, :, : WEIGHTED_COLUMNS if len(weight) else COLUMNS]

    def leaves_by_tree(self, n_jobs: int | None) -> Iterator[NDArray[np.int64]]:
        from ..kernels import cuda

        leaf = np.empty(len(self.rows), np.int64)
        for t, first_leaf in enumerate(self.forest.leaf_start[:-1]):
            with self._device():
                for first in range(0, len(leaf), self.task):
                    for begin, end, X in self.rows.sent(first, min(first + self.task, len(leaf))):
                        out = self._empty((end - begin,), np.int64)
                        cuda.leaves[self._launch(end - begin)](X, self.forest.root[t], *self._trees()[1:], out)
                        self._fetch(out, leaf[begin:end])
            leaf -= first_leaf
            yield leaf

    def _add_rows(
        self, t: int, X: Any, step: Any, g: Any, h: Any, weight: Any, margin: Any, sums: Any, lane: Any
    ) -> None:
        """Send the rows of one block through tree t, and write their accumulators to `lane`."""
        from ..kernels import cuda

        root, first, leaves = self.forest.root[t], self.forest.leaf_start[t], lane.shape[0]
        blocks, owned = -(-X.shape[0] // cuda.BLOCK_ROWS), leaves * cuda.SEGMENTS
        sums = sums[: blocks * owned].reshape(blocks, owned, sums.shape[1])
        rows = X, root, *self._trees()[1:], first, step, g, h, weight, margin
        cuda.add_rows[blocks, cuda.THREADS, self.rows.stream](*rows, sums)
        cuda.merge[self._launch(leaves)](sums, lane)

    def _most_leaves(self) -> int:
        return int(np.diff(self.forest.leaf_start).max())

    @contextmanager
    def _device(self) -> Iterator[None]:
        """Make the GPU of the rows the current one, and wait for its copies at the end."""
        from numba import cuda

        with cuda.gpus[self.rows.device]:
            yield
            if self.rows.stream:
                self.rows.stream.synchronize()

    def _send(self, array: Array) -> Any:
        from numba import cuda

        return cuda.to_device(np.ascontiguousarray(array), self.rows.stream)

    def _empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        from numba import cuda

        return cuda.device_array(shape, dtype, stream=self.rows.stream)

    def _fetch(self, array: Any, out: Array) -> None:
        array.copy_to_host(out, self.rows.stream)

    def _trees(self) -> tuple[Any, ...]:
        """Return `Forest.routing` on the GPU; it is sent once to each GPU."""
        sent: dict[int, tuple[Any, ...]] = self.forest.cache.setdefault("cuda", {})
        if self.rows.device not in sent:
            sent[self.rows.device] = tuple(map(self._send, self.forest.routing))
        return sent[self.rows.device]

    def _launch(self, rows: int) -> tuple[int, int, Any]:
        """Return (blocks, threads, stream) for kernels in which each thread takes several of the rows."""
        from numba import cuda

        from ..kernels.cuda import THREADS

        processors = getattr(cuda.current_context().device, "MULTIPROCESSOR_COUNT", 1)  # the simulator has none
        return min(-(-rows // THREADS), processors * _BLOCKS_PER_PROCESSOR), THREADS, self.rows.stream

    def _fitting(self, row_bytes: int) -> int:
        """Return how many rows fit into the free memory, if each needs `row_bytes` bytes besides its features."""
        from numba import cuda

        from ..kernels.cuda import BLOCK_ROWS

        with cuda.gpus[self.rows.device]:
            free, _ = cuda.current_context().get_memory_info()
        rows = min(_SHARE * free / (row_bytes + self.rows.width), _MAX_ROWS)  # the simulator's memory is infinite
        return max(BLOCK_ROWS, int(rows) // BLOCK_ROWS * BLOCK_ROWS)
