"""TuneResult: what `tune` tried and chose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..predict.power_map import MAX_B, Calibration

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Candidate:
    """One choice and its mean score on the validation rows."""

    distribution: str
    rho: float
    calibration: Calibration
    score: float


@dataclass(frozen=True, repr=False)
class TuneResult:
    """What `tune` tried; F families, R correlations.

    Attributes
    ----------
    metric : "crps" or "nll".
    rows : validation rows.
    rho : (R,) the grid.
    distributions : the F families that could be scored.
    scores : (F, R) mean score of each family at each correlation, ready to plot; all with the map of a normal.
    calibrations : the R power maps that `scores` were computed with.
    candidates : the families from best to worst, each at its best correlation; those that could win with a map and
        a correlation of their own.
    failed : families that do not fit the data, with the reason.
    before : the paper's default: a normal, rho = log10(n) / 100, no map.
    constant : a normal with one spread for all rows, for comparison.
    residuals : (rows,) (y - mean) / std under the best: the shape of the empirical family.
    variance : "pgbm", or "boosted" if the candidates have a boosted scale; `scores` are the recursion's even then.
    share : what the recursion's logarithm has of the boosted scale's base: 0, 1/2 or 1.
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

    @property
    def best(self) -> Candidate:
        """What the model was set to."""
        return self.candidates[0]

    def to_pandas(self) -> Any:
        """The whole grid: a line per family and correlation."""
        import pandas as pd

        maps = self.calibrations * len(self.distributions)
        return pd.DataFrame(
            {
                "distribution": np.repeat(self.distributions, len(self.rho)),
                "rho": np.tile(self.rho, len(self.distributions)),
                "b": [m.b for m in maps],
                "c": [m.c for m in maps],
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
            ("(paper's default)", self.before),
        ):
            lines.append(f"  {label:17} {row.score:11.6g}  {row.rho:8.4f}  {row.calibration}")
        b = self.best.calibration.b
        if len(self.rho) > 1 and self.best.rho in self.rho[[0, -1]] and b > 0.0:
            lines.append("  rho is at the edge of the search")
        if b == MAX_B and self.variance == "pgbm":
            lines.append("  rows differ in spread by more than the recursion tells; try tune(..., variance='auto')")
        for reason in dict.fromkeys(self.failed.values()):
            names = [name for name, why in self.failed.items() if why == reason]
            lines.append(f"  left out: {', '.join(names)}: {reason}")
        return "\n".join(lines)
