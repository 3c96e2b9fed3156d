"""embed(): the moments in an XGBoost model's own attributes, so that its file alone predicts distributions."""

from __future__ import annotations

import base64
from typing import Any

from .boosters import holder_of_attributes, read_attribute, read_model
from .model import ProbabilisticModel
from .saving.model_bytes import from_bytes, to_bytes
from .trees.forest import Forest

# The attribute's name in the booster.
_NAME = "pgbm_plugin"

_INSTEAD = "call wrap(booster, X, y)"


def embed(booster: Any, model: ProbabilisticModel | None = None) -> None:
    """Store the moments and settings in an XGBoost model itself: `wrap` then finds them without data.

    They go through ``booster.save_model`` and ``load_model``, and ``wrap("model.ubj")`` reads them without XGBoost.
    LightGBM drops what it does not know when it saves a model; there, use ``model.save``.

    Parameters
    ----------
    booster : an xgb.Booster or a fitted XGBRegressor; wrap the same kind of object later, because an estimator stops
        at its best iteration and a booster does not.
    model : what `wrap` made of it, tuned and conformalized or not; None for ``wrap(booster)``, after `record`.
    """
    holder = holder_of_attributes(booster)
    if model is None:
        from .wrap import wrap

        model = wrap(booster)
    if not isinstance(model, ProbabilisticModel):
        raise TypeError(f"model must be what wrap(booster, X, y) returns, not {type(model).__name__}")
    content = to_bytes(model, trees=False)
    try:
        from_bytes(content, read_model(booster)[0])
    except ValueError as error:
        raise ValueError(f"this model cannot be embedded in this booster: {error}") from error
    holder.set_attr(**{_NAME: base64.b64encode(content).decode()})


def embedded(booster: Any, forest: Forest) -> ProbabilisticModel | None:
    """The model whose moments a booster brings, around the trees that `read_model` found in it; None without any."""
    text = read_attribute(booster, _NAME)
    if text is None:
        return None
    try:
        return from_bytes(base64.b64decode(text, validate=True), forest)
    except ValueError as error:
        raise ValueError(f"cannot use the moments that are embedded in this model: {error}; {_INSTEAD}") from error


def has_moments(booster: Any) -> bool:
    """Whether a booster, or the file of one, brings what `embed` stores."""
    return read_attribute(booster, _NAME) is not None
