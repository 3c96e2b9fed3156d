"""The boosters that can be wrapped, each one folder and one `Booster` record; everyone else asks here."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import check_model_file
from ..errors import UnsupportedModelError, naming
from ..tables.frames import with_names_of
from ..tables.labelled import RawRows
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec
from .booster import OTHER_WAY, Booster, Reading, Train, class_names
from .catboost import CATBOOST
from .histgradient import HISTGRADIENT
from .lightgbm import LIGHTGBM
from .xgboost import XGBOOST

BOOSTERS: list[Booster] = [LIGHTGBM, XGBOOST, CATBOOST, HISTGRADIENT]

# Where fitted estimators keep another estimator, and what must be done to wrap that one.
_INNER = {
    "model_": "its .model_ is wrapped already",
    "boosters": "if its .boosters[i] is one, give that, with the rows of its fold",
    "best_estimator_": "if its .best_estimator_ is one, give that",
    "stages": "if its .stages[-1] is one, give that, with the frame that the stages before it make",
}

_NO_DATA = (
    "wrap(booster) found neither moments nor training data: give the data, wrap(booster, X, y), or train LightGBM with "
    "callbacks=[record()] and XGBoost with callbacks=[record(dtrain)]. LightGBM can also keep it: lgb.train(..., "
    "keep_training_booster=True) with lgb.Dataset(..., free_raw_data=False)"
)


def register(booster: Booster) -> None:
    """Make a booster known to the package."""
    BOOSTERS.append(booster)


def booster_named(name: str) -> Booster:
    """Return the booster of this name; ValueError if there is none."""
    for booster in BOOSTERS:
        if booster.name == name:
            return booster
    raise ValueError(f"is {name!r:.60}, not one of {', '.join(booster.name for booster in BOOSTERS)}")


def booster_of_file(head: bytes) -> Booster | None:
    """Return the booster whose model files begin with `head`; None if there is none. The last added is asked first."""
    return next((booster for booster in reversed(BOOSTERS) if booster.is_file(head)), None)


def booster_of_dataset(data: Any) -> Booster | None:
    """Return the booster whose own data set this is; None if it is no data set."""
    names = class_names(data)
    return next((booster for booster in BOOSTERS if names.intersection(booster.datasets)), None)


def booster_of_estimator(estimator: Any) -> Booster | None:
    """Return the booster of a scikit-learn estimator; None if it is another's."""
    names = class_names(estimator)
    return next((booster for booster in BOOSTERS if names.intersection(booster.estimators)), None)


def booster_of_model(model: Any) -> Booster | None:
    """Return the booster of a live model or of an estimator around one; None if it is another's."""
    names = class_names(model)
    return next((booster for booster in BOOSTERS if names.intersection(booster.models + booster.estimators)), None)


def read_model(model: Any) -> Reading:
    """Read a live model, a scikit-learn estimator, or a model file of any booster."""
    if isinstance(model, str) and "\n" in model:
        raise ValueError("this is the text of a model, not a path; save the model and give its path")
    if isinstance(model, (str, os.PathLike)):
        return _read_file(Path(model))
    model = _unpacked(model)
    booster = booster_of_model(model)
    if booster is None:
        raise TypeError(cannot_wrap(model))
    if booster.read_estimator is not None and booster_of_estimator(model) is booster:
        return with_precision(booster.read_estimator(model))
    return with_precision(booster.read_model(live_model(model)))


def cannot_wrap(model: Any) -> str:
    """Return why this object cannot be wrapped, and what can."""
    kind = type(model).__name__
    accepted = ", ".join(booster.accepts for booster in BOOSTERS)
    way_out = f"give a {accepted} or the path of a saved model"
    # some objects, such as lightgbm.CVBooster, claim to have any attribute
    inner = next((f"; {hint}" for name, hint in _INNER.items() if name in getattr(model, "__dict__", ())), "")
    return f"cannot wrap a {kind}; {way_out}{inner}"


def with_precision(reading: Reading) -> Reading:
    """Return what was read of a model, with the precisions in which its booster holds labels and gradients."""
    forest, spec = reading
    booster = booster_named(forest.booster)
    return forest, replace(spec, label_dtype=booster.label_dtype, gradient_dtype=booster.gradient_dtype)


def live_model(model: Any) -> Any:
    """Return the live model inside an estimator; a live model or anything else as it is."""
    model = _unpacked(model)
    booster = booster_of_estimator(model)
    return model if booster is None or booster.live_model is None else booster.live_model(model)


def _unpacked(model: Any) -> Any:
    """Return the model in what xgboost.dask.train returns, a dict; anything else as it is."""
    return model["booster"] if isinstance(model, dict) and "booster" in model else model


def read_dataset(data: Any) -> RawRows | None:
    """Return the rows and columns of a booster's own data set; None if `data` is no such set."""
    if type(data) is np.ndarray:  # the short way for single rows
        return None
    booster = booster_of_dataset(data)
    return None if booster is None or booster.read_dataset is None else booster.read_dataset(data)


def completed(raw: RawRows) -> RawRows:
    """Return rows as given; if they are a booster's own data set, with the columns that it brings."""
    own = read_dataset(raw.X)
    return raw if own is None else RawRows(own.X, raw.y, raw.sample_weight, raw.init_score).completed_by(own)


def with_names_of_training(forest: Forest, X: Any) -> Forest:
    """Return the forest under the column names of a frame, if its booster was told others beside the frame.

    LightGBM lets users name the features of a frame anew (feature_name=), and predicts by position.
    """
    if booster_named(forest.booster).checks_names:
        return forest
    return forest.with_features(with_names_of(X, forest.features))


def held_data(model: Any) -> RawRows:
    """Return the training data that a live model still holds; TypeError if it holds none."""
    booster = booster_of_model(model)
    data = None if booster is None or booster.held_data is None else booster.held_data(live_model(model))
    rows = None if data is None else read_dataset(data)
    if rows is None:
        raise TypeError(_NO_DATA)
    return rows


def training_rows(model: Any, n: int) -> NDArray[np.int64] | None:
    """Return which of n rows, those given to training, the trees were grown on; None for all, or if it is not known."""
    booster = booster_of_model(model)
    if booster is None or booster.training_rows is None:
        return None
    return booster.training_rows(live_model(model), n)


def refit(model: Any, spec: TrainingSpec) -> Train:
    """Return a function that repeats the training of a live model, an estimator or a model file on other rows."""
    if isinstance(model, (str, os.PathLike)):
        model = Path(model).read_bytes()
        booster = booster_of_file(model[:16])
    else:
        model = live_model(model)
        booster = booster_of_model(model)
    if booster is None or booster.refit is None:
        name = "this booster" if booster is None else booster.name
        raise UnsupportedModelError(f"cv= trains again on folds, which is not supported for {name}: {OTHER_WAY}")
    return booster.refit(model, spec)


def read_attribute(model: Any, name: str) -> str | None:
    """Return a string that someone has stored in a live model or a model file; None if there is none."""
    if isinstance(model, (str, os.PathLike)):
        raw = Path(model).read_bytes()
        booster = booster_of_file(raw[:16])
        return None if booster is None or booster.read_attribute is None else booster.read_attribute(raw, name)
    booster = booster_of_model(model)
    if booster is None or booster.read_attribute is None:
        return None
    return booster.read_attribute(live_model(model), name)


def write_attribute(model: Any, name: str, text: str) -> None:
    """Store a string in a live model, whose booster must keep it when it saves the model."""
    attribute_booster(model).write_attribute(live_model(model), name, text)  # type: ignore[misc]


def attribute_booster(model: Any) -> Booster:
    """Return the booster of a live model, which must store attributes; refuse others by name."""
    booster = booster_of_model(model)
    if booster is not None and booster.write_attribute is not None:
        live_model(model)
        return booster
    if booster is not None:
        raise UnsupportedModelError(
            f"{booster.name} drops what it does not know when it saves a model: keep the moments with model.save(path)"
        )
    able = " or ".join(booster.accepts.replace(", ", " or ") for booster in BOOSTERS if booster.write_attribute)
    raise TypeError(f"moments can be embedded in an {able}, not in a {type(model).__name__}")


def _read_file(path: Path) -> Reading:
    raw = check_model_file(path).read_bytes()
    booster = booster_of_file(raw[:16])
    if booster is None:
        formats = " nor ".join(booster.file_format for booster in BOOSTERS if booster.file_format)
        raise ValueError(
            f"{str(path)!r} is neither {formats}; save the model with its booster's save_model, XGBoost's as .json or "
            f".ubj (its binary format, .model or .bin, only XGBoost before 3.1 reads: load it there and save it anew)"
        )
    with naming(repr(str(path))):
        return with_precision(booster.read_file(raw))
