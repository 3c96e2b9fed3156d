"""Recorded: what `record` has seen of a training, stored in the booster itself, where `wrap` finds it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..boosters import live_model
from ..boosters.booster import TreeLeaves
from ..leaves.moments import LeafMoments, joined
from ..trees.forest import Forest
from ..trees.objectives import custom, forgotten
from ..trees.training_spec import TrainingSpec

# Attribute of a booster that holds what was recorded: it survives pickle and, in XGBoost, copies.
ATTRIBUTE = "_pgbm_recorded"

_INSTEAD = "call wrap(booster, X, y)"


@dataclass(frozen=True)
class Recorded:
    """The leaves of a training and their moments."""

    start: float  # base score: the margin of a row before the first tree, unless it had an init_score
    has_init_score: bool
    custom: bool  # whether the objective was the user's
    leaves: list[TreeLeaves]  # the leaves of each tree; the list grows with the model
    moments: list[LeafMoments]  # the moments of each tree
    failure: str | None = None  # why no further trees were recorded

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain dict, so that a pickled booster loads where this package is not installed."""
        leaves = [(tree.label, tree.value) for tree in self.leaves]
        moments = [(tree.rows, tree.arrays()) for tree in self.moments]
        return dict, ({**vars(self), "leaves": leaves, "moments": moments},)

    @classmethod
    def from_pickle(cls, plain: dict[str, Any]) -> Recorded:
        """Return what `__reduce__` made a dict of."""
        leaves = [TreeLeaves(*tree) for tree in plain["leaves"]]
        moments = [LeafMoments(rows, **arrays) for rows, arrays in plain["moments"]]
        return cls(**{**plain, "leaves": leaves, "moments": moments})


def recorded(booster: Any, forest: Forest, spec: TrainingSpec) -> tuple[TrainingSpec, LeafMoments] | None:
    """Return the spec and the moments; None if nothing was recorded.

    `forest` and `spec` were read from the booster, without the trees after the best iteration.
    """
    stored: Any = getattr(live_model(booster), ATTRIBUTE, None)
    if stored is None:
        return None
    seen: Recorded = Recorded.from_pickle(stored) if isinstance(stored, dict) else stored
    if len(seen.leaves) < forest.n_trees:
        reason = seen.failure or "training went on without it"
        raise ValueError(f"record() saw {len(seen.leaves)} of the model's {forest.n_trees} trees: {reason}; {_INSTEAD}")
    for t, leaves in enumerate(seen.leaves[: forest.n_trees]):
        own = slice(forest.leaf_start[t], forest.leaf_start[t + 1])
        same = np.array_equal(leaves.label, forest.leaf_label[own])
        if not same or not np.array_equal(leaves.value, forest.leaf_value[own]):
            raise ValueError(f"tree {t} is not the one that record() saw: the model was changed later; {_INSTEAD}")
    if seen.custom:
        spec = replace(spec, objective=custom(forgotten))
    if seen.has_init_score:
        spec = spec.with_own_starts()
    return replace(spec, start=seen.start), joined(seen.moments[: forest.n_trees])
