"""What validation rows say of the shape: bins of residuals, bounds of the labels, and the lattice they lie on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..distributions import Distribution, Empirical, family
from ..distributions.empirical import bin_of
from ..predict.power_map import Calibration
from ..predict.response import Margins
from ..predict.support import MAX_VALUES, Support
from ..trees.objectives import LOG

if TYPE_CHECKING:
    from .tune_result import Candidate
    from .validation import Validation

# A bin holds at least so many rows, in the sense of (sum w)^2 / sum w^2.
ROWS_PER_BIN = 30
# A lattice has at most so many values, as a share of the rows.
_FEW_VALUES = 0.05
# Labels pile up at their smallest or largest value if this share of the rows, and so many, have it.
_PILE, _PILE_ROWS = 0.01, 5
# A bound is real if the distributions without it expect at least so many labels beyond.
_EXPECTED_BEYOND = 5.0
# Bounds and lattices are judged on at most so many rows.
_SUPPORT_ROWS = 2000
# They are tried with families whose score without them is at most so many times the best one.
_WORTH_TRYING = 1.1


class Bins(NamedTuple):
    """Bins of m residuals."""

    of_residual: NDArray[np.uint8] | None = None  # (m,) bin of each residual; None if there is one bin
    edges: Array | None = None  # (B - 1,) upper ends of all bins but the last


def find_bins(margins: Margins, std: Array, weight: Array, by: str = "mean", bins: float = 1.0) -> Bins:
    """Sort rows into bins of the predicted mean or spread, with about the same weight each.

    Neighbours are merged where a bin would hold fewer than `ROWS_PER_BIN` rows; ValueError if one bin is left.
    """
    if bins == 1.0:
        return Bins()
    key = margins.prediction.astype(np.float64) if by == "mean" else std
    order = np.argsort(key, kind="stable")
    up_to = np.cumsum(weight[order])
    ends = np.searchsorted(up_to, up_to[-1] * np.arange(1, bins) / bins)
    edges = np.unique(key[order][np.minimum(ends, len(key) - 1)])
    edges = edges[edges < key.max()]
    while len(edges):
        place = bin_of(edges, key)
        rows = np.bincount(place, weight) ** 2 / np.bincount(place, weight**2)
        smallest = int(np.argmin(rows))
        if rows[smallest] >= ROWS_PER_BIN:
            return Bins(place.astype(np.uint8), edges)
        left = smallest - 1  # the edge to the smaller neighbour goes
        if smallest == 0 or (smallest < len(edges) and rows[smallest + 1] < rows[smallest - 1]):
            left = smallest
        edges = np.delete(edges, left)
    raise ValueError(f"{bins:g} bins of the predicted {by} need {ROWS_PER_BIN} rows each, and values that differ")


def own_residuals(
    margins: Margins, y: Array, weight: Array, calibration: Calibration, support: Support | None, **options: Any
) -> Empirical:
    """Return the empirical distributions of rows, made of the residuals of the same rows."""
    residual, std = margins.standardised_residuals(y, calibration)
    of_residual, _ = find_bins(margins, std, weight, **options)
    bounds = (support or Support()).within(Support(lower=0.0) if margins.forest.link == LOG else None)
    params: dict[str, Any] = {"loc": margins.prediction, "scale": std}
    if of_residual is not None:
        params["bin"] = of_residual
    samples: dict[str, Any] = {"residuals": residual, "weights": weight, "residual_bin": of_residual}
    return Empirical(**samples, lower=bounds.lower, upper=bounds.upper, **params)


class _Trial(NamedTuple):
    """A candidate with a support, and its scores of the rows."""

    candidate: Candidate
    support: Support | None
    scores: Array


def choose_shape(validation: Validation, candidates: Sequence[Candidate]) -> tuple[Candidate, Support | None]:
    """Return the candidate to use, and the bounds or the lattice that the labels show if these improve it.

    The first candidate without bins is replaced by another with a support, and then by one with bins, if that scores
    better by more than one standard error of the paired difference. Supports are for families that nobody named, and
    not for the log score, which cannot compare probabilities with densities.
    """
    table = validation.variances(np.array([candidate.rho for candidate in candidates]))
    # the rows of all candidates are the same sample
    rows = [replace(validation, margins=replace(validation.margins, variance=v)).some(_SUPPORT_ROWS) for v in table]
    limit = _WORTH_TRYING * candidates[0].score if candidates[0].score > 0.0 else np.inf
    plain: list[_Trial] = []
    binned: list[_Trial] = []
    for candidate, sample in zip(candidates, rows, strict=True):
        trials = binned if family(candidate.distribution)[1].get("bins", 1) > 1 else plain
        if not trials or candidate.score <= limit:
            trials += _trials(sample, candidate)
    chosen, weight = (plain or binned)[0], rows[0].weight
    for further in ([trial for trial in plain if trial.support is not None], binned):
        better = [trial for trial in further if _is_better(trial.scores, chosen.scores, weight)]
        chosen = min(better, key=lambda trial: float(weight @ trial.scores), default=chosen)
    return chosen.candidate, chosen.support


def _trials(rows: Validation, candidate: Candidate) -> Iterator[_Trial]:
    """Yield a candidate without a support, and with those that the labels suggest."""
    settings = candidate.distribution, rows.margins.variance, candidate.calibration
    yield _Trial(candidate, None, rows.row_scores(*settings))
    if rows.named or rows.metric == "nll":
        return
    for support in _suggested(rows.y, rows.distribution(*settings, rows.bounds)):
        support = support.within(rows.bounds)
        yield _Trial(candidate, support, rows.row_scores(*settings, support))


def _is_better(scores: Array, than: Array, weight: Array) -> bool:
    """Tell whether scores are lower by more than one standard error of the paired difference."""
    gain = than - scores
    mean = float(weight @ gain)
    return mean > float(np.sqrt(weight**2 @ (gain - mean) ** 2))


def _suggested(y: Array, distribution: Distribution) -> Iterator[Support]:
    """Yield what labels suggest: bounds at which they pile up, or 0 below all of them; a lattice of few values."""
    values, count = np.unique(y, return_counts=True)
    if len(values) < 2:
        return
    piled = count >= max(_PILE * len(y), _PILE_ROWS)
    lower = values[0] if piled[0] else 0.0 if values[0] >= 0.0 else -np.inf
    upper = values[-1] if piled[-1] else np.inf
    if np.isfinite(lower) and distribution.cdf(np.nextafter(lower, -np.inf)).sum() < _EXPECTED_BEYOND:
        lower = -np.inf
    if np.isfinite(upper) and distribution.sf(upper).sum() < _EXPECTED_BEYOND:
        upper = np.inf
    if np.isfinite(lower) or np.isfinite(upper):
        yield Support(float(lower), float(upper))
    if len(values) <= min(MAX_VALUES, _FEW_VALUES * len(y)):
        yield Support(values=values)
