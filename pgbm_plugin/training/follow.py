"""Margins and variances of rows during a training, updated by the trees of each iteration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import AnyArray, Array
from ..errors import warn
from ..leaves.certificate import certify
from ..leaves.gather import leaf_moments
from ..leaves.moments import LeafMoments
from ..leaves.weights import leaf_weights
from ..predict.power_map import Calibration
from ..predict.recursion import add_margins_and_variances
from ..predict.response import Margins, to_response
from ..tables.labelled import LabelledRows
from ..trees.forest import Forest
from ..trees.objectives import Objective
from ..trees.training_spec import TrainingSpec

if TYPE_CHECKING:
    from ..distributions import Distribution


@dataclass(frozen=True)
class ScoredRows:
    """Rows that are scored, and their (n,) margins and variances after the trees so far."""

    data: LabelledRows
    margin: AnyArray
    variance: Array

    @classmethod
    def before(cls, forest: Forest, data: LabelledRows) -> ScoredRows:
        """Return rows before the first tree."""
        margin = np.empty(len(data), forest.leaf_value.dtype)
        margin[:] = forest.base_margin if data.init_score is None else data.init_score
        return cls(data, margin, np.zeros(len(data)))

    def add(self, forest: Forest, sd: Array, rho: float, n_jobs: int | None) -> None:
        """Update margins and variances by the trees of `forest`."""
        leaves = forest.leaf_value, sd, None
        add_margins_and_variances(forest, self.data.rows, leaves, rho, self.margin, self.variance, None, n_jobs)

    def crps(self, forest: Forest, family: type[Distribution], options: dict[str, Any]) -> float:
        """Return the mean CRPS (continuous ranked probability score) of a family's distributions."""
        margins = Margins(forest, self.margin, to_response(forest, self.margin), self.variance)
        scores = margins.distribution(family, Calibration(), **options).crps(self.data.y)
        return float(np.average(scores, weights=self.data.weight))


@dataclass
class Run:
    """The state of a training after some iterations; n training rows."""

    rounds: int  # iterations so far
    forest: Forest  # the trees of the first iteration, for their link
    objective: Objective  # the loss whose derivatives are computed
    split: bool  # whether any tree has a split
    rho: float  # correlation between trees
    train: LabelledRows  # the training rows, with labels on the margin's scale
    margin: AnyArray  # (n,) margins of the training rows after the trees so far
    scored: dict[str, ScoredRows]  # the rows to score, by the name of their data set
    warned: bool  # whether the user was warned that the moments are not those of training

    def add(self, forest: Forest, spec: TrainingSpec, n_jobs: int | None) -> None:
        """Add the trees of further iterations."""
        spec = replace(
            spec,
            objective=self.objective,
            # read alone, a later tree looks like a first one: as if it held the mean label, or were the whole model
            folded=np.zeros_like(spec.folded),
            alpha=np.where(spec.constant, 0.0, spec.alpha),
        )
        moments = leaf_moments(forest, spec, self.train, margin=self.margin, n_jobs=n_jobs)
        self._certify(forest, spec, moments)
        sd = leaf_weights(forest, spec, moments, whole=False).sd
        for rows in self.scored.values():
            rows.add(forest, sd, self.rho, n_jobs)

    def _certify(self, forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> None:
        """Warn once if the leaves of later trees do not follow from the training rows."""
        if self.warned or self.objective.diagonal is not None:
            return
        certificate = certify(forest, spec, moments)
        # a tree that proves nothing, such as one without splits, is no reason to warn
        if certificate.status != "certified" and certificate.error > certificate.tolerance:
            self.warned = True
            warn(f"not certified after {self.rounds} iterations: {certificate}")
