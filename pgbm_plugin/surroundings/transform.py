"""Transform: a monotone function from the booster's scale to that of the outcome, and where it is one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray, Array
from ..errors import warn
from ..trees.forest import Forest
from ..trees.objectives import LOG, SIGNED_SQRT
from .layers import Target

# Points on either side of a typical prediction, in units of the range of predictions, where the transform is looked at.
_DISTANCES = np.geomspace(1e-5, 1e15, 1000)
# Largest relative difference of an outcome that went through the transform and back.
_SAME = 1e-6
# Labels that are checked at a time.
_LABELS = 10_000


@dataclass(frozen=True, eq=False)
class Transform:
    """The function T from the booster's scale to that of the outcome, T(z) = y, monotone from `low` to `high`.

    Beyond these ends, T is the outcome at the end. There the transformers give something else, or nothing: a square
    falls below 0, and an exponential overflows.
    """

    targets: tuple[Target, ...]  # the outermost first
    low: float
    high: float
    rising: bool
    unit: float  # range of the booster's predictions

    def __call__(self, z: Array) -> Array:
        """Return T(z); infinite where z is, which is the safe side for an interval."""
        inside = np.clip(np.where(np.isnan(z), self.low, z), self.low, self.high)
        out = np.where(np.isnan(z), np.nan, _applied(self.targets, inside))
        return np.where(np.isinf(z), z if self.rising else -z, out)

    def forward(self, y: Array) -> Array:
        """Return the z with T(z) = y, clipped to the ends; NaN where no z has this outcome."""
        return np.clip(_undone(self.targets, y), self.low, self.high)

    def level(self, x: Array) -> Array:
        """Return the largest z with T(z) <= x of a rising T, the smallest of a falling one; infinite if all z have it.

        Where T is flat, as between quantiles of equal labels, several z have the same outcome.
        """
        first, last = (self(np.array(end)) for end in (self.low, self.high))
        bottom, top = (first, last) if self.rising else (last, first)
        with np.errstate(invalid="ignore"):
            z = self.forward(np.clip(x, bottom, top))
            near = 1e-9 * (self.unit + np.abs(z))
            flat = np.isnan(z) | (self(z - near) == self(z + near))
        if flat.any():
            z = np.where(flat, self._searched(np.where(flat, x, top)), z)
        below, above = (-np.inf, np.inf) if self.rising else (np.inf, -np.inf)
        return np.where(np.isnan(x), np.nan, np.where(x >= top, above, np.where(x < bottom, below, z)))

    def _searched(self, x: Array) -> Array:
        """Return the last z with T(z) <= x from the side where T is small, by bisection."""
        good, bad = (self.low, self.high) if self.rising else (self.high, self.low)
        inside, outside = np.full(np.shape(x), good), np.full(np.shape(x), bad)
        for _ in range(70):
            middle = 0.5 * (inside + outside)
            fits = self(middle) <= x
            inside, outside = np.where(fits, middle, inside), np.where(fits, outside, middle)
        return inside

    def slope(self, z: Array) -> Array:
        """Return |dT / dz| by five points, to about 1e-9 of it where T is smooth."""
        h = 1e-3 * min(self.unit, 1.0)
        with np.errstate(invalid="ignore", over="ignore"):
            return np.abs(8.0 * (self(z + h) - self(z - h)) - (self(z + 2.0 * h) - self(z - 2.0 * h))) / (12.0 * h)

    def labels(self, y: Any) -> AnyArray:
        """Return outcomes on the booster's scale; refuse those without a place there, and those that it mixes up."""
        given = np.asarray(y.detach() if hasattr(y, "detach") else y)
        if given.dtype.kind not in "fiub" or not np.all(np.isfinite(given)):
            return given  # refused later, with other labels
        given = given.reshape(-1)
        transformed = given
        for target in self.targets:
            transformed = _quietly(target.forward, transformed)
        lost = ~np.isfinite(transformed)
        if lost.any():
            raise ValueError(
                f"{int(lost.sum())} labels have no value under the transform of the target, {self} (first at row "
                f"{int(np.argmax(lost))}: {given[np.argmax(lost)]:g}): give labels as in training"
            )
        self._check_apart(given.astype(np.float64), transformed.astype(np.float64))
        return transformed

    def _check_apart(self, y: Array, z: Array) -> None:
        """Refuse labels that the transform does not keep in order, or does not give back."""
        if len(y) > _LABELS:
            at = np.unique(
                np.concatenate([np.linspace(0, len(y) - 1, _LABELS).astype(np.intp), [y.argmin(), y.argmax()]])
            )
            y, z = y[at], z[at]
        order = np.argsort(y, kind="stable")
        y, z = y[order], z[order]
        steps = np.diff(z) if self.rising else -np.diff(z)
        unordered = steps < -1e-6 * (self.unit + np.abs(z[1:]))
        ends = self(np.array([self.low, self.high]))
        nearest, tolerance = np.clip(y, ends.min(), ends.max()), 1e-4 * (np.ptp(y) + np.abs(y).max(initial=0.0))
        away = np.abs(self(z) - nearest) > tolerance
        if unordered.any() or away.any():
            wrong = y[1:][unordered][0] if unordered.any() else y[away][0]
            raise ValueError(
                f"the transform of the target, {self}, is not monotone over these labels (at {wrong:g}): several "
                f"outcomes have one value, so quantiles cannot be mapped back; use a transform that keeps them in order"
            )
        beyond = int(np.sum(np.abs(y - nearest) > tolerance))
        if beyond:
            warn(
                f"{beyond} labels lie beyond the outcomes that the transform of the target, {self}, can reach "
                f"({ends.min():g} to {ends.max():g}): they count as these ends, and no interval contains such outcomes"
            )

    def __str__(self) -> str:
        return ", ".join(map(str, self.targets))


def find_transform(targets: tuple[Target, ...], forest: Forest) -> Transform:
    """Return the transform of the outcome around a typical prediction of these trees; refuse one that is not monotone.

    Its ends are where the transformers stop to give back what they made of an outcome, or where the order turns.
    """
    centre, reach = _typical_response(forest)
    name = ", ".join(map(str, targets))
    start = _applied(targets, np.array([centre]))[0]
    sides = []
    for sign in (-1.0, 1.0):
        z = centre + sign * reach * _DISTANCES
        sides.append((z, _applied(targets, z), _back_and_forth(targets, z)))
    rising = bool(np.nan_to_num(sides[1][1][0] - sides[0][1][0]) > 0.0)
    close = [back[0] - y[0] for _, y, back in sides]
    apart = abs(sides[1][1][0] - sides[0][1][0])
    if not np.isfinite(start) or not apart > 0.0 or not np.all(np.abs(close) <= 0.01 * apart + 1e-9 * abs(start)):
        raise ValueError(
            f"the transform of the target, {name}, does not give back the outcomes that it transforms (near "
            f"{start:g}): wrap needs a monotone transform and its inverse"
        )
    ends = []
    for sign, (z, y, back) in zip((-1.0, 1.0), sides, strict=True):
        outwards = sign if rising else -sign

        def good(y: Array, back: Array, before: Any, outwards: float = outwards) -> NDArray[np.bool_]:
            with np.errstate(invalid="ignore", over="ignore"):
                same = np.abs(back - y) <= _SAME * (np.abs(y) + np.abs(y - start))
                return np.isfinite(y) & np.isfinite(back) & same & (outwards * (y - before) >= 0.0)

        ends.append(_end(targets, z, good(y, back, np.concatenate([[start], y[:-1]])), centre, good))
    return Transform(targets, ends[0], ends[1], rising, reach)


def _end(
    targets: tuple[Target, ...],
    z: Array,
    is_good: NDArray[np.bool_],
    centre: float,
    good: Callable[[Array, Array, Any], NDArray[np.bool_]],
) -> float:
    """Return the last good z from the centre outwards: bisect between the last good point and the first bad one."""
    if is_good.all():
        return float(z[-1])
    first_bad = int(np.argmin(is_good))
    inside, outside = z[first_bad - 1] if first_bad else centre, z[first_bad]
    for _ in range(60):
        middle = 0.5 * (inside + outside)
        points = np.array([inside, middle])
        y, back = _applied(targets, points), _back_and_forth(targets, points)
        inside, outside = (middle, outside) if good(y[1:], back[1:], y[0])[0] else (inside, middle)
    return float(inside)


def _typical_response(forest: Forest) -> tuple[float, float]:
    """Return a typical prediction of these trees, and the range of predictions."""
    leaf, trees = forest.leaf_value.astype(np.float64), forest.leaf_start[:-1]
    leaves = np.diff(forest.leaf_start)
    spread = np.maximum.reduceat(leaf, trees) - np.minimum.reduceat(leaf, trees)
    margin = forest.base_margin + (np.add.reduceat(leaf, trees) / leaves).sum() / forest.divisor
    reach = max(float(spread.sum()) / forest.divisor, 1e-6 * (1.0 + abs(margin)))
    if forest.link == LOG:
        return float(np.exp(margin)), float(np.exp(margin) * np.expm1(min(reach, 3.0)))
    if forest.link == SIGNED_SQRT:
        return float(margin * abs(margin)), reach * (reach + 2.0 * abs(margin))
    return float(margin), reach


def _applied(targets: tuple[Target, ...], z: Array) -> Array:
    """Return T of finite numbers by the transformers' own inverses; NaN where they give none."""
    y = np.asarray(z, np.float64)
    for target in reversed(targets):
        y = _where_finite(target.inverse, y)
    return y


def _undone(targets: tuple[Target, ...], y: Array) -> Array:
    z = np.asarray(y, np.float64)
    for target in targets:
        z = _where_finite(target.forward, z)
    return z


def _back_and_forth(targets: tuple[Target, ...], z: Array) -> Array:
    """Return T(z), transformed and transformed back."""
    return _applied(targets, _undone(targets, _applied(targets, z)))


def _where_finite(function: Callable[[AnyArray], AnyArray], values: Array) -> Array:
    """Apply a transformer's method to the finite numbers of an array of any shape; NaN for the others."""
    flat = values.reshape(-1)
    finite, out = np.isfinite(flat), np.full(flat.shape, np.nan)
    if finite.any():
        out[finite] = _where_accepted(function, flat[finite])
    return out.reshape(values.shape)


def _where_accepted(function: Callable[[AnyArray], AnyArray], values: Array) -> AnyArray:
    """Apply a transformer's method; NaN for numbers that it raises an error for, which are found by halving."""
    try:
        return _quietly(function, values)
    except ValueError:
        if len(values) == 1:
            return np.full(1, np.nan)
        half = len(values) // 2
        return np.concatenate([_where_accepted(function, part) for part in (values[:half], values[half:])])


def _quietly(function: Callable[[AnyArray], AnyArray], values: AnyArray) -> AnyArray:
    """Call a transformer without its warnings of overflow, which are checked for here."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        return function(values)
