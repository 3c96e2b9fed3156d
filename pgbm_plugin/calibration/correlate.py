"""correlate(): how much held-out rows err together, from sums over the pairs of rows that share a group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..distributions import Distribution
from ..distributions.normal_scores import expected_scores, score_variances
from ..errors import warn
from ..predict.correlation import Correlation, check_names
from ..predict.predictions import chosen_distributions
from ..predict.shared import pair_sums_within, sum_by
from ..predict.state import ModelState
from ..tables.keys import Codes, Groups, read_groups
from ..tables.labelled import RawRows
from .held_out import read_held_out

# With fewer rows, hardly any pairs are left to learn from.
_MIN_ROWS = 20
# Scores whose mean square is so many times off do not come from the predicted distributions.
_FAR_OFF = 2.0
# The shares of all levels add up to this at most, so that some noise of each row's own is left.
_MOST = 0.99
# Sums of a group's scores beyond so many standard deviations count as if they were there, so that no single group, such
# as a holiday, decides. Only normal sums are limited: of continuous outcomes, or of so many rows.
_LIMIT, _NORMAL = 2.5, 30
# The deviation is that of the group: its own scatter, mixed with that of all rows, which counts as so many rows.
_PRIOR = 10.0
# Scores of outcomes with a smaller variance are those of counts, and far from normal.
_CONTINUOUS = 0.9
_MOST_STEPS = 50
# Rows that are simulated for standard errors, in total, and how often at least and at most.
_SIMULATED, _FEWEST, _OFTENEST = 1e7, 25, 100


def correlate(
    state: ModelState, raw: RawRows, levels: Any, out_of_fold: Any, device: str, n_jobs: int | None
) -> Correlation:
    """Return how much rows of a group err together, see `ProbabilisticModel.correlate`."""
    if not isinstance(levels, Mapping):
        raise TypeError(f"levels must be a dict such as {{'day': day, 'shop': shop}}, not {type(levels).__name__}")
    check_names(levels)
    _check_no_groups(state)
    held_out = read_held_out(state, "correlate", raw, "y_val", _MIN_ROWS, device, n_jobs, out_of_fold=out_of_fold)
    names, groups = tuple(levels), read_levels(levels, held_out.used)
    chosen, y = state.chosen, held_out.y
    distributions = chosen_distributions(chosen, held_out.margins, state.support)
    weight = np.ones(len(y)) if held_out.weight is None else held_out.weight / held_out.weight.mean()
    r, error, measured = measure(names, [group.code for group in groups], distributions, y, weight)
    return Correlation(
        levels=names,
        r=tuple(r.tolist()),
        standard_error=tuple(error.tolist()),
        measured=tuple(measured.tolist()),
        groups=tuple(map(len, groups)),
        rows=len(y),
        rho=chosen.rho,
        calibration=chosen.calibration,
        distribution=chosen.distribution,
    )


def _check_no_groups(state: ModelState) -> None:
    """Refuse distributions that depend on groups of conformalize, which totals and joint samples are not told."""
    if state.chosen.needs_groups:
        raise ValueError(
            f"conformalize got groups=, and correlate, predict_total and sample know no groups: first set "
            f"model.distribution = {state.chosen.around!r}, or call conformalize without groups"
        )


def measure(
    names: Sequence[str], codes: Sequence[Codes], distributions: Distribution, y: Array, weight: Array
) -> tuple[Array, Array, Array]:
    """Return, for each level, r, its standard error, and what r would be without its limits.

    The products of the scores of two rows are compared with what r makes of them. Pairs count by their standard
    deviations, as in the variance of a total: rows with a small spread, whose own noise may hide what they share, then
    do not decide how wide totals are. Sums of groups are limited, so that r is that of ordinary groups.
    """
    score, variance = expected_scores(distributions, y), score_variances(distributions)
    _check_spread(score, variance, weight)
    weight = weight * distributions.std()
    weight = weight / weight.mean()
    levels = [_level(code, codes, variance, weight) for code in codes]
    information = _information(names, levels)
    sums = [_sums(code, weight, score) for code in codes]
    measured: Array = np.asarray(np.linalg.solve(information, _pair_sums(sums)), np.float64)
    r = within_limits(information, measured)
    for _ in range(_MOST_STEPS):  # the limits of sums depend on r
        measured = np.asarray(np.linalg.solve(information, _pair_sums(_limited(levels, sums, r))), np.float64)
        last, r = r, within_limits(information, measured)
        if np.allclose(r, last, rtol=1e-9, atol=0.0):
            break
    error = _standard_errors(codes, levels, information, variance, weight, r)
    _tell(names, r, measured, error)
    return r, error, measured


def read_levels(levels: Mapping[str, Any], used: NDArray[np.bool_]) -> list[Groups]:
    """Return the groups of the held-out rows that are used; refuse a level that says nothing."""
    places, found = np.flatnonzero(used), []
    for name, keys in levels.items():
        groups = read_groups(f"levels[{name!r}]", keys, len(used)).take(places)
        if len(groups) == 1:
            raise ValueError(
                f"all rows are in one group of the level {name!r}: how rows of a group err together shows only if "
                f"there are several groups; leave the level out, or give more rows"
            )
        if len(groups) == len(groups.code):
            raise ValueError(
                f"every row is a group of its own in the level {name!r}, so that no two rows share one: leave the "
                f"level out, or give a coarser key"
            )
        found.append(groups)
    return found


@dataclass(frozen=True, eq=False)
class _Level:
    """What independence, and an r of each level, make of the squared sums of scores over the G groups of a level."""

    own: Array  # (G,) expected sums of squares: variances of the sums if rows are independent
    around: Array  # (G,) expected sums of squares around the mean of the group
    freedom: Array  # (G,) degrees of freedom of these
    shared: Array  # (G, L) derivatives of these variances by the r of all levels
    normal: NDArray[np.bool_]  # (G,) whether the sums are normal, about


def _level(code: Codes, codes: Sequence[Codes], variance: Array, weight: Array) -> _Level:
    """Return what to expect of the groups `code`; `variance` is that of scores, which count by `weight`."""
    values = weight * variance
    shared = [pair_sums_within(code, [] if other is code else [other], values) for other in codes]
    of_counts = sum_by(code, (variance > 0.0) & (variance < _CONTINUOUS)) > 0.0
    own, square = sum_by(code, weight * values), _squares(code, weight)
    around = own - sum_by(code, weight**3 * values) / square
    normal = ~of_counts | (np.bincount(code) >= _NORMAL)
    freedom = square**2 / _squares(code, weight**2) - 1.0
    return _Level(own, around.clip(min=0.0), freedom, np.stack(shared, axis=1), normal)


def _kept(limit: float) -> float:
    """Return E[min(|Z|, limit)^2] of a standard normal Z: what is left of its variance."""
    beyond = math.erfc(limit / math.sqrt(2.0))
    density = math.exp(-0.5 * limit**2) / math.sqrt(2.0 * math.pi)
    return 1.0 - beyond - 2.0 * limit * density + limit**2 * beyond


class _Sums(NamedTuple):
    """Sums over the rows of each of G groups."""

    total: Array  # (G,) sums of weighted scores
    squares: Array  # (G,) sums of their squares
    around: Array  # (G,) sums of their squares around the mean score of the group


def _sums(code: Codes, weight: Array, score: Array) -> _Sums:
    weighted = weight * score
    squares = sum_by(code, weighted**2)
    around = squares - sum_by(code, weight * weighted) ** 2 / _squares(code, weight)
    return _Sums(sum_by(code, weighted), squares, around.clip(min=0.0))


def _squares(code: Codes, weight: Array) -> Array:
    """Return the (G,) sums of squared weights, more than 0 also for groups whose rows have no spread."""
    return np.maximum(sum_by(code, weight**2), np.finfo(np.float64).tiny)


def _pair_sums(sums: Sequence[_Sums]) -> Array:
    """Return (L,) sums of the products of scores, over the pairs of rows that share a group of each level."""
    return np.array([np.sum(group.total**2) - np.sum(group.squares) for group in sums])


def _limited(levels: Sequence[_Level], sums: Sequence[_Sums], r: Array) -> list[_Sums]:
    """Return sums of scores, where normal, within `_LIMIT` deviations of 0, and scaled by what that takes from them.

    The deviation of a group follows the scatter of its rows around their mean. So a group that is noisier than
    predicted has a wider limit. One that lies far from 0 as a whole, such as a holiday, has not.
    """
    limited = []
    for level, found in zip(levels, sums, strict=True):
        scatter = np.sum(found.squares) / np.sum(level.own)  # 1, but for a model whose spread is wrong
        variance = scatter * level.own + level.shared @ r
        most = _LIMIT * np.sqrt(variance * _own_scatter(level, found.around))
        within = np.minimum(np.abs(found.total), most) / math.sqrt(_kept(_LIMIT))
        limited.append(found._replace(total=np.where(level.normal, within, found.total)))
    return limited


def _own_scatter(level: _Level, around: Array) -> Array:
    """Return (G,) scatters of the rows of each group around their mean, over that of all groups."""
    expected = level.around * (np.sum(around) / max(np.sum(level.around), np.finfo(np.float64).tiny))
    ratio = np.divide(around, expected, out=np.ones_like(around), where=expected > 0.0)
    return (level.freedom * ratio + _PRIOR) / (level.freedom + _PRIOR)


def _information(names: Sequence[str], levels: Sequence[_Level]) -> Array:
    """Return the (L, L) derivatives of the expected pair sums by the r of the levels; refuse a singular matrix.

    The expected product of two scores is r times both variances, with the r of all levels that the two rows share. It
    is exact for continuous outcomes, and else for small r.
    """
    matrix = np.stack([level.shared.sum(axis=0) for level in levels])
    matrix = 0.5 * (matrix + matrix.T)
    size = np.sqrt(np.diag(matrix).clip(min=0.0))
    for name, own in zip(names, size, strict=True):
        if not own > 0.0:
            raise ValueError(f"no two rows of a spread share a group of the level {name!r}: leave the level out")
    values, vectors = np.linalg.eigh(matrix / np.outer(size, size))
    if values[0] < 1e-9:
        same = [repr(name) for name, part in zip(names, vectors[:, 0], strict=True) if abs(part) > 1e-3]
        raise ValueError(
            f"the levels {' and '.join(same)} put the same pairs of rows together, so that their effects cannot be "
            f"told apart: leave one of them out"
        )
    return matrix


def within_limits(information: Array, measured: Array) -> Array:
    """Return the (L,) correlations that fit best among those that are not negative and add up to less than 1."""
    from scipy.optimize import nnls

    size = np.sqrt(np.diag(information))
    root = np.linalg.cholesky(information / np.outer(size, size)).T
    r = nnls(root, root @ (measured * size))[0] / size
    total = math.fsum(r)
    return r if total <= _MOST else r * (_MOST / total)


def _standard_errors(
    codes: Sequence[Codes], levels: Sequence[_Level], information: Array, variance: Array, weight: Array, r: Array
) -> Array:
    """Return the (L,) standard deviations of what is measured on rows that are drawn from the factors."""
    n, rng = len(variance), np.random.default_rng(0)
    times = int(np.clip(_SIMULATED / n, _FEWEST, _OFTENEST))
    kept = np.sqrt(variance * (1.0 - variance).clip(min=0.0))  # noise of scores that stand for intervals
    own, discrete = math.sqrt(1.0 - math.fsum(r)), bool(kept.any())
    sums = np.empty((times, len(codes)))
    for k in range(times):
        z = own * rng.standard_normal(n)
        for code, share in zip(codes, r, strict=True):
            z += math.sqrt(share) * rng.standard_normal(code.max() + 1)[code]
        score = variance * z + kept * rng.standard_normal(n) if discrete else variance * z
        sums[k] = _pair_sums(_limited(levels, [_sums(code, weight, score) for code in codes], r))
    return np.linalg.solve(information, sums.T).std(axis=1)


def _check_spread(score: Array, variance: Array, weight: Array) -> None:
    """Warn if the rows do not have the spread that the model predicts, because r would have the same fault."""
    expected = float(weight @ variance)
    if expected == 0.0:
        raise ValueError("no row has a spread, so that none can err together: call model.tune first")
    ratio = float(weight @ score**2) / expected
    if not 1.0 / _FAR_OFF < ratio < _FAR_OFF:
        warn(
            f"the rows that correlate got scatter {math.sqrt(ratio):.2g} times as much as the model predicts, and so "
            f"their correlation is off by about the square of it: call model.tune or conformalize first"
        )


def _tell(names: Sequence[str], r: Array, measured: Array, error: Array) -> None:
    """Warn of what the factors cannot express."""
    for name, value, own in zip(names, measured, error, strict=True):
        if value < -4.0 * own:
            warn(
                f"rows of one group of the level {name!r} differ more than independent rows would (r = {value:.2g} ± "
                f"{own:.2g}): r is set to 0, and totals of such groups will be too wide"
            )
    if math.fsum(r) >= 0.999 * _MOST:
        warn(
            f"rows of a group are almost copies of each other (the measured r add up to {math.fsum(measured):.3g}): "
            f"they were shrunk to {_MOST:g} in total; check that the model is tuned, and that no row comes twice"
        )
