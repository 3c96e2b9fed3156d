"""`pgbm-plugin report`: write an HTML page on how well the distributions fit test rows."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from .inputs import check_groups, check_output, keys_of, load_model, named, read_rows_and_keys
from .options import PROGRAM, add_common, names, new_command

_ABOUT = f"""\
Write an HTML page that shows how well the distributions fit rows that neither training nor tuning saw.
The page is one file that loads no other.

examples:
  {PROGRAM} report model.pgbm test.parquet --label y -o report.html
  {PROGRAM} report model.pgbm 'test/*.csv' --label y --title 'March' -o march.html
  {PROGRAM} report model.pgbm test.parquet --label y --groups shop --time date --id id --unit '$' -o report.html"""


def add(commands: Any) -> None:
    command = new_command(commands, "report", run, "write an HTML page on test rows", _ABOUT)
    command.add_argument("model", metavar="MODEL", help="a model file that wrap or tune wrote")
    command.add_argument("data", nargs="+", metavar="DATA", help="test rows: Parquet or CSV files, or patterns")
    command.add_argument("--label", required=True, metavar="COL", help="column of labels")
    command.add_argument("--init-score", metavar="COL", help="column of init scores, if training had any")
    command.add_argument(
        "--groups",
        type=names,
        default=[],
        metavar="COL,COL",
        help="columns of the group of each row, such as a shop, for a section on the coverage in every group",
    )
    command.add_argument("--time", metavar="COL", help="column of times, for a section on the coverage over time")
    command.add_argument("--id", metavar="COL", help="column of names of the rows, such as a customer")
    command.add_argument("--unit", default="", help='unit of the labels, such as "$" or kWh')
    command.add_argument("--title", help="title of the page (default: name of the model file)")
    add_common(command, "page to write, such as report.html")


def run(args: Namespace) -> None:
    from ..errors import naming
    from ..streams.files import find_files

    paths = find_files(args.data)
    check_output(args.output, [args.model, *paths], (".html", ".htm"))
    model = load_model(args)
    check_groups(model, args.groups)
    from ..report import report

    single = {"time": args.time, "id": args.id}
    keys = dict.fromkeys([*args.groups, *(name for name in single.values() if name is not None)])
    rows, table = read_rows_and_keys(paths, model.forest.features, args.label, None, args.init_score, list(keys))
    options = {"groups": keys_of(table, args.groups), "init_score": rows.init_score, "unit": args.unit}
    options |= {option: keys_of(table, [name]) for option, name in single.items() if name is not None}
    options["title"] = Path(args.model).name if args.title is None else args.title
    with naming(named(paths)):
        report(model, rows.X, rows.y, path=args.output, **options)
    if not args.quiet:
        print(f"{len(rows.X)} rows -> {args.output}")
