"""Route: the contract of every way to send rows through trees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray as Array
from ..tables.rows import Rows
from ..trees.forest import Forest
from ..trees.objectives import ROUND_NEVER, ROUND_ONCE, ROUND_TWICE, SQUARED
from ..trees.training_spec import TrainingSpec


class Route(ABC):
    """A way to send the rows of one table through the trees of one forest. All routes give the same bits.

    A route may use its own order of leaves. Arrays over leaves are passed in as `ordered` or `packed` returns them, and
    `by_leaf` returns them in the forest's order. Methods with `lo, hi` use only these rows, write into arrays of all
    rows, and may run in several threads at once.
    """

    forest: Forest
    rows: Rows
    task: int = 1 << 12  # rows that one call should predict
    # Rows for one call of `gather_moments`. They do not depend on the number of threads, so neither do the moments.
    moments_task: int = 1 << 14

    def threads(self, n_jobs: int | None) -> int | None:
        """Return how many calls may run at once if the user allows `n_jobs`."""
        return n_jobs

    def ordered(self, per_leaf: Array) -> Array:
        """Return an array over leaves in this route's order, from one in the forest's order."""
        return per_leaf

    def by_leaf(self, ordered: Array) -> Array:
        """Return an array over leaves in the forest's order, from one in this route's order."""
        return ordered

    def packed(self, value: Array, sd: Array, step: Array | None) -> tuple[Any, ...]:
        """Return the leaves' values, sds and steps in the form that `add_margin_variance` takes."""
        return value, sd, step

    @abstractmethod
    def add_margin(self, lo: int, hi: int, value: Array, margin: Array) -> None:
        """Add the (L,) leaf values of all trees to the (n,) margins."""

    @abstractmethod
    def add_margin_variance(
        self, lo: int, hi: int, packed: tuple[Any, ...], rho: float, margin: Array, variance: Array, log_scale: Any
    ) -> None:
        """Add leaf values to the margins and update the (n,) variances by the recursion (paper eq. 12).

        The leaves' steps are added to `log_scale`, which is (n,), or None if the leaves have no steps.
        """

    @abstractmethod
    def add_variances(self, lo: int, hi: int, sd: Array, rho: Array, variance: Array) -> None:
        """Update (k, n) variances by the recursion, for k correlations at once."""

    @abstractmethod
    def gather_moments(
        self, lo: int, hi: int, y: Array, weight: Array, spec: TrainingSpec, step: Array, restarts: bool, margin: Array
    ) -> Array:
        """Repeat the training on some rows, and return the accumulators of the forest's leaves (`kernels.accumulate`).

        Parameters
        ----------
        y, weight : (n,) float array
            Labels on the margin's scale, and weights, which may be empty.
        spec : TrainingSpec
            The loss, and which trees saw fresh gradients.
        step : (L,) float array
            What each leaf adds to the margin, `ordered`.
        restarts : bool
            Whether margins restart at 0 after the first gradients, because the first tree holds the base score.
        margin : (hi - lo,) float array
            Margins before the first tree, replaced by the margins after the last tree.
        """

    @abstractmethod
    def leaves_by_tree(self, n_jobs: int | None) -> Iterator[NDArray[np.int64]]:
        """Yield for each tree the (n,) leaves that the rows reach, numbered within the tree in this route's order.

        The same array may be yielded every time, with new numbers in it.
        """


def has_unit_hessian(spec: TrainingSpec, weight: Array) -> bool:
    """Tell whether every row's hessian is 1, so that accumulators need no columns for hessians."""
    return spec.objective is not None and spec.objective.unit_hessian and len(weight) == 0


def loss_arguments(spec: TrainingSpec, weight: Array) -> tuple[int | None, float, int]:
    """Return (objective, parameter, rounding) as kernels take them, see `kernels.accumulate.gradients`."""
    objective = spec.objective
    assert objective is not None
    rounding = ROUND_TWICE if objective.rounds_first else ROUND_ONCE
    if spec.gradient_dtype == np.float64:
        return objective.code, objective.value, ROUND_NEVER
    code = None if objective.code == SQUARED and len(weight) == 0 else objective.code
    return code, objective.value, rounding
