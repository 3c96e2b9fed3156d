"""The private attributes of a fitted estimator that are read, and what they must look like.

scikit-learn may change them in any version. An estimator that does not look as expected is refused, not guessed at.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import UnsupportedModelError
from ..booster import check_fitted

# The oldest scikit-learn that has them in this form, and the newest that was read in the tests.
_TESTED = "1.4 to 1.9"

_ATTRIBUTES = (
    *("_predictors", "_baseline_prediction", "_bin_mapper", "_preprocessor", "_loss", "_random_seed"),
    *("is_categorical_", "do_early_stopping_", "n_features_in_", "n_trees_per_iteration_"),
)

# The fields of a node, and the kinds of their numbers.
_FIELDS = {
    **dict.fromkeys(("value", "num_threshold", "gain"), "f"),
    **dict.fromkeys(("count", "feature_idx", "left", "right", "depth", "bitset_idx", "bin_threshold"), "iu"),
    **dict.fromkeys(("missing_go_to_left", "is_leaf", "is_categorical"), "iu"),
}


def check_layout(estimator: Any) -> None:
    """Refuse an estimator that is not fitted, has several trees per iteration, or another layout than the tested."""
    check_fitted(estimator, "n_features_in_")
    check_fitted(estimator, "_predictors")
    for name in _ATTRIBUTES:
        if not hasattr(estimator, name):
            refuse(f"it has no {name}")
    if estimator.n_trees_per_iteration_ != 1:
        raise UnsupportedModelError("several trees per iteration (multiclass): train a regression loss")
    if not estimator._predictors or any(len(trees) != 1 for trees in estimator._predictors):
        refuse("_predictors is not a list of one tree per iteration")
    if np.size(estimator._baseline_prediction) != 1:
        refuse("_baseline_prediction is not one number")
    for (tree,) in estimator._predictors:
        _check_tree(tree)


def _check_tree(tree: Any) -> None:
    nodes: Any = getattr(tree, "nodes", None)
    bitsets: Any = getattr(tree, "raw_left_cat_bitsets", None)
    fields = getattr(getattr(nodes, "dtype", None), "fields", None) or {}
    kinds = {name: dtype.kind for name, (dtype, *_) in fields.items()}
    if kinds.keys() != _FIELDS.keys() or any(kind not in _FIELDS[name] for name, kind in kinds.items()):
        refuse(f"a tree's nodes have the fields {', '.join(kinds) or 'of none'}")
    shape, kind = np.shape(bitsets), getattr(bitsets, "dtype", None)
    if kind != np.uint32 or len(shape) != 2 or shape[1] != 8:
        refuse(f"a tree's raw_left_cat_bitsets have type {kind} and shape {shape}")


def refuse(what: str) -> None:
    """Refuse a layout, by what is different in it."""
    import sklearn

    raise UnsupportedModelError(
        f"the estimator is not stored as scikit-learn {_TESTED} stores it ({what}), and its trees cannot be read: it "
        f"was fitted by another version than that, or unpickled in one (this is {sklearn.__version__}); fit it anew"
    )
