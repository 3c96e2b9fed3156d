"""Totals on the command line: columns of keys, and a table with a row for each total."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .inputs import keys_of, named, read_rows_and_keys
from .options import PROGRAM

if TYPE_CHECKING:
    from ..model import ProbabilisticModel
    from ..streams.predictions import Columns


def total_table(args: Namespace, model: ProbabilisticModel, paths: Sequence[str], columns: Columns) -> Any:
    """Return an Arrow table of totals: their keys, mean, std, quantiles and ends of intervals."""
    import pyarrow as pa

    from ..errors import naming
    from ..predict.predictions import summary_of
    from ..tables.keys import read_groups

    _check_levels(args, model)
    needed = sorted({*args.total_by, *(column for level in args.levels.values() for column in level)})
    rows, table = read_rows_and_keys(paths, model.forest.features, init_score=args.init_score, keys=needed)
    with naming(named(paths)):
        levels = {name: keys_of(table, level) for name, level in args.levels.items()}
        groups = read_groups("--total-by", keys_of(table, args.total_by), len(table))
        totals = model.predict_total(rows.X, groups.code, levels, init_score=rows.init_score)
    first = np.unique(groups.code, return_index=True)[1]
    keys = {name: table[name].take(first) for name in args.total_by}
    return pa.table(keys | summary_of(columns.quantiles, columns.intervals)(totals.mean(), totals))


def _check_levels(args: Namespace, model: ProbabilisticModel) -> None:
    """Refuse totals of a model that does not know how much rows err together, or whose levels are not all given."""
    if model.chosen.correlation is None:
        raise ValueError(
            f"rows of one day or shop err together, and {args.model!r} does not know how much: first run {PROGRAM} "
            f"tune {args.model} --data ROWS --label COLUMN --levels COLUMN"
        )
    joint = model.chosen.checked_correlation()
    if args.levels is None:
        raise ValueError(
            f"rows of {args.model!r} err together by the levels {', '.join(joint.levels)}: say which columns hold "
            f"their keys, as in --levels {','.join(f'{name}=COLUMN' for name in joint.levels)}"
        )
    joint.check_levels(args.levels)
