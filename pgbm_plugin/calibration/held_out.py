"""Held-out rows, with checks that training has not seen them and that they fit the model."""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray, Array
from ..errors import warn
from ..leaves.moments import LeafMoments
from ..predict.predictions import predict_margins, read_unlabelled
from ..predict.response import Margins
from ..predict.state import ModelState
from ..predict.support import Support
from ..routes.choose import choose_route
from ..tables.columns import read_column, read_labels, read_weights
from ..tables.in_memory import check_in_memory, in_memory
from ..tables.labelled import RawRows
from ..tables.rows import Rows
from ..trees.forest import Forest
from ..trees.objectives import LOG

# With fewer rows, a mean residual may be large by chance.
_ENOUGH = 20

# Trees whose leaves are compared to recognise rows.
_TREES = 3


class HeldOut(NamedTuple):
    """Labelled rows that training should not have seen, and their margins; n rows of a positive weight."""

    rows: Rows
    y: Array  # (n,) outcomes
    margins: Margins
    weight: Array | None  # (n,) importance of each row; None if all count equally
    used: NDArray[np.bool_]  # one flag for each row of the table: whether it is among the n


def read_held_out(
    state: ModelState,
    method: str,
    raw: RawRows,
    y_name: str,
    at_least: int,
    device: str,
    n_jobs: int | None,
    *,
    out_of_fold: Any = None,
    bounds: Support | None = None,
    recursion: bool = False,
    may_drift: bool = False,
) -> HeldOut:
    """Read held-out rows for a method of the model; warn if training saw them or if they do not fit the model.

    Rows whose weight is 0, or that have no prediction out of fold, are left out.

    Parameters
    ----------
    method, y_name : str
        Names of the method and of its labels, for errors.
    at_least : int
        Number of rows that the method needs.
    out_of_fold : column, optional
        Predictions of the rows by models that were trained without them, in place of the model's own; NaN for none.
    bounds : Support or None
        Bounds that no label may lie beyond.
    recursion : bool
        Whether variances are those of the recursion, even if the model has a boosted scale.
    may_drift : bool
        Whether a mean residual that is large is what the method is for, and no reason to warn.
    """
    check_in_memory(raw.X)
    if raw.y is None:
        raise TypeError(f"{method} needs labels: model.{method}(X, y)")
    raw, out_of_fold = RawRows(*map(in_memory, vars(raw).values())), in_memory(out_of_fold)
    for name, column in (("y", raw.y), ("out_of_fold", out_of_fold)):
        _check_aligned(method, raw.X, name, column)
    rows, init_score = read_unlabelled(state, raw.X, raw.init_score, device)
    y = read_labels(y_name, state.surroundings.labels(raw.y), len(rows))
    weight = read_weights("sample_weight", raw.sample_weight, len(rows))
    predicted = None if out_of_fold is None else _read_out_of_fold(state, out_of_fold, len(rows))
    counts = np.ones(len(rows), bool)
    for column in (weight, None if predicted is None else ~np.isnan(predicted)):
        if column is not None:
            counts &= column > 0
    n = int(counts.sum())
    if n < at_least:
        kind = "".join(
            kind
            for kind, given in ((" with a positive weight", weight), (" with an out-of-fold prediction", predicted))
            if given is not None
        )
        raise ValueError(f"{method} needs at least {at_least} rows{kind}, it got {n}")
    if state.spec.objective is not None:
        state.spec.objective.check_labels(y)
    if bounds is not None:
        bounds.check_labels(y_name, np.where(counts, y, np.nan))
    if predicted is None and are_wrapped_rows(state.forest, state.moments, rows):
        if state.certificate.status != "held-out":
            warn(
                "wrap has seen these rows: residuals of training rows are too small, and the predicted spread would "
                f"be, too; give {method} held-out rows"
            )
        elif method == "conformalize":
            warn("wrap has seen these rows, so coverage is not guaranteed: give conformalize rows of its own")
    scale = None if recursion else state.chosen.scale
    margins = predict_margins(state, rows, init_score, state.chosen.rho, scale, n_jobs)
    if n < len(rows):
        used = np.flatnonzero(counts)
        rows, y, margins = rows.sample(used), y[used], margins.take(used)
        weight, predicted = (None if column is None else column[used] for column in (weight, predicted))
    if predicted is not None:
        _check_out_of_sample(predicted, margins.prediction, y)
        margins = margins.around(predicted)
    warned = init_score is None and state.spec.own_starts  # of a missing init_score
    if not (may_drift or warned):
        check_centred(method, y, margins.prediction)
    return HeldOut(rows, y, margins, weight, counts)


def _read_out_of_fold(state: ModelState, values: Any, n: int) -> Array:
    """Return the (n,) predictions out of fold, NaN where there is none; refuse those that the model cannot make."""
    predicted = read_column("out_of_fold", values, n, may_miss=True)
    assert predicted is not None
    predicted = state.surroundings.forward(predicted)
    if state.forest.link == LOG and np.any(predicted <= 0.0):
        raise ValueError(
            f"out_of_fold must be positive, because the model has a log link, but its smallest is "
            f"{np.nanmin(predicted):g}: give predictions of the response, not of its logarithm"
        )
    return predicted


def _check_out_of_sample(predicted: Array, own: AnyArray, y: Array) -> None:
    """Refuse predictions that are the model's own, or the labels: their residuals are too small."""
    # some may agree by chance, where predictions take few values
    near, spread = 4.0 * np.finfo(np.float64).eps * np.abs(own) + 1e-6 * np.ptp(own), np.ptp(own) > 0.0
    if spread and any(np.all(np.abs(predicted - values) <= near) for values in (own, own.astype(np.float32))):
        raise ValueError(
            "out_of_fold equals the model's own predictions: these are in-sample, and their residuals are too small. "
            "Give predictions of models that were trained without the rows they predict: "
            "pgbm_plugin.out_of_fold(booster, X, y), or scikit-learn's cross_val_predict"
        )
    if spread and np.array_equal(predicted, y):
        raise ValueError("out_of_fold equals the labels, so there is no residual to calibrate by: give predictions")


def are_wrapped_rows(forest: Forest, moments: LeafMoments, rows: Rows) -> bool:
    """Tell whether these are the rows of the moments: equally many in total and in each leaf of the first trees."""
    if len(rows) != moments.count[: forest.leaf_start[1]].sum():
        return False
    first = forest.first_trees(min(_TREES, forest.n_trees))
    route = choose_route(first, rows)
    for t, leaf in enumerate(islice(route.leaves_by_tree(1), _TREES)):
        count = route.ordered(moments.count[: first.n_leaves])[first.leaf_start[t] : first.leaf_start[t + 1]]
        if np.any(np.bincount(leaf, minlength=len(count)) != count):
            return False
    return True


def _check_aligned(method: str, X: Any, name: str, column: Any) -> None:
    """Warn if the index of a column has the rows of X in another order, because rows are matched by position."""
    index, own = getattr(X, "index", None), getattr(column, "index", None)
    if index is None or own is None or callable(index) or callable(own):
        return
    if len(index) != len(own) or index.equals(own):
        return
    if index.is_unique and set(index) == set(own):
        warn(
            f"{method}: the index of {name} has the rows of X in another order, but is not used; give "
            f"{name}.loc[X.index]"
        )


def check_centred(method: str, y: Array, prediction: Array) -> str:
    """Warn if the mean residual is larger than the scatter of residuals: no spread can repair a wrong centre.

    Returns the warning; "" if there is none.
    """
    residual = y - prediction
    off, scatter = float(residual.mean()), float(residual.std())
    if len(y) < _ENOUGH or abs(off) <= max(scatter, 1e-6 * float(np.abs(y).max())):
        return ""
    message = (
        f"the {len(y)} outcomes that {method} got differ from the predictions by {off:+.3g} on average, but scatter by "
        f"only {scatter:.3g}: check that they are in the unit of training. If training had an init_score "
        f"(base_margin), give init_score="
    )
    warn(message)
    return message
