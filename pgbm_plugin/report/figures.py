"""Figures as SVG for a page of HTML, in the page's own colours and fonts."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

from ..plot import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A colour that nothing else has, for all that the page draws in the colour of its text.
_INK = "#010203"

# Text stays text, in the fonts of whoever reads it: smaller, and found by a search.
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pgbm_plugin",
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
} | dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK)

_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def figure(name: str, alt: str, draw: Callable[[Axes], Any], height: float = 3.0) -> str:
    """An svg element of what `draw` draws; `name` tells its ids from those of other figures, `alt` is what is seen."""
    from matplotlib import style
    from matplotlib.figure import Figure

    out = StringIO()
    with style.context(["default", _STYLE]):
        page = Figure((4.8, height), layout="constrained")  # apart from pyplot, which keeps its figures
        draw(page.add_subplot())
        page.savefig(out, format="svg", transparent=True, metadata=_METADATA)
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    opening, rest = svg.split(">", 1)
    box = re.search(r'viewBox="[\d. ]+"', opening)
    assert box is not None
    rest = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", rest).replace(_INK, "currentColor")
    for k, colour in enumerate(COLOURS):
        rest = rest.replace(colour.lower(), f"var(--c{k})")
    return f'<svg {box[0]} role="img" aria-label="{escape(alt)}" xmlns:xlink="http://www.w3.org/1999/xlink">{rest}'
