"""Inputs and outputs of commands, checked before any work."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checks import check_model_file
from .options import PROGRAM

if TYPE_CHECKING:
    from ..model import ProbabilisticModel
    from ..tables.labelled import RawRows
    from ..trees.forest import Features


def kind_of(path: str) -> str:
    """Return "pgbm" for a saved model of this package, or the name of the booster whose model file this is."""
    from ..boosters import BOOSTERS, booster_of_file
    from ..saving.container import is_container

    with check_model_file(path).open("rb") as file:
        head = file.read(64)
    if is_container(head):
        return "pgbm"
    booster = booster_of_file(head)
    if booster is not None:
        return booster.name
    formats = ", nor ".join(booster.file_format for booster in BOOSTERS)
    raise ValueError(f"{path!r} is no model: neither a file that {PROGRAM} saved, nor {formats}")


def load_model(args: Namespace) -> ProbabilisticModel:
    """Load a wrapped model; refuse the file of a booster."""
    kind = kind_of(args.model)
    if kind != "pgbm":
        raise ValueError(
            f"{args.model!r} is a {kind} model without moments: first run {PROGRAM} wrap {args.model} --data ROWS "
            f"--label COLUMN -o model.pgbm"
        )
    from ..load import load
    from ..streams.categories import with_category_columns

    model = load(args.model, device=args.device, n_jobs=args.n_jobs)
    if args.categorical is not None:
        model = model.with_features(with_category_columns(model.forest.features, args.categorical))
    return model


def check_groups(model: ProbabilisticModel, groups: Sequence[str]) -> None:
    """Refuse predictions without groups, of a model whose intervals depend on them."""
    if model.chosen.needs_groups and not groups:
        raise ValueError(
            "intervals of this model depend on the group of a row: name the same columns as in tune, --groups COL,COL"
        )


def check_output(output: str, inputs: Sequence[str], suffixes: Sequence[str] = ()) -> None:
    """Refuse an output that cannot be written, has another suffix, or is also an input."""
    from ..writing import check_place

    target = Path(os.path.realpath(output))
    if suffixes and not target.name.lower().endswith(tuple(suffixes)):
        raise ValueError(f"{output!r} must end in {' or '.join(suffixes)}, which sets the format")
    check_place(output)
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"the directory {str(target.parent)!r} cannot be written to")
    for path in inputs:
        if os.path.realpath(path) == str(target):
            raise ValueError(f"{output!r} is also an input, and would be lost: give -o another name")


def named(paths: Sequence[str]) -> str:
    """Return the names of files, to start an error with."""
    return repr(paths[0]) + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")


def read_rows_and_keys(
    data: Sequence[str],
    features: Features,
    label: str | None = None,
    weight: str | None = None,
    init_score: str | None = None,
    keys: Sequence[str] = (),
) -> tuple[RawRows, Any]:
    """Read all rows of files into memory, and an Arrow table that holds the columns of keys as they are."""
    from ..streams.batches import batch_rows
    from ..streams.files import find_files, open_files
    from ..tables.labelled import RawRows

    names = (label, weight, init_score)
    numbers = [name for name in names if name is not None]
    X, columns = open_files(find_files(data), features, numbers, keys).table(batch_rows(features))
    return RawRows(X, *(None if name is None else columns[name] for name in names)), columns


def keys_of(table: Any, columns: Sequence[str]) -> Any:
    """Return keys of rows from an Arrow table: a column, a tuple of columns for their combination, or None for none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = []
    for name in columns:
        column = table[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = pc.if_else(pc.equal(column, ""), None, column)  # an empty field of a CSV file is a missing key
        keys.append(column)
    return tuple(keys) if len(keys) > 1 else keys[0] if keys else None
