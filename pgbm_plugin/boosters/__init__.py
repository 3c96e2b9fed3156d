"""Boosters -> Forest and TrainingSpec, and boosters' data sets -> rows. One module per booster reads its format."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UnsupportedModelError, warn
from ..saving.container import is_container
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec
from .lightgbm import model as lightgbm
from .xgboost import model as xgboost
from .xgboost.flat_trees import best_iteration

# Where estimators that hold another keep it when they are fitted.
_AROUND = {"best_estimator_": ".best_estimator_", "regressor_": ".regressor_", "steps": "[-1]"}


@dataclass(frozen=True)
class TrainingData:
    """Labelled rows as found in a booster's own data set; None where it has none."""

    X: Any
    y: Any
    sample_weight: Any
    init_score: Any

    def replaced_by(self, y: Any, sample_weight: Any, init_score: Any) -> TrainingData:
        """The same rows with those columns that were given besides, which are not None."""
        return TrainingData(
            self.X,
            self.y if y is None else y,
            self.sample_weight if sample_weight is None else sample_weight,
            self.init_score if init_score is None else init_score,
        )


def read_model(model: Any) -> tuple[Forest, TrainingSpec]:
    """Read a live model, a scikit-learn estimator, or a file of either booster."""
    if isinstance(model, str) and "\n" in model:
        raise ValueError("this is the text of a model, not a path; save the model and give its path")
    if isinstance(model, (str, os.PathLike)):
        return _read_file(Path(model))
    if isinstance(model, dict) and "booster" in model:  # what xgboost.dask.train returns
        return read_model(model["booster"])
    kinds = _kinds(model)
    if "lightgbm.Booster" in kinds:
        return lightgbm.read(model.model_to_string(), model.params)
    if "lightgbm.LGBMModel" in kinds:
        _check_fitted(model, "booster_")
        return read_model(model.booster_)
    if "xgboost.Booster" in kinds:
        return _read_xgboost(model)
    if "xgboost.XGBModel" in kinds:
        _check_fitted(model, "n_features_in_")
        missing = float("nan") if model.missing is None else model.missing
        return _read_xgboost(model.get_booster(), use_best_iteration=True, missing=missing)
    inner = next((f"; if its {path} is one, give that" for name, path in _AROUND.items() if hasattr(model, name)), "")
    raise TypeError(
        f"cannot wrap a {type(model).__name__}; give a lightgbm.Booster, LGBMRegressor, xgboost.Booster, XGBRegressor "
        f"or the path of a saved model{inner}"
    )


def read_attribute(model: Any, name: str) -> str | None:
    """A string that someone has stored in an XGBoost model, live or in a file; None without one, and in LightGBM's."""
    if isinstance(model, (str, os.PathLike)):
        raw = Path(model).read_bytes()
        if not xgboost.is_model_bytes(raw[:16]):
            return None
        attributes = xgboost.load(raw)["learner"].get("attributes")
        found = attributes.get(name) if isinstance(attributes, dict) else None
        return found if isinstance(found, str) else None
    booster = _xgboost_booster(model)
    return None if booster is None else booster.attr(name)


def holder_of_attributes(model: Any) -> Any:
    """The live xgb.Booster in which strings can be stored."""
    booster = _xgboost_booster(model)
    if booster is not None:
        return booster
    if _kinds(model) & {"lightgbm.Booster", "lightgbm.LGBMModel"}:
        raise UnsupportedModelError(
            "LightGBM drops what it does not know when it saves a model: keep the moments with model.save(path)"
        )
    raise TypeError(f"moments can be embedded in an xgboost.Booster or XGBRegressor, not in a {type(model).__name__}")


def _xgboost_booster(model: Any) -> Any:
    kinds = _kinds(model)
    if "xgboost.XGBModel" in kinds:
        _check_fitted(model, "n_features_in_")
        return model.get_booster()
    return model if "xgboost.Booster" in kinds else None


def read_dataset(data: Any) -> TrainingData | None:
    """Rows and labels of an lgb.Dataset or xgb.DMatrix; None if `data` is neither."""
    if isinstance(data, np.ndarray):
        return None
    kinds = _kinds(data)
    if "lightgbm.Dataset" in kinds:
        return _read_lightgbm_dataset(data)
    if "xgboost.DMatrix" in kinds:
        return _read_dmatrix(data)
    return None


def held_data(model: Any) -> TrainingData:
    """The training data that a live model still holds."""
    booster = getattr(model, "_Booster", model) if "lightgbm.LGBMModel" in _kinds(model) else model
    train_set = getattr(booster, "train_set", None)
    if train_set is None:
        raise TypeError(
            "wrap(booster) found neither moments nor training data: give the data, wrap(booster, X, y), or train with "
            "callbacks=[record()] (XGBoost: record(dtrain)). LightGBM can also keep it: lgb.train(..., "
            "keep_training_booster=True) with lgb.Dataset(..., free_raw_data=False)"
        )
    return _read_lightgbm_dataset(train_set)


def _kinds(thing: Any) -> set[str]:
    """Package and name of an object's classes, e.g. "lightgbm.Booster": tells boosters without importing them."""
    return {f"{cls.__module__.partition('.')[0]}.{cls.__name__}" for cls in type(thing).__mro__}


def _check_fitted(estimator: Any, attribute: str) -> None:
    # LightGBM raises its own error, scikit-learn's, or AttributeError, as the installed version has it
    try:
        getattr(estimator, attribute)
    except Exception as error:
        raise ValueError(f"this {type(estimator).__name__} is not fitted; call fit first") from error


def _read_file(path: Path) -> tuple[Forest, TrainingSpec]:
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a directory; give the path of a model file")
    if not path.is_file():
        raise FileNotFoundError(f"no model file at {str(path)!r}")
    raw = path.read_bytes()
    if is_container(raw[:64]):
        raise ValueError(f"{str(path)!r} is a whole ProbabilisticModel: pgbm_plugin.load(path) gives it back")
    try:
        if lightgbm.is_model_text(raw[:16]):
            return lightgbm.read(raw.decode())
        if xgboost.is_model_bytes(raw[:16]):
            return _read_xgboost_file(raw)
    except UnsupportedModelError:
        raise
    except ValueError as error:
        raise ValueError(f"{str(path)!r}: {error}") from error
    raise ValueError(
        f"{str(path)!r} is neither a LightGBM text model nor an XGBoost JSON or UBJSON model; save the model with its "
        f"booster's save_model, XGBoost's as .json or .ubj (its binary format, .model or .bin, is for XGBoost before "
        f"3.1 to read: load it there and save it anew)"
    )


def _read_xgboost_file(raw: bytes) -> tuple[Forest, TrainingSpec]:
    """As xgb.Booster reads it: an estimator would stop at the best iteration."""
    document = xgboost.load(raw)
    forest, spec = xgboost.read(document)
    best, rounds = best_iteration(document["learner"]), int(spec.iteration[-1]) + 1
    if best is not None and best + 1 < rounds:
        warn(
            f"the model stopped early, at iteration {best + 1} of {rounds}. A file is read as xgb.Booster "
            f"reads it, with all trees; to stop at the best, load it into an XGBRegressor and wrap that",
        )
    return forest, spec


def _read_xgboost(
    booster: Any, *, use_best_iteration: bool = False, missing: float = float("nan")
) -> tuple[Forest, TrainingSpec]:
    try:
        raw, config = bytes(booster.save_raw("ubj")), json.loads(booster.save_config())
    except Exception as error:  # XGBoostError, which we would have to import
        raise ValueError(f"this {type(booster).__name__} cannot be saved; train it first") from error
    return xgboost.read(
        xgboost.load(raw),
        config=config,
        use_best_iteration=use_best_iteration,
        missing=missing,
    )


def _read_lightgbm_dataset(data: Any) -> TrainingData:
    way_out = "make it with lgb.Dataset(..., free_raw_data=False), or call wrap(booster, X, y)"
    if getattr(data, "_handle", None) is None and data.data is not None:  # new: it has what it was made of
        return TrainingData(data.data, data.label, data.weight, data.init_score)
    try:
        X = data.get_data()
    except Exception as error:  # LightGBMError, which we would have to import
        raise TypeError(f"the lgb.Dataset has freed its rows: {way_out}") from error
    if X is None or isinstance(X, (str, os.PathLike, list)):
        raise TypeError(f"the lgb.Dataset has no rows in memory as one table: {way_out}")
    # continued training puts the first model's predictions there, which are those of trees that the model has
    own = getattr(data, "_predictor", None) is None
    return TrainingData(X, data.get_label(), data.get_weight(), data.get_init_score() if own else None)


def _read_dmatrix(data: Any) -> TrainingData:
    try:
        X = data.get_data()
    except Exception as error:  # XGBoostError, which we would have to import
        raise TypeError(f"the {type(data).__name__} does not give back its rows; call wrap(booster, X, y)") from error
    fields = (data.get_label(), data.get_weight(), data.get_base_margin())
    return TrainingData(X, *(field if field.size else None for field in fields))
