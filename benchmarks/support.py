"""Telling unfamiliar rows apart: `predict_support`, the predicted spread, and CatBoost's virtual ensembles.

python -m benchmarks.support --data DIR [--sets bike,seoul] [--json PATH] [--quick]

DIR and its folders hold the sets: NAME.npz with X and y, or NAME.parquet with the label in the column `target`. Of each
set, at most 8,000 rows are drawn; 70 % train a LightGBM model (31 leaves, a step of 0.05), 15 % stop it, and 15 % are
the familiar rows. There are two kinds of unfamiliar rows:

* *held out*: all rows of one category are taken out before training. Of each set, up to two columns that are
  categorical or hold at most 12 whole numbers, and in each the most frequent category of at most half of the rows.
* *pushed out*: in the familiar rows, the feature with the largest gain is moved above its largest value, by the width
  of its range.

Figures are areas under the ROC curve: how likely an unfamiliar row looks less familiar than a familiar one, .5 for a
guess. CatBoost takes part where it is installed: 500 trees with posterior sampling, ten virtual ensembles.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
from scipy.stats import rankdata

from pgbm_plugin import ProbabilisticModel, wrap
from pgbm_plugin.parallel import progress_bar

from .contest import options, report
from .few_rows import made_up, read_set

_MAX_ROWS, _COLUMNS, _CATEGORIES = 8000, 2, 12
_PARAMS = {"num_leaves": 31, "learning_rate": 0.05, "num_threads": 1, "seed": 1, "verbose": -1}
_CATBOOST = {"loss_function": "RMSEWithUncertainty", "posterior_sampling": True, "random_seed": 1, "thread_count": 1}
_CATBOOST |= {"verbose": False, "allow_writing_files": False}


@dataclass(frozen=True)
class Split:
    """Rows for training, for early stopping, and familiar ones."""

    train: tuple[pd.DataFrame, np.ndarray]
    stop: tuple[pd.DataFrame, np.ndarray]
    familiar: pd.DataFrame


@dataclass(frozen=True)
class Case:
    """A split, and rows that are unlike those of training."""

    name: str
    kind: str
    split: Split
    unfamiliar: pd.DataFrame


def split_of(X: pd.DataFrame, y: np.ndarray) -> Split:
    order = np.random.default_rng(0).permutation(len(y))[:_MAX_ROWS]
    train, stop, test = np.split(order, (np.array([0.7, 0.85]) * len(order)).astype(int))
    return Split((X.iloc[train], y[train]), (X.iloc[stop], y[stop]), X.iloc[test])


def trained(split: Split, rounds: int) -> tuple[lgb.Booster, ProbabilisticModel]:
    rows = lgb.Dataset(*split.train)
    stopping = lgb.early_stopping(50, verbose=False)
    params = _PARAMS | {"min_data_in_leaf": 20 if len(split.train[1]) > 1000 else 5}
    booster = lgb.train(params, rows, rounds, valid_sets=[rows.create_valid(*split.stop)], callbacks=[stopping])
    return booster, wrap(booster, *split.train)


def held_out(name: str, X: pd.DataFrame, y: np.ndarray) -> Iterator[Case]:
    """Yield cases whose unfamiliar rows are those of a category."""
    found = 0
    for column in X.columns:
        values = X[column]
        named = isinstance(values.dtype, pd.CategoricalDtype)
        whole = not named and bool(np.all(values == np.round(values)))
        shares = values.value_counts(normalize=True)
        shares = shares[(shares > 0.0) & (shares <= 0.5)]
        if found == _COLUMNS or not (named or whole) or not 2 <= values.nunique() <= _CATEGORIES or shares.empty:
            continue
        out = (values == shares.index[0]).to_numpy()
        found += 1
        yield Case(f"{name}, {column} = {shares.index[0]}", "held out", split_of(X[~out], y[~out]), X[out])


def pushed_out(name: str, X: pd.DataFrame, y: np.ndarray, rounds: int) -> Case:
    """Return the case whose unfamiliar rows have a value of one feature that is far too large."""
    split = split_of(X, y)
    gain = trained(split, rounds)[0].feature_importance("gain")
    numeric = np.array([not isinstance(kind, pd.CategoricalDtype) for kind in X.dtypes])
    column = X.columns[int(np.argmax(np.where(numeric, gain, -1.0)))]
    seen = X[column].astype(float)
    pushed = split.familiar.assign(**{column: split.familiar[column] + 2.0 * (seen.max() - seen.min())})
    return Case(f"{name}, {column}", "pushed out", split, pushed)


def area(familiar: np.ndarray, unfamiliar: np.ndarray) -> float:
    """Return the probability that the score of an unfamiliar row is larger; ties count half."""
    ranks, n = rankdata(np.concatenate([familiar, unfamiliar])), len(unfamiliar)
    return float((ranks[-n:].sum() - 0.5 * n * (n + 1)) / (n * len(familiar)))


def as_strings(X: pd.DataFrame) -> pd.DataFrame:
    kinds = [column for column in X if isinstance(X[column].dtype, pd.CategoricalDtype)]
    return X.assign(**{column: X[column].astype(str) for column in kinds})


def knowledge(split: Split, trees: int) -> Any:
    """Return CatBoost's knowledge uncertainty, as a function of rows; None without CatBoost."""
    if not find_spec("catboost"):
        return None
    import catboost

    kinds = [j for j, kind in enumerate(split.train[0].dtypes) if isinstance(kind, pd.CategoricalDtype)]
    model = catboost.CatBoostRegressor(**_CATBOOST, iterations=trees)
    model.fit(catboost.Pool(as_strings(split.train[0]), split.train[1], cat_features=kinds))

    def of(X: pd.DataFrame) -> np.ndarray:
        pool = catboost.Pool(as_strings(X), cat_features=kinds)
        found = model.virtual_ensembles_predict(pool, prediction_type="TotalUncertainty", virtual_ensembles_count=10)
        return np.asarray(found)[:, 1]

    return of


def measure(case: Case, rounds: int, trees: int) -> dict[str, Any]:
    """Return one line: the area of every way, and the share of unfamiliar and familiar rows with values outside."""
    _, model = trained(case.split, rounds)
    parts = case.split.familiar, case.unfamiliar
    support = [model.predict_support(X) for X in parts]
    outside = [found.n_outside for found in support]
    assert outside[0] is not None
    assert outside[1] is not None
    first = [number + 0.5 / found.rows for number, found in zip(outside, support, strict=True)]
    line = {
        "case": case.name,
        "kind": case.kind,
        "rows": area(*(-found.rows for found in support)),
        "outside first": area(*first),
        "spread": area(*(model.predict_var(X) for X in parts)),
        "outside": float(np.mean(outside[1] > 0)),
        "familiar outside": float(np.mean(outside[0] > 0)),
    }
    of = knowledge(case.split, trees)
    return line if of is None else line | {"CatBoost": area(*map(of, parts))}


def main() -> None:
    given = options(
        __doc__,
        data={"type": Path, "help": "folder of the sets; --quick does without"},
        sets={"help": "with commas; all unless given"},
    )
    if given.data is None and not given.quick:
        sys.exit("--data DIR is needed: a folder of .npz or .parquet files; or --quick for made-up rows")
    paths = sorted(p for p in given.data.rglob("*") if p.suffix in (".npz", ".parquet")) if given.data else []
    read = {p.stem: read_set(p) for p in paths if given.sets is None or p.stem in given.sets.split(",")}
    if given.quick:
        X, y = made_up()
        read = {"made up": (np.column_stack([X, np.arange(len(y)) % 4]), y)}
    sets = {name: (pd.DataFrame(found[0]), found[1]) for name, found in read.items() if found is not None}
    (rounds, trees), lines = (20, 20) if given.quick else (2000, 500), []
    with progress_bar(len(sets), "sets", True) as advance:
        for name, (X, y) in sets.items():
            X = X.set_axis([str(column) for column in X.columns], axis=1)
            for case in [*held_out(name, X, y), pushed_out(name, X, y, rounds)]:
                lines.append(measure(case, rounds, trees))
            advance(1)
    means = []
    for kind in ("held out", "pushed out"):
        of_kind = [line for line in lines if line["kind"] == kind]
        numbers = [key for key in lines[0] if key not in ("case", "kind")]
        means.append(
            {"cases": f"{len(of_kind)} {kind}"} | {key: float(np.mean([v[key] for v in of_kind])) for key in numbers}
        )
    report("area under the ROC curve, case by case", lines, given.json)
    report("means", means, None)


if __name__ == "__main__":
    main()
