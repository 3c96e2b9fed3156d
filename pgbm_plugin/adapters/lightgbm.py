"""LightGBM's model text -> Forest and TrainingSpec. LightGBM itself is not needed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UnsupportedModelError
from ..forest import CATEGORICAL, DEFAULT_LEFT, NODE, ZERO_IS_MISSING, Features, Forest
from ..objectives import IDENTITY, LIGHTGBM, Objective
from ..training import TrainingSpec

# What is read of every tree: key, type, and whether there is one number per split or per leaf.
_FIELDS: dict[str, tuple[type, str]] = {
    "split_feature": (np.int32, "split"),
    "threshold": (np.float64, "split"),
    "decision_type": (np.int64, "split"),
    "left_child": (np.int32, "split"),
    "right_child": (np.int32, "split"),
    "leaf_value": (np.float64, "leaf"),
    "leaf_weight": (np.float64, "leaf"),
    "leaf_count": (np.int64, "leaf"),
}
# A tree of one leaf has no statistics.
_OPTIONAL = {"leaf_weight", "leaf_count"}

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

# decision_type, bits 2-3
_MISSING_NONE, _MISSING_ZERO, _MISSING_NAN = range(3)


def is_model_text(head: bytes) -> bool:
    """Whether a file that begins with `head` is a LightGBM model."""
    return head.startswith((b"tree\n", b"tree\r\n"))


def read(text: str, live_params: Mapping[str, Any] | None = None) -> tuple[Forest, TrainingSpec]:
    """Read a model; `live_params` are a live booster's own, exact where the text is rounded."""
    model = _parse(text)
    params = _Parameters(model.params, live_params or {})
    objective = _objective(model, params)
    forest = _forest(model, objective)
    return forest, _training_spec(model, params, objective, forest)


@dataclass(frozen=True)
class _Model:
    """The text, cut up. `trees` maps the keys of `_FIELDS` to arrays over all splits or leaves."""

    header: dict[str, str]
    average: bool
    params: dict[str, str]
    pandas_categorical: list[list[Any]]
    leaves: NDArray[np.int64]
    shrinkage: NDArray[np.float64]
    trees: dict[str, NDArray[Any]]
    category_start: NDArray[np.int64]
    category_bits: NDArray[np.uint32]
    category_offset: NDArray[np.int64]

    @property
    def tree_of_split(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.leaves)), self.leaves - 1)

    @property
    def categorical(self) -> NDArray[np.bool_]:
        return np.asarray((self.trees["decision_type"] & 1) != 0)


@dataclass(frozen=True)
class _Parameters:
    """Training parameters by their canonical names."""

    text: dict[str, str]
    live: Mapping[str, Any]

    def number(self, name: str, default: float) -> float:
        rounded = float(self.text.get(name) or default)
        for alias in _ALIASES.get(name, ()):
            value = self.live.get(alias)
            if isinstance(value, (int, float)) and float(f"{value:.6g}") == rounded:
                return float(value)
        return rounded

    def flag(self, name: str, default: bool) -> bool:
        return self.number(name, float(default)) != 0.0

    def word(self, name: str) -> str:
        return self.text.get(name, "").strip()


def _parse(text: str) -> _Model:
    text = text.replace("\r\n", "\n")
    body, end, tail = text.partition("\nend of trees")
    if not end:
        raise ValueError("truncated LightGBM model: 'end of trees' is missing")
    head, *blocks = body.split("\nTree=")
    if not blocks:
        raise UnsupportedModelError("the LightGBM model has no trees; train it first")
    header = dict(_pairs(head))
    if "max_feature_idx" not in header:
        raise ValueError("damaged LightGBM model: the header has no max_feature_idx")
    trees = [dict(_pairs(block)) for block in blocks]
    if any(tree.get("is_linear", "0") != "0" for tree in trees):
        raise UnsupportedModelError(
            "linear_tree=True: leaves hold linear models, for which the paper gives no variance; train without it"
        )
    try:
        leaves = np.array([int(tree["num_leaves"]) for tree in trees])
        shrinkage = np.array([float(tree.get("shrinkage", "1")) for tree in trees])
        arrays = {key: _joined(trees, key, dtype, kind, leaves) for key, (dtype, kind) in _FIELDS.items()}
    except (KeyError, ValueError) as error:
        raise ValueError(f"damaged LightGBM model: {error}") from error
    pandas = re.search(r"^pandas_categorical:(.*)$", tail, re.MULTILINE)
    return _Model(
        header,
        "\naverage_output" in head,
        dict(re.findall(r"^\[(\w+): (.*)\]$", tail, re.MULTILINE)),
        (json.loads(pandas.group(1)) if pandas else None) or [],
        leaves,
        shrinkage,
        arrays,
        *_category_sets(trees),
    )


def _pairs(block: str) -> list[tuple[str, str]]:
    split = (line.partition("=") for line in block.split("\n") if "=" in line)
    return [(key, value) for key, _, value in split]


def _joined(trees: list[dict[str, str]], key: str, dtype: type, kind: str, leaves: NDArray[np.int64]) -> NDArray[Any]:
    """One array of all trees' numbers: joining the text first is twice as fast as parsing line by line."""
    expected = leaves if kind == "leaf" else leaves - 1
    if key in _OPTIONAL:
        for tree, n in zip(trees, leaves, strict=True):
            if n == 1 and not tree.get(key, "").strip():
                tree[key] = "0"
    lines = [tree[key] if n else "" for tree, n in zip(trees, expected, strict=True)]
    numbers = np.array(" ".join(lines).split(), dtype=dtype) if dtype is not np.float64 else _floats(" ".join(lines))
    if len(numbers) != expected.sum():
        raise ValueError(f"{key} has {len(numbers)} numbers where the trees need {expected.sum()}")
    return numbers


def _floats(line: str) -> NDArray[np.float64]:
    return np.fromstring(line, dtype=np.float64, sep=" ")


def _category_sets(trees: list[dict[str, str]]) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.int64]]:
    """All bit sets end to end: where each starts, the words, and the number of the first set of each tree."""
    starts, words, offset = [np.zeros(1, np.int64)], [np.zeros(0, np.uint32)], [0]
    for tree in trees:
        n = int(tree.get("num_cat", "0"))
        if n:
            bounds = np.array(tree["cat_boundaries"].split(), dtype=np.int64)
            bits = np.array(tree["cat_threshold"].split(), dtype=np.uint32)
            if len(bounds) != n + 1 or bounds[0] != 0 or bounds[-1] != len(bits):
                raise ValueError("damaged LightGBM model: cat_boundaries do not fit cat_threshold")
            starts.append(bounds[1:] + starts[-1][-1])
            words.append(bits)
        offset.append(offset[-1] + n)
    return np.concatenate(starts), np.concatenate(words), np.array(offset[:-1])


def _objective(model: _Model, params: _Parameters) -> Objective | None:
    """The objective, None for a custom one; refuses what is not a regression."""
    if params.word("boosting") == "dart":
        raise UnsupportedModelError(
            "boosting=dart: leaves were rescaled by later trees, and which trees were dropped is not in the model; "
            "train with boosting=gbdt"
        )
    if int(model.header.get("num_tree_per_iteration", "1")) != 1:
        raise UnsupportedModelError("several trees per iteration (multiclass): train a regression objective")
    line = model.header.get("objective")
    if line is None or line.split()[0] == "custom":
        return None
    words = line.split()
    name = "regression sqrt" if words[0] == "regression" and "sqrt" in words else words[0]
    if name not in LIGHTGBM:
        raise UnsupportedModelError(
            f"objective {name!r} is not supported: a mean and a variance need a regression objective, one of "
            f"{', '.join(sorted(LIGHTGBM))}"
        )
    objective = LIGHTGBM[name]
    return replace(objective, value=params.number(objective.parameter or "", objective.default))


def _forest(model: _Model, objective: Objective | None) -> Forest:
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
            raise ValueError("damaged LightGBM model: a split points outside its tree")
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
    # a category is a value above -1, cut to an integer as C does; the set's number is where a threshold would be
    nodes["threshold"] = np.where(categorical, -1.0, threshold)
    nodes["category_set"] = -1
    nodes["category_set"][categorical] = (
        threshold[categorical].astype(np.int64) + model.category_offset[tree[categorical]]
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


def _features(model: _Model) -> Features:
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
    )


def _training_spec(model: _Model, params: _Parameters, objective: Objective | None, forest: Forest) -> TrainingSpec:
    random_forest = model.average
    learning_rate = params.number("learning_rate", 0.1)
    alpha = model.shrinkage.copy()
    # A mean label folded into the first tree sets its shrinkage to 1; with a learning rate of 1 that shows nothing.
    # A first tree that could not be split is the mean label, even without boost_from_average.
    folded = np.zeros(forest.n_trees, bool)
    if objective is not None and (params.flag("boost_from_average", True) or model.leaves[0] == 1):
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
        alpha=alpha,
        lambda_=lambda_,
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
    )


def _leaf_lambda(model: _Model, params: _Parameters) -> NDArray[np.float64]:
    """lambda_l2, and cat_l2 more in leaves made by a categorical split that is not one-hot."""
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


def _subsampled(params: _Parameters) -> bool:
    bagging = params.number("bagging_freq", 0) > 0 and params.number("bagging_fraction", 1.0) < 1.0
    return bagging or "goss" in (params.word("data_sample_strategy"), params.word("boosting"))


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
    return tuple(reasons)
