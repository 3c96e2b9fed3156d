"""`pgbm-plugin tune`: choose family, correlation and calibration on held-out rows."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import numpy as np

from .inputs import check_output, keys_of, load_model, named, read_rows_and_keys
from .options import PROGRAM, add_common, families, level_columns, names, new_command, shows_progress

_ABOUT = f"""\
Choose family, correlation and calibration by their score on rows that training did not see.
Prints a table of the families and their scores.

examples:
  {PROGRAM} tune model.pgbm --data val.parquet --label y
  {PROGRAM} tune model.pgbm --data val.csv --label y --conformal cal.csv -o tuned.pgbm
  {PROGRAM} tune model.pgbm --data val.csv --label y --conformal cal.csv --groups shop
  {PROGRAM} tune model.pgbm --data val.csv --label y --score nll --distributions 'normal,studentt(df=5)'
  {PROGRAM} tune model.pgbm --data val.csv --label y --levels day,shop=day+shop    # for predict --total-by

All rows are read into memory. --conformal takes further rows, which neither training nor tuning saw: intervals of new
rows then hold their coverage for any model, if the new rows are like these rows (exchangeable)."""


def add(commands: Any) -> None:
    command = new_command(commands, "tune", run, "choose family and calibration on held-out rows", _ABOUT)
    command.add_argument("model", metavar="MODEL", help="a model file that wrap wrote")
    command.add_argument(
        "--data", nargs="+", action="extend", required=True, metavar="FILE", help="validation rows: Parquet or CSV"
    )
    command.add_argument("--label", required=True, metavar="COL", help="column of labels")
    command.add_argument("--weight", metavar="COL", help="column of weights in the score")
    command.add_argument("--init-score", metavar="COL", help="column of init scores, if training had any")
    command.add_argument(
        "--score", choices=["auto", "crps", "nll"], default="auto", help="score to choose by (default: auto)"
    )
    command.add_argument("--distributions", type=families, metavar="NAME,NAME", help="families to try (default: all)")
    command.add_argument(
        "--variance",
        choices=["pgbm", "boosted", "auto"],
        help="where the spread comes from: the paper's recursion, a boosted scale, or a blend (default: as wrapped, or "
        "auto)",
    )
    command.add_argument("--conformal", nargs="+", metavar="FILE", help="calibration rows, with the same label column")
    command.add_argument(
        "--levels",
        type=level_columns,
        metavar="COL,NAME=COL+COL",
        help="measure how much rows that share the key in a column, or in several, err together, for totals",
    )
    command.add_argument(
        "--groups",
        type=names,
        default=[],
        metavar="COL,COL",
        help="columns of the group of each row of --conformal, such as a shop: intervals then hold in every group, and "
        "predict needs --groups, too",
    )
    command.add_argument(
        "--bins",
        choices=["mean", "spread"],
        help="let intervals hold in bins of the predicted mean or spread, in place of --groups",
    )
    command.add_argument(
        "--conformal-weight", metavar="COL", help="column of --conformal that says how much each of its rows counts"
    )
    command.add_argument("--cv", metavar="N", help=f"not here: {PROGRAM} wrap --cv N calibrates on the training rows")
    add_common(command, "file for the tuned model (default: replace MODEL)", required=False)


def run(args: Namespace) -> None:
    from ..calibration.correlate import read_levels
    from ..calibration.search import families as checked_families
    from ..errors import naming
    from ..streams.files import find_files

    if args.cv is not None:
        args.usage_error(f"--cv trains the booster again, which a wrapped model cannot: {PROGRAM} wrap BOOSTER --cv N")
    paths, conformal = find_files(args.data), find_files(args.conformal or [])
    for option in ("groups", "bins", "conformal_weight"):
        if getattr(args, option) and not args.conformal:
            args.usage_error(f"--{option.replace('_', '-')} needs --conformal, whose rows it is about")
    if args.groups and (args.bins or args.levels):
        args.usage_error("--groups goes with neither --bins, which are groups themselves, nor --levels, for totals")
    output = args.model if args.output is None else args.output
    check_output(output, [*paths, *conformal])
    checked_families(args.distributions)
    model = load_model(args)
    features = model.forest.features
    of_levels = sorted({column for level in (args.levels or {}).values() for column in level})
    rows, table = read_rows_and_keys(paths, features, args.label, args.weight, args.init_score, of_levels)
    levels = {name: keys_of(table, level) for name, level in (args.levels or {}).items()}
    with naming(named(paths)):
        read_levels(levels, np.ones(len(rows.X), bool))  # refused before tune spends its time
    further, groups = None, None
    if conformal:
        columns = args.label, args.conformal_weight, args.init_score, args.groups
        further, table = read_rows_and_keys(conformal, features, *columns)
        groups = args.bins or keys_of(table, args.groups)
    with naming(named(paths)):
        result = model.tune(
            rows.X,
            rows.y,
            score=args.score,
            distributions=args.distributions,
            variance=args.variance,
            sample_weight=rows.sample_weight,
            init_score=rows.init_score,
            progress=shows_progress(args),
        )
    if further is not None:
        with naming(named(conformal)):
            counted = {"sample_weight": further.sample_weight, "init_score": further.init_score}
            model.conformalize(further.X, further.y, groups=groups, **counted)
    if levels:
        with naming(named(paths)):
            model.correlate(rows.X, rows.y, levels, sample_weight=rows.sample_weight, init_score=rows.init_score)
    model.save(output)
    if not args.quiet:
        print(result)
        if further is not None:
            print(f"conformal quantiles from {len(further.y)} rows")
        if levels:
            print(model.chosen.correlation)
