"""Figure 3: validation CRPS against the correlation rho, for every set, and for protein with 8, 32 and 128 leaves.

python -m examples.paper.figure3 --data DIR [--sets yacht,boston] [--splits N] [--jobs 2] [--out DIR] [--quick]

As in the paper's experiment: 8 leaves (not the 16 of its table of settings), a Normal, the model of the training rows,
with as many trees as the validation rows choose. The paper has one split, the default here is five.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pgbm_plugin import wrap

from .results import Key, Record, complete, figure, save, table, write
from .uci import LIGHTGBM, Plan, plan, split_of, validated_lightgbm

NAME = "figure3"
RHO = np.round(np.arange(-9, 21) * 0.01, 2)
LEAVES = (8, 32, 128)
SEVERAL = "protein"
"""The set that is trained with all numbers of leaves."""


def compute(key: Key, work: Plan) -> Record:
    split = split_of(key, work)
    booster = validated_lightgbm(split, work.rounds, num_leaves=key["leaves"])
    model = wrap(booster, split.X, split.y, n_jobs=1)
    *crps, at_default = (
        float(np.mean(model.predict_dist(split.X_val, rho=rho).crps(split.y_val))) for rho in (*RHO, model.default_rho)
    )
    return {"trees": booster.best_iteration, "default": model.default_rho, "crps": crps, "crps_default": at_default}


def curves(records: Sequence[Record]) -> dict[tuple[str, int], dict[str, Any]]:
    """(set, leaves) -> the mean over splits of CRPS over its least, and where that was."""
    groups: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        groups.setdefault((record["key"]["set"], record["key"]["leaves"]), []).append(record)
    out = {}
    for name, group in groups.items():
        crps = np.array([record["crps"] for record in group])
        relative = crps / crps.min(axis=1, keepdims=True)
        best = RHO[np.argmin(crps, axis=1)]
        at_default = [record["crps_default"] / min(record["crps"]) for record in group]
        out[name] = {
            "relative": relative.mean(axis=0).tolist(),
            "best": best.tolist(),
            "best_of_mean": float(RHO[np.argmin(relative.mean(axis=0))]),
            "default": float(np.mean([record["default"] for record in group])),
            "at_default": float(np.mean(at_default)),
            "trees": float(np.median([record["trees"] for record in group])),
        }
    return out


def markdown(found: dict[tuple[str, int], dict[str, Any]]) -> str:
    lines = []
    for (name, leaves), curve in found.items():
        best = curve["best"]
        lines.append(
            {
                "set": name,
                "leaves": str(leaves),
                "splits": str(len(best)),
                "trees": f"{curve['trees']:.0f}",
                "best rho, of the mean curve": f"{curve['best_of_mean']:.2f}",
                "median": f"{np.median(best):.2f}",
                "least and most": f"{min(best):.2f} to {max(best):.2f}",
                "log10(n) / 100": f"{curve['default']:.3f}",
                "CRPS there over the least": f"{curve['at_default']:.3f}",
            }
        )
    note = f"rho from {RHO[0]} to {RHO[-1]} in steps of 0.01. The paper: 0.02 to 0.07 typically seems appropriate."
    return f"{table(lines)}\n\n{note}\n"


def draw(found: dict[tuple[str, int], dict[str, Any]], out: Any) -> None:
    drawing, panels = figure(1, 2, 5.0, 4.0)
    several = {name for name, leaves in found if leaves != LEAVES[0]}
    for (name, leaves), curve in found.items():
        if leaves == LEAVES[0]:
            panels[0, 0].plot(RHO, curve["relative"], label=name)
        if name in several:
            panels[0, 1].plot(RHO, curve["relative"], label=f"{name}, {leaves} leaves")
    for panel in panels.flat:
        panel.set(xlabel="rho", ylabel="validation CRPS over its least", ylim=(0.99, 1.5))
        if panel.lines:  # protein may be left out
            panel.legend(fontsize=7)
    save(drawing, NAME, out)


def main(arguments: Sequence[str] | None = None) -> None:
    given, work = plan(__doc__, arguments, 5)
    several = [name for name in work.splits if name == SEVERAL or work.folder is None]
    keys = [
        key
        for leaves in LEAVES
        for key in work.keys({**LIGHTGBM, "rho": RHO.tolist()}, leaves=leaves)
        if leaves == LEAVES[0] or key["set"] in several
    ]
    records = complete(NAME, keys, compute, given.out, given.jobs, work)
    found = curves(records)
    named = {f"{name}, {leaves} leaves": curve for (name, leaves), curve in found.items()}
    write(NAME, markdown(found), {"rho": RHO.tolist(), "curves": named}, records, given.out)
    if given.out is not None:
        draw(found, given.out)


if __name__ == "__main__":
    main()
