"""Puts the tables of results/ into README.md, each between its marks.

python -m examples.paper.readme
"""

from __future__ import annotations

import re
from pathlib import Path

from .results import FOLDER

PAGE = Path(__file__).parent / "README.md"
_MARKED = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
NONE = "No results of a full run yet.\n"


def filled(page: str, folder: Path) -> str:
    """The page with what `folder` has in the place of what it had."""

    def part(match: re.Match[str]) -> str:
        name = match[2]
        tables, drawing = folder / f"{name}.md", folder / f"{name}.png"
        text = tables.read_text() if tables.exists() else NONE
        if drawing.exists():
            text += f"\n![{name}](results/{drawing.name})\n"
        return f"{match[1]}\n{text}\n{match[3]}"

    return _MARKED.sub(part, page)


def main() -> None:
    PAGE.write_text(filled(PAGE.read_text(), FOLDER))


if __name__ == "__main__":
    main()
