"""Following a training: margins and variances of rows, moved on by the trees of each iteration as they come."""

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
from ..parallel import run_chunks
from ..predict.power_map import Calibration
from ..predict.response import Margins, to_response
from ..routes.choose import choose_route
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
        """Take the rows through more trees."""
        route = choose_route(forest, self.data.rows)
        packed = route.packed(forest.leaf_value, sd, None)

        def chunk(lo: int, hi: int) -> None:
            route.add_margin_variance(lo, hi, packed, rho, self.margin, self.variance, None)

        run_chunks(chunk, len(self.data), route.task, route.threads(n_jobs))

    def crps(self, forest: Forest, family: type[Distribution], options: dict[str, Any]) -> float:
        """Return the mean CRPS (continuous ranked probability score) of a family's distributions."""
        margins = Margins(forest, self.margin, to_response(forest, self.margin), self.variance)
        scores = margins.distribution(family, Calibration(), **options).crps(self.data.y)
        return float(np.average(scores, weights=self.data.weight))


@dataclass
class Run:
    """A training, as far as it has come.

    Attributes
    ----------
    rounds : int
        Iterations whose trees have been followed.
    forest : Forest
        The trees of the first iteration, for their link.
    objective : Objective
        The loss whose derivatives are taken.
    split : bool
        Whether any tree has a split.
    rho : float
        Correlation between trees.
    train : LabelledRows
        The rows of training, with labels on the margin's scale.
    margin : (n,) float array
        Their margins after the trees so far.
    scored : dict
        Data set -> the rows that are scored.
    warned : bool
        Whether the user was warned that the moments are not those of training.
    """

    rounds: int
    forest: Forest
    objective: Objective
    split: bool
    rho: float
    train: LabelledRows
    margin: AnyArray
    scored: dict[str, ScoredRows]
    warned: bool

    def add(self, forest: Forest, spec: TrainingSpec, n_jobs: int | None) -> None:
        """Follow the trees of further iterations."""
        spec = replace(
            spec,
            objective=self.objective,
            # read alone, a later tree looks like a first one: with a mean label folded in, or the whole of a model
            folded=np.zeros_like(spec.folded),
            alpha=np.where(spec.constant, 0.0, spec.alpha),
        )
        moments = leaf_moments(forest, spec, self.train, margin=self.margin, n_jobs=n_jobs)
        self._certify(forest, spec, moments)
        sd = leaf_weights(forest, spec, moments).sd
        for rows in self.scored.values():
            rows.add(forest, sd, self.rho, n_jobs)

    def _certify(self, forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> None:
        """Warn once if these trees do not fit the rows, where the first one did."""
        if self.warned or self.objective.diagonal is not None:
            return
        certificate = certify(forest, spec, moments, self.train.weight is not None)
        if certificate.status != "certified":
            self.warned = True
            warn(f"not certified after {self.rounds} iterations: {certificate}")
