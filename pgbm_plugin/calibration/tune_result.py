"""TuneResult: the candidates that `tune` tried, from best to worst."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import AnyArray, Array
from ..predict.power_map import Calibration
from ..predict.support import Support
from .few_rows import exponent_bounds, needed_gain, scarcity


@dataclass(frozen=True)
class Candidate:
    """A family with its correlation and power map, and their mean score on the validation rows."""

    distribution: str
    rho: float
    calibration: Calibration
    score: float


@dataclass(frozen=True, repr=False)
class TuneResult:
    """All that `tune` tried; F families, R correlations.

    Attributes
    ----------
    metric : {"crps", "nll", "relative crps"}
        The score: continuous ranked probability score, negative log likelihood, or the first in units of the typical
        spread of rows with the same mean.
    rows : int
        Number of validation rows.
    rho : (R,) float array
        The grid of correlations.
    distributions : tuple of str
        The F families that could be scored.
    scores : (F, R) float array
        Mean score of each family at each correlation, with the power map of a normal, on at most 2,000 of the rows.
    calibrations : tuple of Calibration
        The R power maps that `scores` were computed with.
    candidates : tuple of Candidate
        The families from best to worst, each with its own best correlation and power map.
    failed : dict
        Families that do not fit the data, with the reason.
    before : Candidate
        The paper's default: a normal, rho = log10(n) / 100, no power map. `constant` where the recursion has no spread.
    constant : Candidate
        A normal with one spread for all rows, for comparison.
    residuals : (rows,) float array
        (y - mean) / std under the best candidate: the shape of the empirical family.
    variance : {"pgbm", "boosted"}
        Source of the candidates' variance. `scores` always belong to the recursion. With ``variance="auto"`` it is
        "pgbm" if the recursion alone scored better than any boosted scale.
    share : float
        Share of the recursion in the boosted scale's base: 0, 1/2 or 1.
    effective_rows : float
        Number of equally weighted rows that tell as much, (sum w)^2 / sum w^2; inf for enough.
    residual_bin : (rows,) uint8 array or None
        Bin of each residual, if the best candidate has residuals in bins.
    bin_edges : float array or None
        Upper ends of all bins but the last, in the unit of the predicted mean or spread.
    support : Support or None
        Bounds or lattice of the labels that improved the best candidate; None if none did.
    """

    metric: str
    rows: int
    rho: Array
    distributions: tuple[str, ...]
    scores: Array
    calibrations: tuple[Calibration, ...]
    candidates: tuple[Candidate, ...]
    failed: dict[str, str]
    before: Candidate
    constant: Candidate
    residuals: Array
    variance: str = "pgbm"
    share: float = 1.0
    effective_rows: float = math.inf
    residual_bin: AnyArray | None = None
    bin_edges: Array | None = None
    support: Support | None = None

    @property
    def best(self) -> Candidate:
        """Return the best candidate, which the model now uses."""
        return self.candidates[0]

    @property
    def held_back(self) -> str:
        """Return in words what was held back because rows are few; "" if nothing was."""
        scarce = scarcity(self.effective_rows)
        if not scarce:
            return ""
        rows = f"{self.rows}" if round(self.effective_rows) == self.rows else f"{self.effective_rows:.0f} effective"
        low, high = exponent_bounds(scarce)
        words = f"few rows ({rows}): the exponent of the variance stays in [{low:.2g}, {high:.2g}], and a choice that "
        words += f"is not the simplest must be better by {needed_gain(scarce):.2g} standard errors"
        top = min(self.candidates, key=lambda candidate: candidate.score)
        return words if top.score == self.best.score else f"{words} ({self.best.distribution}, not {top.distribution})"

    def to_pandas(self) -> Any:
        """Return the whole grid as a pandas DataFrame: a line per family and correlation."""
        import pandas as pd

        maps = self.calibrations * len(self.distributions)
        return pd.DataFrame(
            {
                "distribution": np.repeat(self.distributions, len(self.rho)),
                "rho": np.tile(self.rho, len(self.distributions)),
                "b": [m.b for m in maps],
                "c": [m.c for m in maps],
                "floor": [m.floor for m in maps],
                self.metric: self.scores.ravel(),
            }
        )

    def __repr__(self) -> str:
        base = {0.0: "", 1.0: " on the paper's recursion"}.get(self.share, " on a blend with the paper's recursion")
        scale = "" if self.variance == "pgbm" else f"; scale boosted{base}"
        lines = [
            f"tuned on {self.rows} rows: mean {self.metric} {self.before.score:.6g} -> {self.best.score:.6g}{scale}",
            f"  {'distribution':17} {self.metric:>11}  {'rho':>8}  variance ->",
        ]
        for label, row in (
            *((c.distribution, c) for c in self.candidates),
            ("(one spread)", self.constant),
            *((("(paper's default)", self.before),) if self.before is not self.constant else ()),
        ):
            lines.append(f"  {label:17} {row.score:11.6g}  {row.rho:8.4f}  {row.calibration}")
        if self.support is not None:
            lines.append(f"  outcomes {self.support}, which the labels show")
        if held_back := self.held_back:
            lines.append(f"  {held_back}")
        if len(self.rho) > 1 and self.best.rho in self.rho[[0, -1]] and self.best.calibration.b > 0.0:
            lines.append("  rho is at the edge of the search; a wider one, tune(..., rho=[...]), seldom gains much")
        for reason in dict.fromkeys(self.failed.values()):
            names = [name for name, why in self.failed.items() if why == reason]
            lines.append(f"  left out: {', '.join(names)}: {reason}")
        return "\n".join(lines)
