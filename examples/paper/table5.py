"""Table 5 and figure 2: CRPS and RMSE on nine UCI sets, against NGBoost and the booster alone.

python -m examples.paper.table5 --data DIR [--sets yacht,boston] [--splits N] [--models lightgbm,xgboost] [--jobs 2]
    [--slow-splits 5] [--out DIR] [--quick]

Protocol of the paper: of each split's 90 %, a fifth chooses the number of trees (up to 2,000), and a model of all 90 %
with so many trees is tested; 16 leaves, a step of 0.1, lambda 1, 64 bins; rho = log10(n) / 100, a Normal, nothing
tuned. So says the paper's table of settings; its published code has 8 leaves, and these are run as well. NGBoost has
its authors' settings, and chooses by its own validation loss; it ends after 200 rounds without gain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.accuracy.__main__ import chosen
from benchmarks.accuracy.contenders import NGBOOST
from benchmarks.accuracy.sets import Split
from pgbm_plugin.distributions import Normal

from .published import TABLE_5
from .results import Key, Record, complete, figure, mean_and_sd, save, table, write
from .uci import (
    LIGHTGBM,
    XGBOOST,
    Plan,
    all_rows,
    best_xgboost,
    has_ngboost,
    ngboost,
    plan,
    rmse,
    scores,
    split_of,
    train_lightgbm,
    train_xgboost,
    validated_lightgbm,
    wrapped,
)

NAME = "table5"
TITLES = {
    "lightgbm": "LightGBM + plugin",
    "lightgbm-8": "LightGBM + plugin, 8 leaves",
    "xgboost": "XGBoost + plugin",
    "ngboost": "NGBoost",
    "constant": "LightGBM, one sigma",
    "plain": "LightGBM alone",
}
BASE = "lightgbm"
PATIENCE = 200
"""Rounds without gain after which NGBoost, which is slow, ends; the others run to the end."""
SLOW = ("kin8nm", "power", "naval", "protein")
"""Sets with so many rows that NGBoost takes minutes a split."""


def of_lightgbm(split: Split, rounds: int) -> Record:
    """Also what the booster says alone, and the same with one sigma for all rows: that of the validation residuals."""
    first = validated_lightgbm(split, rounds)
    X, y = all_rows(split)
    booster, model = wrapped(train_lightgbm, X, y, first.best_iteration)
    mean = booster.predict(split.X_test, num_threads=1)
    variance = np.mean((first.predict(split.X_val, num_threads=1) - split.y_val) ** 2)
    constant = Normal.from_moments(mean, np.full(len(mean), variance))
    found = {"lightgbm": scores(model.predict_dist(split.X_test), split.y_test)}
    found |= {"constant": scores(constant, split.y_test), "plain": {"rmse": rmse(mean, split.y_test)}}
    return {"trees": first.best_iteration, "certificate": model.certificate.status, "scores": found}


def of_lightgbm_8(split: Split, rounds: int) -> Record:
    trees = validated_lightgbm(split, rounds, num_leaves=8).best_iteration
    _, model = wrapped(partial(train_lightgbm, num_leaves=8), *all_rows(split), trees)
    found = {"lightgbm-8": scores(model.predict_dist(split.X_test), split.y_test)}
    return {"trees": trees, "certificate": model.certificate.status, "scores": found}


def of_xgboost(split: Split, rounds: int) -> Record:
    trees = best_xgboost(split, rounds)
    _, model = wrapped(train_xgboost, *all_rows(split), trees)
    found = {"xgboost": scores(model.predict_dist(split.X_test), split.y_test)}
    return {"trees": trees, "certificate": model.certificate.status, "scores": found}


def of_ngboost(split: Split, rounds: int) -> Record:
    first = ngboost(rounds)
    first.fit(split.X, split.y, split.X_val, split.y_val, early_stopping_rounds=PATIENCE)
    trees = int(first.best_val_loss_itr) + 1
    found = ngboost(trees).fit(*all_rows(split)).pred_dist(split.X_test)
    distribution = Normal.from_moments(found.loc, found.scale**2)
    return {"trees": trees, "scores": {"ngboost": scores(distribution, split.y_test)}}


MODELS: dict[str, tuple[Callable[[Split, int], Record], Any]] = {
    "lightgbm": (of_lightgbm, LIGHTGBM),
    "lightgbm-8": (of_lightgbm_8, {**LIGHTGBM, "num_leaves": 8}),
    "xgboost": (of_xgboost, XGBOOST),
    "ngboost": (of_ngboost, {**NGBOOST, "patience": PATIENCE}),
}


def compute(key: Key, work: Plan) -> Record:
    return MODELS[key["model"]][0](split_of(key, work), work.rounds)


def slow(key: Key) -> bool:
    return key["model"] == "ngboost" and key["set"] in SLOW


def columns(records: Sequence[Record]) -> dict[str, dict[str, dict[str, list[float]]]]:
    """metric -> model -> set -> a value per split."""
    out: dict[str, Any] = {}
    for record in records:
        for model, values in record["scores"].items():
            for metric, value in values.items():
                of_model = out.setdefault(metric, {}).setdefault(model, {})
                of_model.setdefault(record["key"]["set"], []).append(value)
    return out


def markdown(found: dict[str, dict[str, dict[str, list[float]]]], sets: Sequence[str]) -> str:
    parts = []
    for metric, title in (("crps", "CRPS"), ("crps_sampled", "CRPS of 1,000 samples"), ("rmse", "RMSE")):
        lines = []
        for name in sets:
            here = {model: by[name] for model, by in found[metric].items() if name in by}
            most = max(map(len, here.values()))
            line = {"set": name, "splits": str(most)}
            line |= {TITLES[m]: cell(here[m], most) if m in here else "" for m in TITLES if m in found[metric]}
            paper = TABLE_5.get(name, {}).get(metric.removesuffix("_sampled"), {})
            line |= {
                f"paper: {m}": f"{paper[m][0]:.2f} ± {paper[m][1]:.2g}" if m in paper else "" for m in _PAPER[metric]
            }
            for model, leaves in (("lightgbm", 16), ("lightgbm-8", 8)):
                if model in here:
                    line[f"apart, {leaves} leaves"] = apart(here[model], paper.get("PGBM"))
            lines.append(line)
        parts += [f"**{title}**, mean ± sd over splits", table(lines)]
    parts += [f"*apart*: {TITLES[BASE]} less the paper's PGBM, over the paper's sd; negative is better."]
    if BASE in found["crps"]:
        parts += [f"**Relative to {TITLES[BASE]}**: geometric mean over sets of the ratio of means", _ratios(found)]
    return "\n\n".join(parts) + "\n"


_PAPER = {"crps": ("PGBM", "NGBoost"), "crps_sampled": ("PGBM", "NGBoost"), "rmse": ("PGBM", "NGBoost", "LightGBM")}


def cell(values: Sequence[float], splits: int) -> str:
    return mean_and_sd(values) + (f" ({len(values)} of {splits})" if len(values) < splits else "")


def apart(values: Sequence[float], paper: tuple[float, float] | None) -> str:
    """How far the mean is from the paper's, in the paper's standard deviations; none where it prints zeros."""
    if paper is None or paper[1] == 0.0:
        return ""
    return f"{(np.mean(values) - paper[0]) / paper[1]:+.1f}"


def ratio(found: dict[str, dict[str, list[float]]], model: str) -> tuple[float, int]:
    """Geometric mean over the sets that both have, of the splits that both have."""
    logs = []
    for name in found.get(model, {}):
        pairs = list(zip(found[model][name], found.get(BASE, {}).get(name, []), strict=False))
        if pairs:
            one, base = np.mean(pairs, axis=0)
            logs.append(np.log(one / base))
    return (float(np.exp(np.mean(logs))), len(logs)) if logs else (np.nan, 0)


def _ratios(found: dict[str, dict[str, dict[str, list[float]]]]) -> str:
    lines = []
    for model, title in TITLES.items():
        line = {"model": title}
        for metric in ("crps", "crps_sampled", "rmse"):
            value, sets = ratio(found.get(metric, {}), model)
            line[metric] = f"{value:.3f} ({sets} sets)" if sets else ""
        if any(line[metric] for metric in ("crps", "rmse")):
            lines.append(line)
    return table(lines)


def draw(found: dict[str, dict[str, dict[str, list[float]]]], sets: Sequence[str], out: Any) -> None:
    """A panel a set, a box a model, over the median of the base: CRPS above, RMSE below."""
    drawing, panels = figure(2, len(sets), 1.7, 2.2)
    known = [m for m in TITLES if any(m in by for by in found.values())]
    colors = {model: f"C{k}" for k, model in enumerate(known)}
    for line, metric in zip(panels, ("crps_sampled", "rmse"), strict=True):
        for panel, name in zip(line, sets, strict=True):
            models = [model for model in known if name in found[metric].get(model, {})]
            base = np.median(found[metric][BASE][name]) if BASE in models else 1.0
            values = [np.array(found[metric][m][name]) / base for m in models]
            boxes = panel.boxplot(values, widths=0.7, patch_artist=True, medianprops={"color": "black"})
            for box, model in zip(boxes["boxes"], models, strict=True):
                box.set(facecolor=colors[model], label=TITLES[model])
            panel.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
            panel.set_xticks([])
            panel.tick_params(labelsize=7)
        line[0].set_ylabel(f"{metric.partition('_')[0].upper()} over the median of\n{TITLES[BASE]}", fontsize=8)
    for panel, name in zip(panels[0], sets, strict=True):
        panel.set_title(name)
    shown = {patch.get_label(): patch for line in panels for patch in line[0].patches}
    drawing.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=len(shown))
    save(drawing, NAME, out)


def main(arguments: Sequence[str] | None = None) -> None:
    models = {"help": f"of {', '.join(MODELS)}; with commas"}
    most = {"type": int, "default": 20, "metavar": "N", "help": f"most splits of NGBoost for {', '.join(SLOW)}"}
    given, work = plan(__doc__, arguments, None, models=models, **{"slow-splits": most})
    names = chosen(given.models, tuple(MODELS), "model")
    names = [name for name in names if name != "ngboost" or has_ngboost()]
    keys = [key for name in names for key in work.keys(MODELS[name][1], model=name)]
    keys = [key for key in keys if key["split"] < given.slow_splits or not slow(key)]
    # a set after the other, so that the small ones are complete early
    keys.sort(key=lambda key: list(work.splits).index(key["set"]))
    records = complete(NAME, keys, compute, given.out, given.jobs, work)
    found = columns(records)
    write(NAME, markdown(found, list(work.splits)), {"scores": found, "paper": TABLE_5}, records, given.out)
    if given.out is not None:
        draw(found, list(work.splits), given.out)


if __name__ == "__main__":
    main()
