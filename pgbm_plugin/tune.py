"""Tuning after training: the family, the correlation and a power map on the variance, from validation rows.

One walk gives the variance of every row under every correlation of a grid; all that follows is closed-form scoring.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import ndtr

from .calibration import Calibration
from .columns import read_column
from .distributions import Discrete, Empirical, family
from .objectives import IDENTITY, LOG
from .parallel import progress_bar
from .propagate import margins as walk_margins
from .propagate import variances
from .response import Margins, to_response
from .rows import Rows

if TYPE_CHECKING:
    from .model import ProbabilisticModel

Array = NDArray[np.float64]
Score = Literal["crps", "nll"]

# Fewer rows cannot tell two parameters from noise.
MIN_ROWS = 6
DEFAULT_DISTRIBUTIONS = (
    "normal",
    "studentt",
    "logistic",
    "laplace",
    "gumbel",
    "lognormal",
    "gamma",
    "weibull",
    "poisson",
    "negativebinomial",
    "empirical",
)
# The paper finds 0.02 to 0.07; large values matter where trees are few.
DEFAULT_RHO = np.round(np.concatenate([np.linspace(-0.1, 0.1, 31), np.geomspace(0.12, 0.9, 9)]), 4)
_MAX_B = 3.0


@dataclass(frozen=True)
class Candidate:
    """One choice and its score on the validation rows."""

    distribution: str
    rho: float
    calibration: Calibration
    score: float


@dataclass(frozen=True)
class TuneResult:
    """What `tune` tried; F families, R correlations.

    Attributes
    ----------
    metric : "crps" or "nll".
    rows : validation rows.
    rho : (R,) the grid.
    distributions : the F families that could be scored.
    scores : (F, R) mean score of each family at each correlation; ready to plot.
    calibrations : the R power maps that `scores` were computed with.
    failed : families that do not fit the data, with the reason.
    before : the paper's default: a normal, rho = log10(n) / 100, no map.
    best : what the model was set to, refined around the best of `scores`.
    """

    metric: Score
    rows: int
    rho: Array
    distributions: tuple[str, ...]
    scores: Array
    calibrations: tuple[Calibration, ...]
    failed: dict[str, str]
    before: Candidate
    best: Candidate
    residuals: Array = field(repr=False)

    def to_pandas(self) -> Any:
        """The whole table: a line per family and correlation."""
        import pandas as pd

        families, rho = np.repeat(self.distributions, len(self.rho)), np.tile(self.rho, len(self.distributions))
        maps = self.calibrations * len(self.distributions)
        return pd.DataFrame(
            {
                "distribution": families,
                "rho": rho,
                "b": [m.b for m in maps],
                "c": [m.c for m in maps],
                self.metric: self.scores.ravel(),
            }
        )

    def __str__(self) -> str:
        best, lines = self.best, []
        for name, row in sorted(zip(self.distributions, self.scores, strict=True), key=lambda pair: pair[1].min()):
            lines.append(f"  {name:17} {row.min():.6g}  at rho {self.rho[row.argmin()]:.3g}")
        lines += [f"  {name:17} left out: {reason}" for name, reason in self.failed.items()]
        return (
            f"tuned on {self.rows} rows: mean {self.metric} {self.before.score:.6g} -> {best.score:.6g} with "
            f"{best.distribution}, rho {best.rho:.4g}, variance -> {best.calibration.c:.4g} * variance^"
            f"{best.calibration.b:.3g}\n" + "\n".join(lines)
        )


@dataclass(frozen=True)
class Validation:
    """Validation rows; n of them.

    Attributes
    ----------
    margins : what the trees say of them; the variance is set for each correlation.
    y, weight : (n,) outcomes, and weights that sum to 1.
    metric : the score.
    """

    margins: Margins
    y: Array
    weight: Array
    metric: Score

    def score(self, name: str, variance: Array, calibration: Calibration) -> float:
        """Mean score of a family for these variances of the margin; ValueError if it does not fit the rows."""
        margins = replace(self.margins, variance=variance)
        cls, _ = family(name)
        if issubclass(cls, Discrete) and np.any(self.y != np.floor(self.y)):
            raise ValueError("the labels are not whole numbers")
        if issubclass(cls, Empirical):
            if self.metric == "nll":
                raise ValueError("it has no density")
            values = _left_out_crps(*self.residuals(margins, calibration))
        else:
            distribution = margins.distribution(name, calibration)
            values = distribution.crps(self.y) if self.metric == "crps" else distribution.nll(self.y)
        mean = float(values @ self.weight)
        if not np.isfinite(mean):
            raise ValueError(f"{int((~np.isfinite(values)).sum())} labels are outside its support")
        return mean

    def residuals(self, margins: Margins, calibration: Calibration) -> tuple[Array, Array]:
        """(y - mean) / std and the std, with the smallest positive one in place of 0."""
        variance = margins.response_variance(calibration)
        positive = variance[variance > 0]
        std = np.sqrt(np.maximum(variance, positive.min() if len(positive) else 1.0))
        return (self.y - margins.prediction) / std, std


def tune(
    model: ProbabilisticModel,
    X: Any,
    y: Any,
    *,
    metric: Score,
    distributions: Sequence[str] | None,
    rho: ArrayLike | None,
    calibrate: bool,
    sample_weight: Any,
    init_score: Any,
    progress: bool,
) -> TuneResult:
    """Score all families on a grid of correlations, then refine around the best. Does not touch the model."""
    if metric not in ("crps", "nll"):
        raise ValueError(f"score must be 'crps' or 'nll', not {metric!r}")
    names = tuple(DEFAULT_DISTRIBUTIONS if distributions is None else distributions)
    for name in names:
        family(name)
    grid = DEFAULT_RHO if rho is None else np.unique(np.atleast_1d(np.asarray(rho, np.float64)))
    if not len(grid) or not np.all(np.abs(grid) <= 1.0):
        raise ValueError(f"rho must lie in [-1, 1], not {rho!r}")
    rows, validation = _validation(model, X, y, sample_weight, init_score, metric)

    def walk(rho: Array) -> Array:
        return variances(model.forest, rows, model.weights.sd, rho, model.n_jobs)

    table = walk(np.append(grid, model.default_rho))
    paper = validation.score("normal", table[-1], Calibration())
    maps = tuple(fit_map(validation, table[k]) if calibrate else Calibration() for k in range(len(grid)))
    scores, failed = {}, {}
    with progress_bar(len(names), "families", progress) as advance:
        for name in names:
            try:
                scores[name] = [validation.score(name, table[k], maps[k]) for k in range(len(grid))]
            except ValueError as error:
                failed[name] = str(error)
            advance(1)
    if not scores:
        raise ValueError(f"no distribution fits the validation rows: {failed}")

    name = min(scores, key=lambda name: min(scores[name]))
    k = int(np.argmin(scores[name]))
    best = Candidate(name, float(grid[k]), maps[k], scores[name][k])
    best, variance = _finer_rho(validation, walk, best, table[k], grid[max(k - 1, 0) : k + 2], calibrate)
    if calibrate:
        best = _polish_map(validation, best, variance)
    margins = replace(validation.margins, variance=variance)
    return TuneResult(
        metric=metric,
        rows=len(rows),
        rho=grid,
        distributions=tuple(scores),
        scores=np.array(list(scores.values())),
        calibrations=maps,
        failed=failed,
        before=Candidate("normal", model.default_rho, Calibration(), paper),
        best=best,
        residuals=validation.residuals(margins, best.calibration)[0],
    )


def _validation(
    model: ProbabilisticModel, X: Any, y: Any, sample_weight: Any, init_score: Any, metric: Score
) -> tuple[Rows, Validation]:
    rows, score = model._read(X, init_score)
    if len(rows) < MIN_ROWS:
        raise ValueError(f"tune needs at least {MIN_ROWS} validation rows, it got {len(rows)}")
    label = read_column("y_val", y, len(rows))
    if label is None:
        raise TypeError("tune needs labels: model.tune(X_val, y_val)")
    weight = read_column("sample_weight", sample_weight, len(rows))
    weight = np.ones(len(rows)) if weight is None else weight
    if _are_training_rows(model, rows):
        warnings.warn(
            "these are the rows that wrap saw: residuals of training rows are too small, and so will be the tuned "
            "spread; tune on held-out rows",
            UserWarning,
            stacklevel=4,
        )
    margin, _ = walk_margins(model.forest, rows, model._leaf_value, score, n_jobs=model.n_jobs)
    margins = Margins(model.forest, margin, to_response(model.forest, margin), np.zeros(len(rows)))
    return rows, Validation(margins, label, weight / weight.sum(), metric)


def _are_training_rows(model: ProbabilisticModel, rows: Rows) -> bool:
    """Whether certified rows come again: as many, and spread over the first trees' leaves alike."""
    if model.certificate.status == "held-out" or len(rows) != model.moments.rows:
        return False
    from .kernels import cpu

    forest = model.forest
    root, *splits = forest.routing
    leaf = np.empty(len(rows), np.int64)
    for start in root[:3]:
        for lo, hi, X in rows.blocks(0, len(rows)):
            cpu.route(X, start, *splits, leaf[lo:hi])
        met = np.unique(leaf)
        if np.any(np.bincount(leaf, minlength=forest.n_leaves)[met] != model.moments.count[met]):
            return False
    return True


def _finer_rho(
    validation: Validation,
    walk: Callable[[Array], Array],
    best: Candidate,
    variance: Array,
    neighbours: Array,
    calibrate: bool,
) -> tuple[Candidate, Array]:
    """The best correlation on a finer grid between the neighbours of the best so far, and its variances."""
    if len(neighbours) == 1:
        return best, variance
    finer = np.linspace(neighbours[0], neighbours[-1], 9)
    for rho, column in zip(finer, walk(finer), strict=True):
        calibration = fit_map(validation, column) if calibrate else best.calibration
        score = validation.score(best.distribution, column, calibration)
        if score < best.score:
            best, variance = Candidate(best.distribution, float(rho), calibration, score), column
    return best, variance


def _polish_map(validation: Validation, best: Candidate, variance: Array) -> Candidate:
    """The power map for the family's own score; so far it was a normal's."""

    def score_of(x: Array) -> float:
        try:
            return validation.score(best.distribution, variance, Calibration(float(x[1]), float(np.exp(x[0]))))
        except ValueError:
            return np.inf

    start = np.array([np.log(best.calibration.c), best.calibration.b])
    bounds = [(start[0] - 3.0, start[0] + 3.0), (0.0, _MAX_B)]
    found = minimize(score_of, start, method="Nelder-Mead", bounds=bounds, options={"maxfev": 60, "xatol": 1e-3})
    if not found.fun < best.score:
        return best
    calibration = Calibration(float(found.x[1]), float(np.exp(found.x[0])))
    return Candidate(best.distribution, best.rho, calibration, float(found.fun))


def fit_map(validation: Validation, variance: Array) -> Calibration:
    """The power map with the best score of a normal, by its gradient in (log c, b)."""
    slope2 = _link_slope(validation.margins) ** 2
    residual2 = (validation.y - validation.margins.prediction) ** 2 / slope2
    positive = variance > 0
    if not positive.any():
        return Calibration()
    log_v = np.log(np.where(positive, variance, variance[positive].min()))
    centre = float(validation.weight @ log_v)
    x, w, slope = log_v - centre, validation.weight, np.sqrt(slope2)

    def objective(p: Array) -> tuple[float, Array]:
        log_var = p[0] + p[1] * x
        z2 = residual2 * np.exp(-log_var)
        if validation.metric == "nll":
            by_log_var = 0.5 * (1.0 - z2)
            value = 0.5 * (log_var + z2)
        else:
            z, sd = np.sqrt(z2), np.exp(0.5 * log_var) * slope
            density = np.exp(-0.5 * z2) / np.sqrt(2.0 * np.pi)
            by_log_var = 0.5 * sd * (2.0 * density - 1.0 / np.sqrt(np.pi))
            value = sd * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi))
        return float(w @ value), np.array([w @ by_log_var, w @ (by_log_var * x)])

    log_c = float(np.log(max(w @ (residual2 * np.exp(-x)), np.finfo(float).tiny)))
    found = minimize(objective, [log_c, 1.0], jac=True, method="L-BFGS-B", bounds=[(None, None), (0.0, _MAX_B)])
    b = float(found.x[1])
    return Calibration(b, float(np.exp(found.x[0] - b * centre)))


def _link_slope(margins: Margins) -> Array:
    """|d response / d margin|, bounded away from 0."""
    if margins.forest.link == IDENTITY:
        return np.ones(len(margins.margin))
    if margins.forest.link == LOG:
        return margins.prediction.astype(np.float64)
    slope = 2.0 * np.abs(margins.margin.astype(np.float64))
    return np.maximum(slope, 1e-3 * slope.max())


def _left_out_crps(raw: Array, std: Array) -> Array:
    """CRPS of each row under the centred and scaled residuals of all others: a row must not vouch for itself."""
    own = (raw - raw.mean()) / raw.std()
    r, m = np.sort(own), len(own)
    sums = np.concatenate([[0.0], np.cumsum(r)])

    def total_distance(z: Array) -> Array:
        k = np.searchsorted(r, z, side="right")
        return z * (2.0 * k - m) - 2.0 * sums[k] + sums[m]

    to_own = total_distance(own)
    distance = (total_distance(raw) - np.abs(own - raw)) / (m - 1)
    spread = 0.5 * (to_own.sum() - 2.0 * to_own) / (m - 1) ** 2
    return std * (distance - spread)
