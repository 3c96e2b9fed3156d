"""XGBoost, as the record that the package knows it by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import warn
from ..booster import Booster, Reading, check_fitted, class_names
from .dataset import read_dataset, training_columns
from .flat_trees import best_iteration
from .model import is_model_bytes, load, load_live, read, read_live
from .objectives import OBJECTIVES
from .recorder import XGBoostRecorder
from .refit import refit
from .scoring import XGBoostScoring

# The class of fitted models of xgboost.spark, which predict as an XGBRegressor does: up to the best iteration.
_SPARK_MODEL = "xgboost._SparkXGBModel"


def _live_model(estimator: Any) -> Any:
    if _SPARK_MODEL not in class_names(estimator):
        check_fitted(estimator, "n_features_in_")
    return estimator.get_booster()


def _read_estimator(estimator: Any) -> Reading:
    model = _live_model(estimator)
    of_spark = _SPARK_MODEL in class_names(estimator)
    missing = estimator.getOrDefault("missing") if of_spark else estimator.missing
    return read_live(model, as_estimator=True, missing=float("nan") if missing is None else missing)


def _read_file(raw: bytes) -> Reading:
    return _with_all_trees(load(raw), None)


def _read_model(model: Any) -> Reading:
    return _with_all_trees(*load_live(model))


def _with_all_trees(document: Mapping[str, Any], config: Mapping[str, Any] | None) -> Reading:
    """Read all trees, as xgb.Booster predicts with them; warn where an estimator would stop at the best iteration."""
    forest, spec = read(document, config=config)
    best, rounds = best_iteration(document["learner"]), int(spec.iteration[-1]) + 1
    if best is not None and best + 1 < rounds:
        warn(
            f"the model stopped early, at iteration {best + 1} of {rounds}. A file or an xgb.Booster is read as "
            f"xgb.Booster predicts, with all trees. An XGBRegressor or a model of xgboost.spark stops at the best: "
            f"wrap that, or booster[:{best + 1}]",
        )
    return forest, spec


def _read_attribute(model: Any, name: str) -> str | None:
    if not isinstance(model, bytes):
        text: str | None = model.attr(name)
        return text
    attributes = load(model)["learner"].get("attributes")
    stored = attributes.get(name) if isinstance(attributes, dict) else None
    return stored if isinstance(stored, str) else None


def _default_estimator() -> Any:
    from xgboost import XGBRegressor

    return XGBRegressor()


XGBOOST = Booster(
    name="XGBoost",
    models=("xgboost.Booster",),
    estimators=("xgboost.XGBModel", _SPARK_MODEL),
    datasets=("xgboost.DMatrix",),
    accepts="xgboost.Booster, XGBRegressor",
    file_format="an XGBoost JSON or UBJSON model",
    objectives=OBJECTIVES,
    is_file=is_model_bytes,
    read_file=_read_file,
    read_model=_read_model,
    read_estimator=_read_estimator,
    live_model=_live_model,
    read_dataset=read_dataset,
    training_columns=training_columns,
    init_score="base_margin",
    default_estimator=_default_estimator,
    refit=refit,
    recorder=XGBoostRecorder,
    records_data=True,
    scoring=XGBoostScoring,
    read_attribute=_read_attribute,
    write_attribute=lambda model, name, text: model.set_attr(**{name: text}),
)
