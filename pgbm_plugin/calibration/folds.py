"""Folds: which rows train a model, and which rows it then predicts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import AnyArray, Array
from ..tables.rows import table_length

Index = NDArray[np.int64]


class Fold(NamedTuple):
    """Numbers of rows, in rising order."""

    train: Index
    test: Index


def _is_number(cv: Any) -> bool:
    return isinstance(cv, (int, np.integer)) and not isinstance(cv, bool)


def check_cv(cv: Any) -> None:
    """Refuse what cannot be a way to make folds, before any row is read."""
    if _is_number(cv):
        if cv < 2:
            raise ValueError(f"cv must be at least 2 folds, not {cv}")
    elif isinstance(cv, (str, bytes, float, type)) or not (hasattr(cv, "split") or isinstance(cv, Iterable)):
        raise TypeError(
            f"cv must be a number of folds, a scikit-learn splitter, or a list of (train, test) rows, not {cv!r:.60}"
        )


def read_folds(cv: Any, X: Any, y: Array, weight: AnyArray | None) -> list[Fold]:
    """Return the folds of rows, checked.

    No row is tested twice. Every row is tested, except rows before all tested ones, as in splits by time. `cv` is the
    number of random folds, the same every time; or an object with scikit-learn's ``split(X, y)``; or pairs of (train,
    test) row numbers. `X` is what a splitter is shown as the table; the labels in its place if it is none.
    """
    n = len(y)
    if _is_number(cv):
        if cv > n:
            raise ValueError(f"cv={cv} folds need at least {cv} rows, there are {n}")
        fold_of = np.random.default_rng(0).permutation(n) % cv
        pairs: Any = [(fold_of != k, fold_of == k) for k in range(cv)]
    else:
        pairs = _split(cv, X, y) if hasattr(cv, "split") else cv
    folds = [_read_fold(k, pair, n) for k, pair in enumerate(pairs)]
    if not folds:
        raise ValueError("cv has no folds")
    _check_tested(folds, n)
    for k, fold in enumerate(folds):
        _check_can_train(k, y[fold.train], None if weight is None else weight[fold.train])
    return folds


def _split(splitter: Any, X: Any, y: Array) -> list[Any]:
    try:
        return list(splitter.split(X if table_length(X) == len(y) else y, y))
    except Exception as error:
        raise ValueError(
            f"cv={splitter!r:.60} cannot split these rows ({error}); if it needs groups, split by them: "
            f"cv={type(splitter).__name__}(...).split(X, y, groups)"
        ) from error


def _read_fold(k: int, pair: Any, n: int) -> Fold:
    """Check one pair of row numbers, or of masks."""
    try:
        train, test = (np.asarray(part) for part in pair)
    except (TypeError, ValueError) as error:
        raise TypeError(f"cv: fold {k} must be a pair of (train, test) rows, not {pair!r:.60}") from error
    parts = []
    for name, part in (("training", train), ("test", test)):
        if part.dtype == bool and part.shape == (n,):
            part = np.flatnonzero(part)
        if part.ndim != 1 or (part.dtype.kind not in "iu" and len(part)):
            raise TypeError(f"cv: the {name} rows of fold {k} must be a list of row numbers, or a mask of all {n} rows")
        rows, count = np.unique(part.astype(np.int64), return_counts=True)
        if not len(rows):
            raise ValueError(f"cv: fold {k} has no {name} rows")
        if count.max() > 1:
            twice = rows[count.argmax()]
            raise ValueError(f"cv: the {name} rows of fold {k} hold row {twice} {count.max()} times; give it once")
        if rows[0] < 0 or rows[-1] >= n:
            wrong = rows[0] if rows[0] < 0 else rows[-1]
            raise ValueError(f"cv: fold {k} names row {wrong}, but rows are numbered from 0 to {n - 1}")
        parts.append(rows)
    fold = Fold(*parts)
    both = np.intersect1d(*fold, assume_unique=True)
    if len(both):
        raise ValueError(f"cv: fold {k} trains on row {both[0]} and tests it, which is no test; {len(both)} such rows")
    return fold


def _check_tested(folds: list[Fold], n: int) -> None:
    tests = np.bincount(np.concatenate([fold.test for fold in folds]), minlength=n)
    if tests.max() > 1:
        raise ValueError(
            f"cv: row {int(tests.argmax())} is in the test rows of {tests.max()} folds, it must be in one; folds that "
            f"are drawn anew, as by ShuffleSplit, hold rows twice: use KFold(shuffle=True)"
        )
    first = int(np.argmax(tests > 0))
    if not tests[first:].all():
        left_out = first + int(np.argmin(tests[first:]))
        raise ValueError(
            f"cv: row {left_out} is in the test rows of no fold; every row must be, except the first rows of a split "
            f"by time"
        )


def _check_can_train(k: int, y: Array, weight: AnyArray | None) -> None:
    if weight is not None:
        y = y[weight > 0]
    if not len(y) or np.all(y == y[0]):
        labels = "no row with a positive weight" if not len(y) else f"one label only, {y[0]:g}"
        raise ValueError(f"cv: the training rows of fold {k} have {labels}, and nothing can be learned from them")
