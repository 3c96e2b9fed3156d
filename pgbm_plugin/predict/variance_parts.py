"""VarianceParts: how much of each row's variance comes from each feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..arrays import AnyArray, Array


@dataclass(frozen=True, eq=False)
class VarianceParts:
    """The parts of the features in the variance of each row, or in its standard deviation.

    NumPy reads it as the (n, features + 1) array `parts`, and so do ``[...]``, ``len``, `shape` and `sum`.

    Attributes
    ----------
    parts : (n, features + 1) array
        A column for each feature, and last that of an average row. A row sums to its variance, or standard deviation.
    names : tuple of str
        Names of the features.
    data : (n, features) array
        The rows, as numbers.
    unit : {"variance", "std"}
        What a row sums to.
    """

    parts: Array
    names: tuple[str, ...]
    data: AnyArray
    unit: Literal["variance", "std"] = "variance"

    @property
    def values(self) -> Array:
        """Return the (n, features) parts of the features alone."""
        return self.parts[:, :-1]

    @property
    def base(self) -> Array:
        """Return the (n,) variance or standard deviation of an average row, which is the same for all rows."""
        return self.parts[:, -1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return (n, features + 1)."""
        return self.parts.shape

    def std(self) -> VarianceParts:
        """Return the parts of the standard deviations: each row is scaled so that it sums to its own."""
        if self.unit == "std":
            return self
        parts, base = self.parts.copy(), np.sqrt(self.base)
        own = np.sqrt(np.maximum(parts.sum(axis=1), 0.0))
        scale = own + base
        parts[:, :-1] /= np.where(scale > 0.0, scale, 1.0)[:, None]
        parts[:, -1] = base
        return VarianceParts(parts, self.names, self.data, "std")

    def largest(self, row: int, count: int = 3) -> list[tuple[str, float]]:
        """Return the features with the largest parts in a row, of either sign: pairs of name and part."""
        values = self.values[row]
        order = np.argsort(-np.abs(values), kind="stable")[:count]
        return [(self.names[j], float(values[j])) for j in order]

    def to_shap(self) -> Any:
        """Return a ``shap.Explanation``, for the plots of the package shap."""
        from shap import Explanation

        return Explanation(self.values, self.base, self.data, feature_names=list(self.names))

    def sum(self, axis: int | None = None) -> Any:
        """Return sums of `parts`; those along axis 1 are the variances or standard deviations of the rows."""
        return self.parts.sum(axis=axis)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        return np.array(self.parts, dtype) if copy else np.asarray(self.parts, dtype)

    def __getitem__(self, index: Any) -> Any:
        return self.parts[index]

    def __len__(self) -> int:
        return len(self.parts)

    def __repr__(self) -> str:
        size = np.abs(self.values).mean(axis=0) if len(self) else np.zeros(len(self.names))
        order = np.argsort(-size, kind="stable")[:5]
        shown = ", ".join(f"{self.names[j]} {size[j]:.3g}" for j in order)
        what = "variance" if self.unit == "variance" else "standard deviation"
        return f"VarianceParts of {len(self)} rows; mean absolute part in the {what}: {shown}"
