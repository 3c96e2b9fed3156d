"""`pgbm-plugin observe`: adapt intervals to labels as they arrive."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from .inputs import check_groups, check_output, keys_of, load_model, named, read_rows_and_keys
from .options import PROGRAM, add_common, names, new_command

_ABOUT = f"""\
Adapt the intervals of a model to labels as they arrive, so that they hold while the noise changes.
Prints the share of outcomes that lay inside the intervals predicted before.

examples:
  {PROGRAM} observe model.pgbm --data monday.csv --label y
  {PROGRAM} observe model.pgbm --data 'march/*.parquet' --label y --groups shop -o april.pgbm

Run it once for each delivery of labels, in the order of time: the rows of one run count as arriving together. The model
must be tuned, or better conformalized (tune --conformal). Point predictions do not change. All rows are read into
memory."""


def add(commands: Any) -> None:
    command = new_command(commands, "observe", run, "adapt intervals to labels as they arrive", _ABOUT)
    command.add_argument("model", metavar="MODEL", help="a model file that tune wrote")
    command.add_argument(
        "--data", nargs="+", action="extend", required=True, metavar="FILE", help="rows with new labels: Parquet or CSV"
    )
    command.add_argument("--label", required=True, metavar="COL", help="column of labels")
    command.add_argument("--init-score", metavar="COL", help="column of init scores, if training had any")
    command.add_argument(
        "--groups", type=names, default=[], metavar="COL,COL", help="columns of the groups, if tune got --groups"
    )
    command.add_argument("--window", type=int, metavar="ROWS", help="latest rows that count (default: as before, 1000)")
    command.add_argument(
        "--step", type=float, metavar="S", help="how fast the ends move, up to 1 (default: as before, 0.02)"
    )
    add_common(command, "file for the adapted model (default: replace MODEL)", required=False)


def run(args: Namespace) -> None:
    from ..errors import naming
    from ..predict.observed import check_step, check_window
    from ..streams.files import find_files

    if args.window is not None:
        check_window(args.window)
    if args.step is not None:
        check_step(args.step)
    paths = find_files(args.data)
    output = args.model if args.output is None else args.output
    check_output(output, paths)
    model = load_model(args)
    check_groups(model, args.groups)
    columns = model.forest.features, args.label, None, args.init_score, args.groups
    rows, table = read_rows_and_keys(paths, *columns)
    settings = {"window": args.window, "step": args.step, "init_score": rows.init_score}
    with naming(named(paths)):
        model.observe(rows.X, rows.y, groups=keys_of(table, args.groups), **settings)
    model.save(output)
    if not args.quiet:
        print(model.observed)
