"""The boosted scale: a log-variance with one step per leaf of the trained trees, fitted to residuals.

Let q be the squared residual of a row over its variance so far. The step of a leaf is rate * log(mean q of its rows),
where some rows with q = 1 are added to the mean, so that leaves of few rows hardly move. The trees are taken in order,
as boosting grew them. All rows must be at hand for this, and at most `MAX_ROWS` of them are used.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..leaves.moments import LeafMoments
from ..predict.log_scale import LogScale
from ..predict.recursion import leaf_sums, margins
from ..predict.response import Margins, to_response
from ..predict.state import ModelState
from ..routes.choose import choose_route
from ..tables.labelled import LabelledRows
from ..tables.rows import Rows
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec

MAX_ROWS = 1 << 18
"""Rows that a scale is fitted to, at most."""

# Training rows are many and held-out rows few, hence two rates. Both are as good as any in a wide range around them on
# the nine UCI sets.
_TRAINING_RATE, _HELD_OUT_RATE = 0.2, 0.05
_PRIOR_ROWS = 20.0

# Held-out rows are cut into so many parts; the rows of a part are scored by the model that was fitted without it.
_FOLDS = 10

# The most that a training row's residual can be said to have shrunk: e^5.
_MAX_LEVERAGE = 5.0


def training_scale(state: ModelState, data: LabelledRows, n_jobs: int | None) -> LogScale | None:
    """Boost a scale from the residuals of training rows, each enlarged to what it would be had its row been left out.

    Return None if the residuals are all 0, or not finite.
    """
    data, forest = data.sample(MAX_ROWS), state.forest
    leverage = np.zeros(len(data))
    if state.certificate.status != "held-out":
        per_leaf = leaf_leverage(forest, state.spec, state.moments)
        leverage = np.minimum(leaf_sums(forest, data.rows, per_leaf, n_jobs), _MAX_LEVERAGE)
    margin = margins(forest, data.rows, state.leaf_value, data.init_score, n_jobs)
    predicted = Margins(forest, margin, to_response(forest, margin), np.zeros(len(data)))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # of a prediction that is 0 under a log link
        squared = ((data.y - predicted.prediction) / predicted.link_slope() * np.exp(leverage)) ** 2
    weight = np.ones(len(data)) if data.weight is None else data.weight / data.weight.mean()
    mean = float(np.average(squared, weights=weight))
    if not 0.0 < mean < np.inf:
        return None
    nobody = np.full(len(data), -1, np.int8)
    step, _ = boost_scale(forest, data.rows, squared / mean, weight, nobody, 1, _TRAINING_RATE, n_jobs)
    return LogScale(step[0], float(np.log(mean)))


def leaf_leverage(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> Array:
    """Return for each of the L leaves the share of its own residual that a training row loses there, as a logarithm.

    If the structure of a tree is held, a row's own residual shrinks by the share alpha h / (H + lambda) in it. The sum
    of the logarithms over all trees tells what a residual must be divided by to be that of a row left out.
    """
    total = moments.h_sum + spec.lambda_
    share = spec.alpha[forest.tree_of_leaf()] / forest.divisor * moments.h_mean / np.where(total > 0, total, np.inf)
    return -np.log1p(-np.clip(share, 0.0, 1.0 - np.exp(-_MAX_LEVERAGE)))


def held_out_scale(
    forest: Forest, rows: Rows, squared: Array, weight: Array, base: LogScale, log_base: Array, n_jobs: int | None
) -> tuple[LogScale, Array]:
    """Return a scale with further steps from held-out rows, and its cross-fitted log-variances of these rows.

    `_FOLDS` models are fitted, each to all rows but a part. The scale is their mean, and a row's log-variance that of
    the model that has not seen it.

    Parameters
    ----------
    squared, weight : (n,) float array
        Squared residuals of the margin, and weights.
    base : LogScale
        The scale that steps are added to.
    log_base : (n,) float array
        Log-variances of the rows under `base`.
    """
    folds = min(_FOLDS, len(rows))
    fold = (np.random.default_rng(0).permutation(len(rows)) % folds).astype(np.int8)
    ratio, weight = squared * np.exp(-log_base), weight / weight.mean()
    step, own = boost_scale(forest, rows, ratio, weight, fold, folds, _HELD_OUT_RATE, n_jobs)
    return replace(base, step=base.step + step.mean(axis=0)), log_base + own


def boost_scale(
    forest: Forest,
    rows: Rows,
    ratio: Array,
    weight: Array,
    fold: NDArray[np.int8],
    models: int,
    rate: float,
    n_jobs: int | None,
) -> tuple[Array, Array]:
    """Return the (models, L) steps, and for each row the sum of its steps in the model of its fold.

    Parameters
    ----------
    ratio, weight : (n,) float array
        Squared residuals over variances, and weights.
    fold : (n,) int array
        The model that is fitted without the row; -1 for none.
    models : int
        How many models are fitted at once.
    rate : float
        Learning rate of the steps.
    """
    from ..kernels.scale import add_steps

    route = choose_route(forest, rows.converted())
    ratio, step, own = np.repeat(ratio[None], models, axis=0), np.empty((models, forest.n_leaves)), np.zeros(len(rows))
    for leaf, (first, end) in zip(route.leaves_by_tree(n_jobs), pairwise(forest.leaf_start), strict=True):
        sums = np.empty(2 * (end - first))
        add_steps(leaf, fold, weight, rate, _PRIOR_ROWS, sums, ratio, step[:, first:end], own)
    return route.by_leaf(step.T).T, own
