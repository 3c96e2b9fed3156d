"""CatBoost, as the record that the package knows it by."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..booster import Booster, Reading
from .category_hash import category_hash
from .document import is_model_bytes, load, load_live
from .model import read
from .objectives import OBJECTIVES


def _read_file(raw: bytes) -> Reading:
    return read(load(raw))


def _read_model(model: Any) -> Reading:
    return read(load_live(model))


CATBOOST = Booster(
    name="CatBoost",
    models=("catboost.CatBoost",),
    accepts="catboost.CatBoost, CatBoostRegressor",
    file_format="a CatBoost .cbm or JSON model",
    objectives=OBJECTIVES,
    is_file=is_model_bytes,
    read_file=_read_file,
    read_model=_read_model,
    gradient_dtype=np.dtype(np.float64),
    category_hash=category_hash,
    base_last=True,
    init_score="baseline",
)
