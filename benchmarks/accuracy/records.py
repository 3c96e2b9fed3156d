"""Results on disk: a line each, written when it is known, and found again only where nothing it depends on changed."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pgbm_plugin.kernels

import pgbm_plugin

from .contenders import Contender, Rounds


@dataclass(frozen=True)
class Key:
    """What a result is the result of.

    Attributes
    ----------
    set, split, contender : which one.
    settings : digest of the settings and of the versions of other packages.
    source : digest of this package's code, for contenders that run it; "" for others.
    """

    set: str
    split: int
    contender: str
    settings: str
    source: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def key(set_name: str, split: int, name: str, contender: Contender, rounds: Rounds) -> Key:
    """The key that a result has here and now."""
    others = [package for package in contender.packages if package != "pgbm_plugin"]
    known = {"settings": dict(contender.settings), "rounds": asdict(rounds), "of": {p: version(p) for p in others}}
    settings = _short(hashlib.sha256(json.dumps(known, sort_keys=True).encode()))
    return Key(set_name, split, name, settings, source() if "pgbm_plugin" in contender.packages else "")


@cache
def source() -> str:
    """Digest of the package's code; comments and docstrings change no result."""
    digest = hashlib.sha256()
    folders = [*pgbm_plugin.__path__, *pgbm_plugin.kernels.__path__]
    for path in sorted(path for folder in folders for path in Path(folder).rglob("*.py")):
        digest.update(ast.dump(_without_docstrings(ast.parse(path.read_text()))).encode())
    return _short(digest)


def append(path: Path, record: dict[str, Any]) -> None:
    """Add a line; processes may do so at a time, as a short write in append mode is one step."""
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def read(path: Path | None, stale: bool = False) -> dict[Key, dict[str, Any]]:
    """The results in a file; of several with a key, the last. With `stale`, the package's code is no part of it."""
    found = {}
    for record in lines(path):
        known = Key(*(record[name] for name in Key.__dataclass_fields__))
        found[without_source(known) if stale else known] = record
    return found


def lines(path: Path | None) -> list[dict[str, Any]]:
    """What was appended to a file; a line that a killed process has left unfinished is closed, and is none."""
    if path is None or not path.exists():
        return []
    text = path.read_text()
    if text and not text.endswith("\n"):
        with path.open("a") as file:
            file.write("\n")
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def without_source(key: Key) -> Key:
    """The key for any code of the package."""
    return Key(*astuple(key)[:-1], "")


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = list(_code(node.body)) or [ast.Pass()]
    return tree


def _code(body: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    """Statements other than bare strings: docstrings, also those of attributes."""
    for statement in body:
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            yield statement


def _short(digest: Any) -> str:
    return digest.hexdigest()[:12]
