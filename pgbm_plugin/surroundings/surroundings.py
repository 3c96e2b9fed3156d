"""Surroundings: the layers around a booster, which rows and outcomes of a wrapped model pass through."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import AnyArray, Array
from ..tables.in_memory import in_memory
from ..tables.labelled import RawRows
from ..tables.rows import Rows
from ..trees.forest import Features, Forest
from .layers import Step, Target
from .transform import Transform, find_transform

if TYPE_CHECKING:
    from ..distributions import Distribution


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Fitted steps and transforms of the outcome around a booster, the outermost first; none for a booster alone.

    Attributes
    ----------
    layers : tuple of Step or Target
        What rows and outcomes pass through.
    transform : Transform or None
        The transforms of the outcome as one monotone function; None if there are none.
    lost : str
        In words, the layers that a file did not keep; "" if none are lost.
    """

    layers: tuple[Step | Target, ...] = ()
    transform: Transform | None = None
    lost: str = ""

    def __bool__(self) -> bool:
        return bool(self.layers)

    @property
    def described(self) -> str:
        """Return the layers in words; "" if there are none."""
        steps = self.described_steps
        targets = ", ".join(map(str, self._targets))
        parts = [f"rows pass through {steps}"] * bool(steps) + [f"the outcome through {targets}"] * bool(targets)
        return " and ".join(parts) or self.lost

    @property
    def described_steps(self) -> str:
        """Return the steps that rows pass through in words; "" if there are none."""
        return ", ".join(str(step) for step in self._steps)

    @property
    def _steps(self) -> list[Step]:
        return [layer for layer in self.layers if isinstance(layer, Step)]

    @property
    def _targets(self) -> list[Target]:
        return [layer for layer in self.layers if isinstance(layer, Target)]

    def around(self, forest: Forest) -> Surroundings:
        """Return the surroundings of these trees; refuse a transform of the outcome that is not monotone there."""
        targets = tuple(self._targets)
        return self if not targets else replace(self, transform=find_transform(targets, forest))

    def columns(self, features: Features) -> Features:
        """Return the columns of the tables that users have, which the first step takes."""
        if not self._steps:
            return features
        first = self._steps[0].transformer
        names, count = getattr(first, "feature_names_in_", None), getattr(first, "n_features_in_", features.count)
        stored = None if names is None else tuple(map(str, names))
        free: dict[str, Any] = {"categories": (), "category_columns": None, "code_columns": (), "renamed": ()}
        return replace(features, count=int(count), names=stored, **free)

    def table(self, X: Any) -> Any:
        """Return a table as the booster was trained on it; rows that a model has read already are returned as is."""
        steps = self._steps
        if not steps or isinstance(X, Rows):
            return X
        X = as_given_to_steps(X)
        for step in steps:
            X = step.table(X)
        return X

    def labels(self, y: Any) -> Any:
        """Return outcomes as the booster was trained on them; refuse those that the transform does not keep apart."""
        return y if self.transform is None or y is None else self.transform.labels(y)

    def rows(self, raw: RawRows) -> RawRows:
        """Return labelled rows as the booster was trained on them."""
        if self.transform is not None and raw.y is None:
            raise TypeError("a transformed target needs y=, the outcomes as they are before the transform")
        return replace(raw, X=self.table(raw.X), y=self.labels(in_memory(raw.y)))

    def forward(self, y: Array) -> Array:
        """Return (n,) finite outcomes on the scale of the booster, not checked; NaN for NaN."""
        return y if self.transform is None else self.transform.forward(y)

    def outcome(self, prediction: AnyArray) -> AnyArray:
        """Return (n,) predictions of the booster on the scale of the outcome, with scikit-learn's own bits."""
        for target in reversed(self._targets):
            prediction = target.inverse(prediction)
        return prediction

    def distribution(self, inner: Distribution) -> Distribution:
        """Return distributions of the booster's outcome on the scale of the outcome."""
        if self.transform is None:
            return inner
        from ..distributions.mapped import Mapped

        return Mapped(inner, self.transform)

    def refitted(self, X: Any, y: Any) -> tuple[Surroundings, Any, Any]:
        """Return copies of all layers that are fitted to these rows alone, and the rows and outcomes as they are left.

        A step before a transform of the outcome is fitted with the outcomes as they are, one after it with them
        transformed, as in scikit-learn.
        """
        fitted: list[Step | Target] = []
        for layer in self.layers:
            if isinstance(layer, Target):
                target, y = layer.refitted(np.asarray(y))
                fitted.append(target)
            else:
                step, X = layer.refitted(X, y)
                fitted.append(step)
        return Surroundings(tuple(fitted)), X, y


ALONE = Surroundings()
"""The surroundings of a booster that has none."""


def as_given_to_steps(X: Any) -> Any:
    """Return a table in memory, PyArrow's as pandas; refuse a booster's own data set, which steps cannot take."""
    X = in_memory(X)
    if type(X).__module__.partition(".")[0] == "pyarrow" and hasattr(X, "to_pandas"):
        return X.to_pandas()
    if hasattr(X, "get_label"):
        raise TypeError(
            f"a {type(X).__name__} cannot pass through the steps of a pipeline: give the table that the pipeline takes"
        )
    return X
