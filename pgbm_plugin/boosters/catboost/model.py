"""CatBoost models, read into Forest and TrainingSpec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import AnyArray, Array
from ...errors import UnsupportedModelError
from ...trees.forest import CATEGORICAL, DEFAULT_LEFT, NODE, Features, Forest
from ...trees.looked_up import LookedUp
from ...trees.objectives import IDENTITY, SQUARED, Objective
from ...trees.training_spec import TrainingSpec, without_constants
from ..booster import Reading
from .category_hash import category_hashes
from .flat_trees import CATEGORY, FLOAT, STATISTIC, FlatTrees, flatten
from .objectives import objective_of
from .target_statistics import read_statistics

_NO_LIMIT = (1 << 64) - 1


def read(document: Mapping[str, Any]) -> Reading:
    """Read a model's document."""
    try:
        params = document["model_info"].get("params")
        if not isinstance(params, Mapping):
            raise UnsupportedModelError("the CatBoost model does not store how it was trained: train it again")
        objective, bias = objective_of(params), _bias(document)
        flat = flatten(document)
        forest = _forest(document, flat, objective, bias)
        return forest, _training_spec(params, flat, forest, objective)
    except UnsupportedModelError:
        raise
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"damaged CatBoost model: {error!r:.200}") from error


def _number(value: Any) -> float:
    """Return a parameter, which may be a number or its text."""
    number = float(value)
    if not np.isfinite(number):
        raise ValueError(f"a parameter is {number}")
    return number


def _bias(document: Mapping[str, Any]) -> float:
    """Return the base margin; refuse models of several outputs, or that were scaled after training."""
    scale, bias = document["scale_and_bias"]
    bias = bias if isinstance(bias, list) else [bias]
    if len(bias) != 1:
        raise UnsupportedModelError("several outputs: train one regressor per target")
    if scale != 1:
        raise UnsupportedModelError(
            f"the model's scale is {scale}: set_scale_and_bias changed it after training; set it back to 1"
        )
    return _number(bias[0])


def _forest(document: Mapping[str, Any], flat: FlatTrees, objective: Objective | None, bias: float) -> Forest:
    info = document["features_info"]
    columns = _columns(info)
    looked_up = read_statistics(document, columns)
    splits = _splits(info, flat, columns, 0 if looked_up is None else len(looked_up))
    chosen = splits[flat.split]
    nodes = np.zeros(len(flat.split), NODE)
    for name in ("feature", "threshold", "flags", "category_set"):
        nodes[name] = chosen[name]
    # a category's rows go left, those above a border go right
    categorical = chosen["category_set"] >= 0
    nodes["left"], nodes["right"] = np.where(categorical, (flat.yes, flat.no), (flat.no, flat.yes))
    categories, start, bits = _categories(flat, len(columns["categorical_features"]))
    return Forest(
        root=flat.root.astype(np.int32),
        nodes=nodes,
        category_start=start,
        category_bits=bits,
        leaf_start=flat.leaf_start,
        leaf_value=flat.value,
        leaf_label=(np.arange(len(flat.value)) - np.repeat(flat.leaf_start[:-1], np.diff(flat.leaf_start))).astype(
            np.int32
        ),
        base_margin=bias,
        base_last=True,
        init_score_dtype=np.dtype(np.float32),
        divisor=1,
        link=IDENTITY if objective is None else objective.link,
        features=_features(info, columns, categories, looked_up),
        booster="CatBoost",
    )


def _splits(
    info: Mapping[str, Any], flat: FlatTrees, columns: Mapping[str, NDArray[np.int64]], statistics: int
) -> AnyArray:
    """Return the distinct splits as nodes without children; category sets are numbered in their order.

    The columns of `statistics` are behind those of the table.
    """
    out, sets = np.zeros(len(flat.splits), NODE), 0
    left = [_nan_goes_left(feature) for feature in info.get("float_features") or ()]
    width = sum(map(len, columns.values()))
    places = {
        FLOAT: columns["float_features"],
        CATEGORY: columns["categorical_features"],
        STATISTIC: np.arange(width, width + statistics),
    }
    for node, split in zip(out, flat.splits, strict=True):
        if not 0 <= split.feature < len(places[split.kind]):
            raise ValueError("a split uses a feature that the model does not list")
        node["feature"], node["category_set"] = places[split.kind][split.feature], -1
        if split.kind == CATEGORY:
            node["threshold"], node["flags"], node["category_set"] = -0.5, CATEGORICAL, sets
            sets += 1
        else:
            goes_left = split.kind == STATISTIC or left[split.feature]
            node["threshold"], node["flags"] = split.border, DEFAULT_LEFT if goes_left else 0
    return out


def _categories(flat: FlatTrees, columns: int) -> tuple[list[tuple[int, ...]], NDArray[np.int64], NDArray[np.uint32]]:
    """Return the hashes that splits ask for, by column, and a set of one code for each such split."""
    hashes: list[dict[int, int]] = [{} for _ in range(columns)]
    words = []
    for split in flat.splits:
        if split.kind == CATEGORY:
            code = hashes[split.feature].setdefault(split.category, len(hashes[split.feature]))
            words.append(np.zeros(code // 32 + 1, np.uint32))
            words[-1][-1] = 1 << code % 32
    start = np.cumsum([0, *map(len, words)]).astype(np.int64)
    return [tuple(own) for own in hashes], start, np.concatenate([np.zeros(0, np.uint32), *words])


def _nan_goes_left(feature: Mapping[str, Any]) -> bool:
    """Tell where a missing value goes: it is below all borders (or compared with them, which is false), or above."""
    treatment = feature.get("nan_value_treatment", "AsIs")
    if treatment not in ("AsIs", "AsFalse", "AsTrue"):
        raise ValueError(f"nan_value_treatment is {treatment!r:.40}")
    return treatment != "AsTrue"


def _columns(info: Mapping[str, Any]) -> dict[str, NDArray[np.int64]]:
    """Return the columns of a table that the features of each kind are in."""
    columns = {
        kind: np.array([feature["flat_feature_index"] for feature in info.get(kind) or ()], np.int64)
        for kind in ("float_features", "categorical_features")
    }
    every = np.sort(np.concatenate([*columns.values()]))
    if len(every) and (every[0] < 0 or np.any(every[1:] == every[:-1])):
        raise ValueError("the model's features do not number the columns of a table")
    if not np.array_equal(every, np.arange(len(every))):  # CatBoost leaves out text and embeddings that no split uses
        raise UnsupportedModelError(
            "the model leaves out columns of its table, as of text or embedding features: train with numeric features "
            "and categories only"
        )
    return columns


def _features(
    info: Mapping[str, Any],
    columns: Mapping[str, NDArray[np.int64]],
    categories: Sequence[tuple[int, ...]],
    looked_up: LookedUp | None,
) -> Features:
    names = {
        int(j): feature.get("feature_id", "")
        for kind, own in columns.items()
        for j, feature in zip(own, info.get(kind) or (), strict=True)
    }
    listed = tuple(names[j] for j in range(len(names)))
    if not all(isinstance(name, str) for name in listed):
        raise ValueError("a feature's name is not text")
    # without names of its own, training gives features none, or their numbers
    unnamed = all(name in ("", str(j)) for j, name in enumerate(listed))
    single = np.dtype(np.float32)
    return Features(
        count=len(names),
        names=None if unnamed else listed,
        dtype=single,
        integers=single,
        absent=0.0,
        missing=np.nan,
        categories=tuple(categories),
        category_columns=tuple(columns["categorical_features"].tolist()),
        category_hash=category_hashes,
        looked_up=looked_up,
    )


def _training_spec(
    params: Mapping[str, Any], flat: FlatTrees, forest: Forest, objective: Objective | None
) -> TrainingSpec:
    boosting, learner = params["boosting_options"], params["tree_learner_options"]
    # a tree without splits takes a step, too, unless that is 0
    constant = (np.diff(forest.leaf_start) == 1) & (forest.leaf_value[forest.leaf_start[:-1]] == 0.0)
    rate = float(np.float32(_number(boosting["learning_rate"])))
    counts = objective is not None and objective.unit_hessian  # then the sums of hessians are those of weights
    whole = bool(flat.weight.any()) and bool(np.all(flat.weight == np.round(flat.weight)))
    lambda_ = np.full(forest.n_leaves, float(np.float32(_number(learner["l2_leaf_reg"]))))
    steps = learner["leaf_estimation_iterations"]
    one_step = steps == 1 or not _is_quadratic(objective)
    routed_otherwise = _why_routed_otherwise(params, flat, forest.features.looked_up)
    if not one_step:
        lambda_ = _after_steps(lambda_, flat.weight, steps)
    return TrainingSpec(
        objective=objective,
        alpha=without_constants(np.full(forest.n_trees, rate), constant),
        alpha_error=np.full(forest.n_trees, 1e-6),
        constant=constant,
        lambda_=np.where(constant[forest.tree_of_leaf()], 0.0, lambda_),
        l1=0.0,
        max_step=np.inf,
        iteration=np.arange(forest.n_trees),
        start=forest.base_margin,
        folded=np.zeros(forest.n_trees, bool),
        start_is_mean=False,
        leaf_count=None if counts or not whole or routed_otherwise else flat.weight.astype(np.int64),
        leaf_cover=flat.weight if counts and not routed_otherwise else np.zeros(len(flat.weight)),
        subsampled=False,
        approximate=(*routed_otherwise, *_why_approximate(params, objective, whole)),
        tolerance=1e-9,
        scaled_lambda=one_step,
    )


def _is_quadratic(objective: Objective | None) -> bool:
    return objective is not None and objective.code == SQUARED and not objective.renewed


def _after_steps(lambda_: Array, weight: Array, steps: int) -> Array:
    """Return the regularisation with which one step of the squared error is as long as several steps.

    Each step leaves a share lambda / (H + lambda) of a leaf's gradients to the next one.
    """
    left = np.divide(lambda_, weight + lambda_, out=np.zeros(len(weight)), where=weight + lambda_ > 0.0) ** steps
    return np.divide(weight * left, 1.0 - left, out=lambda_.copy(), where=left < 1.0)


def _why_routed_otherwise(params: Mapping[str, Any], flat: FlatTrees, looked_up: LookedUp | None) -> tuple[str, ...]:
    """Return why training sent rows to other leaves than the model does.

    What the leaves held in training then compares with nothing.
    """
    statistics = [split for split in flat.splits if split.kind == STATISTIC]
    if looked_up is None or not statistics:
        return ()
    reasons = []
    if any(split.knows_labels for split in statistics):
        reasons.append(
            "training sent a row through the trees by target statistics (CTRs) of the rows before it, the model does "
            "so by those of all training rows, which know a training row's own label: rows that training did not see "
            "give better moments"
        )
    elif any(np.any(looked_up.numbers(split.feature) == split.border) for split in statistics):
        reasons.append(
            "training rounded a border of a counter (CTR) otherwise than the model does, and some rows are on it: "
            "smaller CtrBorderCount avoid this"
        )
    limit = params.get("cat_feature_params", {}).get("ctr_leaf_count_limit", _NO_LIMIT)
    if limit != _NO_LIMIT:
        reasons.append(f"ctr_leaf_count_limit={limit} took rare categories out of the statistics after training")
    return tuple(reasons)


def _why_approximate(params: Mapping[str, Any], objective: Objective | None, whole: bool) -> tuple[str, ...]:
    """Return why leaves are not one step along the gradient; `whole` if sums of weights are whole numbers."""
    boosting, learner = params["boosting_options"], params["tree_learner_options"]
    method, steps = learner["leaf_estimation_method"], learner["leaf_estimation_iterations"]
    reasons = []
    if objective is not None and objective.renewed:
        reasons.append(f"loss_function {objective.name} fits its leaves otherwise than by a step along the gradient")
    elif method not in ("Newton", "Gradient"):
        reasons.append(f"leaf_estimation_method={method} takes leaves from a sample of the rows")
    elif steps > 1 and not (_is_quadratic(objective) and whole):
        reasons.append(f"leaf_estimation_iterations={steps} steps several times per leaf")
    if boosting.get("langevin"):
        reasons.append("langevin=True adds noise to the leaves")
    if learner.get("monotone_constraints"):
        reasons.append("monotone_constraints bound the leaves")
    if boosting.get("model_shrink_rate"):
        reasons.append("model_shrink_rate shrank earlier trees at every iteration")
    return tuple(reasons)
