"""ModelState: everything that the predictions of a wrapped model are computed from."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ..arrays import AnyArray
from ..checks import Variance
from ..leaves.certificate import Certificate
from ..leaves.moments import LeafMoments
from ..leaves.weights import LeafWeights, leaf_weights, paper_leaf_values
from ..surroundings.surroundings import ALONE, Surroundings
from ..tables.columns import read_labels
from ..tables.in_memory import in_memory
from ..tables.rows import table_length
from ..trees.forest import Features, Forest
from ..trees.objectives import LOG
from ..trees.training_spec import TrainingSpec
from .chosen import Chosen
from .log_scale import LogScale
from .observed import Observed
from .power_map import NO_SPREAD, Calibration
from .recursion import recursion
from .support import Support, named_bounds

Mean = Literal["booster", "pgbm"]
"""Leaf values of predictions: those that the booster stored, or the paper's expected weights."""


@dataclass(frozen=True, eq=False)
class ModelState:
    """A booster's trees, the moments of their leaves, and the chosen settings. Immutable: a model replaces it whole."""

    forest: Forest
    spec: TrainingSpec
    moments: LeafMoments
    weights: LeafWeights
    certificate: Certificate
    chosen: Chosen
    default_rho: float  # correlation before `tune`, log10(rows) / 100
    mean: Mean = "booster"  # leaf values of predictions
    variance: Variance = "pgbm"  # default of `tune`'s argument `variance`
    training_scale: LogScale | None = None  # the scale boosted from the rows that `wrap` saw
    surroundings: Surroundings = ALONE  # what rows and outcomes pass through, outside of all the above

    @classmethod
    def new(
        cls, forest: Forest, spec: TrainingSpec, moments: LeafMoments, certificate: Certificate, **options: Any
    ) -> ModelState:
        """Return the state of a newly wrapped model, with default settings."""
        weights, rho = leaf_weights(forest, spec, moments), default_rho(moments)
        return cls(forest, spec, moments, weights, certificate, Chosen(rho), rho, **options)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out cached properties, which are computed again from the fields."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def leaf_value(self) -> AnyArray:
        """Return the (L,) leaf values of predictions."""
        if self.mean == "booster":
            return self.forest.leaf_value
        return paper_leaf_values(self.forest, self.spec, self.weights)

    @property
    def observed(self) -> Observed | None:
        """Return what `observe` learned; None before."""
        return self.chosen.observed

    @property
    def columns(self) -> Features:
        """Return the columns of the tables that users give."""
        return self.surroundings.columns(self.forest.features)

    def bounds(self, lower: Any, upper: Any, name: str, y: Any, default: Support | None = None) -> Support | None:
        """Return bounds of the outcome that a user named as bounds of what the booster predicts.

        In place of None are those of `default`. Labels `y`, called `name`, that lie beyond are refused.
        """
        named, transform = named_bounds(lower, upper), self.surroundings.transform
        if named is None or transform is None:
            return named_bounds(lower, upper, default)
        named.check_labels(name, read_labels(name, in_memory(y), table_length(y)))
        ends = np.array([named.lower, named.upper])
        levels = np.where(np.isinf(ends), ends if transform.rising else -ends, transform.level(ends))
        low, high = (None if bound is None else level for bound, level in zip((lower, upper), levels, strict=True))
        return named_bounds(low, high, default) if transform.rising else named_bounds(high, low, default)

    @property
    def support(self) -> float:
        """Return the lower bound of outcomes: 0 under a log link, else -inf."""
        return 0.0 if self.forest.link == LOG else -np.inf

    def typical_variance(self) -> float:
        """Return the variance of a typical margin before calibration.

        It depends on the rows that `wrap` and `tune` saw alone, so that calibration rows and new rows stay
        exchangeable. Per tree it is the geometric mean over the rows that `wrap` saw: a few rows with a large spread
        hardly change it. Rows in leaves without spread do not count.
        """
        mass, square, trees = self.moments.mass, self.weights.sd**2, self.forest.leaf_start[:-1]

        def per_tree(per_leaf: AnyArray) -> AnyArray:
            return np.add.reduceat(mass * per_leaf, trees) / np.add.reduceat(mass, trees)

        spread = square > NO_SPREAD * per_tree(square)[self.forest.tree_of_leaf()]
        share = per_tree(spread)
        logarithm = per_tree(np.log(np.where(spread, square, 1.0))) / np.where(share > 0.0, share, 1.0)
        variance = recursion(np.sqrt(share * np.exp(logarithm)), self.chosen.rho)[-1]
        if self.chosen.scale is not None:
            variance = self.chosen.scale(variance, per_tree(self.chosen.scale.step).sum())
        return float(variance)

    def floored_calibration(self) -> Calibration:
        """Return the chosen map with a floor: its own if it has one, else that of a typical row."""
        calibration = self.chosen.calibration
        return calibration if calibration.floor else calibration.with_floor(self.typical_variance())

    def describe_calibration(self) -> str:
        """Return in words what calibration does to a typical row, and the power map behind it."""
        power_map = f"variance -> {self.chosen.calibration}"
        if self.chosen.scale is not None:
            return f"boosted {power_map}"
        typical = np.array([self.typical_variance()])
        pair = np.sqrt([typical[0], self.chosen.calibration(typical)[0]])
        before, after = (f"{float(f'{std:.3g}'):,g}" for std in pair)
        return f"typical std{' of the logarithm' if self.forest.link == LOG else ''} {before} -> {after} ({power_map})"

    def __str__(self) -> str:
        forest, chosen, surroundings, seen = self.forest, self.chosen, self.surroundings, self.observed
        objective = self.spec.objective.name if self.spec.objective else "custom"
        lines = [f"{forest.booster}, {objective}, {forest.n_trees} trees, {forest.n_leaves} leaves"]
        if surroundings.described:
            place = "surroundings: " if surroundings else "the file left out that "
            lines.append(f"{place}{surroundings.described}")
        decayed = " (effective, after decay)" if self.moments.decayed else ""
        lines.append(f"rows seen:    {self.moments.rows:.0f}{decayed}")
        lines.append(f"certificate:  {self.certificate}")
        lines.append(f"rho:          {chosen.rho:.4g}")
        lines.append(f"distribution: {chosen}")
        if not chosen.calibration.b == chosen.calibration.c == 1.0:
            lines.append(f"calibration:  {self.describe_calibration()}")
        if seen is not None:
            lines.append(f"observed:     90 % intervals held {seen.recent_cover[0.9]:.1%} lately")
        return "\n  ".join(lines)

    def predicts_positive(self) -> bool:
        """Tell whether the prediction for every possible row is positive."""
        if self.forest.link == LOG:
            return True
        lowest = np.minimum.reduceat(self.leaf_value.astype(np.float64), self.forest.leaf_start[:-1]).sum()
        return not self.spec.own_starts and bool(lowest + self.forest.base_margin > 0.0)


def check_recursion(spec: TrainingSpec, mean: str, variance: str | None) -> None:
    """Refuse the paper's mean or variance for trees whose gradients of training cannot be computed again."""
    if mean == "pgbm":
        spec.check_sequential("mean='pgbm'", "leave mean= out, for the booster's own predictions")
    if variance == "pgbm":
        spec.check_sequential(
            "variance='pgbm'", "give variance='boosted' or 'auto', whose spread is boosted from residuals"
        )


def default_rho(moments: LeafMoments) -> float:
    """Return the paper's choice for the correlation between trees, log10(rows) / 100."""
    return math.log10(moments.rows) / 100.0
