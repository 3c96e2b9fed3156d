"""XGBoost's dropout (dart): the weights of trees that were dropped and rescaled, wherever a version stores them.

Before 3.3, booster=dart is a model around a gbtree model. 3.3 stores the weights beside the trees' model, and 3.4 in
it, both under the name gbtree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UnsupportedModelError

# Why leaves are not what the formula gives, for the certificate and for errors.
REASON = (
    "dropout (booster=dart, rate_drop) rescaled trees after they were grown, and the model does not store which trees "
    "were dropped when"
)

# Lists in a model that may have an element per tree, and that do not weigh trees.
_WITHOUT_WEIGHTS = {"trees", "tree_info", "iteration_indptr", "cats", "weight_drop"}

# Marks a model that was stored inside of one of booster=dart.
_IN_DART = "inside of dart"


def in_newest_layout(learner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the learner of a model or of a configuration as the newest XGBoost would store it: all trees in gbtree."""
    booster = dict(learner["gradient_booster"])
    if booster["name"] == "dart" and "gbtree" in booster:
        booster = {**booster.pop("gbtree"), **booster, "name": "gbtree", _IN_DART: True}
    if "weight_drop" in booster and "model" in booster:
        booster["model"] = {**booster["model"], "weight_drop": booster.pop("weight_drop")}
    return {**learner, "gradient_booster": booster}


def drops_trees(learner: Mapping[str, Any], config: Mapping[str, Any] | None) -> bool:
    """Tell whether trees were dropped, or may be soon: some weight is not 1, or the parameters of training say so."""
    booster = learner["gradient_booster"]
    trees = len(booster["model"]["trees"])
    _refuse_other_weights(booster, trees)
    if np.any(tree_weights(learner, trees) != 1.0):
        return True
    return config is not None and is_configured(config["learner"])


def is_configured(learner: Mapping[str, Any]) -> bool:
    """Tell whether the parameters of a configuration drop trees."""
    dropout = learner["gradient_booster"].get("dart_train_param", {})
    return any(float(dropout.get(name, 0)) for name in ("rate_drop", "one_drop"))


def tree_weights(learner: Mapping[str, Any], trees: int) -> NDArray[np.float32]:
    """Return the weights that the leaves of all trees are multiplied by; ValueError if they are damaged."""
    stored = learner["gradient_booster"]["model"].get("weight_drop", ())
    if len(stored) == 0:
        return np.ones(trees, np.float32)
    with np.errstate(over="ignore"):
        weights = np.asarray(stored, np.float32)
    if weights.shape != (trees,):
        raise ValueError(
            f"weight_drop has {weights.size} weights for {trees} trees"
            + (f", in {weights.ndim} axes" if weights.ndim > 1 else "")
        )
    if not np.all(np.isfinite(weights) & (weights >= 0.0)):
        raise ValueError("weight_drop holds a number that is negative or not finite")
    return weights


def weighed(
    leaf: NDArray[np.float32],
    weight: NDArray[np.float32],
    learner: Mapping[str, Any],
    base_margin: float,
    as_estimator: bool,
) -> NDArray[np.float32]:
    """Return leaf values times the weights of their trees, with XGBoost's rounding.

    In booster=dart before 3.3, `inplace_predict`, which estimators call, adds the base score to each leaf, and takes it
    away again.
    """
    if as_estimator and learner["gradient_booster"].get(_IN_DART):
        base = np.float32(base_margin)
        leaf = (base + leaf) - base
    return leaf * weight


def _refuse_other_weights(part: Mapping[str, Any], trees: int) -> None:
    """Refuse a part of a model that has a number for each tree that is not 1, in a place that is not known."""
    for name, value in part.items():
        if name in _WITHOUT_WEIGHTS:
            continue
        if isinstance(value, Mapping):
            _refuse_other_weights(value, trees)
        elif isinstance(value, (list, np.ndarray)) and len(value) == trees and any(weight != 1.0 for weight in value):
            raise UnsupportedModelError(
                f"{name!r} has a number for each tree, as XGBoost stores the weights of dropped trees (booster=dart, "
                f"rate_drop), but not in a place that is known: train without dropout, or with XGBoost up to 3.4"
            )
