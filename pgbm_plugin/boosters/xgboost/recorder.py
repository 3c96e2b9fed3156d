"""The callback by which XGBoost tells `record` what it does.

XGBoost's training scores are float32. Where they do not tell two leaves apart, it is asked for the leaves themselves.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from ...errors import UnsupportedModelError
from ...trees.objectives import IDENTITY
from ..booster import Follow, FollowedTraining, LeafPaths, TreeLeaves, check_followed
from .flat_trees import flatten
from .model import load


class XGBoostRecorder:
    """The callback for xgb.train and XGBRegressor."""

    def __init__(self, data: Any, follow: Follow):
        from xgboost.callback import TrainingCallback

        TrainingCallback.register(type(self))  # a base class would have to be imported with this module
        self.data = data
        self._follow: Follow | None = follow
        self._rows: FollowedTraining | None = None
        self._rounds = 0

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the matrix, which cannot be pickled: estimators keep their callbacks."""
        return {**self.__dict__, "data": None, "_follow": None, "_rows": None}

    def __call__(self, env: Any) -> NoReturn:
        raise TypeError("record(dtrain) is XGBoost's callback; LightGBM takes record()")

    def before_training(self, model: Any) -> Any:
        if self.data is None:
            raise ValueError("a copied record(dtrain) has lost its matrix: make a new one for each training")
        folds = hasattr(model, "cvfolds")
        check_followed(folds, "xgb_model" if not folds and model.num_boosted_rounds() else "")
        self._rows, self._rounds = None, 0
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._catch_up(model)
        return False

    def after_training(self, model: Any) -> Any:
        """Record the last iteration, which a callback that ends training may have kept from this one."""
        self._catch_up(model)
        if self._rows is not None:
            self._rows.attach(model)  # a callback may have put a new model in the place of the old one
        self._rows = None
        return model

    def _catch_up(self, model: Any) -> None:
        """Record the iterations since the last call."""
        data, rounds = self.data, model.num_boosted_rounds()
        for t in range(self._rounds, rounds):
            if self._rows is None:
                assert self._follow is not None
                weight, init_score = (c if c.size else None for c in (data.get_weight(), data.get_base_margin()))
                self._rows = self._follow(model, data.get_label(), weight, init_score)
                self._rows.attach(model)
            rows, newest = self._rows, model[t : t + 1]
            trees, paths = _tree_leaves(newest), None
            if len(trees) == 1 and t + 1 == rounds:
                paths = rows.find(trees, model.predict(data, output_margin=True), IDENTITY)
            rows.follow(trees, paths or _predicted_leaves(newest, data, trees))
            if t == 0:
                rows.check_first_tree()
            self._rounds += 1


def _tree_leaves(model: Any) -> list[TreeLeaves]:
    """Return the leaves of each tree, in the order in which the forest will have them."""
    flat = flatten(load(bytes(model.save_raw("ubj")))["learner"], use_best_iteration=False)
    node, value = flat.leaves, flat.fields["split_conditions"]
    first = np.searchsorted(flat.tree[node], np.arange(1, len(flat.start) - 1))
    return [
        TreeLeaves((nodes - flat.start[t]).astype(np.int32), value[nodes])
        for t, nodes in enumerate(np.split(node, first))
    ]


def _predicted_leaves(model: Any, data: Any, trees: list[TreeLeaves]) -> LeafPaths:
    """Ask XGBoost for the leaves of every row; each row then has a path of its own."""
    try:
        node = model.predict(data, pred_leaf=True).reshape(-1, len(trees)).astype(np.int32)
    except ValueError as error:  # XGBoostError
        raise UnsupportedModelError(
            f"record: scores do not tell the leaves apart, and XGBoost does not tell those of a {type(data).__name__} "
            f"(of a QuantileDMatrix since 3.1): train on a DMatrix, or call wrap(booster, X, y)"
        ) from error
    leaf, first = np.empty(node.T.shape, np.int32), 0
    for t, tree in enumerate(trees):
        place = np.zeros(tree.label.max() + 1, np.int32)
        place[tree.label] = np.arange(first, first + len(tree.label))
        leaf[t] = place[node[:, t]]
        first += len(tree.label)
    return LeafPaths(leaf, np.arange(len(node), dtype=np.uint32))
