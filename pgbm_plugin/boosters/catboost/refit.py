"""The training of a CatBoost model, repeated on other rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays import AnyArray, Array
from ...errors import UnsupportedModelError, needing
from ...trees.objectives import Gradients
from ...trees.training_spec import TrainingSpec
from ..booster import OTHER_WAY, Train
from .document import load, load_live

# Parameters that belong to one run: its files, its metrics, its length.
_OF_ONE_RUN = {
    *("iterations", "use_best_model", "best_model_min_trees", "od_type", "od_wait", "od_pval"),
    *("custom_metric", "eval_metric", "metric_period", "verbose", "logging_level", "allow_writing_files"),
    *("train_dir", "name", "save_snapshot", "snapshot_file", "snapshot_interval", "cat_features", "eval_fraction"),
}


def refit(model: Any, spec: TrainingSpec) -> Train:
    """Return a function that trains on other rows with the parameters of a live model or of a model file's bytes."""
    with needing("cv= trains again, which needs CatBoost: pip install 'pgbm-plugin[catboost]'"):
        import catboost

    document = load(model) if isinstance(model, bytes) else load_live(model)
    info, stored = document["features_info"], document["model_info"]["params"]
    params = {name: value for name, value in stored["flat_params"].items() if name not in _OF_ONE_RUN}
    params |= {"iterations": len(spec.alpha), "verbose": False, "allow_writing_files": False}
    # CatBoost chose it by the number of rows, if the user did not
    params["learning_rate"] = stored["boosting_options"]["learning_rate"]
    features = [*(info.get("float_features") or ()), *(info.get("categorical_features") or ())]
    names = [f.get("feature_id", "") for f in sorted(features, key=lambda f: f["flat_feature_index"])]
    categorical = [f["flat_feature_index"] for f in info.get("categorical_features") or ()]

    def train(
        X: Any, y: Array, weight: AnyArray | None, init_score: Array | None, gradients: Gradients | None
    ) -> catboost.CatBoost:
        if gradients is not None:
            raise UnsupportedModelError(f"cv= cannot repeat CatBoost's training with a custom objective: {OTHER_WAY}")
        pool = catboost.Pool(
            _with_categories(X, categorical),
            y,
            weight=weight,
            baseline=init_score,
            feature_names=names if all(names) else None,
            cat_features=categorical or None,
        )
        return catboost.CatBoost(params).fit(pool)

    return train


def _with_categories(X: Any, categorical: Sequence[int]) -> Any:
    """Return a table whose categorical columns hold their hashes as whole numbers, which are categories to CatBoost."""
    if not categorical:
        return X
    from pandas import DataFrame  # CatBoost needs it as well

    return DataFrame({j: X[:, j].astype(np.int64) if j in categorical else X[:, j] for j in range(X.shape[1])})
