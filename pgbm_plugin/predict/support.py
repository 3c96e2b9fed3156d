"""Support: the outcomes that are possible, between bounds or on a lattice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Array

if TYPE_CHECKING:
    from ..distributions import Distribution

# A lattice has at most so many values.
MAX_VALUES = 200
# Squares of larger numbers could overflow.
_LARGEST = 1e70


@dataclass(frozen=True, eq=False)
class Support:
    """Possible outcomes. Distributions are clipped to the bounds, or snapped to the values.

    Attributes
    ----------
    lower, upper : float
        Bounds of the outcomes; infinite for none.
    values : (K,) float array or None
        All possible outcomes, rising; None if any number between the bounds is possible.
    """

    lower: float = -math.inf
    upper: float = math.inf
    values: Array | None = None

    def __post_init__(self) -> None:
        if not (self.lower < self.upper and self.lower < math.inf and self.upper > -math.inf):
            raise ValueError(f"lower must be less than upper, and both numbers, not {self.lower!r} and {self.upper!r}")
        if any(_LARGEST < abs(bound) < math.inf for bound in (self.lower, self.upper)):
            raise ValueError(f"a bound lies beyond {_LARGEST:g}: leave it out")
        values = self.values
        if values is not None and not (
            2 <= len(values) <= MAX_VALUES and np.all(np.abs(values) <= _LARGEST) and np.all(np.diff(values) > 0.0)
        ):
            raise ValueError(f"a lattice has 2 to {MAX_VALUES} finite values that rise strictly")

    def check_labels(self, name: str, y: Array) -> None:
        """Refuse labels beyond the bounds."""
        for bound, beyond, word in ((self.lower, y < self.lower, "below"), (self.upper, y > self.upper, "above")):
            if beyond.any():
                first = int(np.argmax(beyond))
                raise ValueError(
                    f"{int(beyond.sum())} of {len(y)} labels are {word} the bound {bound:g} (first: {name}[{first}] = "
                    f"{y[first]:g}): leave the bound out, or give one that holds"
                )

    def within(self, other: Support | None) -> Support:
        """Return the support with the bounds of another one as well."""
        if other is None:
            return self
        return Support(max(self.lower, other.lower), min(self.upper, other.upper), self.values)

    def limit(self, distribution: Distribution) -> Distribution:
        """Return distributions on this support. Those made of residuals have bounds of their own already."""
        from ..distributions import Clipped, Empirical, Snapped

        if self.values is not None:
            return Snapped(distribution, self.values)
        if isinstance(distribution, Empirical) or (math.isinf(self.lower) and math.isinf(self.upper)):
            return distribution
        return Clipped(distribution, self.lower, self.upper)

    def __str__(self) -> str:
        if self.values is not None:
            return f"on {len(self.values)} values from {self.values[0]:g} to {self.values[-1]:g}"
        if math.isinf(self.upper):
            return f"at least {self.lower:g}"
        return f"at most {self.upper:g}" if math.isinf(self.lower) else f"from {self.lower:g} to {self.upper:g}"


def named_bounds(lower: Any, upper: Any, default: Support | None = None) -> Support | None:
    """Return the bounds that a user gave, checked, with those of `default` in place of None; None if there are none."""
    bounds, other = [], default or Support()
    for name, value, default_bound in (("lower", lower, other.lower), ("upper", upper, other.upper)):
        try:
            bounds.append(default_bound if value is None else float(value))
        except (TypeError, ValueError, OverflowError):
            raise TypeError(f"{name} must be a number, not {value!r:.60}") from None
        if math.isnan(bounds[-1]):
            raise ValueError(f"{name} must be a number, not NaN")
    support = Support(bounds[0], bounds[1])
    return support if any(map(math.isfinite, bounds)) else None
