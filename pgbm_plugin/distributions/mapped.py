"""Distributions of a monotone function of an outcome, such as of a price whose logarithm was predicted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import Array
from .base import Distribution
from .clipped import Derived
from .empirical import Empirical

# Levels of an integral: from 1e-12 to 1/2 on either side, a power of ten at a time, in their logarithm.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_DECADES = [(10.0**-k, min(10.0 ** (1 - k), 0.5)) for k in range(12, 0, -1)]
# The most equally likely outcomes that stand for a sample of residuals.
_OUTCOMES = 1000
# Shares of the levels on either side of an outcome in its CRPS, dense at both ends, either of which may be a tail: from
# 0 to 1/2 they are t^5 / 2.
_T, _W = np.polynomial.legendre.leggauss(40)
_HALF, _HALF_WEIGHTS = 0.5 * (0.5 * (_T + 1.0)) ** 5, 1.25 * (0.5 * (_T + 1.0)) ** 4 * _W
_SHARES, _SHARE_WEIGHTS = np.concatenate([_HALF, 1.0 - _HALF]), np.concatenate([_HALF_WEIGHTS, _HALF_WEIGHTS])
# A tail below this share of a moment does not make it infinite.
_NO_TAIL = 1e-4


class Monotone(Protocol):
    """A monotone function T of numbers."""

    @property
    def rising(self) -> bool: ...

    @property
    def unit(self) -> float: ...

    def __call__(self, z: Array) -> Array:
        """Return T(z)."""

    def level(self, x: Array) -> Array:
        """Return the largest z with T(z) <= x of a rising T, the smallest of a falling one."""

    def slope(self, z: Array) -> Array:
        """Return |dT / dz|."""


class Mapped(Derived):
    """Distributions of T(Z), where Z has the distribution of another family and T is monotone.

    Quantiles, intervals, cdf and samples are mapped exactly. The density is that of Z, divided by the slope of T, which
    is found numerically, to about 1e-8. Mean and variance are integrals over the quantiles, to about 1e-5 of them for a
    family with a density. For one made of residuals they are exact if no bin has more than 1,000 of these and all bins
    are as large, otherwise to about 1e-2. They are infinite where the tail of Z is too heavy for T:
    the exponential of Student's t has no mean. The CRPS (continuous ranked probability score) is an integral over the
    quantiles as well, as accurate in units of the spread.

    Parameters
    ----------
    inner : Distribution
        Distributions of Z.
    transform : callable
        The function T, with its direction, its inverse and its slope.
    """

    def __init__(self, inner: Distribution, transform: Monotone):
        self._transform = transform
        self.has_mass = inner.has_mass  # type: ignore[misc]
        super().__init__(inner)
        self._sample: Distribution | None = None
        if isinstance(inner, Empirical):
            # conformal quantiles are rounded outwards, also to infinity, which an integral must not be
            self._sample = object.__new__(Empirical)
            vars(self._sample).update(vars(self._inner))

    def pit(self, y: ArrayLike) -> Array:
        """Return the probability integral transform (PIT) of each outcome; the mid-point one where there is mass."""
        if not self.has_mass:
            return self.cdf(y)
        return self._at_outcomes(self._middle, y, lambda x, at: 0.5 * (x >= at) + 0.5 * (x > at), 0.0, 1.0)

    def _outcome(self, z: Array) -> Array:
        return self._transform(z)

    def _ppf(self, q: Array, **params: Array) -> Array:
        inner = self._inner._ppf if self._transform.rising else self._inner._isf
        return self._transform(inner(q, **params))

    def _isf(self, q: Array, **params: Array) -> Array:
        inner = self._inner._isf if self._transform.rising else self._inner._ppf
        return self._transform(inner(q, **params))

    def _cdf(self, x: Array, **params: Array) -> Array:
        z, nudge = self._level(x)
        return self._up_to(z + nudge, params)

    def _sf(self, x: Array, **params: Array) -> Array:
        z, nudge = self._level(x)
        return self._up_to(z + nudge, params, above=True)

    def _middle(self, x: Array, **params: Array) -> Array:
        """Return P(Y < x) + P(Y = x) / 2."""
        z, nudge = self._level(x)
        return 0.5 * (self._up_to(z - nudge, params) + self._up_to(z + nudge, params))

    def _level(self, x: Array) -> tuple[Array, Array]:
        """Return the z up to which outcomes are at most x, and a step outwards that finds the mass on z itself."""
        z = self._transform.level(x)
        sign = 1.0 if self._transform.rising else -1.0
        with np.errstate(invalid="ignore"):
            step = sign * 1e-9 * (self._transform.unit + np.abs(z))
        steps = (self.has_mass or self._sample is not None) and np.isfinite(step)
        return z, np.where(steps, step, 0.0)

    def _up_to(self, z: Array, params: dict[str, Array], above: bool = False) -> Array:
        """Return the probability of the outcomes of Z up to z, in the direction of T; `above`: of the others."""
        formula = self._inner._cdf if self._transform.rising != above else self._inner._sf
        finite = np.isfinite(z)
        inside = formula(np.where(finite, z, 0.0), **params)
        everything = z > 0.0 if self._transform.rising else z < 0.0
        return np.where(finite, inside, np.where(np.isnan(z), np.nan, np.where(everything != above, 1.0, 0.0)))

    def _logpdf(self, x: Array, **params: Array) -> Array:
        if self.has_mass:
            raise NotImplementedError(
                f"{self.name} has outcomes with a probability of their own under the transform of the target, and no "
                f"density; score it with crps"
            )
        z = self._transform.level(x)
        finite = np.isfinite(z)
        inside = np.where(finite, z, 0.0)
        with np.errstate(divide="ignore"):
            density = self._inner._logpdf(inside, **params) - np.log(self._transform.slope(inside))
        return np.where(finite, density, np.where(np.isnan(z), np.nan, -np.inf))

    def _moments(self, **params: Array) -> tuple[Array, Array]:
        with np.errstate(over="ignore", invalid="ignore"):
            if self._sample is not None:
                return self._moments_of_sample(params)
            centre = self._ppf(np.array(0.5), **params)
            first, second = np.zeros(np.shape(centre)), np.zeros(np.shape(centre))
            tails = []
            for side in (self._ppf, self._isf):
                parts = []  # of the mean and of the square, decade by decade from the end
                for low, high in _DECADES:
                    once, twice = np.zeros(np.shape(centre)), np.zeros(np.shape(centre))
                    for level, weight in _levels(low, high):
                        away = side(np.array(level), **params) - centre
                        once, twice = once + weight * away, twice + weight * away**2
                    parts.append((once, twice))
                tails.append(parts)
                first, second = first + sum(p[0] for p in parts), second + sum(p[1] for p in parts)
            mean, square = first, second
            for (last, last_square), (before, before_square), *_ in tails:
                mean = np.where(_grows(last, before, first), np.inf * last, mean)
                square = np.where(_grows(last_square, before_square, second), np.inf, square)
            return centre + mean, np.where(np.isinf(square), np.inf, np.maximum(square - mean**2, 0.0))

    def _moments_of_sample(self, params: dict[str, Array]) -> tuple[Array, Array]:
        centre = self._quantile_of_sample(0.5, params)
        first, second = np.zeros(np.shape(centre)), np.zeros(np.shape(centre))
        levels = self._levels_of_sample()
        for level in levels:
            away = self._quantile_of_sample(level, params) - centre
            first, second = first + away / len(levels), second + away**2 / len(levels)
        return centre + first, np.maximum(second - first**2, 0.0)

    def _levels_of_sample(self) -> list[float]:
        """Return levels in the middle of equal steps, one for each residual if there are not too many."""
        assert isinstance(self._sample, Empirical)
        count = min(self._sample.most_residuals, _OUTCOMES)
        return ((np.arange(count) + 0.5) / count).tolist()

    def _quantile_of_sample(self, level: float, params: dict[str, Array]) -> Array:
        assert self._sample is not None
        return self._transform(self._sample._ppf(np.array(level), **params))

    def _crps(self, y: Array, **params: Array) -> Array:
        """Return twice the quantile loss, integrated over the levels below and above the level of y."""
        total = np.zeros(np.broadcast_shapes(np.shape(y), *map(np.shape, params.values())))
        if self._sample is not None:
            levels = self._levels_of_sample()
            for level in levels:
                quantile = self._quantile_of_sample(level, params)
                total += 2.0 / len(levels) * ((y <= quantile) - level) * (quantile - y)
            return total
        below, above = self._cdf(y, **params), self._sf(y, **params)
        with np.errstate(over="ignore", invalid="ignore"):
            for share, weight in zip(_SHARES, _SHARE_WEIGHTS, strict=True):
                for part, side in ((below, self._ppf), (above, self._isf)):
                    away = np.abs(side(part * share, **params) - y)
                    total += np.where(part > 0.0, 2.0 * weight * part**2 * share * away, 0.0)
        return total


def _levels(low: float, high: float) -> Iterator[tuple[float, float]]:
    """Yield levels from `low` to `high`, and the weights of an integral over them."""
    middle, half = 0.5 * np.log(low * high), 0.5 * np.log(high / low)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        level = float(np.exp(middle + half * node))
        yield level, level * half * float(weight)


def _grows(last: Any, before: Any, total: Array) -> Any:
    """Tell where the part of the last levels is larger than the part before it, so that the integral has no end."""
    with np.errstate(invalid="ignore"):
        return ~np.isfinite(last) | ((np.abs(last) > np.abs(before)) & (np.abs(last) > _NO_TAIL * np.abs(total)))
