"""record(): a training callback that takes the moments while the trees grow, so that `wrap` needs no rows.

A booster does not say into which leaf a row fell, but its training scores do: they rise by the value of that leaf.
LightGBM gives them even after it has freed the rows. XGBoost's are float32; where they do not tell two leaves apart, it
is asked for the leaves themselves.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from .adapters import read_model
from .adapters.lightgbm_text import parse
from .adapters.xgboost import load
from .adapters.xgboost_trees import flatten
from .autograd import TorchObjective
from .certificate import leaf_errors
from .errors import UnsupportedModelError
from .forest import Forest
from .moments import LeafMoments, _custom_gradients, _from_sums
from .objectives import IDENTITY, LOG, Gradients, custom
from .parallel import map_chunks, resolve_jobs
from .rates import solve_rates
from .route import _gradient_arguments
from .training import TrainingSpec

# Where a booster keeps what was recorded: a Python attribute survives pickle and, in XGBoost, copies.
_ATTRIBUTE = "_pgbm_recorded"

# Rows per accumulator at least, and accumulators at most: merging them costs more than filling small ones. Neither
# depends on the number of threads, so that the moments do not either.
_CHUNK, _CHUNKS = 1 << 14, 8

# Parts into which the range of a tree's leaf values is cut, to look up a value in.
_PARTS = 1 << 12

# A score that went through exp and log, or through an average, is off by a few roundings.
_SLACK = 16.0 * float(np.finfo(np.float64).eps)

_FIELDS = ("count", "g_mean", "h_mean", "gg", "hh", "gh")

_INSTEAD = "call wrap(booster, X, y)"


@dataclass(frozen=True)
class Leaves:
    """The leaves of one tree: the booster's own numbers for them, as in `Forest.leaf_label`, and their values."""

    label: NDArray[np.int32]
    value: NDArray[Any]


@dataclass(frozen=True)
class Recorded:
    """What was seen of a training.

    Attributes
    ----------
    start : margin of a row before the first tree, where it had no init_score.
    has_init_score, weighted, custom : whether rows had init scores, weights; whether the objective was the user's.
    leaves, moments : of each tree; the lists grow with the model.
    failure : why no further trees were recorded, or None.
    """

    start: float
    has_init_score: bool
    weighted: bool
    custom: bool
    leaves: list[Leaves]
    moments: list[LeafMoments]
    failure: str | None = None


def record(
    dtrain: Any = None, *, objective: Gradients | TorchObjective | None = None, n_jobs: int | None = None
) -> Any:
    """A callback after which ``wrap(booster)`` needs no data: ``record()`` in LightGBM, ``record(dtrain)`` in XGBoost.

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
            f"hessian='rowsum': the variance comes from another Hessian than the steps, record takes one; {_INSTEAD}"
        )
    if dtrain is None:
        return _LightGBMRecorder(objective, n_jobs)
    if not hasattr(dtrain, "get_base_margin"):
        raise TypeError(
            f"record takes the xgb.DMatrix of training, not a {type(dtrain).__name__}; LightGBM needs none: record()"
        )
    return _XGBoostRecorder(dtrain, objective, n_jobs)


def recorded(booster: Any, forest: Forest, spec: TrainingSpec) -> tuple[TrainingSpec, LeafMoments, bool] | None:
    """How the trees were grown, their moments, and whether rows were weighted; None if nothing was recorded.

    `forest` and `spec` are what `read_model` makes of the booster: trees after the best iteration are not in them.
    """
    found: Recorded | None = getattr(getattr(booster, "_Booster", booster), _ATTRIBUTE, None)
    if found is None:
        return None
    seen = len(found.leaves)
    if seen < forest.n_trees:
        reason = found.failure or "training went on without it"
        raise ValueError(f"record() saw {seen} of the model's {forest.n_trees} trees: {reason}; {_INSTEAD}")
    for t, leaves in enumerate(found.leaves[: forest.n_trees]):
        of_tree = slice(forest.leaf_start[t], forest.leaf_start[t + 1])
        same = np.array_equal(leaves.label, forest.leaf_label[of_tree])
        if not same or not np.array_equal(leaves.value, forest.leaf_value[of_tree]):
            raise ValueError(f"tree {t} is not the one that record() saw: the model was changed since; {_INSTEAD}")
    if found.custom:
        spec = replace(spec, objective=custom(_forgotten))
    if found.has_init_score:
        spec = replace(spec, folded=np.zeros_like(spec.folded))
    return replace(spec, start=found.start), _joined(found.moments[: forest.n_trees]), found.weighted


def _forgotten(margin: NDArray[Any], y: NDArray[np.float64]) -> NoReturn:
    raise RuntimeError(f"a recorded model does not keep its custom objective; {_INSTEAD}")


def _chunk(rows: int) -> int:
    """An even number of rows, for the moments' lanes (see `kernels.accumulate`)."""
    return max(_CHUNK, -(-rows // (2 * _CHUNKS)) * 2)


def _joined(trees: list[LeafMoments]) -> LeafMoments:
    """Moments of several trees over the same rows."""
    return LeafMoments(trees[0].rows, *(np.concatenate([getattr(tree, name) for tree in trees]) for name in _FIELDS))


def _merged(sums: list[NDArray[np.float64]], rows: int) -> LeafMoments:
    """Moments from the accumulators of chunks of so many rows in all; finished at once, for the sake of speed."""
    all_chunks = _from_sums(np.concatenate(sums), rows)
    chunks = zip(*(np.split(getattr(all_chunks, name), len(sums)) for name in _FIELDS), strict=True)
    return replace(reduce(LeafMoments.merge, (LeafMoments(0, *chunk) for chunk in chunks)), rows=rows)


class _Rows:
    """The rows of a training, as far as its trees have taken them; n of them.

    Attributes
    ----------
    forest, spec : what the model was when it had its first trees.
    recorded : what was seen since.
    y, weight : (n,) labels and weights; the latter may be empty.
    margin : (n,) sums of leaf values so far, in the booster's precision: a mean label comes with the first tree.
    at : (n,) margins at which the next trees see gradients.
    average : whether the booster's scores are averages of the trees; gradients are then those at the start.
    """

    def __init__(
        self,
        model: Any,
        y: NDArray[Any],
        weight: NDArray[Any] | None,
        init_score: NDArray[Any] | None,
        objective: Gradients | TorchObjective | None,
        average: bool = False,
    ):
        self.forest, spec = read_model(model)
        spec, weight = _with_objective(spec, objective, weight)
        assert spec.objective is not None
        self.y = spec.objective.margin_labels(y.astype(np.float64))
        self.weight = np.empty(0) if weight is None else weight.astype(np.float64)
        dtype = self.forest.leaf_value.dtype
        if init_score is not None:
            spec = replace(spec, folded=np.zeros_like(spec.folded))
            self.margin = self.at = init_score.astype(dtype)
        else:
            spec = replace(spec, start=self._start(spec))
            self.margin = np.full(len(y), self.forest.base_margin, dtype)
            self.at = np.full(len(y), spec.start, dtype) if spec.folded[0] or average else self.margin
        self.spec, self.average = spec, average
        self.recorded = Recorded(spec.start, init_score is not None, weight is not None, objective is not None, [], [])

    def _start(self, spec: TrainingSpec) -> float:
        """The mean label, where training starts from it: as `wrap` has it."""
        if not spec.start_is_mean:
            return spec.start
        mean = float(np.average(self.y, weights=self.weight if len(self.weight) else None))
        if self.forest.link != LOG:
            return mean
        return float(np.log(mean)) if mean > 0 else spec.start

    def find(self, tree: Leaves, score: NDArray[Any], link: int, n_jobs: int | None) -> NDArray[np.int32] | None:
        """(n,) the leaf of each row in the next tree, from the scores after it; None if they do not tell.

        `link` is how the booster gives its scores.
        """
        leaf = np.zeros(len(self.y), np.int32)
        if len(tree.value) == 1:
            return leaf
        from .kernels.record import find_leaves

        number = tree.value.dtype.type
        times = 1 + len(self.recorded.leaves) if self.average else 1
        order = np.argsort(tree.value, kind="stable").astype(np.int32)
        value = tree.value[order]
        between = np.diff(value)
        gap = np.minimum(np.append(between, number(np.inf)), np.insert(between, 0, number(np.inf)))
        span = max(float(value[-1]) - float(value[0]), float(np.finfo(np.float64).tiny))
        scale = number(min((_PARTS - 1) / span, float(np.finfo(number).max)))
        guess = np.zeros(_PARTS, np.uint32)
        guess[((value - value[0]) * scale + number(0.5)).astype(np.int64)] = np.arange(len(value))
        table = value, gap, order, guess, scale, number(2.0 * np.finfo(number).eps)
        exact = link == IDENTITY and not self.average
        how = (None, None, None) if exact else (link, float(times), times * _SLACK)

        def told(lo: int, hi: int) -> bool:
            return bool(find_leaves(score[lo:hi], self.margin[lo:hi], *table, *how, leaf[lo:hi]))

        return leaf if all(map_chunks(told, len(leaf), _chunk(len(leaf)), n_jobs)) else None

    def follow(self, trees: list[Leaves], leaves: list[NDArray[np.int32]], n_jobs: int | None) -> None:
        """Record the trees of one iteration, given each row's leaf in them, and take the rows through them."""
        from .kernels.accumulate import accumulators, add_rows, room
        from .kernels.cpu import BLOCK
        from .kernels.record import add_tree

        objective, y, weight, margin = self.spec.objective, self.y, self.weight, self.margin
        assert objective is not None
        at = margin.copy() if len(trees) > 1 else self.at
        _, *loss = _gradient_arguments(self.spec, weight)
        unit = objective.unit_hessian and not len(weight)
        g, h = (np.empty(0),) * 2 if objective.gradients is None else _custom_gradients(self.spec, at, y)

        def gather(tree: Leaves, leaf: NDArray[np.int32], lo: int, hi: int) -> NDArray[np.float64]:
            sums, rows = accumulators(len(tree.value), unit), slice(lo, hi)
            if len(g):
                add_rows(leaf[rows], g[rows], h[rows], tree.value, margin[rows], sums)
            else:
                g_h = room(BLOCK, sums)
                add_tree(leaf[rows], y[rows], weight[rows], at[rows], *loss, *g_h, tree.value, margin[rows], sums)
            return sums

        for tree, leaf in zip(trees, leaves, strict=True):
            chunks = map_chunks(partial(gather, tree, leaf), len(y), _chunk(len(y)), n_jobs)
            self.recorded.moments.append(_merged(list(chunks), len(y)))
            self.recorded.leaves.append(tree)
        if not self.average:
            self.at = margin


def _with_objective(
    spec: TrainingSpec, objective: Gradients | TorchObjective | None, weight: NDArray[Any] | None
) -> tuple[TrainingSpec, NDArray[Any] | None]:
    """The objective of training, and the weights that its gradients still need: custom ones bring their own."""
    if objective is None:
        if spec.objective is None:
            raise UnsupportedModelError(
                "training has a custom objective, whose gradients a callback does not see: give record(objective=f), a "
                "torch_objective or a function (margin, y) -> (g, h)"
            )
        return spec, weight
    if spec.objective is not None and spec.objective.link != IDENTITY:
        raise ValueError(f"the model has a built-in objective, {spec.objective.name!r}; leave objective= out")
    if isinstance(objective, TorchObjective):
        objective = partial(objective.derivatives, sample_weight=weight)
    return replace(spec, objective=custom(objective)), None


class _LightGBMRecorder:
    """The callback for lgb.train and LGBMRegressor.fit."""

    before_iteration = False

    def __init__(self, objective: Gradients | TorchObjective | None, n_jobs: int | None):
        self.order = -1000  # before any other that may end training
        self.objective = objective
        self.n_jobs = n_jobs
        self._rows: _Rows | None = None

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
            rows = _Rows(model, label, weight, init_score, self.objective, average)
            setattr(model, _ATTRIBUTE, rows.recorded)
        for t in range(len(rows.recorded.leaves), model.num_trees()):
            text = parse(model.model_to_string(num_iteration=1, start_iteration=t))
            tree = Leaves(np.arange(text.leaves[0], dtype=np.int32), text.trees["leaf_value"])
            # private; eval_train shows the same scores to a metric, but computes its own metrics first
            score = model._Booster__inner_predict(data_idx=0)
            leaf = rows.find(tree, score, rows.forest.link, self.n_jobs)
            if leaf is None:
                failure = _why_untold(t, tree, rows)
                setattr(model, _ATTRIBUTE, replace(rows.recorded, failure=failure))
                warnings.warn(f"record() ends here, and training goes on: {failure}", UserWarning, stacklevel=3)
                self._rows = None
                return
            rows.follow([tree], [leaf], self.n_jobs)
        self._rows = None if env.iteration + 1 == env.end_iteration else rows


def _why_untold(t: int, tree: Leaves, rows: _Rows) -> str:
    order = np.argsort(tree.value)
    gap = np.diff(tree.value[order])
    k = int(np.argmin(gap))
    if gap[k] > 4.0 * _SLACK * (t + 1.0 + np.abs(rows.margin).max()):
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
        self._rows: _Rows | None = None
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
            setattr(model, _ATTRIBUTE, self._rows.recorded)
        self._rows = None
        return model

    def _catch_up(self, model: Any) -> None:
        """Record the iterations since the last call."""
        data, rounds = self.dtrain, model.num_boosted_rounds()
        for t in range(self._rounds, rounds):
            if self._rows is None:
                weight, init_score = (c if c.size else None for c in (data.get_weight(), data.get_base_margin()))
                self._rows = _Rows(model, data.get_label(), weight, init_score, self.objective)
                setattr(model, _ATTRIBUTE, self._rows.recorded)
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


def _check_first_tree(rows: _Rows) -> None:
    """XGBoost calls a custom objective reg:squarederror: only the leaves tell."""
    forest, spec, moments = rows.forest, rows.spec, _joined(rows.recorded.moments)
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
            f"{continued}: record has not seen the trees that training continues from; train without it, and {_INSTEAD}"
        )
