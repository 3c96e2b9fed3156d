"""The training of an estimator, repeated on other rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import AnyArray, Array
from ...errors import UnsupportedModelError
from ...trees.objectives import Gradients
from ...trees.training_spec import TrainingSpec
from ..booster import Train


def refit(model: Any, spec: TrainingSpec) -> Train:
    """Return a function that trains on other rows with a fitted estimator's parameters, and never stops early."""
    from sklearn.base import clone

    estimator = clone(model).set_params(
        max_iter=len(spec.alpha), early_stopping=False, warm_start=False, verbose=0, **_by_number(model)
    )
    if not isinstance(model.random_state, (int, np.integer)):
        estimator.set_params(random_state=int(model._random_seed))

    def train(X: Any, y: Array, weight: AnyArray | None, init_score: Array | None, gradients: Gradients | None) -> Any:
        if init_score is not None or gradients is not None:
            raise UnsupportedModelError("cv= trains again, and HistGradientBoostingRegressor starts from no init_score")
        X = X.toarray() if hasattr(X, "toarray") else X
        return clone(estimator).fit(X, y, sample_weight=weight)

    return train


def _by_number(model: Any) -> dict[str, Any]:
    """Return the parameters that may name columns, for a matrix, whose columns have no names."""
    signs, names = model.monotonic_cst, list(getattr(model, "feature_names_in_", ()))
    if isinstance(signs, dict):
        signs = [signs.get(name, 0) for name in names]
    categorical = None if model.is_categorical_ is None else np.flatnonzero(model.is_categorical_).tolist()
    return {"monotonic_cst": signs, "categorical_features": categorical}
