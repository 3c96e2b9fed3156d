"""Held-out rows, read and checked: are they held out at all, and meant for this model?"""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array
from ..errors import warn
from ..leaves.moments import LeafMoments
from ..predict.predictions import predict_margins, read_unlabelled
from ..predict.response import Margins
from ..predict.state import ModelState
from ..routes.choose import choose_route
from ..tables.columns import read_labels
from ..tables.labelled import RawRows
from ..tables.rows import Rows
from ..trees.forest import Forest

# Fewer rows may be off by chance.
_ENOUGH = 20

# Trees whose leaves are compared to recognise rows.
_TREES = 3


class HeldOut(NamedTuple):
    """Labelled rows that training should not have seen, and what the trees say of them."""

    rows: Rows
    y: Array
    margins: Margins


def read_held_out(
    state: ModelState,
    method: str,
    raw: RawRows,
    y_name: str,
    at_least: int,
    device: str,
    n_jobs: int | None,
    *,
    recursion: bool = False,
) -> HeldOut:
    """Read held-out rows for a method of the model; warn of rows that do not look held out, or not like its own.

    Parameters
    ----------
    method, y_name : str
        Names of the method and of its labels, for errors.
    at_least : int
        How many rows the method needs.
    recursion : bool
        Whether variances are those of the recursion, even if a boosted scale has taken its place.
    """
    if raw.y is None:
        raise TypeError(f"{method} needs labels: model.{method}(X, y)")
    _check_aligned(method, raw.X, raw.y)
    rows, init_score = read_unlabelled(state, raw.X, raw.init_score, device)
    if len(rows) < at_least:
        raise ValueError(f"{method} needs at least {at_least} rows, it got {len(rows)}")
    y = read_labels(y_name, raw.y, len(rows))
    if state.spec.objective is not None:
        state.spec.objective.check_labels(y)
    if state.certificate.status != "held-out" and are_wrapped_rows(state.forest, state.moments, rows):
        warn(
            "these are the rows that wrap saw: residuals of training rows are too small, and so will be the "
            f"spread; give {method} held-out rows"
        )
    scale = None if recursion else state.chosen.scale
    margins = predict_margins(state, rows, init_score, state.chosen.rho, scale, n_jobs)
    if init_score is not None or not state.spec.own_starts:  # else a missing init_score was warned of
        _check_centred(method, y, margins.prediction)
    return HeldOut(rows, y, margins)


def are_wrapped_rows(forest: Forest, moments: LeafMoments, rows: Rows) -> bool:
    """Tell whether the rows of the moments come again: as many, and spread over the first trees' leaves alike."""
    if len(rows) != moments.rows:
        return False
    first = forest.first_trees(min(_TREES, forest.n_trees))
    route = choose_route(first, rows)
    for t, leaf in enumerate(islice(route.leaves_by_tree(1), _TREES)):
        count = route.ordered(moments.count[: first.n_leaves])[first.leaf_start[t] : first.leaf_start[t + 1]]
        if np.any(np.bincount(leaf, minlength=len(count)) != count):
            return False
    return True


def _check_aligned(method: str, X: Any, y: Any) -> None:
    """Warn of labels whose index has the rows of X in another order: rows are taken by their position."""
    index, label_index = getattr(X, "index", None), getattr(y, "index", None)
    if index is None or label_index is None or callable(index) or callable(label_index):
        return
    if len(index) != len(label_index) or index.equals(label_index):
        return
    if index.is_unique and set(index) == set(label_index):
        warn(f"{method}: the index of y has the rows of X in another order, and is not looked at; give y.loc[X.index]")


def _check_centred(method: str, y: Array, prediction: Array) -> None:
    """Warn where outcomes are off by more than they scatter: a spread around the wrong place is of no use."""
    residual = y - prediction
    off, scatter = float(residual.mean()), float(residual.std())
    if abs(off) > max(scatter, 1e-6 * float(np.abs(y).max())) and len(y) >= _ENOUGH:
        warn(
            f"the {len(y)} outcomes that {method} got are {off:+.3g} off the predictions on average, with a scatter of "
            f"only {scatter:.3g}: are they in the unit of training? If it had an init_score (base_margin), give "
            f"init_score="
        )
