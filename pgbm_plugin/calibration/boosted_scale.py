"""The boosted scale: a log-variance with one step per leaf of the trained trees, fitted to residuals.

Let q be the squared residual of a row, divided by its variance so far. The step of a leaf is rate * log(mean q of its
rows). Some rows with q = 1 are added to the mean, so that the steps of leaves with few rows are small. Trees come in
the order of boosting. The rows must be in memory, and at most `MAX_ROWS` of them are used.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..leaves.leverage import MAX_LEVERAGE, leaf_leverage
from ..predict.log_scale import LogScale
from ..predict.recursion import leaf_sums, margins
from ..predict.response import Margins, to_response
from ..predict.state import ModelState
from ..routes.choose import choose_route
from ..tables.labelled import LabelledRows
from ..tables.rows import Rows
from ..trees.forest import Forest

MAX_ROWS = 1 << 18
"""The largest number of rows that a scale is fitted to."""

# Training rows are many and held-out rows few, so they have different rates. On the nine UCI sets, any rate in a wide
# range around these does as well. Rows with out-of-fold predictions are those of training.
TRAINING_RATE, HELD_OUT_RATE = 0.2, 0.05
_PRIOR_ROWS = 20.0

# Held-out rows are divided into so many parts, and a part is scored by the model that was fitted without it.
_FOLDS = 10


def training_scale(state: ModelState, data: LabelledRows, n_jobs: int | None) -> LogScale | None:
    """Return a scale boosted from the residuals of training rows; None if these are all 0, or not finite.

    Each residual is enlarged to what it would be if training had left its row out.
    """
    data, forest = data.sample(MAX_ROWS), state.forest
    leverage = np.zeros(len(data))
    if state.certificate.status != "held-out":
        per_leaf = leaf_leverage(forest, state.spec, state.moments)
        leverage = np.minimum(leaf_sums(forest, data.rows, per_leaf, n_jobs), MAX_LEVERAGE)
    margin = margins(forest, data.rows, state.leaf_value, data.init_score, n_jobs)
    predicted = Margins(forest, margin, to_response(forest, margin), np.zeros(len(data)))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # a prediction may be 0 under a log link
        squared = ((data.y - predicted.prediction) / predicted.link_slope() * np.exp(leverage)) ** 2
    weight = np.ones(len(data)) if data.weight is None else data.weight / data.weight.mean()
    mean = float(np.average(squared, weights=weight))
    if not 0.0 < mean < np.inf:
        return None
    no_fold = np.full(len(data), -1, np.int8)
    step, _ = boost_scale(forest, data.rows, squared / mean, weight, no_fold, 1, TRAINING_RATE, n_jobs)
    return LogScale(step[0], float(np.log(mean)))


def held_out_scale(
    forest: Forest,
    rows: Rows,
    squared: Array,
    weight: Array,
    base: LogScale,
    log_base: Array,
    rate: float,
    n_jobs: int | None,
) -> tuple[LogScale, Array]:
    """Return `base` with further steps from held-out rows, and the cross-fitted log-variances of these rows.

    `_FOLDS` models are fitted, each without one part of the rows. The scale is their mean, and a row's log-variance
    comes from the model that has not seen the row. `squared` are the (n,) squared residuals of the margin, `log_base`
    the log-variances of the rows under `base`; other parameters as in `boost_scale`.
    """
    folds = min(_FOLDS, len(rows))
    fold = (np.random.default_rng(0).permutation(len(rows)) % folds).astype(np.int8)
    ratio, weight = squared * np.exp(-log_base), weight / weight.mean()
    step, own = boost_scale(forest, rows, ratio, weight, fold, folds, rate, n_jobs)
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
    """Return the (models, L) steps, and the (n,) sums of each row's steps in the model of its fold.

    Parameters
    ----------
    ratio, weight : (n,) float array
        Squared residuals over variances, and weights.
    fold : (n,) int array
        The model that is fitted without the row; -1 for none.
    models : int
        Number of models that are fitted at once.
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
