"""`pgbm-plugin predict`: write a table of distributions of new rows."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

from .inputs import check_output, load_model
from .options import PROGRAM, add_common, intervals, names, new_command, quantiles, shows_progress

_ABOUT = f"""\
Write the mean, standard deviation, quantiles and intervals of each row.

examples:
  {PROGRAM} predict model.pgbm new.parquet -o out.parquet
  {PROGRAM} predict model.pgbm 'new/*.parquet' -o out.csv --quantiles .05,.5,.95 --keep id,date
  {PROGRAM} predict model.pgbm new.csv -o - --interval 0.9 | head

Rows are read and written in parts, and the file appears when it is complete. Its columns are those of --keep, then
mean, std, quantiles such as q05, and intervals such as lower90 and upper90. Columns of CSV are kept as text."""

_QUANTILES = (0.05, 0.5, 0.95)


def add(commands: Any) -> None:
    command = new_command(commands, "predict", run, "write distributions of new rows", _ABOUT)
    command.add_argument("model", metavar="MODEL", help="a model file that wrap or tune wrote")
    command.add_argument("data", nargs="+", metavar="DATA", help="new rows: Parquet or CSV files, or patterns")
    command.add_argument(
        "--quantiles",
        type=quantiles,
        metavar="Q,Q",
        help="levels in (0, 1), or the word none (default: .05,.5,.95, or none with --interval)",
    )
    command.add_argument(
        "--interval", type=intervals, default=(), metavar="C", help="coverage of central intervals, such as .9 or .5,.9"
    )
    command.add_argument("--keep", type=names, default=[], metavar="COL,COL", help="columns to copy, such as an id")
    command.add_argument("--init-score", metavar="COL", help="column of init scores, if training had any")
    add_common(command, "file to write, .parquet or .csv; - writes CSV to the standard output")


def run(args: Namespace) -> None:
    from ..streams.files import find_files
    from ..streams.predictions import Columns, write_distributions

    levels = args.quantiles
    if levels is None:
        levels = () if args.interval else _QUANTILES
    columns = Columns(levels, args.interval, tuple(args.keep), args.init_score)
    paths = find_files(args.data)
    to_stdout = args.output == "-"
    if to_stdout and sys.stdout is None:
        raise ValueError("the standard output is closed: give -o a file")
    if not to_stdout:
        check_output(args.output, [args.model, *paths], (".parquet", ".csv"))
    model = load_model(args)
    rows = write_distributions(
        model.predict_columns,
        model.forest.features,
        paths,
        sys.stdout.buffer if to_stdout else args.output,
        columns,
        csv=to_stdout or args.output.lower().endswith(".csv"),
        progress=shows_progress(args),
    )
    if not (args.quiet or to_stdout):
        print(f"{rows} rows -> {args.output}")
