"""What commands read and where they write, checked before any work."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .options import PROGRAM

if TYPE_CHECKING:
    from ..model import ProbabilisticModel
    from ..tables.labelled import RawRows
    from ..trees.forest import Features


def kind_of(path: str) -> str:
    """Return "pgbm" for a saved model of this package, or the name of the booster whose model file this is."""
    from ..boosters import BOOSTERS, booster_of_file
    from ..saving.container import is_container

    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path!r} is a directory" if os.path.isdir(path) else f"no model file at {path!r}")
    with open(path, "rb") as file:
        head = file.read(64)
    if is_container(head):
        return "pgbm"
    booster = booster_of_file(head)
    if booster is not None:
        return booster.name
    formats = ", nor ".join(booster.file_format for booster in BOOSTERS)
    raise ValueError(f"{path!r} is no model: neither one that {PROGRAM} saved, nor {formats}")


def load_model(args: Namespace) -> ProbabilisticModel:
    """Load the model of a command that takes a wrapped one."""
    kind = kind_of(args.model)
    if kind != "pgbm":
        raise ValueError(
            f"{args.model!r} is a {kind} model without moments: first {PROGRAM} wrap {args.model} --data ROWS "
            f"--label COLUMN -o model.pgbm"
        )
    from ..load import load
    from ..streams.categories import with_category_columns

    model = load(args.model, device=args.device, n_jobs=args.n_jobs)
    if args.categorical is not None:
        model = model.with_features(with_category_columns(model.forest.features, args.categorical))
    return model


def check_output(output: str, inputs: Sequence[str], suffixes: Sequence[str] = ()) -> None:
    """Refuse a place that cannot be written to, or that holds what is read."""
    from ..writing import check_place

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
    """Return the names of files, for the beginning of an error."""
    return repr(paths[0]) + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")


def read_labelled(
    data: Sequence[str], features: Features, label: str, weight: str | None = None, init_score: str | None = None
) -> RawRows:
    """Read all rows of files into memory, with the columns that belong to them."""
    from ..streams.batches import batch_rows
    from ..streams.files import find_files, open_files
    from ..tables.labelled import RawRows

    numbers = [name for name in (label, weight, init_score) if name is not None]
    X, besides = open_files(find_files(data), features, numbers).table(batch_rows(features))
    return RawRows(X, *(None if name is None else besides[name] for name in (label, weight, init_score)))
