"""What commands read and where they write, checked before any work."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import PROGRAM

if TYPE_CHECKING:
    from ..model import ProbabilisticModel
    from ..trees.forest import Features


def kind_of(path: str) -> str:
    """ "LightGBM", "XGBoost" or "pgbm", as a model's file begins."""
    from ..boosters.lightgbm import model as lightgbm
    from ..boosters.xgboost import model as xgboost
    from ..saving.container import is_container

    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path!r} is a directory" if os.path.isdir(path) else f"no model file at {path!r}")
    with open(path, "rb") as file:
        head = file.read(64)
    if is_container(head):
        return "pgbm"
    if lightgbm.is_model_text(head):
        return "LightGBM"
    if xgboost.is_model_bytes(head):
        return "XGBoost"
    raise ValueError(
        f"{path!r} is no model: neither one that {PROGRAM} saved, nor LightGBM's text, nor XGBoost's JSON or UBJSON"
    )


def load_model(args: Namespace) -> ProbabilisticModel:
    """The model of a command that takes a wrapped one."""
    kind = kind_of(args.model)
    if kind != "pgbm":
        raise ValueError(
            f"{args.model!r} is a {kind} model without moments: first {PROGRAM} wrap {args.model} --data ROWS "
            f"--label COLUMN -o model.pgbm"
        )
    from ..saving.model_bytes import load
    from ..streams.categories import with_category_columns

    model = load(args.model, device=args.device, n_jobs=args.n_jobs)
    if args.categorical is not None:
        model.forest = model.forest.with_features(with_category_columns(model.forest.features, args.categorical))
    return model


def check_output(output: str, inputs: Sequence[str], suffixes: Sequence[str] = ()) -> None:
    """Refuse a place that cannot be written to, or that holds what is read."""
    from ..saving.container import check_place

    target = Path(os.path.realpath(output))
    if suffixes and not target.name.lower().endswith(tuple(suffixes)):
        raise ValueError(f"{output!r} must end in {' or '.join(suffixes)}, which says how it is written")
    check_place(output)
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"the directory {str(target.parent)!r} cannot be written to")
    for path in inputs:
        if os.path.realpath(path) == str(target):
            raise ValueError(f"{output!r} is also an input, and would be lost: give -o another name")


def named(paths: Sequence[str]) -> str:
    """Files, for the beginning of an error."""
    return repr(paths[0]) + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")


@dataclass(frozen=True)
class Labelled:
    """All rows of some files: tables and columns of PyArrow's; None where there is no such column."""

    X: Any
    y: Any
    sample_weight: Any
    init_score: Any


def read_labelled(
    data: Sequence[str], features: Features, label: str, weight: str | None = None, init_score: str | None = None
) -> Labelled:
    """Rows of files in memory, with the columns that belong to them."""
    from ..streams.batches import batch_rows
    from ..streams.files import find_files, open_files

    numbers = [name for name in (label, weight, init_score) if name is not None]
    X, besides = open_files(find_files(data), features, numbers).table(batch_rows(features))
    return Labelled(X, *(None if name is None else besides[name] for name in (label, weight, init_score)))
