"""peel(): the booster inside what people keep around one, and the layers that were taken off."""

from __future__ import annotations

from typing import Any

from ..boosters import booster_of_model, cannot_wrap
from ..boosters.booster import class_names
from .layers import Step, Target
from .surroundings import Surroundings


def peel(model: Any) -> tuple[Any, Surroundings]:
    """Return the booster or estimator inside pipelines, searches and transforms of the target, and these.

    Anything else is returned as it is. Classes are recognised by name, so that scikit-learn is not imported to ask.
    """
    layers: list[Step | Target] = []
    inside, outer = "", model
    while True:
        names, kind = class_names(model), type(model).__name__
        if "sklearn.Pipeline" in names:
            *steps, (last, final) = model.steps
            layers += [_step(name, step) for name, step in steps if step not in (None, "passthrough")]
            inside, model = f"the last step {last!r} of the {kind}", final
        elif "sklearn.TransformedTargetRegressor" in names:
            regressor = _fitted(model, "regressor_", "call fit first")
            layers.append(Target(model.transformer_))
            inside, model = f"the regressor of the {kind}", regressor
        elif "sklearn.BaseSearchCV" in names:
            inside, model = (
                f"the best_estimator_ of the {kind}",
                _fitted(model, "best_estimator_", "fit with refit=True"),
            )
        elif "sklearn.FrozenEstimator" in names:
            inside, model = f"the estimator of the {kind}", model.estimator
        else:
            break
    if model is not outer and booster_of_model(model) is None:
        raise TypeError(f"{inside} is not a booster: {cannot_wrap(model)}")
    return model, Surroundings(tuple(layers))


def _fitted(model: Any, attribute: str, way_out: str) -> Any:
    """Return an attribute that `fit` sets; refuse an estimator without it."""
    if attribute not in vars(model):
        raise ValueError(f"this {type(model).__name__} has no {attribute}: {way_out}")
    return getattr(model, attribute)


def _step(name: str, transformer: Any) -> Step:
    """Return a step of a pipeline; refuse one that only changes which rows there are."""
    step = Step(name, transformer)
    if hasattr(transformer, "fit_resample"):
        raise TypeError(
            f"the pipeline's step {step} changes the rows of training, so these are not the rows that you have: give "
            f"wrap the booster alone, with the rows and labels that the steps made, wrap(pipeline[-1], X_made, y_made)"
        )
    if not hasattr(transformer, "transform"):
        raise TypeError(f"the pipeline's step {step} has no transform, so rows cannot pass through it")
    return step
