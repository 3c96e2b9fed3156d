"""A log-variance boosted on the trained trees: the same routing, one more number per leaf.

With q the squared residual of a row over its variance so far, the step of a leaf is rate * log of the mean q of its
rows, to which a number of rows with q = 1 are added: leaves of few rows hardly move. The trees are taken in order, as
boosting grew them, so that all rows must be at hand: of more than `MAX_ROWS` a sample is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..device import CudaRows
from ..leaves.certificate import Certificate
from ..leaves.moments import LabelledRows, LeafMoments
from ..leaves.weights import leaf_sums, margins
from ..predict.response import Margins, to_response
from ..routes.choose import choose_route
from ..routes.cuda import Cuda
from ..tables.rows import Rows, matrix_rows
from ..trees.forest import Forest
from ..trees.training_spec import TrainingSpec

Array = NDArray[np.float64]

MAX_ROWS = 1 << 18
"""Rows that a scale is fitted to, at most."""

# Of training rows there are many, and their residuals lean; of held-out rows few. Both figures are as good as any in a
# wide range around them on the nine UCI sets.
_TRAINING_RATE, _HELD_OUT_RATE = 0.2, 0.05
_PRIOR_ROWS = 20.0

# Held-out rows are cut into so many parts; the rows of a part are scored by the model that was fitted without it.
_FOLDS = 10

# The most that a training row's residual can be said to have shrunk: e^5.
_MAX_LEVERAGE = 5.0


@dataclass(frozen=True, eq=False)
class LogScale:
    """log sigma^2 = start + power * log sigma^2 of the recursion + the steps of the row's leaves; L leaves.

    Attributes
    ----------
    step : (L,) what a leaf adds.
    start : what all rows have.
    power : the share of the paper's recursion; 0 leaves it out.
    floor : variance of the recursion below which its logarithm means nothing.
    """

    step: Array
    start: float
    power: float = 0.0
    floor: float = 1.0

    def __post_init__(self) -> None:
        self.step.flags.writeable = False

    def __call__(self, variance: NDArray[np.floating], steps: Array) -> Array:
        """(n,) variances, from those of the recursion and the sums of the rows' steps."""
        scale = np.exp(self.start + steps)
        return scale * np.maximum(variance, self.floor) ** self.power if self.power else scale

    def mapped(self, b: float, log_c: float) -> LogScale:
        """With the power map sigma^2 -> c sigma^(2 b) on top."""
        return replace(self, step=b * self.step, start=b * self.start + log_c, power=b * self.power)


def training_scale(
    forest: Forest,
    spec: TrainingSpec,
    moments: LeafMoments,
    certificate: Certificate,
    leaf_value: NDArray[np.floating],
    data: LabelledRows,
    n_jobs: int | None,
) -> LogScale | None:
    """From the residuals of training rows, made as large as they would be had each row been left out.

    None if there are no residuals to speak of, or such that are not finite.
    """
    data = data.sample(MAX_ROWS)
    leverage = np.zeros(len(data))
    if certificate.status != "held-out":
        leverage = np.minimum(leaf_sums(forest, data.rows, leaf_leverage(forest, spec, moments), n_jobs), _MAX_LEVERAGE)
    margin, _, _ = margins(forest, data.rows, leaf_value, data.init_score, n_jobs=n_jobs)
    of_rows = Margins(forest, margin, to_response(forest, margin), np.zeros(len(data)))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # of a prediction that is 0 under a log link
        squared = ((data.y - of_rows.prediction) / of_rows.link_slope() * np.exp(leverage)) ** 2
    weight = np.ones(len(data)) if data.weight is None else data.weight / data.weight.mean()
    mean = float(np.average(squared, weights=weight))
    if not 0.0 < mean < np.inf:
        return None
    nobody = np.full(len(data), -1, np.int8)
    step, _ = boost_scale(forest, data.rows, squared / mean, weight, nobody, 1, _TRAINING_RATE, n_jobs)
    return LogScale(step[0], float(np.log(mean)))


def leaf_leverage(forest: Forest, spec: TrainingSpec, moments: LeafMoments) -> Array:
    """(L,) how much of its residual a training row loses in a leaf, as a logarithm.

    With the trees' structure held, a tree takes the share alpha h / (H + lambda) of a row's own residual away. What is
    left after all of them is about the product, by which a residual is divided to be that of a row left out.
    """
    total = moments.h_sum + spec.lambda_
    share = spec.alpha[forest.tree_of_leaf()] / forest.divisor * moments.h_mean / np.where(total > 0, total, np.inf)
    return -np.log1p(-np.clip(share, 0.0, 1.0 - np.exp(-_MAX_LEVERAGE)))


def held_out_scale(
    forest: Forest, rows: Rows, squared: Array, weight: Array, base: LogScale, log_base: Array, n_jobs: int | None
) -> tuple[LogScale, Array]:
    """A scale with further steps from held-out rows, and its log-variances of these rows, for which others vouch.

    `squared` and `weight` are (n,), residuals of the margin and weights; `log_base` is (n,), what `base` says of the
    rows. There are `_FOLDS` models, each of all rows but a part; the scale is their mean, and a row's log-variance is
    that of the model that has not seen it.
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
    """(models, L) steps, and for each row the sum of its steps in the model of its fold, which has not seen it.

    `ratio`, `weight` and `fold` are (n,): squared residuals over variances, and the model that leaves a row out.
    """
    from ..kernels.scale import add_steps

    route = choose_route(forest, matrix_rows([rows]) if isinstance(rows, CudaRows) else rows.converted())
    assert not isinstance(route, Cuda)
    ratio, step, own = np.repeat(ratio[None], models, axis=0), np.empty((models, forest.n_leaves)), np.zeros(len(rows))
    for leaf, (first, end) in zip(route.leaves_by_tree(n_jobs), pairwise(forest.leaf_start), strict=True):
        found = np.empty(2 * (end - first))
        add_steps(leaf, fold, weight, rate, _PRIOR_ROWS, found, ratio, step[:, first:end], own)
    return route.by_leaf(step.T).T, own
