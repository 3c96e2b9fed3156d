"""TrainingSpec: how the trees were grown, as far as the model still knows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .objectives import Objective


@dataclass(frozen=True, eq=False)
class TrainingSpec:
    """What turns gradients into leaf values: ``w = -alpha * clip(soft(G, l1) / (H + lambda), max_step)``.

    T trees and L leaves, as in the Forest that it belongs to.

    Attributes
    ----------
    objective : the loss; None if the booster was trained on a custom one that it has not kept.
    alpha : (T,) learning rate of each tree.
    alpha_error : (T,) how far each learning rate may be off, relative to it; inf where the model does not tell it.
    constant : (T,) bool, trees that are a constant instead of a step along the gradient.
    lambda_ : (L,) L2 regularisation of each leaf.
    l1 : L1 regularisation.
    max_step : bound on a leaf before the learning rate; inf for none.
    iteration : (T,) trees of one iteration saw the same gradients.
    start : margin of a row before the first tree, where no init_score replaces it.
    folded : (T,) bool, trees whose leaf values have `start` added to them.
    start_is_mean : `start` was the mean label's margin (and is only approximate until the labels are seen).
    leaf_count : (L,) rows that training saw in each leaf, or None where the booster does not store it.
    leaf_cover : (L,) sum of hessians that training saw in each leaf.
    subsampled : whether trees were grown on samples of the rows; None if the model does not say.
    approximate : reasons why stored leaves differ from the formula, in words; empty if they should not.
    tolerance : relative leaf error up to which this booster's rounding explains a difference.
    rates_known : whether alpha, lambda_ and l1 are stored or well determined; otherwise nothing is certified.
    own_starts : whether the rows of training started from scores of their own (init_score, base_margin).
    """

    objective: Objective | None
    alpha: NDArray[np.float64]
    alpha_error: NDArray[np.float64]
    constant: NDArray[np.bool_]
    lambda_: NDArray[np.float64]
    l1: float
    max_step: float
    iteration: NDArray[np.int64]
    start: float
    folded: NDArray[np.bool_]
    start_is_mean: bool
    leaf_count: NDArray[np.int64] | None
    leaf_cover: NDArray[np.float64]
    subsampled: bool | None
    approximate: tuple[str, ...]
    tolerance: float
    rates_known: bool = True
    own_starts: bool = False

    def first_trees(self, trees: int, leaves: int) -> TrainingSpec:
        """How the first trees were grown, which have so many leaves."""
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

    def first_iteration(self) -> int:
        """Number of trees in the first iteration."""
        return int(np.sum(self.iteration == self.iteration[0]))

    def with_own_starts(self) -> TrainingSpec:
        """The same for rows that started from scores of their own, so that no tree holds a start."""
        return replace(self, folded=np.zeros_like(self.folded), own_starts=True)

    def from_zero(self) -> TrainingSpec:
        """The same with what is folded into trees left there: margins after them are sums of stored values, to the bit.

        Gradients of the first iteration are then not those of training.
        """
        return replace(self, start=0.0, folded=np.zeros_like(self.folded))

    def new_iteration(self) -> NDArray[np.bool_]:
        """(T,) whether a tree saw fresh gradients."""
        return np.concatenate([[True], np.diff(self.iteration) != 0])

    def step(self, leaf_value: NDArray[Any], tree: NDArray[np.int64]) -> NDArray[Any]:
        """(L,) what each leaf adds to the margin in training: its stored value less a folded start."""
        if not self.folded.any():
            return leaf_value
        return leaf_value - np.where(self.folded[tree], self.start, 0.0)


def without_constants(alpha: NDArray[np.float64], constant: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(T,) learning rates with 0 for constants, which are no steps; a model of constants alone takes one full step."""
    alpha = np.where(constant, 0.0, alpha)
    if constant.all():
        alpha[0] = 1.0
    return alpha
