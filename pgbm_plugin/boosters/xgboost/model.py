"""XGBoost models, UBJSON or JSON, read into Forest and TrainingSpec. XGBoost itself is not needed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UnsupportedModelError
from ...trees.forest import CATEGORICAL, DEFAULT_LEFT, NODE, Features, Forest
from ...trees.objectives import IDENTITY, Objective
from ...trees.training_spec import TrainingSpec, without_constants
from ..booster import Reading, finding, unsupported_loss
from . import dropout, ubjson
from .flat_trees import FlatTrees, flatten
from .objectives import OBJECTIVES
from .rates import Rates, rates_from_trees

# 128 MB of category sets
_MAX_CATEGORY_BITS = 1 << 30

# XGBoost stores letters beyond ASCII in whole since this version.
WHOLE_LETTERS = (3, 4)

# A code is a category if it is >= 0. Smaller than any negative float32, and no denormal as a float64.
_BELOW_ZERO = -1e-46


def is_model_bytes(head: bytes) -> bool:
    """Tell whether a file that begins with `head` may be an XGBoost model."""
    return head.lstrip()[:1] == b"{"


def load(raw: bytes) -> Mapping[str, Any]:
    """Return the model document, from UBJSON or JSON."""
    try:
        # '{' begins both; JSON goes on with a key, UBJSON with the marker of a key's length
        document = json.loads(raw) if raw.lstrip()[1:].lstrip()[:1] == b'"' else ubjson.loads(raw)
        return {**document, "learner": dropout.in_newest_layout(document["learner"])}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"not an XGBoost model, or a damaged one: {error!r}") from error


def load_live(model: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the document of a live xgb.Booster, and its configuration, both in the newest layout."""
    try:
        raw, config = bytes(model.save_raw("ubj")), json.loads(model.save_config())
    except Exception as error:  # XGBoostError, which we would have to import
        raise ValueError(f"this {type(model).__name__} cannot be read; train it first") from error
    return load(raw), {**config, "learner": dropout.in_newest_layout(config["learner"])}


def read_live(model: Any, *, as_estimator: bool = False, missing: float = np.nan) -> Reading:
    """Read a live xgb.Booster."""
    document, config = load_live(model)
    return read(document, config=config, as_estimator=as_estimator, missing=missing)


def read(
    document: Mapping[str, Any],
    *,
    config: Mapping[str, Any] | None = None,
    as_estimator: bool = False,
    missing: float = np.nan,
) -> Reading:
    """Read a model.

    Parameters
    ----------
    document : mapping
        What `load` returned.
    config : mapping, optional
        A live booster's ``save_config()``. Learning rate and regularisation are nowhere else. After a round trip
        through a file they are not even there, and are solved from the trees.
    as_estimator : bool
        Predict as XGBoost's scikit-learn estimators do: with the trees up to the best iteration, in place.
    missing : float
        The estimator's `missing` value.
    """
    learner = document["learner"]
    with finding("damaged XGBoost model"):
        objective = _objective(learner)
        drops = dropout.drops_trees(learner, config)
        flat = flatten(learner, as_estimator)
        version = tuple(int(number) for number in document.get("version", ()))
        features = _features(learner, missing, whole_letters=version >= WHOLE_LETTERS)
        base_margin = _base_margin(learner, objective)
        value, weight = flat.fields["split_conditions"][flat.leaves], flat.weight[flat.tree[flat.leaves]]
        value = dropout.weighed(value, weight, learner, base_margin, as_estimator)
        forest = _forest(flat, features, objective, value, base_margin)
        return forest, _training_spec(config, flat, forest, objective, drops)


def _objective(learner: Mapping[str, Any]) -> Objective:
    booster = learner["gradient_booster"]["name"]
    if booster != "gbtree":
        raise UnsupportedModelError(f"booster={booster}: there are no trees to take moments from; use gbtree")
    several = "several outputs (multi-target or multiclass): train one regressor per target"
    model = learner["learner_model_param"]
    if int(model.get("num_class", "0")) > 1:
        raise UnsupportedModelError(several)
    stored = learner["objective"]
    name = "reg:squarederror" if stored["name"] == "reg:linear" else stored["name"]
    if name not in OBJECTIVES:
        raise unsupported_loss("objective", name, OBJECTIVES)
    if int(model.get("num_target", "1")) > 1:
        raise UnsupportedModelError(several)
    objective = OBJECTIVES[name]
    value = objective.default
    for group in stored.values():
        if isinstance(group, Mapping) and objective.parameter in group:
            value = float(np.float32(group[objective.parameter]))
    return replace(objective, value=value)


def _forest(
    flat: FlatTrees, features: Features, objective: Objective, leaf_value: NDArray[np.float32], base_margin: float
) -> Forest:
    leaves, inner = flat.leaves, flat.inner
    code = np.empty(len(flat.left), np.int32)  # a node's number as a child
    code[inner] = np.arange(len(inner))
    code[leaves] = ~np.arange(len(leaves))

    categorical = flat.fields["split_type"][inner] == 1
    default_left = flat.fields["default_left"][inner] != 0
    nodes = np.zeros(len(inner), NODE)
    nodes["feature"] = flat.fields["split_indices"][inner]
    # left if x < condition is left if x <= the float below; nothing is below -inf, and nothing is <= NaN
    condition = flat.fields["split_conditions"][inner]
    below = np.nextafter(condition, np.float32(-np.inf)).astype(np.float64)
    nodes["threshold"] = np.where(categorical, _BELOW_ZERO, np.where(condition == -np.inf, np.nan, below))
    # members of a category set go right: the children change places
    nodes["left"] = code[np.where(categorical, flat.right[inner], flat.left[inner])]
    nodes["right"] = code[np.where(categorical, flat.left[inner], flat.right[inner])]
    nodes["flags"] = np.where(categorical, CATEGORICAL, 0) + np.where(default_left ^ categorical, DEFAULT_LEFT, 0)
    nodes["category_set"] = -1
    nodes["category_set"][categorical] = np.arange(categorical.sum())
    members = [flat.categories[int(node)] for node in inner[categorical]]
    if sum(int(m.max(initial=0)) for m in members) > _MAX_CATEGORY_BITS:
        raise ValueError("the category sets do not fit memory")
    sets = [_bit_set(m) for m in members]

    return Forest(
        root=code[flat.start[:-1]],
        nodes=nodes,
        category_start=np.cumsum([0, *map(len, sets)]).astype(np.int64),
        category_bits=np.concatenate([np.zeros(0, np.uint32), *sets]),
        leaf_start=np.searchsorted(flat.tree[leaves], np.arange(len(flat.start))),
        leaf_value=leaf_value,
        leaf_label=(leaves - flat.start[flat.tree[leaves]]).astype(np.int32),
        base_margin=base_margin,
        divisor=1,
        link=objective.link,
        features=features,
        booster="XGBoost",
    )


def _bit_set(categories: NDArray[np.int64]) -> NDArray[np.uint32]:
    words = np.zeros(categories.max(initial=0) // 32 + 1, np.uint32)
    np.bitwise_or.at(words, categories // 32, np.uint32(1) << (categories % 32).astype(np.uint32))
    return words


def _base_margin(learner: Mapping[str, Any], objective: Objective) -> float:
    """Return the margin of base_score, a response that XGBoost stores as a number until 3.0 and as a list since."""
    from ...kernels import cpu

    text = str(learner["learner_model_param"]["base_score"]).strip("[]")
    margin = np.array([text], np.float32)
    if objective.link != IDENTITY:
        cpu.to_margin(objective.link, margin)
    return float(margin[0])


def _features(learner: Mapping[str, Any], missing: float, whole_letters: bool) -> Features:
    count = int(learner["learner_model_param"]["num_feature"])
    names = tuple(learner.get("feature_names") or ())
    encoded = learner["gradient_booster"]["model"].get("cats", {}).get("enc", [])
    categories = {i: values for i, entry in enumerate(encoded) if (values := _category_values(entry, whole_letters))}
    kinds = learner.get("feature_types") or ()
    return Features(
        count=count,
        names=names if len(names) == count else None,
        dtype=np.dtype(np.float32),
        integers=np.dtype(np.float32),
        absent=np.nan,
        missing=float(missing),
        categories=tuple(categories.values()),
        category_columns=tuple(categories),
        code_columns=tuple(i for i, kind in enumerate(kinds) if kind == "c" and i not in categories),
        unseen_is_missing=False,
    )


def _category_values(entry: Mapping[str, Any], whole_letters: bool) -> tuple[Any, ...]:
    """Return the categories of one column, stored as strings end to end or as numbers; empty if they are not known."""
    values = np.asarray(entry["values"])
    if "offsets" not in entry:
        return tuple(values.tolist())
    raw, offsets = values.astype(np.int8).tobytes(), np.asarray(entry["offsets"]).tolist()
    # older versions count letters and cut bytes, so that others than ASCII are stored in pieces, and newer versions
    # keep them as they are; their codes are right
    if not whole_letters and not raw.isascii():
        return ()
    names = [raw[a:b] for a, b in itertools.pairwise(offsets)]
    try:
        return tuple(name.decode() for name in names)
    except UnicodeDecodeError:
        return ()


def _training_spec(
    config: Mapping[str, Any] | None, flat: FlatTrees, forest: Forest, objective: Objective, drops: bool
) -> TrainingSpec:
    booster = config["learner"]["gradient_booster"] if config else {}
    params = booster.get("tree_train_param", {})
    max_step = float(np.float32(params.get("max_delta_step", 0.0)))
    if objective.parameter == "max_delta_step":
        max_step = float(np.float32(objective.value))
    nominal = Rates(
        eta=np.full(forest.n_trees, np.float32(params.get("eta", 0.3)), np.float64),
        lambda_=float(np.float32(params.get("lambda", 1.0))),
        l1=float(np.float32(params.get("alpha", 0.0))),
        max_step=max_step if max_step > 0 else np.inf,
        known=config is not None and states_parameters(config["learner"]),
    )
    rates = rates_from_trees(flat, nominal, leaves_are_renewed=objective.renewed)
    # a tree with too little hessian for min_child_weight is one leaf of exactly 0: no step
    constant = (np.diff(forest.leaf_start) == 1) & (forest.leaf_value[forest.leaf_start[:-1]] == 0)
    return TrainingSpec(
        objective=objective,
        alpha=without_constants(rates.eta / flat.trees_per_iteration * flat.weight, constant),
        alpha_error=np.full(forest.n_trees, rates.eta_error),
        constant=constant,
        lambda_=np.where(constant[forest.tree_of_leaf()], 0.0, rates.lambda_),
        l1=rates.l1,
        max_step=rates.max_step,
        iteration=flat.iteration,
        start=forest.base_margin,
        folded=np.zeros(forest.n_trees, bool),
        start_is_mean=False,
        leaf_count=None,
        leaf_cover=flat.fields["sum_hessian"][flat.leaves].astype(np.float64),
        subsampled=True if float(params.get("subsample", 1.0)) < 1.0 else None,
        approximate=_why_approximate(booster, params, objective) + ((dropout.REASON,) if drops else ()),
        tolerance=1e-5,
        rates_known=rates.known or bool(constant.all()),
        sequential=not drops,
    )


def states_parameters(learner: Mapping[str, Any]) -> bool:
    """Tell whether a live booster reports the parameters of its training.

    One that was read from a file reports XGBoost's defaults. It also has no metrics, until it is trained or evaluated.
    """
    params = learner["gradient_booster"].get("tree_train_param", {})
    defaults = {"eta": 0.3, "lambda": 1.0, "alpha": 0.0}
    if any(np.float32(params.get(name, default)) != np.float32(default) for name, default in defaults.items()):
        return True
    return bool(learner.get("metrics")) or learner["learner_train_param"].get("disable_default_eval_metric") == "1"


def _why_approximate(booster: Mapping[str, Any], params: Mapping[str, Any], objective: Objective) -> tuple[str, ...]:
    reasons = []
    if objective.renewed:
        reasons.append(f"objective {objective.name} renews its leaves from residual quantiles")
    if any(sign not in "0" for sign in params.get("monotone_constraints", "").strip("()").split(",")):
        reasons.append("monotone_constraints bound the leaves")
    if booster.get("gbtree_train_param", {}).get("process_type") == "update":
        reasons.append("process_type=update changed trees after they were grown")
    return tuple(reasons)
