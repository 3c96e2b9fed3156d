"""Margins of rows (paper eq. 11) and their variances (eq. 12)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import AnyArray, Array
from ..parallel import run_chunks
from ..routes.choose import choose_route
from ..tables.rows import Rows
from ..trees.forest import Forest


def margins(
    forest: Forest, rows: Rows, leaf_value: AnyArray, init_score: Array | None = None, n_jobs: int | None = None
) -> AnyArray:
    """Return the (n,) margins of rows, in the precision of `leaf_value`."""
    margin = _start(forest, rows, leaf_value, init_score)
    route = choose_route(forest, rows)
    value = route.ordered(leaf_value)
    run_chunks(lambda lo, hi: route.add_margin(lo, hi, value, margin), len(rows), route.task, route.threads(n_jobs))
    return _finished(forest, margin, init_score)


def margins_and_variances(
    forest: Forest,
    rows: Rows,
    leaf_value: AnyArray,
    leaf_sd: Array,
    rho: float,
    leaf_step: Array | None = None,
    init_score: Array | None = None,
    n_jobs: int | None = None,
    dtype: Any = np.float64,
) -> tuple[AnyArray, AnyArray, Array | None]:
    """Return the (n,) margins of rows, their variances, and the sums of their leaves' steps, if there are any.

    Parameters
    ----------
    leaf_value, leaf_sd : (L,) float array
        What each leaf adds to the margin, and its standard deviation in the recursion.
    rho : float
        Correlation between successive trees.
    leaf_step : (L,) float array, optional
        Steps of a boosted scale.
    init_score : (n,) float array, optional
        Margins that rows start from, instead of the model's own.
    dtype : dtype
        Precision of the recursion on a GPU.
    """
    margin = _start(forest, rows, leaf_value, init_score)
    variance, log_scale = np.zeros(rows.n, dtype), None if leaf_step is None else np.zeros(rows.n)
    add_margins_and_variances(forest, rows, (leaf_value, leaf_sd, leaf_step), rho, margin, variance, log_scale, n_jobs)
    return _finished(forest, margin, init_score), variance, log_scale


def add_margins_and_variances(
    forest: Forest,
    rows: Rows,
    leaves: tuple[AnyArray, Array, Array | None],
    rho: float,
    margin: AnyArray,
    variance: AnyArray,
    log_scale: Array | None,
    n_jobs: int | None,
) -> None:
    """Add trees to (n,) margins, variances and sums of steps; `leaves` are the (L,) values, sds and steps."""
    route = choose_route(forest, rows)
    packed = route.packed(*leaves)

    def chunk(lo: int, hi: int) -> None:
        route.add_margin_variance(lo, hi, packed, rho, margin, variance, log_scale)

    run_chunks(chunk, rows.n, route.task, route.threads(n_jobs))


def _start(forest: Forest, rows: Rows, leaf_value: AnyArray, init_score: Any) -> AnyArray:
    margin = np.zeros(rows.n, leaf_value.dtype)
    if not forest.base_last:
        # divided at the end
        margin[:] = forest.base_margin if init_score is None else forest.held_starts(init_score) * forest.divisor
    return margin


def _finished(forest: Forest, margin: AnyArray, init_score: Any) -> AnyArray:
    """Return the margins after the last tree: an average of trees, or with a base that the booster adds now."""
    if forest.divisor > 1:
        margin /= forest.divisor
    if forest.base_last:
        margin += forest.base_margin if init_score is None else forest.held_starts(init_score)
    return margin


def leaf_sums(forest: Forest, rows: Rows, per_leaf: Array, n_jobs: int | None = None) -> Array:
    """Return the (n,) sums of an array over leaves over each row's leaves."""
    route = choose_route(forest, rows)
    value, out = route.ordered(per_leaf), np.zeros(len(rows))
    run_chunks(lambda lo, hi: route.add_margin(lo, hi, value, out), len(rows), route.task, route.threads(n_jobs))
    return out


def variances(forest: Forest, rows: Rows, leaf_sd: Array, rho: Array, n_jobs: int | None = None) -> Array:
    """Return the (k, n) variances of the rows' margins under each of k correlations, in one pass."""
    route = choose_route(forest, rows)
    sd, out = route.ordered(leaf_sd), np.zeros((len(rho), len(rows)))
    run_chunks(lambda lo, hi: route.add_variances(lo, hi, sd, rho, out), len(rows), route.task, route.threads(n_jobs))
    return out


def recursion(sd: Array, rho: float) -> Array:
    """Return the (T + 1,) variances before each tree and after the last (paper eq. 12), from the trees' deviations."""
    out = np.zeros(len(sd) + 1)
    for t, s in enumerate(sd):
        out[t + 1] = (np.sqrt(out[t]) - rho * s) ** 2 + s * s * (1.0 - rho * rho)
    return out
