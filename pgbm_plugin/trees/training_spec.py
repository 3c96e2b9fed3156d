"""TrainingSpec: how the trees were grown, as far as the model stores it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray, Array
from ..errors import UnsupportedModelError
from .objectives import SIGNED_SQRT, Objective

_FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True, eq=False)
class TrainingSpec:
    """The settings that turn gradients into leaf values: ``-alpha * clip(soft(G, l1) / (H + lambda), max_step)``.

    T trees and L leaves are those of the Forest that it belongs to.

    Attributes
    ----------
    objective : Objective or None
        The loss. None for a custom objective, which boosters do not store.
    alpha : (T,) float array
        Learning rate of each tree.
    alpha_error : (T,) float array
        Relative error that each learning rate may have; inf where the model does not store it.
    constant : (T,) bool array
        Trees that are a constant instead of a step along the gradient.
    lambda_ : (L,) float array
        L2 regularisation of each leaf.
    scaled_lambda : bool
        Whether the booster multiplies `lambda_` by the mean weight of the rows, and that was not yet done.
    l1 : float
        L1 regularisation.
    max_step : float
        Bound on a leaf before the learning rate; inf for none.
    iteration : (T,) int array
        Boosting iteration of each tree. Trees of one iteration saw the same gradients.
    start : float
        Base score: the margin of a row before the first tree, unless the row has an init_score.
    folded : (T,) bool array
        Trees whose stored leaf values have `start` added to them.
    start_is_mean : bool
        Whether `start` is the mean label's margin, which is only approximate until the labels are seen.
    leaf_count : (L,) int array or None
        Rows that training saw in each leaf; None where the booster does not store it.
    leaf_cover : (L,) float array
        Sum of hessians that training saw in each leaf.
    subsampled : bool or None
        Whether trees were grown on samples of the rows; None if the model does not say.
    approximate : tuple of str
        Reasons why stored leaves differ from the formula; empty if they should not.
    tolerance : float
        Relative leaf error up to which the booster's rounding explains a difference.
    rates_known : bool
        Whether alpha, lambda_ and l1 are stored or well determined. If not, nothing is certified.
    sequential : bool
        Whether each tree was fitted to the sum of the stored trees before it. Not so with dropout, which leaves trees
        out of that sum and rescales them later: `alpha` is then what a tree counts in the end, the gradients of
        training are known for the first iteration alone, and the paper's recursion does not apply. `approximate` says
        why.
    own_starts : bool
        Whether the rows of training started from scores of their own (init_score, base_margin).
    label_dtype : dtype
        Precision in which the booster holds labels and weights.
    gradient_dtype : dtype
        Precision in which the booster holds gradients and hessians.
    """

    objective: Objective | None
    alpha: Array
    alpha_error: Array
    constant: NDArray[np.bool_]
    lambda_: Array
    l1: float
    max_step: float
    iteration: NDArray[np.int64]
    start: float
    folded: NDArray[np.bool_]
    start_is_mean: bool
    leaf_count: NDArray[np.int64] | None
    leaf_cover: Array
    subsampled: bool | None
    approximate: tuple[str, ...]
    tolerance: float
    rates_known: bool = True
    sequential: bool = True
    own_starts: bool = False
    label_dtype: np.dtype[Any] = _FLOAT32
    gradient_dtype: np.dtype[Any] = _FLOAT32
    scaled_lambda: bool = False

    def first_trees(self, trees: int, leaves: int) -> TrainingSpec:
        """Return the spec of the first `trees` trees, which have `leaves` leaves in all."""
        return replace(
            self,
            alpha=self.alpha[:trees],
            alpha_error=self.alpha_error[:trees],
            constant=self.constant[:trees],
            lambda_=self.lambda_[:leaves],
            iteration=self.iteration[:trees],
            folded=self.folded[:trees],
            leaf_count=None if self.leaf_count is None else self.leaf_count[:leaves],
            leaf_cover=self.leaf_cover[:leaves],
        )

    def check_sequential(self, what: str, way_out: str) -> None:
        """Refuse `what`, which needs the gradients of training, where these cannot be computed again."""
        if not self.sequential:
            raise UnsupportedModelError(
                f"{what} needs the gradients of training, but {'; '.join(self.approximate)}: {way_out}"
            )

    def first_iteration(self) -> int:
        """Return the number of trees in the first iteration."""
        return int(np.sum(self.iteration == self.iteration[0]))

    def with_own_starts(self) -> TrainingSpec:
        """Return the spec for rows that started from scores of their own, so that no tree holds a base score."""
        return replace(self, folded=np.zeros_like(self.folded), own_starts=True)

    def from_zero(self) -> TrainingSpec:
        """Return a spec with base score 0 that leaves the folded base score inside the stored leaf values.

        Margins after the first tree are then exact sums of stored values, but the gradients of the first iteration are
        not those of training.
        """
        return replace(self, start=0.0, folded=np.zeros_like(self.folded))

    def new_iteration(self) -> NDArray[np.bool_]:
        """Return the (T,) flags of trees that saw fresh gradients: the first tree of each iteration."""
        return np.concatenate([[True], np.diff(self.iteration) != 0])

    def step(self, leaf_value: AnyArray, tree: NDArray[np.int64]) -> AnyArray:
        """Return the (L,) steps that leaves added to the margin in training: their values less a folded base score."""
        if not self.folded.any():
            return leaf_value
        return leaf_value - np.where(self.folded[tree], self.start, 0.0)

    def held(self, values: Array | None) -> Array | None:
        """Return labels or weights, rounded as the booster rounds them."""
        return None if values is None else values.astype(self.label_dtype).astype(np.float64)

    def margin_labels(self, y: Array) -> Array:
        """Return the labels as the derivatives see them: on the margin's scale, in the booster's precision."""
        if self.objective is not None and self.objective.link == SIGNED_SQRT:
            y = np.copysign(np.sqrt(np.abs(y.astype(self.label_dtype))), y)
        return y.astype(self.label_dtype).astype(np.float64)


def without_constants(alpha: Array, constant: NDArray[np.bool_]) -> Array:
    """Return the (T,) learning rates with 0 for constant trees; a model of constants alone takes one full step."""
    alpha = np.where(constant, 0.0, alpha)
    if constant.all():
        alpha[0] = 1.0
    return alpha
