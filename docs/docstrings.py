"""The package's docstrings as Markdown, for mkdocstrings: sections become lists, examples become code.

Numpydoc has a type after the colon; here the signature has the types, and the words after the colon are for people.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

SECTION = re.compile(r"(?m)^(Parameters|Attributes)\n-+\n((?:.+\n?)*)")
EXAMPLE = re.compile(r"(?m)(?:^>>> .*\n?)+")


class Docstrings(Extension):
    """A griffe extension, loaded by mkdocs.yml."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    text = SECTION.sub(_as_list, text)
    return EXAMPLE.sub(lambda found: "```python\n" + re.sub(r"(?m)^>>> ", "", found[0]).rstrip() + "\n```\n", text)


def _as_list(section: re.Match[str]) -> str:
    items = re.sub(r"(?m)^(\S.*?) : ", lambda item: f"- {_as_code(item[1])}: ", section[2])
    return f"**{section[1]}**\n\n{items}"


def _as_code(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))
