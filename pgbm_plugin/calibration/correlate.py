"""correlate(): how much held-out rows err together, from sums over the pairs of rows that share a group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..distributions import Distribution
from ..distributions.normal_scores import expected_scores, score_variances
from ..errors import warn
from ..predict.correlation import Correlation, check_names
from ..predict.predictions import chosen_distributions
from ..predict.shared import pair_sum
from ..predict.state import ModelState
from ..tables.keys import Codes, Groups, combined, read_groups
from ..tables.labelled import RawRows
from .held_out import read_held_out

# With fewer rows, hardly any pairs are left to learn from.
_MIN_ROWS = 20
# Scores whose mean square is so many times off do not come from the predicted distributions.
_FAR_OFF = 2.0
# The shares of all levels add up to this at most, so that some noise of each row's own is left.
_MOST = 0.99
# Rows that are simulated for standard errors, in total, and how often at least and at most.
_SIMULATED, _FEWEST, _OFTENEST = 1e7, 25, 100


def correlate(
    state: ModelState, raw: RawRows, levels: Any, out_of_fold: Any, device: str, n_jobs: int | None
) -> Correlation:
    """Return how much rows of a group err together, see `ProbabilisticModel.correlate`."""
    if not isinstance(levels, Mapping):
        raise TypeError(f"levels must be a dict such as {{'day': day, 'shop': shop}}, not {type(levels).__name__}")
    check_names(levels)
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


def measure(
    names: Sequence[str], codes: Sequence[Codes], distributions: Distribution, y: Array, weight: Array
) -> tuple[Array, Array, Array]:
    """Return, for each level, r, its standard error, and what r would be without its limits.

    The products of the scores of two rows are compared with what r makes of them. Pairs count by their standard
    deviations, as in the variance of a total: rows with a small spread, whose own noise may hide what they share, then
    do not decide how wide totals are.
    """
    score, variance = expected_scores(distributions, y), score_variances(distributions)
    _check_spread(score, variance, weight)
    weight = weight * distributions.std()
    weight = weight / weight.mean()
    information = _information(names, codes, weight * variance)
    measured: Array = np.asarray(np.linalg.solve(information, _pair_sums(codes, weight * score)), np.float64)
    r = within_limits(information, measured)
    error = _standard_errors(codes, information, variance, weight, r)
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


def _pair_sums(codes: Sequence[Codes], score: Array) -> Array:
    """Return (L,) sums of the products of scores, over the pairs of rows that share a group of each level."""
    return np.array([pair_sum(code, score) for code in codes])


def _information(names: Sequence[str], codes: Sequence[Codes], variance: Array) -> Array:
    """Return the (L, L) derivatives of the expected pair sums by the r of the levels; refuse a singular matrix.

    The expected product of two scores is r times both variances, with the r of all levels that the two rows share. It
    is exact for continuous outcomes, and else for small r.
    """
    count = len(codes)
    matrix = np.empty((count, count))
    for a in range(count):
        for b in range(a, count):
            shared = codes[a] if a == b else combined([codes[a], codes[b]])
            matrix[a, b] = matrix[b, a] = pair_sum(shared, variance)
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


def _standard_errors(codes: Sequence[Codes], information: Array, variance: Array, weight: Array, r: Array) -> Array:
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
        sums[k] = _pair_sums(codes, weight * score)
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
