"""The empirical distribution, whose shape is a sample of residuals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import Array
from .base import Distribution
from .per_row import read_only

if TYPE_CHECKING:
    from typing_extensions import Self


class Empirical(Distribution):
    """Empirical distribution: loc + scale R, where R is one of m observed residuals, equally likely unless weighted.

    It assumes no shape. If the residuals do not have mean 0 and variance 1, they also correct the mean and the
    spread. It has quantiles, samples and a continuous ranked probability score (CRPS), but no density.

    Parameters
    ----------
    residuals : array-like of shape (m,)
        Residuals (y - mean) / std of the rows that `tune` or `conformalize` saw.
    weights : array-like of shape (m,), optional
        Positive weights of the residuals, to which their probabilities are proportional. Default: all are equal.
    lower : float, optional
        Smallest possible outcome; outcomes that would be smaller become this one. Default: no bound.
    point : array-like of shape (n,), optional
        Place of each row that is a point mass, NaN in all other rows.
    **params : float or array-like of shape (n,)
        Parameters ``loc`` and ``scale``, the mean and standard deviation that the model predicts.
    """

    name = "empirical"
    needs_residuals = True

    def __init__(
        self,
        *,
        residuals: ArrayLike,
        weights: ArrayLike | None = None,
        lower: float = -np.inf,
        point: ArrayLike | None = None,
        **params: ArrayLike,
    ):
        super().__init__(point=point, **params)
        residuals = np.asarray(residuals, np.float64)
        if residuals.ndim != 1 or len(residuals) < 2 or not np.all(np.isfinite(residuals)):
            raise ValueError(f"{self.name} needs at least two finite residuals")
        self.residuals, self.weights = np.sort(residuals), None
        if weights is not None:
            weights = np.asarray(weights, np.float64)
            if weights.shape != residuals.shape or not np.all((weights > 0.0) & np.isfinite(weights)):
                raise ValueError(f"{self.name} needs a positive, finite weight for each residual")
            order = np.argsort(residuals, kind="stable")
            self.residuals, self.weights = residuals[order], read_only(weights[order])
        self.residuals = read_only(self.residuals)
        self.lower = float(lower)

    @classmethod
    def from_moments(cls, mean: Array, variance: Array, **options: Any) -> Self:
        if "residuals" not in options:
            raise ValueError(f"{cls.name} needs residuals=; a model has them after model.tune or model.conformalize")
        mean, variance = np.asarray(mean, np.float64), np.asarray(variance, np.float64)
        bad = ~cls._fits(mean, variance)
        if bad.any():
            raise ValueError(f"{cls.name} needs finite moments; those of {bad.sum()} of {bad.size} rows are not finite")
        point = np.where(variance <= 0.0, mean, np.nan)
        params: dict[str, Any] = {**cls._parameters(mean, np.where(variance <= 0.0, np.nan, variance)), **options}
        return cls(point=point, **params)

    @staticmethod
    def _parameters(mean: Array, variance: Array) -> dict[str, Array]:
        return {"loc": mean, "scale": np.sqrt(variance)}

    def _moments(self, loc: Array, scale: Array) -> tuple[Array, Array]:
        r, up_to, k = self.residuals, self._weight_up_to, self._count_on_lower(loc, scale)
        sums, squares = self._weighted_sums(r), self._weighted_sums(r * r)
        share, low = up_to[k] / up_to[-1], np.where(k > 0, self.lower, 0.0)
        first, second = (sums[-1] - sums[k]) / up_to[-1], (squares[-1] - squares[k]) / up_to[-1]
        mean = low * share + loc * (1.0 - share) + scale * first
        # moments around the mean, so that no digits cancel
        shift = loc - mean
        above = shift**2 * (1.0 - share) + 2.0 * shift * scale * first + scale**2 * second
        return mean, np.maximum((low - mean) ** 2 * share + above, 0.0)

    def _logpdf(self, x: Array, loc: Array, scale: Array) -> Array:
        raise NotImplementedError(f"the {self.name} distribution has no density; score it with crps")

    def _cdf(self, x: Array, loc: Array, scale: Array) -> Array:
        below = np.maximum(self._count_at_most((x - loc) / scale), self._count_on_lower(loc, scale))
        return np.where(x < self.lower, 0.0, self._weight_up_to[below] / self._weight_up_to[-1])

    def _ppf(self, q: Array, loc: Array, scale: Array) -> Array:
        m, up_to = len(self.residuals), self._weight_up_to
        # if q reaches a residual's weight exactly, rounding must not raise the rank by 1
        rank = np.searchsorted(up_to, q * up_to[-1] - 1e-9 * up_to[-1] / m) - 1
        return self._outcome(self.residuals[np.clip(rank, 0, m - 1)], loc, scale)

    def _rvs(self, rng: np.random.Generator, shape: tuple[int, ...], loc: Array, scale: Array) -> Array:
        share = None if self.weights is None else self.weights / self.weights.sum()
        return self._outcome(rng.choice(self.residuals, shape, p=share), loc, scale)

    def _crps(self, y: Array, loc: Array, scale: Array) -> Array:
        """Return E|Y - y| - E|Y - Y'| / 2, with Y' a copy of Y, from cumulative sums of sorted residuals."""
        r, up_to, on_lower = self.residuals, self._weight_up_to, self._count_on_lower(loc, scale)
        total, low = up_to[-1], np.where(on_lower > 0, self.lower, 0.0)
        k = np.maximum(self._count_at_most((y - loc) / scale), on_lower)  # count of outcomes <= y, for y >= lower
        sums = self._weighted_sums(r)

        def sum_between(a: Any, b: Any) -> Array:
            """Return the weighted sum of the outcomes of ranks a + 1 to b."""
            return loc * (up_to[b] - up_to[a]) + scale * (sums[b] - sums[a])

        below, above = low * up_to[on_lower] + sum_between(on_lower, k), sum_between(k, -1)
        distance = np.where(y < self.lower, below + above - y * total, above - below + y * (2.0 * up_to[k] - total))
        rank = up_to[1:] + up_to[:-1] - total  # weight of smaller residuals, less that of larger ones
        ranks, weighted = self._weighted_sums(rank), self._weighted_sums(rank * r)
        spread = low * ranks[on_lower] - loc * ranks[on_lower] + scale * (weighted[-1] - weighted[on_lower])
        return distance / total - spread / total**2

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for array in (self.residuals, self.weights):
            if array is not None:
                array.flags.writeable = False

    @property
    def _weight_up_to(self) -> Array:
        """Return the (m + 1,) weights of all residuals before each rank; of all of them at the end."""
        return np.arange(len(self.residuals) + 1.0) if self.weights is None else _running_sum(self.weights)

    def _weighted_sums(self, values: Array) -> Array:
        """Return the (m + 1,) running sums of values of the residuals, times their weights."""
        return _running_sum(values if self.weights is None else self.weights * values)

    def _count_at_most(self, z: Array) -> Any:
        """Count the residuals <= z."""
        return np.searchsorted(self.residuals, z, side="right")

    def _outcome(self, residual: Array, loc: Array, scale: Array) -> Array:
        """Return the outcome of a residual, at least `lower`."""
        outcome = loc + scale * residual
        if self.lower == -np.inf:
            return outcome
        return np.where(residual <= self._lower_residual(loc, scale), self.lower, outcome)

    def _count_on_lower(self, loc: Array, scale: Array) -> Any:
        """Count the outcomes that lie on the lower bound."""
        if self.lower == -np.inf:
            return np.zeros(np.shape(loc), np.int64)
        return self._count_at_most(self._lower_residual(loc, scale))

    def _lower_residual(self, loc: Array, scale: Array) -> Array:
        """Return the residual of the lower bound, plus a margin for rounding.

        Under a log link, if the standard deviation is proportional to the mean, a label of 0 has the same residual,
        -mean / std, in every row. Rounding must not turn it into an outcome above the bound.
        """
        residual = (self.lower - loc) / scale
        return residual + 1e-9 * (1.0 + np.abs(residual))


def _running_sum(values: NDArray[Any]) -> Array:
    return np.concatenate([[0.0], np.cumsum(values)])
