"""LightGBM, as the record that the package knows it by."""

from __future__ import annotations

from typing import Any

from ..booster import Booster, Reading, check_fitted
from .dataset import read_dataset, training_columns
from .model import RENAMED, is_model_text, read
from .objectives import OBJECTIVES
from .recorder import LightGBMRecorder
from .refit import refit
from .scoring import LightGBMScoring


def _live_model(estimator: Any) -> Any:
    check_fitted(estimator, "booster_")
    return estimator.booster_


def _read_model(model: Any) -> Reading:
    return read(model.model_to_string(), model.params)


def _default_estimator() -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(verbose=-1)


LIGHTGBM = Booster(
    name="LightGBM",
    models=("lightgbm.Booster",),
    estimators=("lightgbm.LGBMModel",),
    datasets=("lightgbm.Dataset",),
    accepts="lightgbm.Booster, LGBMRegressor",
    file_format="a LightGBM text model",
    objectives=OBJECTIVES,
    is_file=is_model_text,
    read_file=lambda raw: read(raw.decode()),
    read_model=_read_model,
    live_model=_live_model,
    read_dataset=read_dataset,
    training_columns=training_columns,
    held_data=lambda model: getattr(model, "train_set", None),
    renamed=RENAMED,
    checks_names=False,
    default_estimator=_default_estimator,
    refit=refit,
    recorder=lambda data, follow: LightGBMRecorder(follow),
    scoring=LightGBMScoring,
)
