"""RowSupport: how many training rows stand behind each prediction, and what training never saw."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray, Array
from ..leaves.leverage import leaf_leverage
from ..tables.ranges import outside
from ..tables.rows import Rows
from .recursion import leaf_sums
from .state import ModelState

_UNKNOWN = (
    "which values lie outside of what training saw is not known, because the model was made from moments, a recorded "
    "training or an older file, without the rows"
)

# Features that the summary names.
_SHOWN = 3


@dataclass(frozen=True, eq=False)
class RowSupport:
    """How many training rows stand behind the predictions of n rows, and which values lie outside what training saw.

    Attributes
    ----------
    rows : (n,) float array
        Effective training rows behind each prediction, at least 1. In each tree, a training row in this leaf would have
        a share of its own in the leaf's value: the learning rate over n + lambda, if n rows are there. Together these
        shares are those that a row has in the mean of so many rows.
    names : tuple of str
        Names of the features, as the booster has them.
    pairs : tuple of two int arrays, or None
        Row and feature of every value that lies outside, in rising order; None if that is not known.
    """

    rows: Array
    names: tuple[str, ...]
    pairs: tuple[NDArray[np.int64], NDArray[np.int64]] | None

    @cached_property
    def outside(self) -> tuple[tuple[str, ...], ...] | None:
        """Return for each row the names of the features that lie outside of what training saw; None if not known."""
        if self.pairs is None:
            return None
        out: list[tuple[str, ...]] = [()] * len(self)
        row, feature = self.pairs
        for features in np.split(np.arange(len(row)), np.flatnonzero(np.diff(row)) + 1) if len(row) else ():
            out[row[features[0]]] = tuple(self.names[j] for j in feature[features])
        return tuple(out)

    @property
    def n_outside(self) -> NDArray[np.int64] | None:
        """Return the (n,) numbers of features that lie outside; None if not known."""
        return None if self.pairs is None else np.bincount(self.pairs[0], minlength=len(self))

    def least(self, count: int = 10) -> NDArray[np.int64]:
        """Return the numbers of the least supported rows: first those with most features outside, then fewest rows."""
        number = np.zeros(len(self)) if self.n_outside is None else self.n_outside
        return np.lexsort((self.rows, -number))[:count]

    def take(self, index: NDArray[np.int64]) -> RowSupport:
        """Return the support of the rows with these numbers, which must be in rising order."""
        if self.pairs is None:
            return RowSupport(self.rows[index], self.names, None)
        row, feature = self.pairs
        kept = np.isin(row, index)
        return RowSupport(self.rows[index], self.names, (np.searchsorted(index, row[kept]), feature[kept]))

    def columns(self) -> dict[str, AnyArray]:
        """Return the columns of a frame: support, the effective rows, and outside, the names with commas between."""
        columns: dict[str, AnyArray] = {"support": self.rows}
        if self.outside is not None:
            columns["outside"] = np.array([", ".join(names) for names in self.outside], np.str_)
        return columns

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        lines = [f"RowSupport of {len(self):,} rows"]
        if len(self):
            low, middle, high = (f"{float(f'{q:.3g}'):,g}" for q in np.quantile(self.rows, [0.0, 0.5, 1.0]))
            lines.append(f"effective training rows behind a prediction: {low} to {high}, median {middle}")
        lines.append(self._on_outside())
        return "\n  ".join(lines)

    def _on_outside(self) -> str:
        if self.pairs is None:
            return _UNKNOWN
        row, feature = self.pairs
        count = len(np.unique(row))
        if not count:
            return "no value lies outside of what training saw"
        times = np.bincount(feature, minlength=len(self.names))
        order = np.argsort(-times, kind="stable")[: np.count_nonzero(times)]
        named = ", ".join(f"{self.names[j]} in {times[j]:,}" for j in order[:_SHOWN])
        more = f" and {len(order) - _SHOWN} more" if len(order) > _SHOWN else ""
        return f"values outside of what training saw in {count:,} {'row' if count == 1 else 'rows'}: {named}{more}"


def predict_support(state: ModelState, rows: Rows, n_jobs: int | None) -> RowSupport:
    """Return the support of rows, see `ProbabilisticModel.predict_support`."""
    forest, moments = state.forest, state.moments
    leverage = leaf_sums(forest, rows, leaf_leverage(forest, state.spec, moments), n_jobs)
    with np.errstate(divide="ignore"):
        behind = np.clip(-1.0 / np.expm1(-leverage), 1.0, max(float(moments.rows), 1.0))
    pairs = None if moments.ranges is None else outside(moments.ranges, rows, forest, n_jobs)
    return RowSupport(behind, forest.features.shown_names, pairs)
