"""Totals of groups of rows, and joint samples of rows, which err together as `correlate` measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import AnyArray, Array
from ..tables.keys import Codes, read_groups
from ..tables.rows import Rows
from .predictions import predict_distributions
from .shared import pair_sums_within, sum_by
from .state import ModelState

if TYPE_CHECKING:
    from ..distributions import Distribution

# Numbers of a block of joint samples.
_BLOCK = 1 << 21


def predict_totals(
    state: ModelState,
    rows: Rows,
    init_score: Array | None,
    sample_weight: Any,
    n_jobs: int | None,
    groups: Any,
    levels: Any,
) -> Distribution:
    """Return the distributions of the sums of groups of rows, see `ProbabilisticModel.predict_total`."""
    found, total_of = state.chosen.checked_correlation(), read_groups("groups", groups, len(rows))
    codes = [level.code for level in found.read_levels(levels, len(rows))]
    prediction, distributions = predict_distributions(state, rows, init_score, sample_weight, n_jobs)
    if state.surroundings.transform is not None:  # the prediction is the mean of a transformed outcome, mapped back
        prediction = distributions.mean()
    totals = sum_groups(prediction, distributions, total_of.code, codes, found.r)
    totals.groups = total_of.keys
    return totals


def sum_groups(
    prediction: AnyArray, rows: Distribution, group: Codes, codes: Sequence[Codes], r: Sequence[float]
) -> Distribution:
    """Return the distributions of the sums of groups of rows, which share groups of levels with correlations `r`.

    Their means are sums of the predictions. Bounds or residuals may move the mean of a row a little, and the sum of
    many rows by more than its spread.
    """
    from ..distributions.normal_scores import hermite

    mean, variance = sum_by(group, prediction), sum_by(group, rows.var())
    variance = variance + shared_variance(group, codes, r, hermite(rows))
    return _family_of_totals(rows, mean, variance).from_moments(mean, variance)


def shared_variance(group: Codes, codes: Sequence[Codes], r: Sequence[float], hermite: Array) -> Array:
    """Return, for each group, the sum of the covariances of all ordered pairs of its rows.

    `codes` and `r` are the group of each row at each level, and the correlation that this level adds; `hermite` are the
    (K, n) coefficients of the rows, see `distributions.normal_scores.hermite`.
    """
    orders = np.flatnonzero(np.any(hermite, axis=1))
    total = np.zeros(group.max(initial=-1) + 1)
    if not len(orders):
        return total
    for levels, weight in _subsets(r, int(orders[-1]) + 1):
        for k in orders:
            if weight[k] > 0.0:
                total += weight[k] * pair_sums_within(group, [codes[level] for level in levels], hermite[k])
    return np.maximum(total, 0.0)


def _subsets(r: Sequence[float], orders: int) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Yield (levels, weight of each order): what a pair adds that shares these levels, and perhaps more.

    A pair that shares exactly the levels S has the correlation R, the sum of their r, and adds R^k at order k. So a
    pair that shares at least S adds the terms of R^k in which every level of S occurs. There are none for k < |S|.
    """
    present = [level for level, share in enumerate(r) if share > 0.0]
    for size in range(1, min(orders, len(present)) + 1):
        for levels in combinations(present, size):
            weight = np.zeros(orders)
            for count in range(size + 1):
                for part in combinations(levels, count):
                    base = math.fsum(r[level] for level in part)
                    weight += (-1.0) ** (size - count) * base ** np.arange(1, orders + 1)
            weight[: size - 1] = 0.0  # but for rounding
            yield levels, weight


def _family_of_totals(rows: Distribution, mean: Array, variance: Array) -> type[Distribution]:
    """Return the family of sums of such rows: of counts, of numbers that are not negative, or of any numbers.

    It is exact for one row of the family itself, and for many rows of any family.
    """
    from ..distributions import Gamma, NegativeBinomial, Normal

    if _lowest(rows) < 0.0 or np.any((mean <= 0.0) & (variance > 0.0)):
        return Normal
    if _are_counts(rows) and np.all(variance >= mean * (1.0 - 1e-6)):  # others are no negative binomials
        return NegativeBinomial
    return Gamma


def _lowest(rows: Distribution) -> float:
    """Return the lowest outcome that the family allows."""
    from ..distributions import Clipped, Discrete, Empirical, Snapped, Tweedie
    from ..distributions.base import Positive

    if isinstance(rows, Snapped):
        return float(rows.values[0])
    if isinstance(rows, Clipped):
        return max(rows.lower, _lowest(rows._inner))
    if isinstance(rows, Empirical):
        return rows.lower
    return 0.0 if isinstance(rows, (Discrete, Positive, Tweedie)) else -math.inf


def _are_counts(rows: Distribution) -> bool:
    from ..distributions import Clipped, Discrete

    if isinstance(rows, Clipped):
        ends = [end for end in (rows.lower, rows.upper) if math.isfinite(end)]
        return _are_counts(rows._inner) and all(end == math.floor(end) for end in ends)
    return isinstance(rows, Discrete)


def joint_samples(
    state: ModelState,
    rows: Rows,
    init_score: Array | None,
    sample_weight: Any,
    n_jobs: int | None,
    size: int | None,
    levels: Any,
    random_state: Any,
) -> Array:
    """Return (n, size) joint samples of rows, see `ProbabilisticModel.sample`."""
    found = state.chosen.checked_correlation()
    if size is not None and (isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0):
        raise ValueError(f"size must be a number of samples for each row, such as 1000, not {size!r:.60}")
    codes = [level.code for level in found.read_levels(levels, len(rows))]
    _, distributions = predict_distributions(state, rows, init_score, sample_weight, n_jobs)
    draws = draw(distributions, codes, found.r, 1 if size is None else size, random_state)
    return draws[:, 0] if size is None else draws


def draw(rows: Distribution, codes: Sequence[Codes], r: Sequence[float], size: int, random_state: Any) -> Array:
    """Return (n, size) joint samples of rows, which share groups of levels with correlations `r`."""
    n, rng = len(rows), np.random.default_rng(random_state)
    out = np.empty((n, size))
    step = max(1, _BLOCK // max(n, 1))
    for start in range(0, size, step):
        u = _joint_uniform(rng, n, min(step, size - start), codes, r)
        out[:, start : start + step] = rows.from_uniform(u)
    return out


def _joint_uniform(rng: np.random.Generator, n: int, size: int, codes: Sequence[Codes], r: Sequence[float]) -> Array:
    """Return (n, size) uniform numbers: one draw for each group of each level, and one for each row."""
    from scipy.special import ndtr

    z = rng.standard_normal((n, size))
    z *= math.sqrt(1.0 - math.fsum(r))
    for code, share in zip(codes, r, strict=True):
        if share > 0.0:
            z += math.sqrt(share) * rng.standard_normal((code.max(initial=-1) + 1, size))[code]
    tiny = np.finfo(np.float64).tiny
    return np.clip(ndtr(z, out=z), tiny, 1.0 - np.finfo(np.float64).epsneg, out=z)
