"""Docstrings that stand alone: what can be held by a test."""

from __future__ import annotations

import ast

import pytest

from tests import ROOT

# A first line that opens so needs the one before it, or the reader's guess.
RIDDLES = ("Of ", "Those ", "That ", "The same", "As ", "Such ", "Whether ", "Also ", "See ", "So ", "It ", "And ")

FILES = [path for folder in ("pgbm_plugin", "kernels") for path in sorted((ROOT / folder).rglob("*.py"))]


def docstrings(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            text = ast.get_docstring(node)
            if text is not None:
                yield getattr(node, "name", path.stem), text.partition("\n\n")[0].replace("\n", " ")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_first_lines(path):
    for name, line in docstrings(path):
        assert not line.startswith(RIDDLES), f"{name}: {line}"
        assert line.endswith((".", "?")), f"{name} ends without a period: {line}"
