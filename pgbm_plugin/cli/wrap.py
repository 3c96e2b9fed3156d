"""`pgbm-plugin wrap`: make a model file from a booster's file and its training rows."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from .inputs import check_output, kind_of, read_rows_and_keys
from .options import PROGRAM, add_common, folds, new_command, shows_progress

_ABOUT = f"""\
Add a predictive distribution to a trained LightGBM or XGBoost model, in one pass over its training rows.
Prints the certificate, which says whether these are the training rows.

examples:
  {PROGRAM} wrap model.txt --data train.parquet --label y -o model.pgbm
  {PROGRAM} wrap model.ubj --data 'rows/*.csv' --label price --weight w -o model.pgbm
  {PROGRAM} wrap model.txt --data train.parquet --label y --cv 5 -o model.pgbm
  {PROGRAM} wrap embedded.ubj -o model.pgbm    # an XGBoost model with embedded moments

Columns are matched by the model's feature names. A model without names takes all columns in their order, except those
of label, weight and init score. Rows are read in parts; with --init-score or --cv, all rows are read into memory.

--cv calibrates the model without other rows: it is trained again on N parts of the rows, with its own parameters, each
time without one part. Files of XGBoost do not hold the parameters; tune such a model with held-out rows.
A model with a custom objective must be wrapped and saved in Python: wrap(booster, X, y, objective=f).save(path)."""


def add(commands: Any) -> None:
    command = new_command(commands, "wrap", run, "make a model file from a trained booster and its rows", _ABOUT)
    command.add_argument(
        "model", metavar="MODEL", help="a saved LightGBM (.txt), XGBoost (.ubj, .json) or CatBoost (.json, .cbm) model"
    )
    command.add_argument(
        "--data", nargs="+", action="extend", metavar="FILE", help="training rows: Parquet or CSV files, or patterns"
    )
    command.add_argument("--label", metavar="COL", help="column of labels")
    command.add_argument("--weight", metavar="COL", help="column of sample weights, if training had any")
    command.add_argument("--init-score", metavar="COL", help="column of init_score, base_margin or baseline")
    command.add_argument("--cv", metavar="N", type=folds, help="calibrate the model on N folds: N more trainings")
    add_common(command, "model file to write, such as model.pgbm")


def run(args: Namespace) -> None:
    if kind_of(args.model) == "pgbm":
        raise ValueError(
            f"{args.model!r} is wrapped already: {PROGRAM} tune, predict, inspect and report take this file"
        )
    from ..wrap import wrap

    rows = _embedded_rows(args) if args.data is None else _rows(args)
    model = wrap(args.model, **rows, device=args.device, n_jobs=args.n_jobs, progress=shows_progress(args))
    model.save(args.output)
    if not args.quiet:
        print(model)


def _rows(args: Namespace) -> dict[str, Any]:
    """Return the arguments of `wrap` for training rows, after all checks that need no rows."""
    from ..boosters import read_model
    from ..errors import UnsupportedModelError
    from ..streams.categories import with_category_columns
    from ..streams.files import find_files

    if args.label is None:
        args.usage_error("--data needs the name of the label's column: --label COL")
    paths = find_files(args.data)
    check_output(args.output, [args.model, *paths])
    forest, spec = read_model(args.model)
    if spec.objective is None:
        raise UnsupportedModelError(
            f"{args.model!r} was trained with a custom objective, which is Python code that no file holds: wrap it in "
            f"Python, wrap(booster, X, y, objective=f).save(path)"
        )
    if args.init_score is None and args.cv is None:
        return {"X": paths, "label": args.label, "weight": args.weight, "categorical": args.categorical}
    features = forest.features
    if args.categorical is not None:
        features = with_category_columns(features, args.categorical)
    rows, _ = read_rows_and_keys(paths, features, args.label, args.weight, args.init_score)
    return {**vars(rows), "categorical": args.categorical, "cv": args.cv}


def _embedded_rows(args: Namespace) -> dict[str, Any]:
    """Return the arguments of `wrap` for a booster with embedded moments, which are none; refuse any other booster."""
    from ..saving.embedded import has_embedded

    if any(value is not None for value in (args.label, args.weight, args.init_score, args.categorical, args.cv)):
        args.usage_error("column names and --cv need rows: give --data FILE as well")
    check_output(args.output, [args.model])
    if not has_embedded(args.model):
        raise ValueError(f"{args.model!r} has no embedded moments: give its training rows, --data FILE --label COL")
    return {}
