"""The layers of the package: an import goes from a room to rooms below it, late imports included."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Bottom to top. Rooms on one line do not import each other.
LAYERS = [
    "version interrupt errors arrays parallel writing",
    "checks device",
    "trees",
    "kernels",
    "tables",
    "boosters",
    "routes",
    "losses",
    "leaves",
    "distributions",
    "surroundings",
    "predict",
    "calibration",
    "streams",
    "saving",
    "training",
    "sources",
    "update out_of_fold",
    "model",
    "load wrap",
    "embed partial_moments",
    "__init__",
    "group_coverage",
    "scores",
    "plot",
    "report",
    "sklearn dask spark mlflow",
    "skpro",
    "cli",
    "__main__",
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms.split()}


def modules():
    """Yield (path, dotted name as a list) of every file; `kernels/` is installed as `pgbm_plugin.kernels`."""
    for path in sorted((ROOT / "pgbm_plugin").rglob("*.py")):
        if "kernels" not in path.relative_to(ROOT).parts:
            yield path, list(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "kernels").glob("*.py")):
        yield path, ["pgbm_plugin", "kernels", path.stem]


def imported(path, name):
    """Yield (line, room) of every import of the package itself, at whatever depth of the file it stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = name[: len(name) - node.level] if node.level else []
            targets = [[*base, *(node.module or "").split("."), alias.name] for alias in node.names]
        else:
            continue
        for target in targets:
            if target[0] == "pgbm_plugin":
                yield node.lineno, next((part for part in target[1:] if part in LEVEL), "__init__")


def test_imports_go_down():
    upward = [
        f"{path.relative_to(ROOT)}:{line}: {name[1]} imports {room}"
        for path, name in modules()
        for line, room in imported(path, name)
        if room != name[1] and not LEVEL[room] < LEVEL[name[1]]
    ]
    assert not upward, "\n".join(upward)


def test_every_room_has_a_place():
    assert {name[1] for _, name in modules()} == set(LEVEL)
