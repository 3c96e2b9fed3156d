"""Layers around a booster: a fitted step that tables pass through, or a transform of the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import AnyArray
from ..tables.in_memory import in_memory
from ..tables.rows import table_length


@dataclass(frozen=True, eq=False)
class Step:
    """A fitted transformer of tables, under its name in the pipeline."""

    name: str
    transformer: Any

    def table(self, X: Any) -> Any:
        """Return a table as the step leaves it."""
        return self._checked(X, lambda: self.transformer.transform(X))

    def refitted(self, X: Any, y: Any) -> tuple[Step, Any]:
        """Return a copy that is fitted to these rows alone, and the rows as it leaves them in training."""
        from sklearn.base import clone

        step = Step(self.name, clone(self.transformer))
        if hasattr(step.transformer, "fit_transform"):
            return step, step._checked(X, lambda: step.transformer.fit_transform(X, y))
        return step, step._checked(X, lambda: step.transformer.fit(X, y).transform(X))

    def __str__(self) -> str:
        return f"{self.name!r} ({type(self.transformer).__name__})"

    def _checked(self, X: Any, transform: Any) -> Any:
        """Return the result of a transformation of X; name the step if it fails, or changes the number of rows."""
        try:
            out = in_memory(transform())
        except Exception as error:
            raise ValueError(
                f"the pipeline's step {self} cannot transform X ({error}): give the columns that the pipeline was "
                f"fitted with"
            ) from error
        before, after = table_length(X), table_length(out)
        if before not in (-1, after):
            raise ValueError(
                f"the pipeline's step {self} makes {after} rows of {before}, so they no longer belong to their labels: "
                f"give wrap the booster alone, and the rows and labels as the steps leave them"
            )
        return out


@dataclass(frozen=True, eq=False)
class Target:
    """A fitted transformer of the outcome, as of a TransformedTargetRegressor."""

    transformer: Any

    def forward(self, y: AnyArray) -> AnyArray:
        """Return (n,) outcomes as the regressor inside is trained on them."""
        return _flat(self.transformer.transform(y.reshape(-1, 1)), y)

    def inverse(self, z: AnyArray) -> AnyArray:
        """Return (n,) predictions of the regressor inside on the scale of the outcome."""
        return _flat(self.transformer.inverse_transform(z.reshape(-1, 1)), z)

    def refitted(self, y: AnyArray) -> tuple[Target, AnyArray]:
        """Return a copy that is fitted to these outcomes alone, and the outcomes as it transforms them."""
        from sklearn.base import clone

        target = Target(clone(self.transformer).fit(y.reshape(-1, 1)))
        return target, target.forward(y)

    def __str__(self) -> str:
        func = getattr(self.transformer, "func", None)
        name = getattr(func, "__name__", None) or type(func).__name__
        return type(self.transformer).__name__ if func is None else name


def _flat(transformed: Any, given: AnyArray) -> AnyArray:
    values = np.asarray(transformed)
    if values.size != given.size:
        raise ValueError(f"the transform of the target makes {values.size} values of {given.size}: it must keep them")
    return values.reshape(-1)
