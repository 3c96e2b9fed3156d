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

    A route may number leaves in an order of its own. Arrays over leaves go in as `ordered` or `packed` returns them;
    `by_leaf` brings them back to the forest's order. Methods with `lo, hi` work on these rows alone, write into the
    arrays of all rows that they are given, and may run in several threads at once.

    Attributes
    ----------
    forest : Forest
        The trees.
    rows : Rows
        The table.
    task : int
        Rows that one call should predict.
    moments_task : int
        Rows that one call of `gather_moments` should take. It does not depend on the number of threads, so that the
        moments have the same bits for any.
    """

    forest: Forest
    rows: Rows
    task: int = 1 << 12
    moments_task: int = 1 << 14

    def threads(self, n_jobs: int | None) -> int | None:
        """Return how many calls may run at once, if the user allows `n_jobs`."""
        return n_jobs

    def ordered(self, per_leaf: Array) -> Array:
        """Return an array over the forest's leaves in the order of this route."""
        return per_leaf

    def by_leaf(self, ordered: Array) -> Array:
        """Return an array in the order of this route in the order of the forest's leaves."""
        return ordered

    def packed(self, value: Array, sd: Array, step: Array | None) -> tuple[Any, ...]:
        """Return values, sds and steps of the forest's leaves in the form that `add_margin_variance` reads."""
        return value, sd, step

    @abstractmethod
    def add_margin(self, lo: int, hi: int, value: Array, margin: Array) -> None:
        """Add the (L,) leaf values of all trees to the (n,) margins."""

    @abstractmethod
    def add_margin_variance(
        self, lo: int, hi: int, packed: tuple[Any, ...], rho: float, margin: Array, variance: Array, log_scale: Any
    ) -> None:
        """Add leaf values to the margins and take the (n,) variances through the recursion (paper eq. 12).

        `log_scale` is (n,) and sums up the leaves' steps, or None where there are none.
        """

    @abstractmethod
    def add_variances(self, lo: int, hi: int, sd: Array, rho: Array, variance: Array) -> None:
        """Take (k, n) variances through the recursion, for k correlations at once."""

    @abstractmethod
    def gather_moments(
        self, lo: int, hi: int, y: Array, weight: Array, spec: TrainingSpec, step: Array, restarts: bool, margin: Array
    ) -> Array:
        """Train once more on some rows, and return the accumulators of the forest's leaves (`kernels.accumulate`).

        Parameters
        ----------
        y, weight : (n,) float array
            Labels on the margin's scale, and weights; the latter may be empty.
        spec : TrainingSpec
            The loss, and which trees saw fresh gradients.
        step : (L,) float array
            What each leaf adds to the margin, `ordered`.
        restarts : bool
            Whether margins restart at 0 after the first gradients, because the first tree holds the base score.
        margin : (hi - lo,) float array
            Margins before the first tree; afterwards, those after the last.
        """

    @abstractmethod
    def leaves_by_tree(self, n_jobs: int | None) -> Iterator[NDArray[np.int64]]:
        """Yield for each tree the (n,) leaves that the rows reach, numbered within the tree in this route's order.

        The array may be the same one every time, with new numbers in it.
        """


def has_unit_hessian(spec: TrainingSpec, weight: Array) -> bool:
    """Tell whether every row's hessian is 1, so that accumulators need no columns for it."""
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
