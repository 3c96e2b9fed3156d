"""CatBoost, as the record that the package knows it by."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..booster import Booster, Reading
from .category_hash import category_hashes
from .dataset import read_dataset
from .document import is_model_bytes, load, load_live
from .held_back import training_rows
from .model import read
from .objectives import OBJECTIVES
from .refit import refit
from .scoring import CatBoostScoring


def _read_file(raw: bytes) -> Reading:
    return read(load(raw))


def _read_model(model: Any) -> Reading:
    return read(load_live(model))


def _default_estimator() -> Any:
    from catboost import CatBoostRegressor

    return CatBoostRegressor(verbose=False, allow_writing_files=False)


CATBOOST = Booster(
    name="CatBoost",
    models=("catboost.CatBoost",),
    estimators=("catboost.CatBoostRegressor",),
    datasets=("catboost.Pool",),
    accepts="catboost.CatBoost, CatBoostRegressor",
    file_format="a CatBoost .cbm or JSON model",
    objectives=OBJECTIVES,
    is_file=is_model_bytes,
    read_file=_read_file,
    read_model=_read_model,
    read_dataset=read_dataset,
    training_rows=training_rows,
    gradient_dtype=np.dtype(np.float64),
    category_hash=category_hashes,
    base_last=True,
    init_score_dtype=np.dtype(np.float32),
    init_score="baseline",
    default_estimator=_default_estimator,
    refit=refit,
    scoring=CatBoostScoring,
)
