"""record(): a training callback that takes the moments while the trees grow, so that `wrap` needs no rows.

A booster does not say into which leaf a row fell, but its training scores do: they rise by the value of that leaf.
LightGBM gives them even after it has freed the rows. XGBoost's are float32; where they do not tell two leaves apart, it
is asked for the leaves themselves.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from .adapters.lightgbm_text import parse
from .adapters.xgboost import load
from .adapters.xgboost_trees import flatten
from .autograd import TorchObjective
from .certificate import leaf_errors
from .errors import UnsupportedModelError
from .objectives import IDENTITY, Gradients
from .parallel import resolve_jobs
from .rates import solve_rates
from .recording import ATTRIBUTE, INSTEAD, SLACK, Leaves, TrainingRows, joined


def record(
    dtrain: Any = None, *, objective: Gradients | TorchObjective | None = None, n_jobs: int | None = None
) -> Any:
    """A callback after which ``wrap(booster)`` needs no data: ``record()`` in LightGBM, ``record(dtrain)`` in XGBoost.

    In XGBoost it comes after an ``EarlyStopping(save_best=True)``, which puts a new model in the place of the old.

    Parameters
    ----------
    dtrain : the DMatrix or QuantileDMatrix that XGBoost is trained on.
    objective : the custom objective of training, if it has one: ``(margin, y) -> (g, h)``, or a `torch_objective`.
    n_jobs : threads; None for all cores.
    """
    resolve_jobs(n_jobs)
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

    def __init__(self, objective: Gradients | TorchObjective | None, n_jobs: int | None):
        self.order = -1000  # before any other that may end training
        self.objective = objective
        self.n_jobs = n_jobs
        self._rows: TrainingRows | None = None

    def __call__(self, env: Any) -> None:
        model, rows = env.model, self._rows
        if env.iteration == env.begin_iteration:
            rows = None
            _check_training(cv=hasattr(model, "boosters"), continued="init_model" if env.begin_iteration else None)
        elif rows is None or model.num_trees() == len(rows.recorded.leaves):
            return  # ended, or LightGBM found no split
        if rows is None or all(len(tree.value) == 1 for tree in rows.recorded.leaves):
            # constants alone have an objective of their own: they are read again when the first split comes
            label, weight, init_score = map(model.train_set.get_field, ("label", "weight", "init_score"))
            average = parse(model.model_to_string(num_iteration=1)).average
            rows = TrainingRows(model, label, weight, init_score, self.objective, average)
            setattr(model, ATTRIBUTE, rows.recorded)
        for t in range(len(rows.recorded.leaves), model.num_trees()):
            text = parse(model.model_to_string(num_iteration=1, start_iteration=t))
            tree = Leaves(np.arange(text.leaves[0], dtype=np.int32), text.trees["leaf_value"])
            # private; eval_train shows the same scores to a metric, but computes its own metrics first
            score = model._Booster__inner_predict(data_idx=0)
            leaf = rows.find(tree, score, rows.forest.link, self.n_jobs)
            if leaf is None:
                failure = _why_untold(t, tree, rows)
                setattr(model, ATTRIBUTE, replace(rows.recorded, failure=failure))
                warnings.warn(f"record() ends here, and training goes on: {failure}", UserWarning, stacklevel=3)
                self._rows = None
                return
            rows.follow([tree], [leaf], self.n_jobs)
        self._rows = None if env.iteration + 1 == env.end_iteration else rows


def _why_untold(t: int, tree: Leaves, rows: TrainingRows) -> str:
    order = np.argsort(tree.value)
    gap = np.diff(tree.value[order])
    k = int(np.argmin(gap))
    if gap[k] > 4.0 * SLACK * (t + 1.0 + np.abs(rows.margin).max()):
        return f"the training scores are not sums of leaves in tree {t}"
    a, b = sorted(tree.label[order[k : k + 2]].tolist())
    return (
        f"leaves {a} and {b} of tree {t} have the same value, {tree.value[a]:g}, so that training scores do not tell "
        f"their rows apart"
    )


class _XGBoostRecorder:
    """The callback for xgb.train and XGBRegressor."""

    def __init__(self, dtrain: Any, objective: Gradients | TorchObjective | None, n_jobs: int | None):
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
            trees, leaf = _xgboost_leaves(newest), None
            if len(trees) == 1 and t + 1 == rounds:
                leaf = rows.find(trees[0], model.predict(data, output_margin=True), IDENTITY, self.n_jobs)
            rows.follow(trees, _predicted_leaves(newest, data, trees) if leaf is None else [leaf], self.n_jobs)
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


def _predicted_leaves(model: Any, data: Any, trees: list[Leaves]) -> list[NDArray[np.int32]]:
    """(n,) the leaf of each row, by its place in each tree's leaves."""
    node = model.predict(data, pred_leaf=True).reshape(-1, len(trees)).astype(np.int32)
    leaves = []
    for t, tree in enumerate(trees):
        place = np.zeros(tree.label.max() + 1, np.int32)
        place[tree.label] = np.arange(len(tree.label))
        leaves.append(place[node[:, t]])
    return leaves


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
