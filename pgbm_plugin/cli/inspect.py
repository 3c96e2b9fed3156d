"""`pgbm-plugin inspect`: what a model's file holds."""

from __future__ import annotations

import json
import math
import os
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from .inputs import kind_of
from .options import PROGRAM, new_command

if TYPE_CHECKING:
    from ..model import ProbabilisticModel
    from ..trees.forest import Features, Forest
    from ..trees.training_spec import TrainingSpec

_ABOUT = f"""\
Say what is in the file of a wrapped model, or of a booster.

examples:
  {PROGRAM} inspect model.pgbm
  {PROGRAM} inspect model.ubj
  {PROGRAM} inspect model.pgbm --json | jq .certificate.status"""

# Names and values that a line for people may show.
_SHOWN = 8


def add(commands: Any) -> None:
    command = new_command(commands, "inspect", run, "what a model's file holds", _ABOUT)
    command.add_argument("model", metavar="MODEL", help="a model file, or a booster's")
    command.add_argument("--json", action="store_true", help="all of it, for machines")


def run(args: Namespace) -> None:
    found = _facts(args.model)
    print(json.dumps(_plain(found), indent=2, allow_nan=False) if args.json else "\n".join(_lines(found)))


def _facts(path: str) -> dict[str, Any]:
    kind = kind_of(path)
    about = {"file": path, "bytes": os.path.getsize(path), "kind": "pgbm" if kind == "pgbm" else "booster"}
    if kind == "pgbm":
        from ..load import load

        model = load(path)
        return about | _of_trees(model.forest, model.spec) | _of_model(model)
    from ..boosters import read_model
    from ..saving.embedded import has_embedded

    return about | _of_trees(*read_model(path)) | {"embedded": has_embedded(path)}


def _of_trees(forest: Forest, spec: TrainingSpec) -> dict[str, Any]:
    return {
        "booster": forest.booster,
        "objective": "custom" if spec.objective is None else spec.objective.name,
        "trees": forest.n_trees,
        "leaves": forest.n_leaves,
        "features": forest.features.count,
        "feature_names": forest.features.names,
        "categories": _categories(forest.features),
    }


def _categories(features: Features) -> list[dict[str, Any]]:
    """Return lists of values with their columns; None for the frame's next categorical column."""
    where = features.category_columns
    if where is None:
        return [{"column": None, "values": values} for values in features.categories]
    names = [str(j) if features.names is None else features.names[j] for j in where]
    return [{"column": name, "values": v} for name, v in zip(names, features.categories, strict=True)]


def _of_model(model: ProbabilisticModel) -> dict[str, Any]:
    chosen = model.chosen
    scores = chosen.conformal
    return {
        "rows": model.moments.rows,
        "mean": model.mean,
        "variance": model.variance,
        "boosted": chosen.scale is not None,
        "rho": model.rho,
        "default_rho": model.default_rho,
        "distribution": model.distribution,
        "tuned": chosen.tuned,
        "calibration": vars(model.calibration),
        "conformal": None if scores is None else {"rows": len(scores.residuals), "family": scores.family},
        "certificate": vars(model.certificate),
    }


def _lines(found: dict[str, Any]) -> list[str]:
    """Return a fact per line, and only the beginning of long lists."""
    names = found["feature_names"]
    lines = [
        ("file", f"{found['file']} ({found['bytes']:,} bytes)"),
        ("booster", f"{found['booster']}, {found['objective']}"),
        ("trees", f"{found['trees']} with {found['leaves']} leaves"),
        ("features", f"{found['features']}{': ' + _short(names) if names else ', without names'}"),
    ]
    for entry in found["categories"]:
        lines.append(("categories", f"{entry['column'] or '(column not known)'} = {_short(entry['values'])}"))
    if found["kind"] == "booster":
        lines.append(("moments", "embedded" if found["embedded"] else f"none; {PROGRAM} wrap adds them"))
    else:
        lines += _lines_of_model(found)
    return [f"{name + ':':13} {text}" for name, text in lines]


def _lines_of_model(found: dict[str, Any]) -> list[tuple[str, str]]:
    from ..leaves.certificate import Certificate
    from ..predict.power_map import Calibration

    conformal = found["conformal"]
    return [
        ("rows seen", f"{found['rows']:.0f}"),
        ("mean", found["mean"]),
        ("variance", ("boosted" if found["boosted"] else "pgbm") + f" (tune chooses: {found['variance']})"),
        ("rho", f"{found['rho']:.4g} (default {found['default_rho']:.4g})"),
        ("distribution", f"{found['distribution']}, {'tuned' if found['tuned'] else 'untuned'}"),
        ("calibration", f"variance -> {Calibration(**found['calibration'])}"),
        ("conformal", f"{conformal['rows']} rows around {conformal['family']}" if conformal else "no"),
        ("certificate", str(Certificate(**found["certificate"]))),
    ]


def _short(values: Any) -> str:
    shown = ", ".join(str(value) for value in values[:_SHOWN])
    return shown + (f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else "")


def _plain(value: Any) -> Any:
    """Return what JSON can hold: no infinities, no types of NumPy."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
