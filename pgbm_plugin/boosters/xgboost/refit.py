"""The training of an XGBoost model, repeated on other rows."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from ...arrays import AnyArray, Array
from ...errors import UnsupportedModelError
from ...trees.objectives import Gradients
from ...trees.training_spec import TrainingSpec
from ..booster import OTHER_WAY, Train
from . import dropout
from .model import states_parameters

# Parameters that the configuration shows and that `xgb.train` does not take, or that XGBoost chose itself.
_NOT_GIVEN = {
    *("validate_parameters", "fail_on_invalid_gpu_id", "multi_strategy"),
    *("num_trees", "process_type", "updater", "updater_seq"),
}

_LOST = (
    "cv= trains again with the parameters of training, which XGBoost does not store in files: give the live model or "
    f"the XGBRegressor, before it was saved, or {OTHER_WAY}"
)


def refit(model: Any, spec: TrainingSpec) -> Train:
    """Return a function that trains on other rows with the parameters of a live model; refuse the bytes of a file."""
    if isinstance(model, bytes):
        raise UnsupportedModelError(_LOST)
    import xgboost as xgb

    stored = json.loads(model.save_config())["learner"]
    learner = dropout.in_newest_layout(stored)
    if not states_parameters(learner) or not (spec.sequential or dropout.is_configured(learner)):
        raise UnsupportedModelError(_LOST)
    params = dict(_parameters(learner))
    if stored["gradient_booster"]["name"] == "dart":  # before 3.3 only this booster drops trees
        params["booster"] = "dart"
    rate, own = float(params["eta"]) / int(params.get("num_parallel_tree", 1)), spec.alpha[~spec.constant]
    if spec.sequential and len(own) and not math.isclose(rate, own[0], rel_tol=1e-3):
        raise UnsupportedModelError(
            f"cv= trains again with the live configuration, which has the learning rate {rate:g}, but the trees have "
            f"{own[0]:g}: the parameters changed during or after training, and XGBoost keeps only the last ones: "
            f"{OTHER_WAY}"
        )
    kinds = ["c" if kind == "c" else "q" for kind in model.feature_types or ()]

    def train(
        X: Any, y: Array, weight: AnyArray | None, init_score: Array | None, gradients: Gradients | None
    ) -> xgb.Booster:
        data = xgb.DMatrix(
            X,
            y,
            weight=weight,
            base_margin=init_score,
            feature_types=kinds if "c" in kinds else None,
            enable_categorical=True,
        )
        own = None if gradients is None else lambda margin, _: gradients(margin, y)
        return xgb.train(params, data, int(spec.iteration[-1]) + 1, obj=own, verbose_eval=False)

    return train


def _parameters(learner: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the parameters of a configuration, with those of its objective."""
    booster = learner["gradient_booster"]
    groups = [learner["generic_param"], learner["learner_train_param"]]
    groups += [booster[name] for name in ("tree_train_param", "gbtree_train_param", "gbtree_model_param")]
    if dropout.is_configured(learner):
        groups.append(booster["dart_train_param"])
    groups += [group for group in learner["objective"].values() if isinstance(group, Mapping)]
    for group in groups:
        yield from ((name, value) for name, value in group.items() if name not in _NOT_GIVEN)
    model = learner["learner_model_param"]
    if model.get("boost_from_average") == "0":  # the user gave it; otherwise it is the mean label of these rows
        yield "base_score", float(str(model["base_score"]).strip("[]"))
    if booster.get("specified_updater"):
        yield "updater", booster["gbtree_train_param"]["updater"]
