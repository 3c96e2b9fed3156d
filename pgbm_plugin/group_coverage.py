"""GroupCoverage: the share of outcomes inside their intervals, group by group, with the band of chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arrays import AnyArray
from .tables.keys import Groups

# Probability that all groups of a calibrated model lie inside their bands.
_CONFIDENCE = 0.95
# Groups that a printed table shows.
_SHOWN = 20


@dataclass(frozen=True, eq=False)
class GroupCoverage:
    """Share of outcomes inside their intervals in each of G groups, the worst first.

    The worst group is the one that would least likely hold so few by chance. A group of few rows that misses its level
    by far may therefore come after a large one that misses it by little.

    Attributes
    ----------
    groups : (G,) array
        Keys of the groups.
    rows : (G,) int array
        Number of rows of each group.
    cover : (G,) float array
        Share of outcomes inside their intervals.
    width : (G,) float array
        Mean width of the intervals.
    low, high : (G,) float array
        Band that chance alone allows: if the intervals hold their level in every group, then all G shares lie in
        their bands with a probability of at least 95 %.
    level : float
        Probability that the intervals promise.
    """

    groups: AnyArray
    rows: NDArray[np.int64]
    cover: NDArray[np.float64]
    width: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    level: float

    def outside(self) -> NDArray[np.int8]:
        """Return -1 for each group that holds fewer than chance allows, 1 for more, and else 0."""
        return np.where(self.cover < self.low, -1, np.where(self.cover > self.high, 1, 0)).astype(np.int8)

    def __len__(self) -> int:
        return len(self.groups)

    def __repr__(self) -> str:
        names = [shown_key(key) for key in self.groups[:_SHOWN]]
        width = max([5, *map(len, names)])
        lines = [
            f"coverage of {100.0 * self.level:.4g} % intervals in {len(self)} groups, the worst first",
            f"  {'group':{width}} {'rows':>8} {'cover':>7} {'by chance':>14} {'mean width':>11}",
        ]
        words = {-1: "   too few", 0: "", 1: "   too many"}
        for k, name in enumerate(names):
            band = f"{self.low[k]:.3f} to {self.high[k]:.3f}"
            note = words[int(self.outside()[k])]
            lines.append(f"  {name:{width}} {self.rows[k]:8} {self.cover[k]:7.3f} {band} {self.width[k]:11.4g}{note}")
        if len(self) > _SHOWN:
            lines.append(f"  and {len(self) - _SHOWN} more")
        return "\n".join(lines)


def coverage_by_group(
    groups: Groups,
    inside: NDArray[np.bool_],
    width: NDArray[np.float64],
    level: float,
    calibration_rows: ArrayLike | None = None,
    expected: ArrayLike | None = None,
) -> GroupCoverage:
    """Return the coverage of each group, from flags of the n rows that intervals hold, and the widths of these.

    `calibration_rows` is the number of rows behind the conformal intervals of each group; 0 for none. `expected` is the
    share that each group should hold, if it is not `level`: intervals of counts hold more.
    """
    rows = np.bincount(groups.code, minlength=len(groups))
    held = np.bincount(groups.code, inside, minlength=len(groups))
    mean_width = np.bincount(groups.code, width, minlength=len(groups)) / rows
    share = np.broadcast_to(level if expected is None else expected, rows.shape)
    behind = np.broadcast_to(0 if calibration_rows is None else calibration_rows, rows.shape)
    low, high, chance = _bands(rows, held, share, behind)
    order = np.lexsort((held / rows, chance))
    return GroupCoverage(
        groups.keys[order],
        rows[order],
        (held / rows)[order],
        mean_width[order],
        low[order],
        high[order],
        float(level),
    )


def _bands(
    rows: NDArray[Any], held: NDArray[Any], share: NDArray[Any], behind: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends of the band of each group, and the probability to hold at most as many outcomes as it did.

    The number of outcomes inside is binomial. With m calibration rows behind the intervals, the coverage itself has a
    Beta distribution: the outcome falls into one of m + 1 gaps between their residuals, all equally likely, of which
    the interval spans a share. Groups are taken for independent of each other.
    """
    tail = -0.5 * np.expm1(np.log(_CONFIDENCE) / max(len(rows), 1))
    low, high, chance = np.empty((3, len(rows)))
    for conformal in (False, True):
        which = (behind > 0) == conformal
        if not which.any():
            continue
        # many groups may have the same law, and ends of bands are slow to find
        kinds, kind = np.unique(np.stack([rows[which], share[which], behind[which]]), axis=1, return_inverse=True)
        law = _law(kinds, conformal)
        low[which], high[which] = law.ppf(tail)[kind], law.isf(tail)[kind]
        chance[which] = _law(kinds[:, kind], conformal).cdf(held[which])
    return low / rows, high / rows, chance


def _law(kinds: NDArray[np.float64], conformal: bool) -> Any:
    """Return the distributions of the numbers of outcomes inside, for columns of (rows, share, calibration rows)."""
    from scipy import stats

    n, p, gaps = kinds[0], np.clip(kinds[1], 1e-12, 1.0 - 1e-12), kinds[2] + 1.0
    return stats.betabinom(n, gaps * p, gaps * (1.0 - p)) if conformal else stats.binom(n, p)


def shown_key(key: Any) -> str:
    """Return a key in a line of a table."""
    text = ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)
    text = " ".join(text.split())
    return text if len(text) <= 40 else f"{text[:37]}..."
