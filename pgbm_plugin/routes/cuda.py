"""The way through the trees on a GPU: what `route` has for the CPU, with its kernels in `kernels.cuda`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..device import CudaRows
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec

# Share of the free memory that a task may take, and its rows at most.
_SHARE, _MAX_ROWS = 0.5, 1 << 22

# Blocks a multiprocessor: enough for its schedulers to hide the latency of memory.
_BLOCKS_PER_PROCESSOR = 32

Array = NDArray[Any]


@dataclass(frozen=True)
class Cuda:
    """A thread a row from the roots; arrays over leaves are in the forest's order, and those given are the host's."""

    forest: Forest
    rows: CudaRows

    @cached_property
    def task(self) -> int:
        return self._fitting(2 * 8)

    @cached_property
    def moments_task(self) -> int:
        """Beside y, weight, margin, g and h of a row, its share of the accumulators."""
        from ..kernels.cuda import BLOCK_ROWS

        return self._fitting(4 * 8 + self._room_bytes() // BLOCK_ROWS)

    def threads(self, n_jobs: int | None) -> int:
        """One: tasks do not share a GPU."""
        return 1

    def ordered(self, per_leaf: Array) -> Array:
        return per_leaf

    def by_leaf(self, ordered: Array) -> Array:
        return ordered

    def paired(self, value: Array, sd: Array, step: Array | None) -> Any:
        return value, sd, step

    def add_margin(self, lo: int, hi: int, value: Array, margin: Array) -> None:
        from ..kernels import cuda

        with self._device():
            value = self._send(value)
            for begin, end, X in self.rows.sent(lo, hi):
                margin_ = self._send(margin[begin:end])
                cuda.add_margin[self._launch(end - begin)](X, *self._trees(), value, margin_)
                self._fetch(margin_, margin[begin:end])

    def add_margin_variance(
        self, lo: int, hi: int, weights: Any, rho: float, margin: Array, variance: Array, log_scale: Array | None
    ) -> None:
        """In the precision of `variance`; steps are summed as margins are, in a pass of their own."""
        from ..kernels import cuda

        if log_scale is not None:
            self.add_margin(lo, hi, weights[2], log_scale)
        number = variance.dtype.type
        with self._device():
            value, sd = self._send(weights[0]), self._send(weights[1].astype(number, copy=False))
            for begin, end, X in self.rows.sent(lo, hi):
                margin_, variance_ = self._send(margin[begin:end]), self._send(variance[begin:end])
                given = X, *self._trees(), value, sd, number(rho), margin_, variance_
                cuda.add_margin_variance[self._launch(end - begin)](*given)
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
        self, lo: int, hi: int, y: Array, weight: Array, spec: TrainingSpec, step: Array, margin: Array
    ) -> Array:
        """Accumulators (leaves, lanes, columns); a lane for each block of rows that is sent."""
        from ..kernels import cuda

        objective, new_iteration, lanes = spec.objective, spec.new_iteration(), []
        assert objective is not None
        loss = objective.code, objective.value, objective.rounds_first
        with self._device():
            step = self._send(step)
            for begin, end, X in self.rows.sent(lo, hi):
                y_, weight_ = self._send(y[begin:end]), self._send(weight[begin:end])
                margin_ = self._send(margin[begin - lo : end - lo])
                g, h = (self._empty((end - begin,), np.float32) for _ in range(2))
                lane, room = self._lane(self.forest.n_leaves), self._room(end - begin)
                for t in range(self.forest.n_trees):
                    if new_iteration[t]:
                        cuda.gradients[self._launch(end - begin)](y_, weight_, margin_, *loss, g, h)
                    leaves = slice(self.forest.leaf_start[t], self.forest.leaf_start[t + 1])
                    self._add_rows(t, X, step, g, h, margin_, room, lane[leaves])
                self._fetch(margin_, margin[begin - lo : end - lo])
                lanes.append(lane.copy_to_host(stream=self.rows.stream))
        return np.stack(lanes, axis=1)

    def add_tree(self, t: int, g: Array, h: Array, step: Array, margin: Array, n_jobs: int | None) -> Array:
        """The same for tree t alone and all rows, whose g and h are given."""
        leaves, lanes, size = int(np.diff(self.forest.leaf_start)[t]), [], self.moments_task
        with self._device():
            step = self._send(step)
            for first in range(0, len(self.rows), size):
                for begin, end, X in self.rows.sent(first, min(first + size, len(self.rows))):
                    g_, h_ = (self._send(of_rows[begin:end].astype(np.float32)) for of_rows in (g, h))
                    margin_, lane = self._send(margin[begin:end]), self._lane(leaves)
                    self._add_rows(t, X, step, g_, h_, margin_, self._room(end - begin), lane)
                    self._fetch(margin_, margin[begin:end])
                    lanes.append(lane.copy_to_host(stream=self.rows.stream))
        return np.stack(lanes, axis=1)

    def _add_rows(self, t: int, X: Any, step: Any, g: Any, h: Any, margin: Any, room: Any, lane: Any) -> None:
        """Rows of one block through tree t; their accumulators are written to `lane`."""
        from ..kernels import cuda

        root, first, leaves = self.forest.root[t], self.forest.leaf_start[t], lane.shape[0]
        blocks, owned = -(-X.shape[0] // cuda.BLOCK_ROWS), leaves * cuda.SEGMENTS
        sums = room[: blocks * owned].reshape(blocks, owned, room.shape[1])
        given = X, root, *self._trees()[1:], first, step, g, h, margin
        cuda.add_rows[blocks, cuda.THREADS, self.rows.stream](*given, sums)
        cuda.merge[self._launch(leaves)](sums, lane)

    def _lane(self, leaves: int) -> Any:
        from ..kernels.accumulate import COLUMNS

        return self._empty((leaves, COLUMNS), np.float64)

    def _room(self, rows: int) -> Any:
        """Accumulators of all blocks, for the tree with the most leaves."""
        from ..kernels.accumulate import COLUMNS
        from ..kernels.cuda import BLOCK_ROWS, SEGMENTS

        blocks = -(-rows // BLOCK_ROWS)
        return self._empty((blocks * self._most_leaves() * SEGMENTS, COLUMNS), np.float64)

    def _room_bytes(self) -> int:
        """Of the accumulators of one block."""
        from ..kernels.accumulate import COLUMNS
        from ..kernels.cuda import SEGMENTS

        return self._most_leaves() * SEGMENTS * COLUMNS * 8

    def _most_leaves(self) -> int:
        return int(np.diff(self.forest.leaf_start).max())

    @contextmanager
    def _device(self) -> Iterator[None]:
        """Inside, the GPU of the rows is the current one; what was fetched is there when it ends."""
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
        """The arrays that kernels route with, sent once to each GPU."""
        sent = self.forest.on_device
        if self.rows.device not in sent:
            sent[self.rows.device] = tuple(map(self._send, self.forest.routing))
        return sent[self.rows.device]

    def _launch(self, rows: int) -> tuple[int, int, Any]:
        """Blocks, threads and stream for kernels that stride over so many rows."""
        from numba import cuda

        from ..kernels.cuda import THREADS

        processors = getattr(cuda.current_context().device, "MULTIPROCESSOR_COUNT", 1)  # the simulator has none
        return min(-(-rows // THREADS), processors * _BLOCKS_PER_PROCESSOR), THREADS, self.rows.stream

    def _fitting(self, row_bytes: int) -> int:
        """Rows that fit into the free memory, if each takes so many bytes beside its features."""
        from numba import cuda

        from ..kernels.cuda import BLOCK_ROWS

        with cuda.gpus[self.rows.device]:
            free, _ = cuda.current_context().get_memory_info()
        rows = min(_SHARE * free / (row_bytes + self.rows.width), _MAX_ROWS)  # the simulator's memory is infinite
        return max(BLOCK_ROWS, int(rows) // BLOCK_ROWS * BLOCK_ROWS)
