"""Distributions clipped to bounds: the mass beyond a bound lies on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..arrays import Array
from .base import Distribution
from .discrete import Discrete
from .tweedie import Tweedie

# Less mass than this beyond a bound changes nothing that could be seen.
_NO_MASS = 1e-10
# Counts beyond a bound are summed if they are at most so many, and integrated if there are more.
_CELLS = 1000
# Levels u = p t^5 of the mass p beyond a bound, and their weights, with t from Gauss and Legendre. The power makes
# the quantiles of heavy tails smooth in t.
_T, _W = np.polynomial.legendre.leggauss(32)
_LEVELS, _WEIGHTS = (0.5 * (_T + 1.0)) ** 5, 2.5 * (0.5 * (_T + 1.0)) ** 4 * _W

Powers = tuple[tuple[int, int], ...]
"""Pairs (k, j), k and j 1 or 2: distances to the power k are integrated over levels to the power j."""


class Derived(Distribution):
    """Base class of distributions of T(Z), where Z has the distribution of another family and T never falls."""

    tunable = False
    has_mass = True

    def __init__(self, inner: Distribution):
        self.name, self._log_point_mass = inner.name, inner._log_point_mass  # type: ignore[misc]
        self._inner = inner[:0]  # for its formulas
        self._params, self._point = inner._params, inner._point
        if self._point is not None:
            self._point = self._outcome(self._point)

    def _outcome(self, z: Array) -> Array:
        """Return T(z)."""
        raise NotImplementedError

    @staticmethod
    def _parameters(*args: Any, **options: Any) -> dict[str, Array]:
        raise TypeError("it is made from another distribution, not from moments")

    def _ppf(self, q: Array, **params: Array) -> Array:
        return self._outcome(self._inner._ppf(q, **params))

    def _isf(self, q: Array, **params: Array) -> Array:
        return self._outcome(self._inner._isf(q, **params))

    def _rvs(self, rng: np.random.Generator, shape: tuple[int, ...], **params: Array) -> Array:
        return self._outcome(self._inner._rvs(rng, shape, **params))

    def _from_uniform(self, u: Array, **params: Array) -> Array:
        return self._outcome(self._inner._from_uniform(u, **params))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} distribution of {len(self)} rows>"


class Clipped(Derived):
    """Distribution of another family whose outcomes beyond a bound become the bound itself.

    Quantiles, cdf and samples are exact. Mean, variance and CRPS (continuous ranked probability score) of the clipped
    distribution come from integrals over the tails, to about 1e-5 of the standard deviation.
    The density at a bound is the mass that lies on it.

    Parameters
    ----------
    inner : Distribution
        Distributions to clip.
    lower, upper : float
        The bounds; infinite for none.
    """

    def __init__(self, inner: Distribution, lower: float = -np.inf, upper: float = np.inf):
        if not lower < upper:
            raise ValueError(f"the lower bound must be less than the upper one, not {lower:g} and {upper:g}")
        self.lower, self.upper = float(lower), float(upper)
        super().__init__(inner)

    def _outcome(self, z: Array) -> Array:
        return np.clip(z, self.lower, self.upper)

    def _moments(self, **params: Array) -> tuple[Array, Array]:
        mean, variance = self._inner._moments(**params)
        below, below_square = self._below(params, ((1, 1), (2, 1)))
        above, above_square = self._above(params, ((1, 1), (2, 1)))
        shift = below - above
        with np.errstate(invalid="ignore"):  # an infinite bound times 0
            low = np.where(below > 0.0, 2.0 * (self.lower - mean) * below - below_square, 0.0)
            high = np.where(above > 0.0, 2.0 * (self.upper - mean) * above + above_square, 0.0)
        return mean + shift, np.clip(variance + low - high - shift**2, 0.0, variance)

    def _logpdf(self, x: Array, **params: Array) -> Array:
        with np.errstate(divide="ignore"):
            inside = np.where((x > self.lower) & (x < self.upper), self._inner._logpdf(x, **params), -np.inf)
            if self.lower > -np.inf:
                on_lower = np.log(self._inner._cdf(np.float64(self.lower), **params))
                inside = np.where(x == self.lower, on_lower, inside)
            if self.upper < np.inf:
                below = np.nextafter(self.upper, -np.inf)  # for counts, whose mass at the bound is part of it
                inside = np.where(x == self.upper, np.log(self._inner._sf(below, **params)), inside)
        return inside

    def _cdf(self, x: Array, **params: Array) -> Array:
        return np.where(x < self.lower, 0.0, np.where(x >= self.upper, 1.0, self._inner._cdf(x, **params)))

    def _sf(self, x: Array, **params: Array) -> Array:
        return np.where(x < self.lower, 1.0, np.where(x >= self.upper, 0.0, self._inner._sf(x, **params)))

    def _crps(self, y: Array, **params: Array) -> Array:
        """Return the CRPS of the whole distribution, less the integrals of F^2 and (1 - F)^2 beyond the bounds."""
        nearest = self._outcome(y)
        tails = self._below(params, ((1, 2),))[0] + self._above(params, ((1, 2),))[0]
        return np.abs(y - nearest) + np.maximum(self._inner._crps(nearest, **params) - tails, 0.0)

    def _below(self, params: Mapping[str, Array], powers: Powers) -> list[Array]:
        """Return the integrals of (lower - z)^k over the levels^j of Z < lower, for each (k, j)."""
        inner, lower = self._inner, self.lower
        if np.isinf(lower):
            return [np.zeros(())] * len(powers)
        if isinstance(inner, Discrete) and lower <= _CELLS:
            counts = np.arange(0.0, np.ceil(lower))
            return _over_counts(lower - counts, [inner._cdf(k, **params) for k in counts], powers)
        mass = inner._cdf(np.nextafter(lower, -np.inf), **params)
        # the quantiles of a family with a mass at 0 leave it at this level
        zero = inner._cdf(np.zeros(()), **params) if isinstance(inner, Tweedie) and lower > 0.0 else np.zeros(())
        integrals = _over_levels(lambda u, p: lower - inner._ppf(u, **p), zero, mass, params, powers)
        return [lower**k * zero**j + rest for rest, (k, j) in zip(integrals, powers, strict=True)]

    def _above(self, params: Mapping[str, Array], powers: Powers) -> list[Array]:
        """Return the integrals of (z - upper)^k over the upper levels^j of Z > upper, for each (k, j)."""
        inner, upper = self._inner, self.upper
        if np.isinf(upper):
            return [np.zeros(())] * len(powers)
        if isinstance(inner, Discrete):
            last = np.nanmax(inner._isf(np.array(_NO_MASS), **params), initial=upper)
            if last - upper <= _CELLS:
                counts = np.arange(last + 1.0, np.floor(upper), -1.0)
                return _over_counts(counts - upper, [inner._sf(k - 1.0, **params) for k in counts], powers)
        mass = inner._sf(np.float64(upper), **params)
        return _over_levels(lambda u, p: inner._isf(u, **p) - upper, np.zeros(()), mass, params, powers)


def _over_counts(distance: Array, levels: list[Array], powers: Powers) -> list[Array]:
    """Integrate distance^k over level^j, where each distance reaches from the level before to its own."""
    totals = []
    for k, j in powers:
        total, below = np.zeros(()), np.zeros(())
        for far, level in zip(distance, levels, strict=True):
            total, below = total + far**k * (level**j - below), level**j
        totals.append(total)
    return totals


def _over_levels(
    distance: Callable[[Array, Mapping[str, Array]], Array],
    first: Array,
    last: Array,
    params: Mapping[str, Array],
    powers: Powers,
) -> list[Array]:
    """Integrate distance^k over level^j, for levels from `first` to `last`, in rows that have such; for each (k, j)."""
    first, last = np.broadcast_arrays(first, last)
    totals = [np.zeros(last.shape) for _ in powers]
    rows = last - first > _NO_MASS
    if rows.any():
        start, width = first[rows], (last - first)[rows]
        chosen = {key: value[rows] for key, value in params.items()}
        for node, weight in zip(_LEVELS, _WEIGHTS, strict=True):
            level = start + width * node
            far = np.maximum(distance(level, chosen), 0.0)
            for total, (k, j) in zip(totals, powers, strict=True):
                part = weight * width * (far if k == 1 else far * far)
                total[rows] += part if j == 1 else 2.0 * level * part
    return totals
