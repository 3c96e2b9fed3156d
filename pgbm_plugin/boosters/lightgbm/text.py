"""LightGBM's model text, cut up into arrays."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UnsupportedModelError
from ..booster import finding

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


@dataclass(frozen=True)
class ModelText:
    """A model of T trees.

    Attributes
    ----------
    header : dict
        The lines before the first tree.
    average : bool
        Whether predictions are the trees' average instead of their sum.
    params : dict
        The training parameters, as written.
    pandas_categorical : list of lists
        The categories of each categorical column of the training frame.
    leaves : (T,) int array
        Number of leaves of each tree.
    shrinkage : (T,) float array
        Learning rate of each tree, to six digits.
    trees : dict of arrays
        The arrays of `_FIELDS` over all splits or leaves.
    category_start, category_bits : arrays
        The category sets of all trees, as in Forest.
    category_offset : (T,) int array
        Number of each tree's first category set.
    """

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


def leaf_values(text: str) -> NDArray[np.float64]:
    """Return the leaf values of the only tree in a live model's text, and read nothing else."""
    return _numbers(text.partition("\nleaf_value=")[2].partition("\n")[0], np.float64)


@finding("truncated or damaged LightGBM model")
def parse(text: str) -> ModelText:
    """Cut a model up; ValueError if it is damaged."""
    text = text.replace("\r\n", "\n")
    body, end, tail = text.partition("\nend of trees")
    head, *blocks = body.split("\nTree=")
    header = dict(_pairs(head))
    if "\nparameters:" not in tail and (end or (blocks and header.get("version", "v2") == "v2")):
        raise UnsupportedModelError(
            "the model does not store the parameters of training, which LightGBM does since 2.2 (or the file was cut "
            "off): train it with a newer LightGBM"
        )
    if not end or "\nend of parameters" not in tail:
        raise ValueError(f"'end of {'parameters' if end else 'trees'}' is missing")
    if not blocks:
        raise UnsupportedModelError("the LightGBM model has no trees; train it first")
    if "max_feature_idx" not in header:
        raise ValueError("the header has no max_feature_idx")
    sizes = header.get("tree_sizes")
    # LightGBM finds its trees by these numbers, since 2.1; what the split took away, "\nTree=", is 6 letters long
    if sizes is not None and sizes.split() != [str(len(block.encode()) + 6) for block in blocks]:
        raise ValueError("tree_sizes does not fit the trees; if you changed the trees, delete this line")
    trees = [dict(_pairs(block)) for block in blocks]
    if any(tree.get("is_linear", "0") != "0" for tree in trees):
        raise UnsupportedModelError(
            "linear_tree=True: leaves hold linear models, for which the paper gives no variance; train without it"
        )
    leaves = np.array([int(tree["num_leaves"]) for tree in trees])
    if leaves.min() < 1:
        raise ValueError("a tree has no leaves")
    if header.get("version") == "v2":  # before LightGBM 2.3: no sums of hessians, which later versions read as 0
        trees = [{"leaf_weight": " ".join("0" * n), **tree} for n, tree in zip(leaves, trees, strict=True)]
    shrinkage = np.array([float(tree.get("shrinkage", "1")) for tree in trees])
    if not np.all(np.isfinite(shrinkage)):
        raise ValueError("shrinkage is not finite")
    pandas = re.search(r"^pandas_categorical:(.*)$", tail, re.MULTILINE)
    return ModelText(
        header,
        "\naverage_output" in head,
        dict(re.findall(r"^\[(\w+): (.*)\]$", tail, re.MULTILINE)),
        (json.loads(pandas.group(1)) if pandas else None) or [],
        leaves,
        shrinkage,
        {key: _joined(trees, key, dtype, kind, leaves) for key, (dtype, kind) in _FIELDS.items()},
        *_category_sets(trees),
    )


def _pairs(block: str) -> list[tuple[str, str]]:
    split = (line.partition("=") for line in block.split("\n") if "=" in line)
    return [(key, value) for key, _, value in split]


def _joined(trees: list[dict[str, str]], key: str, dtype: type, kind: str, leaves: NDArray[np.int64]) -> NDArray[Any]:
    """Return the numbers of one key in all trees, as one array. Joining the text first is twice as fast."""
    expected = leaves if kind == "leaf" else leaves - 1
    if key in _OPTIONAL:
        for tree, n in zip(trees, leaves, strict=True):
            if n == 1 and not tree.get(key, "").strip():
                tree[key] = "0"
    lines = [tree[key].strip() if n else "" for tree, n in zip(trees, expected, strict=True)]
    for t, (line, n) in enumerate(zip(lines, expected, strict=True)):
        if n and line.count(" ") + 1 != n:
            raise ValueError(f"{key} of tree {t} does not have {n} numbers")
    numbers = _numbers(" ".join(filter(None, lines)), dtype)
    if len(numbers) != expected.sum():
        raise ValueError(f"{key} is not made of numbers")
    return numbers


def _numbers(text: str, dtype: type) -> NDArray[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return np.fromstring(text, dtype, sep=" ")
        except DeprecationWarning as error:  # NumPy's way to say that it met something else than a number
            raise ValueError(str(error)) from error


def _category_sets(trees: list[dict[str, str]]) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.int64]]:
    """Return all bit sets end to end: where each starts, the words, and the number of each tree's first set."""
    starts, words, offset = [np.zeros(1, np.int64)], [np.zeros(0, np.uint32)], [0]
    for tree in trees:
        n = int(tree.get("num_cat", "0"))
        if n:
            bounds = _numbers(tree["cat_boundaries"], np.int64)
            bits = _numbers(tree["cat_threshold"], np.uint32)
            if len(bounds) != n + 1 or bounds[0] != 0 or bounds[-1] != len(bits):
                raise ValueError("cat_boundaries do not fit cat_threshold")
            starts.append(bounds[1:] + starts[-1][-1])
            words.append(bits)
        offset.append(offset[-1] + n)
    return np.concatenate(starts), np.concatenate(words), np.array(offset[:-1])
