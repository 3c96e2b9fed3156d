"""The callback by which LightGBM tells `record` what it does.

LightGBM does not say into which leaf a row fell, but its training scores do: they rise by the value of that leaf. It
gives them even after it has freed the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..booster import Follow, FollowedTraining, TreeLeaves, check_followed, shows_no_trees
from .text import leaf_values, parse


class LightGBMRecorder:
    """The callback for lgb.train and LGBMRegressor.fit."""

    before_iteration = False

    def __init__(self, follow: Follow):
        # before any other callback that may end training; in the object's __dict__, the only place where LightGBM looks
        self.order = -1000
        self._follow = follow
        self._rows: FollowedTraining | None = None
        self._unread: list[TreeLeaves] = []

    def __call__(self, env: Any) -> None:
        model, rows = env.model, self._rows
        if env.iteration == env.begin_iteration:
            rows, self._unread = None, []
            check_followed(hasattr(model, "boosters"), "init_model" if env.begin_iteration > 0 else "")
        elif rows is None:
            return  # recording has ended
        grown = rows is None or model.num_trees() > rows.n_recorded + len(self._unread)
        if rows is None or (grown and not rows.split_seen):
            # while all trees are constants the model has no objective of its own: read it again at the first split
            label, weight, init_score = map(model.train_set.get_field, ("label", "weight", "init_score"))
            average = parse(model.model_to_string(num_iteration=1)).average
            rows, self._unread = self._follow(model, label, weight, init_score, average), []
            rows.attach(model)
        unread = self._unread
        for t in range(rows.n_recorded + len(unread), model.num_trees()):
            value = leaf_values(model.model_to_string(num_iteration=1, start_iteration=t))
            unread.append(TreeLeaves(np.arange(len(value), dtype=np.int32), value))
        last = env.iteration + 1 == env.end_iteration
        # LightGBM takes a third of an iteration to give its scores, so they are read after every other one where two
        # trees can be told from them. Early stopping keeps no tree of the iteration in which it ends training.
        if not (grown and len(unread) == 1 and not last and rows.tells_two(unread[0])):
            rows = self._read(model, rows)
        self._rows = None if last else rows

    def after_iteration(self, info: Any) -> None:
        """Refuse the training of another booster, which calls its callbacks by this name, with metrics alone."""
        raise shows_no_trees("the booster that called it", "record")

    def _read(self, model: Any, rows: FollowedTraining) -> FollowedTraining | None:
        """Record the trees that were not yet; None if their leaves cannot be told apart, which ends the recording."""
        trees, self._unread = self._unread, []
        if not trees:
            return rows
        # private; eval_train shows the same scores to a metric, but computes its own metrics first
        score = model._Booster__inner_predict(data_idx=0)
        paths = rows.find(trees, score, rows.forest.link)
        if paths is None:
            rows.give_up(model, trees)
            return None
        rows.follow(trees, paths, one_iteration=False)
        return rows
