"""LightGBM models, read into Forest and TrainingSpec. LightGBM itself is not needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UnsupportedModelError
from ...trees.forest import CATEGORICAL, DEFAULT_LEFT, NODE, ZERO_BOUND, ZERO_IS_MISSING, Features, Forest
from ...trees.objectives import IDENTITY, SQUARED, Objective
from ...trees.training_spec import TrainingSpec, without_constants
from ..booster import Reading, finding, unsupported_loss
from .objectives import OBJECTIVES
from .text import ModelText, parse

# Model text rounds parameters to six digits; a live booster may still know what the user wrote, under an alias.
_ALIASES: dict[str, tuple[str, ...]] = {
    "learning_rate": ("learning_rate", "shrinkage_rate", "eta"),
    "lambda_l1": ("lambda_l1", "reg_alpha", "l1_regularization"),
    "lambda_l2": ("lambda_l2", "reg_lambda", "lambda", "l2_regularization"),
    "max_delta_step": ("max_delta_step", "max_tree_output", "max_leaf_output"),
    "alpha": ("alpha",),
    "fair_c": ("fair_c",),
    "poisson_max_delta_step": ("poisson_max_delta_step",),
    "tweedie_variance_power": ("tweedie_variance_power",),
    "cat_l2": ("cat_l2",),
}

# What LightGBM replaces in the names of columns, by what.
RENAMED = ((" ", "_"),)

# decision_type, bits 2-3
_MISSING_NONE, _MISSING_ZERO, _MISSING_NAN = range(3)


def is_model_text(head: bytes) -> bool:
    """Tell whether a file that begins with `head` is a LightGBM model."""
    return head.startswith((b"tree\n", b"tree\r\n"))


def read(text: str, live_params: Mapping[str, Any] | None = None) -> Reading:
    """Read a model's text; `live_params` are those of a live booster, exact where the text is rounded."""
    model = parse(text)
    params = _Parameters(model.params, live_params or {})
    with finding("damaged LightGBM model"):
        objective = _objective(model, params)
        if objective is not None and model.leaves.max() == 1 and objective.link == IDENTITY:
            # no tree was split, no gradient used: the spread of a constant is that of the labels
            objective = replace(objective, code=SQUARED)
        forest = _forest(model, objective)
        return forest, _training_spec(model, params, objective, forest)


@dataclass(frozen=True)
class _Parameters:
    """Training parameters by their canonical names."""

    text: dict[str, str]
    live: Mapping[str, Any]

    def number(self, name: str, default: float) -> float:
        own = self.live.get(name)  # LightGBM 4.0 does not write all parameters
        rounded = float(self.text.get(name) or (own if isinstance(own, (int, float)) else default))
        if not np.isfinite(rounded):
            raise ValueError(f"parameter {name} is {rounded}")
        for alias in _ALIASES.get(name, ()):
            value = self.live.get(alias)
            if isinstance(value, (int, float)) and float(f"{value:.6g}") == rounded:
                return float(value)
        return rounded

    def flag(self, name: str, default: bool) -> bool:
        return self.number(name, float(default)) != 0.0

    def word(self, name: str) -> str:
        return self.text.get(name, "").strip()


def _objective(model: ModelText, params: _Parameters) -> Objective | None:
    """Return the objective, None for a custom one; refuse what is not a regression."""
    if int(model.header.get("num_tree_per_iteration", "1")) != 1:
        raise UnsupportedModelError("several trees per iteration (multiclass): train a regression objective")
    words = model.header.get("objective", "custom").split() or ["(none)"]
    if words[0] == "custom":
        return None
    name = "regression sqrt" if words[0] == "regression" and "sqrt" in words else words[0]
    if name not in OBJECTIVES:
        raise unsupported_loss("objective", name, OBJECTIVES)
    objective = OBJECTIVES[name]
    return replace(objective, value=params.number(objective.parameter or "", objective.default))


def _forest(model: ModelText, objective: Objective | None) -> Forest:
    trees = model.trees
    leaf_start = np.concatenate([[0], np.cumsum(model.leaves)])
    node_start = np.concatenate([[0], np.cumsum(model.leaves - 1)])
    tree = model.tree_of_split

    nodes = np.zeros(len(tree), NODE)
    nodes["feature"] = trees["split_feature"]
    for side in ("left", "right"):
        child = trees[f"{side}_child"]
        own = np.where(child >= 0, model.leaves[tree] - 1, model.leaves[tree])
        if np.any(np.where(child >= 0, child, ~child) >= own):
            raise ValueError("a split points outside its tree")
        nodes[side] = np.where(child >= 0, child + node_start[tree], child - leaf_start[tree])

    decision = trees["decision_type"]
    missing, default_left, categorical = (decision >> 2) & 3, (decision & 2) != 0, model.categorical
    threshold = trees["threshold"]
    # missing type None reads NaN as 0.0, so NaN goes where zero goes; in a category set NaN is never a member
    default_left = np.where(missing == _MISSING_NONE, threshold >= 0.0, default_left) & ~categorical
    nodes["flags"] = (
        np.where(categorical, CATEGORICAL, 0)
        + np.where(default_left, DEFAULT_LEFT, 0)
        + np.where((missing == _MISSING_ZERO) & ~categorical, ZERO_IS_MISSING, 0)
    )
    # LightGBM reads |x| <= 1e-35 as 0: all of that range lies on one side of any threshold
    threshold = np.where((threshold >= -ZERO_BOUND) & (threshold < 0), np.nextafter(-ZERO_BOUND, -np.inf), threshold)
    threshold = np.where((threshold >= 0) & (threshold < ZERO_BOUND), ZERO_BOUND, threshold)
    # a category is a value above -1, cut to an integer as C does; the set's number is where a threshold would be
    nodes["threshold"] = np.where(categorical, -1.0, threshold)
    nodes["category_set"] = -1
    nodes["category_set"][categorical] = (
        trees["threshold"][categorical].astype(np.int64) + model.category_offset[tree[categorical]]
    )
    return Forest(
        root=np.where(model.leaves > 1, node_start[:-1], ~leaf_start[:-1]).astype(np.int32),
        nodes=nodes,
        category_start=model.category_start,
        category_bits=model.category_bits,
        leaf_start=leaf_start,
        leaf_value=trees["leaf_value"],
        leaf_label=(np.arange(leaf_start[-1]) - np.repeat(leaf_start[:-1], model.leaves)).astype(np.int32),
        base_margin=0.0,
        divisor=len(model.leaves) if model.average else 1,
        link=objective.link if objective else IDENTITY,
        features=_features(model),
        booster="LightGBM",
    )


def _features(model: ModelText) -> Features:
    count = int(model.header["max_feature_idx"]) + 1
    names = tuple(model.header.get("feature_names", "").split(" "))
    unnamed = len(names) != count or all(name == f"Column_{i}" for i, name in enumerate(names))
    return Features(
        count=count,
        names=None if unnamed else names,
        dtype=np.dtype(np.float64),
        integers=np.dtype(np.float32),
        absent=0.0,
        missing=np.nan,
        categories=tuple(tuple(values) for values in model.pandas_categorical),
        category_columns=None,
        unseen_is_missing=True,
        renamed=RENAMED,
    )


def _training_spec(model: ModelText, params: _Parameters, objective: Objective | None, forest: Forest) -> TrainingSpec:
    random_forest, drops = model.average, _drops_trees(params)
    learning_rate = params.number("learning_rate", 0.1)
    alpha = model.shrinkage.copy()
    # A mean label folded into the first tree sets its shrinkage to 1; with a learning rate of 1 that shows nothing.
    # A first tree that could not be split is a constant: the mean label, even without boost_from_average.
    folded = np.zeros(forest.n_trees, bool)
    constant = model.leaves == 1
    has_mean = objective is not None and (params.flag("boost_from_average", True) or constant[0])
    if drops:
        # dropout scales a tree's leaves and its shrinkage alike, and the mean label in the first tree with them: there
        # the start is 0, and the shrinkage, which the mean label had set to 1, lacks the learning rate
        alpha[0] *= learning_rate if has_mean else 1.0
    elif has_mean:
        folded[:] = random_forest
        folded[0] |= alpha[0] == 1.0
        if folded[0]:
            alpha[0] = learning_rate
    # text rounds shrinkage to six digits; the parameter may be known better
    alpha[alpha == float(f"{learning_rate:.6g}")] = learning_rate
    if random_forest:
        alpha[:] = 1.0
    lambda_ = _leaf_lambda(model, params)
    max_step = params.number("max_delta_step", 0.0)
    first = slice(forest.leaf_start[0], forest.leaf_start[1])
    denominator = model.trees["leaf_weight"][first] + lambda_[first]
    # At the mean label most objectives' gradients sum to zero, hence so do the first tree's steps times (H + lambda):
    # the folded mean follows from the leaves. Where the labels are at hand it is taken from them (see `wrap`).
    mean = np.average(forest.leaf_value[first], weights=denominator if denominator.sum() > 0 else None)
    return TrainingSpec(
        objective=objective,
        alpha=without_constants(alpha, constant),
        alpha_error=_alpha_error(model, float(f"{learning_rate:.6g}"), bool(folded[0])),
        constant=constant,
        lambda_=np.where(constant[forest.tree_of_leaf()], 0.0, lambda_),
        l1=params.number("lambda_l1", 0.0),
        max_step=max_step if max_step > 0 else np.inf,
        iteration=np.zeros(forest.n_trees, np.int64) if random_forest else np.arange(forest.n_trees),
        start=float(mean) if folded[0] else 0.0,
        folded=folded,
        start_is_mean=objective is not None and bool(folded[0]) and not objective.renewed,
        leaf_count=model.trees["leaf_count"],
        leaf_cover=model.trees["leaf_weight"],
        subsampled=_subsampled(params),
        approximate=_why_approximate(params, objective),
        tolerance=1e-6,
        sequential=not drops,
    )


def _drops_trees(params: _Parameters) -> bool:
    """Tell whether trees were dropped while others were grown, and rescaled later."""
    return params.word("boosting") == "dart" and params.number("drop_rate", 0.1) > 0.0


def _alpha_error(model: ModelText, learning_rate: float, folded: bool) -> NDArray[np.float64]:
    """Return the relative errors of the learning rates: text has six digits; of a tree that holds the mean label, none.

    A schedule may have given that tree another rate than the parameters state. If all later trees have the stated rate,
    and this one has too few leaves to prove a rate, there was none.
    """
    out = np.full(len(model.leaves), 1e-5)
    later = model.shrinkage[1:][model.leaves[1:] > 1]
    no_schedule = len(later) > 0 and np.all(later == learning_rate) and model.leaves[0] < 4
    if folded and not no_schedule:
        out[0] = np.inf
    return out


def _leaf_lambda(model: ModelText, params: _Parameters) -> NDArray[np.float64]:
    """Return lambda_l2 of each leaf, plus cat_l2 in leaves made by a categorical split that is not one-hot."""
    lambda_ = np.full(model.leaves.sum(), params.number("lambda_l2", 0.0))
    onehot = params.number("max_cat_to_onehot", 4)
    infos = model.header.get("feature_infos", "").split(" ")
    bins = np.array([info.count(":") + 1 if info[:1] != "[" else 0 for info in infos])
    feature = model.trees["split_feature"]
    sorted_split = model.categorical & (bins[np.minimum(feature, len(bins) - 1)] > onehot)
    leaf_start = np.cumsum(model.leaves) - model.leaves
    for side in ("left", "right"):
        child = model.trees[f"{side}_child"]
        made = sorted_split & (child < 0)
        lambda_[~child[made] + leaf_start[model.tree_of_split[made]]] += params.number("cat_l2", 10.0)
    return lambda_


def _subsampled(params: _Parameters) -> bool | None:
    bagging = params.number("bagging_freq", 0) > 0 and params.number("bagging_fraction", 1.0) < 1.0
    if bagging or "goss" in (params.word("data_sample_strategy"), params.word("boosting")):
        return True
    # GOSS was a kind of boosting before LightGBM 4.0, and 4.0 and 4.1 do not write it down
    return False if "data_sample_strategy" in params.text else None


def _why_approximate(params: _Parameters, objective: Objective | None) -> tuple[str, ...]:
    reasons = []
    if objective is not None and objective.renewed:
        reasons.append(f"objective {objective.name} renews its leaves from residual quantiles")
    if params.number("path_smooth", 0.0) > 0:
        reasons.append("path_smooth pulls leaves towards their parents")
    if any(sign not in ("", "0") for sign in params.word("monotone_constraints").split(",")):
        reasons.append("monotone_constraints bound the leaves")
    if params.flag("use_quantized_grad", False) and not params.flag("quant_train_renew_leaf", False):
        reasons.append("use_quantized_grad rounds the gradients")
    if _drops_trees(params):
        reasons.append(
            "dropout (boosting=dart) rescaled trees after they were grown, and the model does not store which trees "
            "were dropped when"
        )
    return tuple(reasons)
