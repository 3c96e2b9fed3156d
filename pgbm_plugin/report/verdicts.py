"""The first lines of the report, and when not to trust the model: sentences that need no knowledge of statistics."""

from __future__ import annotations

import numpy as np

from ..group_coverage import GroupCoverage, shown_key
from .findings import Findings, Interval
from .numbers import percent, quantity

# Levels that the first lines are about.
_PROMISES = (0.8, 0.9, 0.95)
# A deviation of a coverage is called slight if it is less than this.
_SLIGHT = 0.01
# A difference is called clear if it is more than this many standard errors.
_CLEAR = 3.0

UNTUNED = (
    "Nothing has calibrated this model, so its intervals are usually far too narrow. Do not use it like this. "
    "Calibrate it first, on rows that training did not use, with tune or conformalize."
)


def on_promises(f: Findings) -> tuple[str, list[str]]:
    """Say whether 80, 90 and 95 % intervals hold: in one sentence, and in one for each level."""
    shown = [interval for interval in f.intervals if interval.level in _PROMISES]
    fewer, more = ([i for i in shown if _side(i) == side] for side in (-1, 1))
    slightly = "slightly " if all(abs(i.held - i.expected) < _SLIGHT for i in [*fewer, *more]) else ""
    if fewer and more:
        verdict = "No: some intervals are too narrow, and others too wide."
    elif fewer:
        verdict = f"No: the intervals are {slightly}too narrow."
    elif more:
        verdict = f"Yes, but the intervals are {slightly}wider than they need to be."
    else:
        verdict = "Yes: the intervals hold what they promise."
    return verdict, [_on_level(interval, len(f.y)) for interval in shown]


def on_widths(f: Findings) -> str:
    """Say how wide the intervals are."""
    few, half, most = (quantity(width, f.unit) for width in f.widths)
    if few == most:
        return f"The 90 % interval of every row is {half} wide."
    return (
        f"Half of the 90 % intervals are narrower than {half}. The narrowest tenth is below {few}, the widest tenth "
        f"above {most}."
    )


def on_worth(f: Findings) -> str:
    """Say whether the model's spreads are better than one spread for all rows."""
    base, difference = f.crps.baseline, f.crps.difference
    assert base is not None
    assert difference is not None
    if abs(difference.value) <= _CLEAR * difference.error or base.value <= 0.0:
        return "A spread for each row is not clearly better than one spread for all rows would be."
    change = percent(abs(difference.value) / base.value)
    if difference.value < 0.0:
        return f"A spread for each row pays off: predictions score {change} better than with one spread for all rows."
    return (
        f"The spreads of the model do harm here: the predictions score {change} worse than with one spread for all "
        "rows. Tune the model on held-out rows."
    )


def on_trust(f: Findings) -> list[tuple[str, str]]:
    """Return when not to trust the model: pairs of what it is about, and what was found and what to do."""
    out = []
    if any(_side(interval) < 0 for interval in f.intervals):
        out.append(
            (
                "These intervals.",
                "They held too few outcomes, as the first lines say. Calibrate the model on rows that it has not seen, "
                "with tune or conformalize, and make this report again on others.",
            )
        )
    out.append(("Groups.", _on_groups(f.groups)))
    out.append(("Time.", _on_time(f.time)))
    out.append(
        (
            "Rows of another kind.",
            "All figures are about rows like these. They say nothing about a new product, a region that was not among "
            "them, or values outside of their range. predict_support finds such rows.",
        )
    )
    out.append(
        (
            "Sums.",
            "Intervals are for single rows. Rows err together, so the interval of a total is not the sum of theirs: "
            "use correlate and predict_total.",
        )
    )
    return out


def _on_level(interval: Interval, n: int) -> str:
    side, off = _side(interval), abs(interval.held - interval.expected)
    counts = ""
    if interval.expected - interval.level > 0.005:
        counts = f" (intervals of such outcomes should hold {percent(interval.expected)})"
    words = "as promised"
    if side:
        slightly = "slightly " if off < _SLIGHT else ""
        words = f"{slightly}{'fewer' if side < 0 else 'more'} than promised; chance alone explains {_band(interval)}"
    return f"{100.0 * interval.level:g} % intervals held {percent(interval.held)} of {n:,} outcomes{counts}: {words}."


def _side(interval: Interval) -> int:
    """Return -1 if an interval held fewer outcomes than chance allows, 1 if more, and else 0."""
    return int(interval.held > interval.high) - int(interval.held < interval.low)


def _band(interval: Interval) -> str:
    return f"{percent(interval.low)} to {percent(interval.high)}"


def _on_groups(found: GroupCoverage | None) -> str:
    if found is None:
        return (
            "They were not looked at. Intervals may hold on average, and fail in one region, shop or product: make "
            "this report with groups=."
        )
    few = np.flatnonzero(found.outside() < 0)
    if not len(few):
        return f"In all {len(found)} groups, intervals held as many outcomes as they should, up to chance."
    names = ", ".join(shown_key(found.groups[k]) for k in few[:5]) + (", ..." if len(few) > 5 else "")
    return f"Intervals are too narrow in {len(few)} of {len(found)} groups: {names}. Call conformalize with groups=."


def _on_time(found: GroupCoverage | None) -> str:
    if found is None:
        return (
            "It was not looked at. If rows come one after the other, the intervals of the latest may hold less: make "
            "this report with time=."
        )
    outside = found.outside()
    if outside[-1] < 0:
        return (
            f"Intervals are too narrow in the latest part, {found.groups[-1]}: they held {percent(found.cover[-1])}. "
            "Calibrate on the latest rows, or let observe follow the labels."
        )
    if (outside < 0).any():
        k = int(np.argmin(found.cover))
        held = percent(found.cover[k])
        return f"Intervals were too narrow at times, most of all in {found.groups[k]}: they held {held}."
    return "In all parts of time, intervals held as many outcomes as they should, up to chance."
