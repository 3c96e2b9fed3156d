"""Distributions clipped to bounds: the mass beyond a bound lies on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import Array
from .base import Distribution

# Less mass than this beyond a bound changes nothing that could be seen.
_NO_MASS = 1e-10
# Levels u = p t^5 of the mass p beyond a bound, and their weights, with t from Gauss and Legendre. The power makes
# the quantiles of heavy tails smooth in t.
_T, _W = np.polynomial.legendre.leggauss(32)
_LEVELS, _WEIGHTS = (0.5 * (_T + 1.0)) ** 5, 2.5 * (0.5 * (_T + 1.0)) ** 4 * _W


class Derived(Distribution):
    """Base class of distributions of T(Z), where Z has the distribution of another family and T never falls."""

    tunable = False

    def __init__(self, inner: Distribution):
        self.name = inner.name  # type: ignore[misc]
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


class Clipped(Derived):
    """Distribution of another family whose outcomes beyond a bound become the bound itself.

    Quantiles, cdf and samples are exact. Mean, variance and CRPS (continuous ranked probability score) of the clipped
    distribution come from integrals over the tails, to about 1e-5 of the standard deviation; for counts, to about 1e-3.
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
        below, below_square = (self._below(params, lambda u, d, k=k: d**k) for k in (1, 2))
        above, above_square = (self._above(params, lambda u, d, k=k: d**k) for k in (1, 2))
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
        tails = self._below(params, lambda u, d: 2.0 * u * d) + self._above(params, lambda u, d: 2.0 * u * d)
        return np.abs(y - nearest) + np.maximum(self._inner._crps(nearest, **params) - tails, 0.0)

    def _below(self, params: dict[str, Array], integrand: Callable[[Array, Array], Array]) -> Array:
        """Integrate over the levels u below the lower bound, whose quantiles are `d` below it."""
        inner, lower = self._inner, self.lower
        return _tail(params, lower, inner._cdf, lambda u, p: integrand(u, np.maximum(lower - inner._ppf(u, **p), 0.0)))

    def _above(self, params: dict[str, Array], integrand: Callable[[Array, Array], Array]) -> Array:
        """Integrate over the levels u above the upper bound, whose upper quantiles are `d` above it."""
        inner, upper = self._inner, self.upper
        return _tail(params, upper, inner._sf, lambda u, p: integrand(u, np.maximum(inner._isf(u, **p) - upper, 0.0)))


def _tail(
    params: dict[str, Array],
    bound: float,
    mass: Callable[..., Array],
    integrand: Callable[[Array, dict[str, Array]], Array],
) -> Array:
    """Integrate over levels from 0 to the mass beyond a bound, in rows that have any."""
    shape = np.shape(next(iter(params.values())))
    total = np.zeros(shape)
    if np.isinf(bound):
        return total
    beyond = mass(np.float64(bound), **params)
    rows = beyond > _NO_MASS
    if rows.any():
        p = beyond[rows][:, None]
        chosen = {key: value[rows][:, None] for key, value in params.items()}
        total[rows] = (integrand(p * _LEVELS, chosen) * _WEIGHTS * p).sum(axis=1)
    return total
