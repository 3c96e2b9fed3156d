"""The search for the family, the correlation and the power map that score best on validation rows.

One pass through the trees gives the variances of all rows under all correlations of a grid. Scores need no other pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from ..arrays import Array
from ..distributions import FAMILIES, Conformal, family
from ..parallel import progress_bar
from ..predict.power_map import Calibration
from ..trees.objectives import TWEEDIE, Objective
from .few_rows import effective_rows, exponent_bounds, simplest
from .shape import choose_shape
from .tune_result import Candidate, TuneResult
from .validation import Validation

# The best correlations in the paper are 0.02 to 0.07. Large ones matter for models with few trees.
DEFAULT_RHO = np.round(np.concatenate([np.linspace(-0.1, 0.1, 31), np.geomspace(0.12, 0.9, 9)]), 4)
# The search uses at most so many rows. Its candidates are scored on all rows, and the best map is fitted to all rows.
SEARCH_ROWS = 2000


def search(
    validation: Validation,
    default_rho: float,
    *,
    names: Sequence[str],
    grid: Array,
    calibrate: bool,
    progress: bool,
) -> TuneResult:
    """Score all families on a grid of correlations, refine each around its best one, and compare them on all rows.

    The scores on the grid and the refinement use `SEARCH_ROWS` of the rows.
    """
    sample = validation.some(SEARCH_ROWS)
    table = sample.variances(grid)
    maps = _maps(sample, table, calibrate)
    refinement = _Refinement(sample, grid, calibrate)
    scores, refined, failed = {}, [], {}
    nearest = np.argsort(np.abs(grid - default_rho), kind="stable")  # rho's in order of simplicity
    with progress_bar(len(names), "families", progress) as advance:
        for name in names:
            try:
                by_row = [sample.row_scores(name, table[k], maps[k]) for k in range(len(grid))]
            except ValueError as error:
                failed[name] = str(error)
            else:
                scores[name] = row = [float(values @ sample.weight) for values in by_row]
                k = int(nearest[simplest([by_row[k] for k in nearest], sample.weight, sample.scarcity)])
                refined.append(refinement.refine(Candidate(name, float(grid[k]), maps[k], row[k]), k, table[k]))
            advance(1)
    rescored = list(_rescored(validation, refined, failed))
    if not rescored:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise ValueError(f"no distribution fits the validation rows ({reasons})")
    scores = {name: row for name, row in scores.items() if name not in failed}  # some may fail on all rows only
    rescored.sort(key=lambda pair: _complexity(pair[0].distribution))
    chosen = rescored[simplest([values for _, values in rescored], validation.weight, validation.scarcity)][0]
    candidates = sorted((c for c, _ in rescored), key=lambda c: (c is not chosen, c.score))

    chosen, support = choose_shape(validation, candidates)
    candidates.sort(key=lambda candidate: candidate is not chosen)
    at_best, at_default = validation.variances(np.array([candidates[0].rho, default_rho]))
    if calibrate and sample is not validation:
        candidates[0] = _Refinement(validation, grid, calibrate).polish(candidates[0], at_best)
    best = candidates[0]
    bins = validation.bins(best.distribution, at_best, best.calibration)
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
        before=Candidate("normal", default_rho, Calibration(), _score(validation, "normal", at_default, Calibration())),
        constant=Candidate("normal", default_rho, one_spread, _score(validation, "normal", at_default, one_spread)),
        residuals=validation.residuals(at_best, best.calibration),
        effective_rows=effective_rows(validation.weight),
        residual_bin=bins.of_residual,
        bin_edges=bins.edges,
        support=support,
    )


def _maps(rows: Validation, table: Array, calibrate: bool) -> tuple[Calibration, ...]:
    """Return the power map for each line of variances; without `calibrate`, it has only a floor."""
    if calibrate:
        return tuple(rows.fit_map(line) for line in table)
    return tuple(Calibration().with_floor(rows.typical(line)) for line in table)


def _complexity(name: str) -> float:
    """Return the place of a family in order of simplicity."""
    cls, options = family(name)
    return cls.complexity(**options)


def _rescored(
    validation: Validation, refined: list[Candidate], failed: dict[str, str]
) -> Iterator[tuple[Candidate, Array]]:
    """Yield the candidates with their scores on all rows, and the rows' scores; write misfits into `failed`."""
    table = validation.variances(np.array([candidate.rho for candidate in refined]))
    for candidate, variance in zip(refined, table, strict=True):
        try:
            values = validation.row_scores(candidate.distribution, variance, candidate.calibration)
        except ValueError as error:
            failed[candidate.distribution] = str(error)
        else:
            yield replace(candidate, score=float(values @ validation.weight)), values


def _score(rows: Validation, name: str, variance: Array, calibration: Calibration) -> float:
    """Return the score of a family; infinity if it does not fit, or if a row without variance has no density."""
    try:
        return rows.score(name, variance, calibration)
    except ValueError:
        return np.inf


def families(distributions: Sequence[str] | str | None, objective: Objective | None = None) -> tuple[str, ...]:
    """Return the names of the families to try, checked; all for None, with the power of a Tweedie objective."""
    if distributions is None:
        power = objective.value if objective is not None and objective.loss == TWEEDIE else 0.0
        own = {"tweedie": f"tweedie(power={power:.6g})"} if 1.0 < power < 2.0 else {}
        return tuple(
            spec for name, cls in FAMILIES.items() if cls.tunable for spec in (own.get(name, name), *cls.variants)
        )
    names = (distributions,) if isinstance(distributions, str) else tuple(distributions)
    if not names:
        raise ValueError("distributions is empty")
    for name in names:
        if issubclass(family(name)[0], Conformal):
            raise ValueError("conformal is not a family to tune: call model.conformalize")
    return names


def rho_grid(rho: ArrayLike | None) -> Array:
    """Return the correlations to try, checked, in rising order."""
    try:
        grid = DEFAULT_RHO if rho is None else np.unique(np.atleast_1d(np.asarray(rho, np.float64)))
    except (TypeError, ValueError):
        raise TypeError(f"rho must be a number or a list of them, not {rho!r:.60}") from None
    if not len(grid) or not np.all(np.abs(grid) <= 1.0):
        raise ValueError(f"rho must lie in [-1, 1], not {rho!r}")
    return grid


@dataclass
class _Refinement:
    """Refinement of one family at a time; it keeps what it computed near a correlation, for other families."""

    sample: Validation
    grid: Array
    calibrate: bool
    around: dict[int, tuple[Array, Array, tuple[Calibration, ...]]] = field(default_factory=dict)

    def refine(self, best: Candidate, k: int, variance: Array) -> Candidate:
        """Return the candidate with the best correlation near grid point k, and with the family's best power map."""
        if len(self.grid) > 1:
            for rho, row, calibration in zip(*self._between_neighbours(k), strict=True):
                score = _score(self.sample, best.distribution, row, calibration)
                if score < best.score:
                    best, variance = Candidate(best.distribution, float(rho), calibration, score), row
        return self.polish(best, variance) if self.calibrate else best

    def _between_neighbours(self, k: int) -> tuple[Array, Array, tuple[Calibration, ...]]:
        if k not in self.around:
            rho = np.linspace(self.grid[max(k - 1, 0)], self.grid[min(k + 1, len(self.grid) - 1)], 9)
            table = self.sample.variances(rho)
            self.around[k] = rho, table, _maps(self.sample, table, self.calibrate)
        return self.around[k]

    def polish(self, best: Candidate, variance: Array) -> Candidate:
        """Return the candidate with the power map that is best for its family, instead of for a normal."""
        # the map is parametrised at a typical log-variance, where factor and exponent hardly depend on each other
        typical = self.sample.typical(variance)
        middle = np.log(typical) if typical > 0.0 else 0.0

        def calibration(x: Array) -> Calibration:
            return Calibration(float(x[1]), float(np.exp(x[0] - x[1] * middle))).with_floor(typical)

        start = np.array([np.log(best.calibration.c) + best.calibration.b * middle, best.calibration.b])
        low, high = exponent_bounds(self.sample.scarcity)
        lean = (high - low) / (15.0 if start[1] <= (low + high) / 2 else -15.0)
        optimum = minimize(
            lambda x: _score(self.sample, best.distribution, variance, calibration(x)),
            start,
            method="Nelder-Mead",
            bounds=[(start[0] - 3.0, start[0] + 3.0), (low, high)],
            options={"maxfev": 40, "xatol": 1e-3, "initial_simplex": start + np.array([[0, 0], [0.2, 0], [0, lean]])},
        )
        if not optimum.fun < best.score:
            return best
        return replace(best, calibration=calibration(optimum.x), score=float(optimum.fun))
