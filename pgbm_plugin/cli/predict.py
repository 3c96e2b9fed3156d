"""`pgbm-plugin predict`: write a table of distributions of new rows."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import warn
from .inputs import check_groups, check_output, load_model
from .options import PROGRAM, add_common, intervals, level_columns, names, new_command, quantiles, shows_progress
from .totals import total_table

if TYPE_CHECKING:
    from ..model import ProbabilisticModel

_ABOUT = f"""\
Write the mean, standard deviation, quantiles and intervals of each row.

examples:
  {PROGRAM} predict model.pgbm new.parquet -o out.parquet
  {PROGRAM} predict model.pgbm 'new/*.parquet' -o out.csv --quantiles .05,.5,.95 --keep id,date
  {PROGRAM} predict model.pgbm new.csv -o - --intervals 0.9 | head
  {PROGRAM} predict model.pgbm new.csv -o days.csv --total-by day --levels day,shop=day+shop

Rows are read and written in parts, and the file appears when it is complete. Its columns are those of --keep, then
mean, std, quantiles such as q05, and intervals such as lower90 and upper90. Columns of CSV are kept as text.

--support adds how many training rows stand behind each prediction (support), and the names of the features whose values
lie outside of what training saw (outside).

--total-by writes a row for the sum of all rows with the same key in a column, or in several. The model must know how
much rows err together (tune --levels); --levels says which columns hold the keys of each level. All rows are read into
memory for it."""

_QUANTILES = (0.05, 0.5, 0.95)


def add(commands: Any) -> None:
    command = new_command(commands, "predict", run, "write distributions of new rows", _ABOUT)
    command.add_argument("model", metavar="MODEL", help="a model file that wrap or tune wrote")
    command.add_argument("data", nargs="+", metavar="DATA", help="new rows: Parquet or CSV files, or patterns")
    command.add_argument(
        "--quantiles",
        type=quantiles,
        metavar="Q,Q",
        help="levels in (0, 1), or the word none (default: .05,.5,.95, or none with --intervals)",
    )
    command.add_argument(
        "--intervals",
        "--interval",
        "--coverage",
        type=intervals,
        default=(),
        metavar="C,C",
        help="coverage of central intervals, such as .9 or .5,.9",
    )
    command.add_argument("--keep", type=names, default=[], metavar="COL,COL", help="columns to copy, such as an id")
    command.add_argument("--support", action="store_true", help="write how familiar each row is to the model as well")
    command.add_argument("--total-by", type=names, metavar="COL,COL", help="write totals of the rows with the same key")
    command.add_argument(
        "--levels",
        type=level_columns,
        metavar="COL,NAME=COL+COL",
        help="columns of each level that tune --levels measured",
    )
    command.add_argument(
        "--groups", type=names, default=[], metavar="COL,COL", help="columns of the groups, if tune got --groups"
    )
    command.add_argument("--init-score", metavar="COL", help="column of init scores, if training had any")
    add_common(command, "file to write, .parquet or .csv; - writes CSV to the standard output")


def run(args: Namespace) -> None:
    from ..streams.files import find_files
    from ..streams.predictions import Columns, write_distributions, write_tables

    if args.total_by and args.keep:
        args.usage_error("--keep copies columns of rows, and a total has many rows: name its key in --total-by")
    if args.total_by and args.support:
        args.usage_error("--support is for rows, and a total has many: leave one out")
    if args.levels and not args.total_by:
        args.usage_error("--levels is for totals: give --total-by COLUMN as well")
    levels = args.quantiles
    if levels is None:
        levels = () if args.intervals else _QUANTILES
    keep = tuple(args.total_by or args.keep)
    further = ("support", "outside") if args.support else ()
    columns = Columns(levels, args.intervals, keep, args.init_score, tuple(args.groups), further)
    paths = find_files(args.data)
    to_stdout = args.output == "-"
    if to_stdout and sys.stdout is None:
        raise ValueError("the standard output is closed: give -o a file")
    if not to_stdout:
        check_output(args.output, [args.model, *paths], (".parquet", ".csv"))
    model = load_model(args)
    check_groups(model, args.groups)
    target, csv = sys.stdout.buffer if to_stdout else args.output, to_stdout or args.output.lower().endswith(".csv")
    if args.total_by:
        written = write_tables([total_table(args, model, paths, columns)], target, csv=csv)
    else:
        summarise = _with_support(args.model, model) if args.support else model.predict_columns
        written = write_distributions(
            summarise, model.forest.features, paths, target, columns, csv=csv, progress=shows_progress(args)
        )
    if not (args.quiet or to_stdout):
        print(f"{written} {'totals' if args.total_by else 'rows'} -> {args.output}")


def _with_support(path: str, model: ProbabilisticModel) -> Callable[..., dict[str, Any]]:
    """Return a function of rows that returns their predicted columns, and those of their support."""
    if model.moments.ranges is None:
        warn(f"{path!r} does not know what training saw of each feature, so there is no column outside")

    def summarise(rows: Any, quantiles: Any, intervals: Any, init_score: Any, groups: Any) -> dict[str, Any]:
        columns: dict[str, Any] = model.predict_columns(rows, quantiles, intervals, init_score, groups=groups)
        return columns | model.predict_support(rows).columns()

    return summarise
