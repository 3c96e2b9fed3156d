"""record(): a training callback that takes the moments while the trees grow, so that `wrap` needs no rows.

A booster does not say into which leaf a row fell, but its training scores do: they rise by the value of that leaf.
LightGBM gives them even after it has freed the rows. XGBoost's are float32; where they do not tell two leaves apart, it
is asked for the leaves themselves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from ..boosters.lightgbm.text import leaf_values, parse
from ..boosters.xgboost.flat_trees import flatten
from ..boosters.xgboost.model import load
from ..errors import UnsupportedModelError, warn
from ..leaves.certificate import leaf_errors
from ..leaves.moments import joined
from ..leaves.solve_rates import solve_rates
from ..losses.torch_objective import TorchObjective
from ..parallel import resolve_jobs
from ..trees.objectives import IDENTITY, Gradients
from .recording import ATTRIBUTE, INSTEAD, SLACK, Leaves, TrainingRows, Ways


def record(
    dtrain: Any = None, *, objective: Gradients | TorchObjective | None = None, n_jobs: int | None = None
) -> Any:
    """A callback after which ``wrap(booster)`` needs no data: ``record()`` in LightGBM, ``record(dtrain)`` in XGBoost.

    In XGBoost it comes after an ``EarlyStopping(save_best=True)``, which puts a new model in the place of the old.
    LightGBM's scores are read after every other iteration, so a callback of your own that ends training must not
    declare its final iteration the best one.

    Parameters
    ----------
    dtrain : the DMatrix or QuantileDMatrix that XGBoost is trained on.
    objective : the custom objective of training, if it has one: ``(margin, y) -> (g, h)``, or a `torch_objective`.
    n_jobs : threads; None for half of the cores, because the booster's own threads spin for a while after their work.
    """
    n_jobs = max(1, resolve_jobs(None) // 2) if n_jobs is None else resolve_jobs(n_jobs)
    if objective is not None and not callable(objective):
        raise TypeError(f"objective must be a function (margin, y) -> (g, h), not {objective!r}")
    if isinstance(objective, TorchObjective) and objective.levels is not None and objective.hessian == "rowsum":
        raise UnsupportedModelError(
            f"hessian='rowsum': the variance comes from another Hessian than the steps, record takes one; {INSTEAD}"
        )
    if dtrain is None:
        return _LightGBMRecorder(objective, n_jobs)
    if not hasattr(dtrain, "get_base_margin"):
        raise TypeError(
            f"record takes the xgb.DMatrix of training, not a {type(dtrain).__name__}; LightGBM needs none: record()"
        )
    return _XGBoostRecorder(dtrain, objective, n_jobs)


class _LightGBMRecorder:
    """The callback for lgb.train and LGBMRegressor.fit."""

    before_iteration = False

    def __init__(self, objective: Gradients | TorchObjective | None, n_jobs: int):
        self.order = -1000  # before any other that may end training
        self.objective = objective
        self.n_jobs = n_jobs
        self._rows: TrainingRows | None = None
        self._unread: list[Leaves] = []

    def __call__(self, env: Any) -> None:
        model, rows = env.model, self._rows
        if env.iteration == env.begin_iteration:
            rows, self._unread = None, []
            _check_training(cv=hasattr(model, "boosters"), continued="init_model" if env.begin_iteration else None)
        elif rows is None:
            return  # ended
        grown = rows is None or model.num_trees() > len(rows.recorded.leaves) + len(self._unread)
        if rows is None or (grown and all(len(tree.value) == 1 for tree in rows.recorded.leaves)):
            # constants alone have an objective of their own: they are read again when the first split comes
            label, weight, init_score = map(model.train_set.get_field, ("label", "weight", "init_score"))
            average = parse(model.model_to_string(num_iteration=1)).average
            rows, self._unread = TrainingRows(model, label, weight, init_score, self.objective, average), []
            setattr(model, ATTRIBUTE, rows.recorded)
        unread = self._unread
        for t in range(len(rows.recorded.leaves) + len(unread), model.num_trees()):
            value = leaf_values(model.model_to_string(num_iteration=1, start_iteration=t))
            unread.append(Leaves(np.arange(len(value), dtype=np.int32), value))
        last = env.iteration + 1 == env.end_iteration
        # LightGBM takes a third of an iteration to give its scores, so they are read after every other one where two
        # trees can be told from them. Early stopping keeps no tree of the iteration in which it ends training.
        if not (grown and len(unread) == 1 and not last and rows.tell_two(unread[0])):
            rows = self._read(model, rows)
        self._rows = None if last else rows

    def _read(self, model: Any, rows: TrainingRows) -> TrainingRows | None:
        """Record the trees that were not; None if their leaves cannot be told, which ends the recording."""
        trees, self._unread = self._unread, []
        if not trees:
            return rows
        # private; eval_train shows the same scores to a metric, but computes its own metrics first
        score = model._Booster__inner_predict(data_idx=0)
        ways = rows.find(trees, score, rows.forest.link, self.n_jobs)
        if ways is None:
            failure = _why_untold(trees, rows)
            setattr(model, ATTRIBUTE, replace(rows.recorded, failure=failure))
            warn(f"record() ends here, and training goes on: {failure}")
            return None
        rows.follow(trees, ways, self.n_jobs, one_iteration=False)
        return rows


def _why_untold(trees: list[Leaves], rows: TrainingRows) -> str:
    first = len(rows.recorded.leaves)
    for t, tree in enumerate(trees, first):
        order = np.argsort(tree.value)
        gap = np.diff(tree.value[order])
        if len(gap) and gap.min() <= 4.0 * SLACK * (t + 1.0 + rows.reach):
            k = int(np.argmin(gap))
            a, b = sorted(tree.label[order[k : k + 2]].tolist())
            return (
                f"leaves {a} and {b} of tree {t} have the same value, {tree.value[a]:g}, so that training scores do "
                f"not tell their rows apart"
            )
    if len(trees) > 1:
        return f"two ways through trees {first} and {first + 1} lead to the same score"
    return f"the training scores are not sums of leaves in tree {first}"


class _XGBoostRecorder:
    """The callback for xgb.train and XGBRegressor."""

    def __init__(self, dtrain: Any, objective: Gradients | TorchObjective | None, n_jobs: int):
        from xgboost.callback import TrainingCallback

        TrainingCallback.register(type(self))  # a base class would have to be imported with this module
        self.dtrain = dtrain
        self.objective = objective
        self.n_jobs = n_jobs
        self._rows: TrainingRows | None = None
        self._rounds = 0

    def __getstate__(self) -> dict[str, Any]:
        """Without the matrix, which cannot be pickled: estimators keep their callbacks."""
        return {**self.__dict__, "dtrain": None, "objective": None, "_rows": None}

    def __call__(self, env: Any) -> NoReturn:
        raise TypeError("record(dtrain) is XGBoost's callback; LightGBM takes record()")

    def before_training(self, model: Any) -> Any:
        if self.dtrain is None:
            raise ValueError("a copied record(dtrain) has lost its matrix: make a new one for each training")
        cv = hasattr(model, "cvfolds")
        _check_training(cv=cv, continued="xgb_model" if not cv and model.num_boosted_rounds() else None)
        self._rows, self._rounds = None, 0
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._catch_up(model)
        return False

    def after_training(self, model: Any) -> Any:
        """Callbacks that end training keep others from the last iteration, and may put a new model in its place."""
        self._catch_up(model)
        if self._rows is not None:
            setattr(model, ATTRIBUTE, self._rows.recorded)
        self._rows = None
        return model

    def _catch_up(self, model: Any) -> None:
        """Record the iterations since the last call."""
        data, rounds = self.dtrain, model.num_boosted_rounds()
        for t in range(self._rounds, rounds):
            if self._rows is None:
                weight, init_score = (c if c.size else None for c in (data.get_weight(), data.get_base_margin()))
                self._rows = TrainingRows(model, data.get_label(), weight, init_score, self.objective)
                setattr(model, ATTRIBUTE, self._rows.recorded)
            rows, newest = self._rows, model[t : t + 1]
            trees, ways = _xgboost_leaves(newest), None
            if len(trees) == 1 and t + 1 == rounds:
                ways = rows.find(trees, model.predict(data, output_margin=True), IDENTITY, self.n_jobs)
            rows.follow(trees, ways or _predicted_leaves(newest, data, trees), self.n_jobs)
            if t == 0:
                _check_first_tree(rows)
            self._rounds += 1


def _xgboost_leaves(model: Any) -> list[Leaves]:
    """Of each tree, in the order in which the forest will have them."""
    flat = flatten(load(bytes(model.save_raw("ubj")))["learner"], use_best_iteration=False)
    node, value = flat.leaves, flat.fields["split_conditions"]
    return [
        Leaves((of_tree - flat.start[t]).astype(np.int32), value[of_tree])
        for t, of_tree in enumerate(np.split(node, np.searchsorted(flat.tree[node], np.arange(1, len(flat.start) - 1))))
    ]


def _predicted_leaves(model: Any, data: Any, trees: list[Leaves]) -> Ways:
    """Every row on a way of its own."""
    try:
        node = model.predict(data, pred_leaf=True).reshape(-1, len(trees)).astype(np.int32)
    except ValueError as error:  # XGBoostError
        raise UnsupportedModelError(
            f"record: scores do not tell the leaves apart, and XGBoost does not tell those of a {type(data).__name__} "
            f"(of a QuantileDMatrix since 3.1): train on a DMatrix, or {INSTEAD}"
        ) from error
    leaf, first = np.empty(node.T.shape, np.int32), 0
    for t, tree in enumerate(trees):
        place = np.zeros(tree.label.max() + 1, np.int32)
        place[tree.label] = np.arange(first, first + len(tree.label))
        leaf[t] = place[node[:, t]]
        first += len(tree.label)
    return Ways(leaf, np.arange(len(node), dtype=np.uint32))


def _check_first_tree(rows: TrainingRows) -> None:
    """XGBoost calls a custom objective reg:squarederror: only the leaves tell."""
    forest, spec, moments = rows.forest, rows.spec, joined(rows.recorded.moments)
    assert spec.objective is not None
    if spec.subsampled or spec.approximate:
        return  # then they do not tell either
    # a schedule may have changed the learning rate by now
    errors = [np.median(leaf_errors(forest, s, moments)) for s in (spec, solve_rates(forest, spec, moments))]
    if min(errors) > spec.tolerance:
        raise UnsupportedModelError(
            f"the first tree does not follow from the data given to record and objective {spec.objective.name!r}: if "
            f"training has a custom objective, give record(dtrain, objective=f) with f(margin, y) -> (g, h); otherwise "
            f"give the very matrix of training, with its weights and base_margin"
        )


def _check_training(*, cv: bool, continued: str | None) -> None:
    if cv:
        raise UnsupportedModelError("cv trains a model a fold, and record follows one: train the model to be wrapped")
    if continued is not None:
        raise UnsupportedModelError(
            f"{continued}: record has not seen the trees that training continues from; train without it, and {INSTEAD}"
        )
