"""The rows that CatBoost held back itself (eval_fraction), found again by its own split, which has one seed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Rows are numbered in float32.
_MOST_ROWS = 1 << 24


def training_rows(model: Any, n: int) -> NDArray[np.int64] | None:
    """Return which of the n rows given to `fit` the trees were grown on; None for all of them, or for other rows.

    Rows with weights are not told from other rows, because the model stores the sums of weights alone.
    """
    params = model.get_params()  # as the user gave them; `get_all_params` has rounded the share
    share = params.get("eval_fraction")
    if not share or not model.is_fitted() or not 0 < n < _MOST_ROWS:
        return None
    from catboost import Pool

    numbered = Pool(np.zeros((n, 1)), np.arange(n))
    try:
        rows, _ = numbered.train_eval_split(bool(params.get("has_time")), False, share, False)
    except Exception:  # CatBoostError: so few rows that nothing can be held back
        return None
    grown_on = model.get_leaf_weights()[: model.get_tree_leaf_counts()[0]].sum()
    return np.sort(np.asarray(rows.get_label()).astype(np.int64)) if rows.num_row() == grown_on else None
