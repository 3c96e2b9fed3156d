"""HistGradientBoostingRegressor of scikit-learn, as the record that the package knows it by."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..booster import Booster, Reading
from .held_back import training_rows
from .model import read
from .objectives import OBJECTIVES
from .refit import refit


def _read_file(raw: bytes) -> Reading:
    raise ValueError("scikit-learn has no format of model files; give the fitted estimator")


def _default_estimator() -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor()


HISTGRADIENT = Booster(
    name="HistGradientBoosting",
    models=(),
    estimators=("sklearn.BaseHistGradientBoosting",),  # with the classifier, to be refused by its loss
    accepts="HistGradientBoostingRegressor",
    file_format="",
    objectives=OBJECTIVES,
    is_file=lambda head: False,
    read_file=_read_file,
    read_model=read,
    training_rows=training_rows,
    label_dtype=np.dtype(np.float64),
    numbers_are_values=True,
    exp=np.exp,
    default_estimator=_default_estimator,
    refit=refit,
)
