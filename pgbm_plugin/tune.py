"""Tuning after training: the family, the correlation and a power map on the variance, from validation rows.

One pass gives the variance of every row under every correlation of a grid; all that follows is closed-form scoring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from .calibration import MAX_B, Calibration, fit_map
from .distributions import FAMILIES, Conformal, Discrete, Empirical, family
from .parallel import progress_bar
from .propagate import variances
from .response import Margins
from .rows import Rows
from .tuneresult import Candidate, TuneResult

Array = NDArray[np.float64]
Score = Literal["crps", "nll"]

# Fewer rows cannot tell two parameters from noise.
MIN_ROWS = 6
# The paper finds 0.02 to 0.07; large values matter where trees are few.
DEFAULT_RHO = np.round(np.concatenate([np.linspace(-0.1, 0.1, 31), np.geomspace(0.12, 0.9, 9)]), 4)
# The search looks at no more rows than these; what it finds is scored on all, and the best map is fitted to all.
SEARCH_ROWS = 2000


@dataclass(frozen=True)
class Validation:
    """Validation rows; n of them.

    Attributes
    ----------
    margins : what the trees say of them; the variance is set for each correlation.
    y, weight : (n,) outcomes, and weights that sum to 1.
    metric : the score.
    floor : variance of a margin below which a residual means nothing.
    variances : passes the rows through the trees: (k,) correlations -> (k, n) variances of the margin.
    positive : whether families that need a positive mean are tried.
    rows : the table that they are.
    index : (n,) where they are in the table that was given, rising.
    """

    margins: Margins
    y: Array
    weight: Array
    metric: Score
    floor: float
    variances: Callable[[Array], Array]
    positive: bool
    rows: Rows
    index: NDArray[np.int64]

    def at(self, index: NDArray[np.int64]) -> Validation:
        """Those of the rows that are at these places of the table that was given."""
        here = np.searchsorted(self.index, index)
        rows = self.rows if len(here) == len(self.index) else self.rows.sample(here)
        weight = self.weight[here]
        return replace(
            self,
            margins=self.margins.take(here),
            y=self.y[here],
            weight=weight / weight.sum(),
            variances=lambda rho: self.variances(rho)[:, here],
            rows=rows,
            index=index,
        )

    def some(self, rows: int) -> Validation:
        """So many of the rows at random, the same every time."""
        return self.at(np.sort(np.random.default_rng(0).choice(self.index, rows, replace=False)))

    def score(self, name: str, variance: Array, calibration: Calibration) -> float:
        """Mean score of a family for these variances of the margin; ValueError if it does not fit the rows."""
        margins = replace(self.margins, variance=variance)
        cls, options = family(name)
        if cls.needs_positive_mean and not self.positive:
            raise ValueError("the model may predict 0 or less for other rows; to try it all the same, name it")
        if issubclass(cls, Discrete) and np.any(self.y != np.floor(self.y)):
            raise ValueError("the labels are not whole numbers")
        if issubclass(cls, Empirical):
            if self.metric == "nll":
                raise ValueError("it has no density")
            values = _left_out_crps(*self.residuals(variance, calibration))
        else:
            distribution = margins.distribution(cls, calibration, **options)
            values = distribution.crps(self.y) if self.metric == "crps" else distribution.nll(self.y)
        bad = ~np.isfinite(values)
        if bad.any():
            raise ValueError(f"{int(bad.sum())} labels are outside its support, or where its density is infinite")
        return float(values @ self.weight)

    def residuals(self, variance: Array, calibration: Calibration) -> tuple[Array, Array]:
        """(y - mean) / std and the std."""
        margins = replace(self.margins, variance=np.maximum(variance, self.floor))
        std = np.sqrt(margins.response_variance(calibration))
        return (self.y - self.margins.prediction) / std, std

    def fit_map(self, variance: Array, flat: bool = False) -> Calibration:
        """The power map for a normal's score."""
        residual = self.y - self.margins.prediction
        return fit_map(residual, self.margins.link_slope(), variance, self.weight, self.metric, flat=flat)


def validation_rows(
    rows: Rows,
    y: Array,
    weight: Array | None,
    margins: Margins,
    metric: Score,
    floor: float,
    leaf_sd: Array,
    positive: bool,
    n_jobs: int | None,
) -> tuple[Validation, Validation]:
    """All rows that have a weight, and those of them that the search looks at."""
    if not np.any(margins.variance > 0):
        raise ValueError(
            "there is no variance to tune: every leaf that these rows reach held one row, or equal labels; train with "
            "more rows a leaf, or wrap held-out rows"
        )
    weight = np.ones(len(rows)) if weight is None else weight
    used = np.flatnonzero(weight)
    if len(used) < MIN_ROWS:
        raise ValueError(f"tune needs at least {MIN_ROWS} rows with a weight, it got {len(used)}")

    def validation(index: NDArray[np.int64]) -> Validation:
        part = rows if len(index) == len(rows) else rows.sample(index)
        w = weight[index]
        return Validation(
            margins.take(index),
            y[index],
            w / w.sum(),
            metric,
            floor,
            lambda rho: variances(margins.forest, part, leaf_sd, rho, n_jobs),
            positive,
            part,
            index,
        )

    everything = validation(used)
    if len(used) <= SEARCH_ROWS:
        return everything, everything
    return everything, validation(np.sort(np.random.default_rng(0).choice(used, SEARCH_ROWS, replace=False)))


def tune(
    validation: Validation,
    sample: Validation,
    default_rho: float,
    *,
    names: Sequence[str],
    grid: Array,
    calibrate: bool,
    progress: bool,
) -> TuneResult:
    """Score all families on a grid of correlations, refine each around its best, and compare them on all rows.

    The search is done on `sample`, which may be some of the rows or all of them.
    """
    table = sample.variances(grid)
    maps = tuple(sample.fit_map(row) if calibrate else Calibration() for row in table)
    search = _Search(sample, grid, calibrate)
    scores, found, failed = {}, [], {}
    with progress_bar(len(names), "families", progress) as advance:
        for name in names:
            try:
                row = [sample.score(name, table[k], maps[k]) for k in range(len(grid))]
            except ValueError as error:
                failed[name] = str(error)
            else:
                k = int(np.argmin(row))
                scores[name] = row
                found.append(search.refine(Candidate(name, float(grid[k]), maps[k], row[k]), k, table[k]))
            advance(1)
    candidates = sorted(_rescored(validation, found, failed), key=lambda candidate: candidate.score)
    if not candidates:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise ValueError(f"no distribution fits the validation rows ({reasons})")

    at_best, at_default = validation.variances(np.array([candidates[0].rho, default_rho]))
    if calibrate and sample is not validation:
        candidates[0] = _Search(validation, grid, calibrate).polish(candidates[0], at_best)
    best = candidates[0]
    one_spread = validation.fit_map(at_default, flat=True)
    return TuneResult(
        metric=validation.metric,
        rows=len(validation.y),
        rho=grid,
        distributions=tuple(scores),
        scores=np.array(list(scores.values())),
        calibrations=maps,
        candidates=tuple(candidates),
        failed=failed,
        before=_normal(validation, default_rho, at_default, Calibration()),
        constant=_normal(validation, default_rho, at_default, one_spread),
        residuals=validation.residuals(at_best, best.calibration)[0],
    )


def _rescored(validation: Validation, found: list[Candidate], failed: dict[str, str]) -> Iterator[Candidate]:
    """The candidates with their scores on all rows; those that do not fit all rows have failed."""
    table = validation.variances(np.array([candidate.rho for candidate in found]))
    for candidate, variance in zip(found, table, strict=True):
        try:
            score = validation.score(candidate.distribution, variance, candidate.calibration)
        except ValueError as error:
            failed[candidate.distribution] = str(error)
        else:
            yield replace(candidate, score=score)


def _normal(validation: Validation, rho: float, variance: Array, calibration: Calibration) -> Candidate:
    try:
        score = validation.score("normal", variance, calibration)
    except ValueError:  # a row without variance has an infinite log likelihood
        score = np.inf
    return Candidate("normal", rho, calibration, score)


def families(distributions: Sequence[str] | str | None) -> tuple[str, ...]:
    """The names of the families to try, checked; all for None."""
    if distributions is None:
        return tuple(name for name, cls in FAMILIES.items() if cls.tunable)
    names = (distributions,) if isinstance(distributions, str) else tuple(distributions)
    if not names:
        raise ValueError("distributions is empty")
    for name in names:
        if issubclass(family(name)[0], Conformal):
            raise ValueError("conformal is not a family to tune: call model.conformalize")
    return names


def rho_grid(rho: ArrayLike | None) -> Array:
    """The correlations to try, checked, in rising order."""
    grid = DEFAULT_RHO if rho is None else np.unique(np.atleast_1d(np.asarray(rho, np.float64)))
    if not len(grid) or not np.all(np.abs(grid) <= 1.0):
        raise ValueError(f"rho must lie in [-1, 1], not {rho!r}")
    return grid


@dataclass
class _Search:
    """Refines one family at a time, and keeps what it computed around a correlation: families often agree on one."""

    sample: Validation
    grid: Array
    calibrate: bool
    around: dict[int, tuple[Array, Array, list[Calibration]]] = field(default_factory=dict)

    def refine(self, best: Candidate, k: int, variance: Array) -> Candidate:
        """The best correlation between the neighbours of grid point k, then the map for the family's own score."""
        if len(self.grid) > 1:
            for rho, row, calibration in zip(*self._between_neighbours(k), strict=True):
                score = self._score(best.distribution, row, calibration)
                if score < best.score:
                    best, variance = Candidate(best.distribution, float(rho), calibration, score), row
        return self.polish(best, variance) if self.calibrate else best

    def _between_neighbours(self, k: int) -> tuple[Array, Array, list[Calibration]]:
        if k not in self.around:
            rho = np.linspace(self.grid[max(k - 1, 0)], self.grid[min(k + 1, len(self.grid) - 1)], 9)
            table = self.sample.variances(rho)
            maps = [self.sample.fit_map(row) if self.calibrate else Calibration() for row in table]
            self.around[k] = rho, table, maps
        return self.around[k]

    def polish(self, best: Candidate, variance: Array) -> Candidate:
        """The power map for the family's own score; so far it was a normal's."""
        # size and exponent around the middle of log variance, where they do not move each other
        positive = variance[variance > 0]
        middle = float(np.median(np.log(positive))) if len(positive) else 0.0

        def calibration(x: Array) -> Calibration:
            return Calibration(float(x[1]), float(np.exp(x[0] - x[1] * middle)))

        start = np.array([np.log(best.calibration.c) + best.calibration.b * middle, best.calibration.b])
        lean = -0.2 if start[1] > MAX_B / 2 else 0.2
        found = minimize(
            lambda x: self._score(best.distribution, variance, calibration(x)),
            start,
            method="Nelder-Mead",
            bounds=[(start[0] - 3.0, start[0] + 3.0), (0.0, MAX_B)],
            options={"maxfev": 40, "xatol": 1e-3, "initial_simplex": start + np.array([[0, 0], [0.2, 0], [0, lean]])},
        )
        if not found.fun < best.score:
            return best
        return replace(best, calibration=calibration(found.x), score=float(found.fun))

    def _score(self, name: str, variance: Array, calibration: Calibration) -> float:
        try:
            return self.sample.score(name, variance, calibration)
        except ValueError:
            return np.inf


def _left_out_crps(residual: Array, std: Array) -> Array:
    """CRPS of each row under the residuals of all others: a row must not vouch for itself."""
    r, m = np.sort(residual), len(residual)
    sums = np.concatenate([[0.0], np.cumsum(r)])
    k = np.searchsorted(r, residual, side="right")
    distance = residual * (2.0 * k - m) - 2.0 * sums[k] + sums[m]
    spread = 0.5 * (distance.sum() - 2.0 * distance) / (m - 1) ** 2
    return std * (distance / (m - 1) - spread)
