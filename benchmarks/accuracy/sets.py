"""The data: nine UCI sets with their published splits, everyday sets, and made-up rows where these are not at hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SETS = ("yacht", "boston", "energy", "concrete", "wine-red", "kin8nm", "power", "naval", "protein")
"""In order of size, each a file NAME.npz with X, y, n_splits and test_0, test_1, ...: the rows of the test parts."""
EVERYDAY = ("insurance", "abalone", "winewhite", "parkinsons", "taxitip", "seoul", "california", "bike")
"""In order of size, each a file NAME.parquet with a column target. All contenders take categories as numbers."""
QUICK = ("yacht", "boston")
MADE_UP = {"yacht-sized": (308, 6), "boston-sized": (506, 13)}
"""Rows and features."""
_VALIDATION = 0.2
_SPLITS = 20
"""Random splits of a set that brings none of its own."""


@dataclass(frozen=True)
class Split:
    """One division of a set; rows in random order.

    Attributes
    ----------
    X, y : the rows to train on.
    X_val, y_val : a fifth of what is not tested: to stop on, to tune and to calibrate on.
    X_test, y_test : the rows that are scored.
    """

    name: str
    number: int
    X: Array
    y: Array
    X_val: Array
    y_val: Array
    X_test: Array
    y_test: Array


def sets_in(folder: Path) -> tuple[str, ...]:
    """The sets whose files are in a folder, or in folders in it."""
    present = {path.name for path in folder.rglob("*")}
    return tuple(name for name in (*SETS, *EVERYDAY) if _file(name) in present)


def _file(name: str) -> str:
    return f"{name}.parquet" if name in EVERYDAY else f"{name}.npz"


def _path(folder: Path, name: str) -> Path:
    return next(folder.rglob(_file(name)), folder / _file(name))


def n_splits(folder: Path | None, name: str) -> int:
    """How many splits a set has."""
    if folder is None or name in EVERYDAY:
        return _SPLITS
    with np.load(_path(folder, name)) as data:
        return int(data["n_splits"])


def load(folder: Path | None, name: str, number: int) -> Split:
    """A split of a set in `folder`, or of made-up rows; its number is the seed that takes the validation rows out."""
    if folder is None or name in EVERYDAY:
        X, y = _made_up(*MADE_UP[name]) if folder is None else _everyday(_path(folder, name))
        test = np.random.default_rng(1000 + number).permutation(len(y))[: len(y) // 10]
    else:
        with np.load(_path(folder, name)) as data:
            X, y, test = data["X"], data["y"], data[f"test_{number}"]
    rest = np.random.default_rng(number).permutation(np.setdiff1d(np.arange(len(y)), test))
    held_out, train = np.split(rest, [int(_VALIDATION * len(rest))])
    parts = [array[rows] for rows in (train, held_out, test) for array in (X, y)]
    return Split(name, number, *parts)


def _everyday(path: Path) -> tuple[Array, Array]:
    import pandas as pd

    frame = pd.read_parquet(path)
    y = frame.pop("target").to_numpy(np.float64)
    for name in frame.select_dtypes("category"):
        frame[name] = frame[name].cat.codes.where(frame[name].notna())
    return frame.to_numpy(np.float64), y


def _made_up(n: int, features: int) -> tuple[Array, Array]:
    """Rows whose noise differs from row to row."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, features))
    return X, X[:, 0] + np.sin(3.0 * X[:, 1]) + np.exp(0.7 * X[:, 2] - 1.0) * rng.normal(size=n)
