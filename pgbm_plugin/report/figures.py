"""Figures as SVG inside a page of HTML, in the colours and fonts of the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

from ..plot.axes import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A colour that no plot uses. In the SVG it is replaced by the colour of the page's text, which may be light or dark.
_INK = "#010203"

# With fonttype "none", text stays text: files are smaller, and a search in the page finds it.
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pgbm_plugin",
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
} | dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK)

_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def figure(name: str, alt: str, draw: Callable[[Axes], Any], height: float = 3.0) -> str:
    """Return what `draw` draws into the Axes it is given, as an svg element, 4.8 inches wide.

    `name` is the prefix of the ids in the figure, which must be unique in the page; `alt` is for screen readers.
    """
    from matplotlib import style
    from matplotlib.figure import Figure

    out = StringIO()
    with style.context(["default", _STYLE]):
        page = Figure((4.8, height), layout="constrained")  # pyplot would keep the figure in memory
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
