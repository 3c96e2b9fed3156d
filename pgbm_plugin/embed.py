"""embed(): the moments in a booster's own model file, so that this file alone predicts distributions."""

from __future__ import annotations

from typing import Any

from .boosters import attribute_booster
from .model import ProbabilisticModel
from .saving.embedded import write_embedded
from .wrap import wrap


def embed(booster: Any, model: ProbabilisticModel | None = None) -> None:
    """Store moments, and what `tune` chose, in an XGBoost model itself: `wrap` then finds them without data.

    They go through ``booster.save_model`` and ``load_model``, and ``wrap("model.ubj")`` reads them without XGBoost.
    LightGBM drops what it does not know when it saves a model; use ``model.save`` there.

    Parameters
    ----------
    booster : xgb.Booster or XGBRegressor
        The trained model. Wrap the same kind of object later: an estimator stops at its best iteration, and a booster
        does not.
    model : ProbabilisticModel, optional
        What `wrap` made of it, tuned and conformalized or not. Default: ``wrap(booster)``, after `record`.
    """
    attribute_booster(booster)
    if model is None:
        model = wrap(booster)
    if not isinstance(model, ProbabilisticModel):
        raise TypeError(f"model must be what wrap(booster, X, y) returns, not {type(model).__name__}")
    write_embedded(booster, model.state)
