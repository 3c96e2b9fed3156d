"""From results to tables: means over splits, ratios over sets, and how sure they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .sets import EVERYDAY, MADE_UP, SETS

Array = NDArray[np.float64]

BASELINE = "auto"
_COLLECTIONS = {"UCI sets": SETS, "Everyday sets": EVERYDAY, "Made-up rows": tuple(MADE_UP)}
METRICS = {
    "crps": "CRPS",
    "nll": "NLL, where all splits have a density",
    "coverage": "coverage of the central 90 % interval",
    "width": "mean width of the central 90 % interval",
    "conformal_coverage": "coverage after `conformalize` (half of the validation rows to tune, the other half for it)",
    "conformal_width": "mean width after `conformalize`",
    "rmse": "RMSE of the distribution's mean",
}
_RESAMPLES = 2000


@dataclass(frozen=True)
class Results:
    """All that is known.

    Attributes
    ----------
    titles : of the contenders by name, in the order of the tables.
    values : (set, contender) -> split -> record.
    """

    titles: Mapping[str, str]
    values: Mapping[tuple[str, str], Mapping[int, Mapping[str, Any]]]

    @classmethod
    def of(cls, titles: Mapping[str, str], records: Iterable[Mapping[str, Any]]) -> Results:
        values: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
        for record in records:
            values.setdefault((record["set"], record["contender"]), {})[record["split"]] = record
        present = {name for _, name in values}
        return cls({name: title for name, title in titles.items() if name in present}, values)

    @property
    def sets(self) -> list[str]:
        present = {name for name, _ in self.values}
        return [name for name in (*SETS, *EVERYDAY, *MADE_UP) if name in present]

    @property
    def collections(self) -> dict[str, Results]:
        """Return the results of each collection of sets, by its title; if there are several, all sets come first."""
        parts = {title: self._of_sets(names) for title, names in _COLLECTIONS.items()}
        parts = {title: part for title, part in parts.items() if part.values}
        return {"All sets": self, **parts} if len(parts) > 1 else parts

    def _of_sets(self, names: Sequence[str]) -> Results:
        records = [record for (s, _), by in self.values.items() if s in names for record in by.values()]
        return Results.of(self.titles, records)

    def column(self, set_name: str, contender: str, metric: str) -> dict[int, float]:
        """split -> value, of the splits that have one."""
        splits = self.values.get((set_name, contender), {})
        return {k: splits[k][metric] for k in sorted(splits) if splits[k].get(metric) is not None}

    def pairs(self, set_name: str, contender: str, metric: str = "crps") -> Array:
        """(k, 2) values of the contender and of the baseline on the splits that both have."""
        one, base = (self.column(set_name, name, metric) for name in (contender, BASELINE))
        return np.array([(one[k], base[k]) for k in one if k in base]).reshape(-1, 2)


def ratios(results: Results, contender: str) -> dict[str, float]:
    """set -> mean CRPS over that of the baseline, on the splits that both have."""
    pairs = {name: results.pairs(name, contender) for name in results.sets}
    return {name: float(np.divide(*p.mean(axis=0))) for name, p in pairs.items() if len(p)}


def geometric_mean(results: Results, contender: str) -> tuple[float, float]:
    """Of the ratios over sets, and its standard error by a bootstrap over splits.

    Splits are drawn with what both contenders scored there; the sets stay. As test parts overlap, and so do training
    parts, the error is a little too small.
    """
    rng = np.random.default_rng(0)
    pairs = [p for p in (results.pairs(name, contender) for name in results.sets) if len(p)]
    logs = np.zeros(_RESAMPLES)
    for p in pairs:
        drawn = p[rng.integers(0, len(p), (_RESAMPLES, len(p)))].mean(axis=1)
        logs += np.log(drawn[:, 0] / drawn[:, 1]) / len(pairs)
    mean = float(np.exp(np.mean(np.log(list(ratios(results, contender).values())))))
    return mean, float(mean * logs.std()) if max(map(len, pairs)) > 1 else np.nan


def summary(results: Results) -> list[dict[str, Any]]:
    """A line per contender."""
    if BASELINE not in results.titles:
        return []
    of_all = {name: ratios(results, name) for name in results.titles}
    least = {s: min(found.get(s, np.inf) for found in of_all.values()) for s in results.sets}
    lines = []
    for name, title in results.titles.items():
        if not of_all[name]:
            continue
        mean, error = geometric_mean(results, name)
        line = {"contender": title, "sets": len(of_all[name]), "CRPS ratio": mean, "se": error}
        line |= {"better": sum(ratio < 1.0 for ratio in of_all[name].values())}
        line |= {"best": sum(ratio == least[s] for s, ratio in of_all[name].items())}
        for metric, label in (("coverage", "coverage"), ("conformal_coverage", "conformal coverage")):
            of_sets = [_mean(results.column(s, name, metric).values()) for s in results.sets]
            line |= {label: _mean(of_sets), f"lowest {label}": _lowest(of_sets)}
        refused = [sum(results.column(s, name, "refused").values()) for s in results.sets]
        lines.append(line | {"refused splits": int(sum(refused))})
    return lines


def by_set(results: Results, metric: str) -> dict[str, dict[str, dict[str, float]]]:
    """contender -> set -> mean, sd and number of splits; of the NLL only where all splits have one."""
    out: dict[str, dict[str, dict[str, float]]] = {}
    for name in results.titles:
        for s in results.sets:
            column = list(results.column(s, name, metric).values())
            if not column or (metric == "nll" and len(column) < len(results.values[s, name])):
                continue
            with np.errstate(invalid="ignore"):  # an infinite likelihood has no sd
                sd = float(np.std(column, ddof=1)) if len(column) > 1 else np.nan
            out.setdefault(name, {})[s] = {"mean": float(np.mean(column)), "sd": sd, "splits": len(column)}
    return out


def seconds(results: Results) -> list[dict[str, Any]]:
    """Median processor seconds over the splits of a set."""
    lines = []
    for name, title in results.titles.items():
        line: dict[str, Any] = {"contender": title}
        for s in results.sets:
            parts = [list(results.column(s, name, part).values()) for part in ("booster_s", "fit_s", "predict_s")]
            shown = (f"{np.median(part):.2g}" for part in parts)
            line[s] = " + ".join(shown) if parts[0] else ""
        lines.append(line)
    return lines


def markdown(results: Results) -> str:
    """All tables: a line per contender over each collection of sets, then set by set."""
    parts = []
    for title, part in results.collections.items():
        lines = [{key: _shown(key, value) for key, value in line.items()} for line in summary(part)]
        if lines:
            base = results.titles[BASELINE]
            parts += [f"### {title}: CRPS over that of {base}, geometric mean over sets", _table(lines)]
    for title, part in results.collections.items():
        if part is not results:
            parts += _set_by_set(title, part)
    return "\n\n".join(parts) + "\n"


def _set_by_set(title: str, results: Results) -> list[str]:
    parts = [f"## {title}"]
    for metric, name in METRICS.items():
        found = by_set(results, metric)
        if found:
            parts += [f"### {name}: mean ± sd over splits", _table(_set_lines(results, found, metric))]
    return [*parts, "### Processor seconds: shared booster + fit + predict, medians", _table(seconds(results))]


def _set_lines(results: Results, found: Mapping[str, Any], metric: str) -> list[dict[str, str]]:
    """A line per contender; the lowest score of a set is bold, and a cell with fewer splits than others says so."""
    cells = [(s, line[s]) for line in found.values() for s in line]
    most = {s: max(cell["splits"] for t, cell in cells if t == s) for s, _ in cells}
    least = {s: min(cell["mean"] for t, cell in cells if t == s) for s, _ in cells}
    lines = []
    for name, by in found.items():
        line = {"contender": results.titles[name]}
        for s in results.sets:
            line[s] = _cell(by[s], most[s], metric in ("crps", "nll") and by[s]["mean"] == least[s]) if s in by else ""
        lines.append(line)
    return lines


def _cell(cell: Mapping[str, float], most: int, bold: bool) -> str:
    text = f"{cell['mean']:.3g}" + (f" ± {cell['sd']:.2g}" if np.isfinite(cell["sd"]) else "")
    text = f"**{text}**" if bold else text
    return text if cell["splits"] == most else f"{text} ({cell['splits']})"


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else np.nan


def _lowest(values: Iterable[float]) -> float:
    return min((value for value in values if not np.isnan(value)), default=np.nan)


def _shown(key: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if np.isnan(value):
        return ""
    return f"{value:.1%}" if "coverage" in key else f"{value:.3f}"


def _table(lines: Sequence[Mapping[str, str]]) -> str:
    head = list(lines[0])
    rows = [head, ["---"] * len(head), *([line[key] for key in head] for line in lines)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
