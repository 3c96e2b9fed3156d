"""`pgbm-plugin inspect`: show what a model file holds."""

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
    from ..predict.chosen import Chosen
    from ..trees.forest import Features, Forest
    from ..trees.training_spec import TrainingSpec

_ABOUT = f"""\
Show what the file of a wrapped model, or of a booster, holds.

examples:
  {PROGRAM} inspect model.pgbm
  {PROGRAM} inspect model.ubj
  {PROGRAM} inspect model.pgbm --json | jq .certificate.status"""

# The most names or values that a line shows.
_SHOWN = 8


def add(commands: Any) -> None:
    command = new_command(commands, "inspect", run, "show what a model file holds", _ABOUT)
    command.add_argument("model", metavar="MODEL", help="a model file, of this program or of a booster")
    command.add_argument("--json", action="store_true", help="print everything as JSON")


def run(args: Namespace) -> None:
    facts = _facts(args.model)
    print(json.dumps(_plain(facts), indent=2, allow_nan=False) if args.json else "\n".join(_lines(facts)))


def _facts(path: str) -> dict[str, Any]:
    kind = kind_of(path)
    about = {"file": path, "bytes": os.path.getsize(path), "kind": "pgbm" if kind == "pgbm" else "booster"}
    if kind == "pgbm":
        from ..load import load

        model = load(path, around=False)
        return about | _tree_facts(model.forest, model.spec) | _model_facts(model)
    from ..boosters import read_model
    from ..saving.embedded import has_embedded

    return about | _tree_facts(*read_model(path)) | {"embedded": has_embedded(path)}


def _tree_facts(forest: Forest, spec: TrainingSpec) -> dict[str, Any]:
    return {
        "booster": forest.booster,
        "objective": "custom" if spec.objective is None else spec.objective.name,
        "trees": forest.n_trees,
        "leaves": forest.n_leaves,
        "features": forest.features.count,
        "feature_names": forest.features.names,
        "categories": _categories(forest.features),
        "looked_up": forest.features.width - forest.features.count,
    }


def _categories(features: Features) -> list[dict[str, Any]]:
    """Return the stored categories with their columns; None where the model does not store the column."""
    where = features.category_columns
    if where is None:
        return [{"column": None, "values": values} for values in features.categories]
    names = [str(j) if features.names is None else features.names[j] for j in where]
    return [{"column": name, "values": v} for name, v in zip(names, features.categories, strict=True)]


def _model_facts(model: ProbabilisticModel) -> dict[str, Any]:
    chosen = model.chosen
    joint = chosen.correlation
    return {
        "rows": model.moments.rows,
        "mean": model.mean,
        "variance": model.variance,
        "boosted": chosen.scale is not None,
        "recursion": model.spec.sequential,
        "rho": model.rho,
        "default_rho": model.default_rho,
        "distribution": model.distribution,
        "tuned": chosen.tuned,
        "calibration": vars(model.calibration),
        "calibration_effect": model.state.describe_calibration(),
        "conformal": _conformal_facts(chosen),
        "observed": _observed_facts(chosen),
        "correlation": None if joint is None else dict(zip(joint.levels, joint.r, strict=True)),
        "ranges": _range_facts(model),
        "certificate": vars(model.certificate),
        "surroundings": model.state.surroundings.described or None,
    }


def _conformal_facts(chosen: Chosen) -> dict[str, Any] | None:
    if chosen.conformal is None:
        return None
    groups = chosen.conformal.groups
    facts = {"rows": chosen.conformal.rows, "family": chosen.around}
    return facts | {"groups": groups and {"by": groups.by, "keys": groups.keys, "described": str(groups)}}


def _range_facts(model: ProbabilisticModel) -> list[dict[str, Any]] | None:
    """Return what training saw of each feature; None if it is not known."""
    ranges = model.moments.ranges
    if ranges is None:
        return None
    categories = [ranges.categories(j) for j in range(len(ranges.low))]
    return [
        {"feature": name, "low": low, "high": high, "missing": missing, "categories": None if own is None else len(own)}
        for name, low, high, missing, own in zip(
            model.forest.features.shown_names, ranges.low, ranges.high, ranges.missing, categories, strict=True
        )
    ]


def _observed_facts(chosen: Chosen) -> dict[str, Any] | None:
    seen = chosen.observed
    if seen is None:
        return None
    return {"rows": seen.rows, "window": seen.window, "step": seen.step} | {
        name: {f"{level:.0%}": share for level, share in cover.items()}
        for name, cover in (("cover", seen.cover), ("recent_cover", seen.recent_cover))
    }


def _lines(facts: dict[str, Any]) -> list[str]:
    """Return one line for each fact, with long lists cut."""
    names = facts["feature_names"]
    lines = [
        ("file", f"{facts['file']} ({facts['bytes']:,} bytes)"),
        ("booster", f"{facts['booster']}, {facts['objective']}"),
        ("trees", f"{facts['trees']} with {facts['leaves']} leaves"),
        ("features", f"{facts['features']}{': ' + _short(names) if names else ', without names'}"),
    ]
    for entry in facts["categories"]:
        lines.append(
            ("categories", f"{entry['column'] or '(column not known)'} = {_short(entry['values']) or '(hashes)'}")
        )
    if facts["looked_up"]:
        lines.append(("looked up", f"{facts['looked_up']} columns, under the categories of a row"))
    if facts["kind"] == "booster":
        lines.append(("moments", "embedded" if facts["embedded"] else f"none; {PROGRAM} wrap adds them"))
    else:
        lines += _model_lines(facts)
    return [f"{name + ':':13} {text}" for name, text in lines]


def _model_lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    from ..leaves.certificate import Certificate

    conformal, surroundings, joint = facts["conformal"], facts["surroundings"], facts["correlation"] or {}
    left_out = [("left out", surroundings)] if surroundings else []
    grouped = f" {conformal['groups']['described']}" if conformal and conformal["groups"] else ""
    source = "boosted" if facts["boosted"] else "pgbm" if facts["recursion"] else "none yet"
    return [
        *left_out,
        ("rows seen", f"{facts['rows']:.0f}"),
        ("mean", facts["mean"]),
        ("variance", f"{source} (tune chooses: {facts['variance']})"),
        ("rho", f"{facts['rho']:.4g} (default {facts['default_rho']:.4g})"),
        ("distribution", f"{facts['distribution']}, {'tuned' if facts['tuned'] else 'untuned'}"),
        ("calibration", facts["calibration_effect"]),
        ("conformal", f"{conformal['rows']} rows{grouped} around {conformal['family']}" if conformal else "no"),
        ("observed", _observed_line(facts["observed"])),
        ("correlation", ", ".join(f"{name} {r:.4g}" for name, r in joint.items()) or "not measured"),
        ("ranges", "those of training are not known" if facts["ranges"] is None else _range_line(facts["ranges"])),
        ("certificate", str(Certificate(**facts["certificate"]))),
    ]


def _range_line(ranges: list[dict[str, Any]]) -> str:
    constant = [entry["feature"] for entry in ranges if entry["low"] == entry["high"] and not entry["missing"]]
    never = f"; always the same: {_short(constant)}" if constant else ""
    return f"those of training are known, {PROGRAM} predict --support shows values outside{never}"


def _observed_line(seen: dict[str, Any] | None) -> str:
    if seen is None:
        return "no labels"
    cover, recent = seen["cover"]["90%"], seen["recent_cover"]["90%"]
    return f"{seen['rows']} rows, of which 90 % intervals held {cover:.1%}, and {recent:.1%} of the latest"


def _short(values: Any) -> str:
    shown = ", ".join(str(value) for value in values[:_SHOWN])
    return shown + (f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else "")


def _plain(value: Any) -> Any:
    """Convert to types that JSON has: infinities to None, NumPy's numbers to Python's."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
