"""`report`: assess a model on rows, and put the sections together as one page."""

from __future__ import annotations

import datetime
import os
from typing import Any

from ..calibration.tune_result import TuneResult
from ..model import ProbabilisticModel
from ..plot.axes import check_matplotlib
from ..version import __version__
from ..writing import check_place, write_atomically
from . import sections
from .appendix import appendix
from .findings import assess
from .page import page


def report(
    model: ProbabilisticModel,
    X: Any,
    y: Any,
    *,
    title: str | None = None,
    tuning: TuneResult | None = None,
    init_score: Any = None,
    groups: Any = None,
    time: Any = None,
    id: Any = None,
    unit: str = "",
    path: str | os.PathLike[str] | None = None,
) -> str | os.PathLike[str]:
    """Make a page of HTML that says whether intervals hold, for which rows, and when not to trust the model.

    The page is for people who do not know the code. It is one file that loads nothing and runs no script, so it can
    be sent by mail. What needs statistics is in its appendix.

    Parameters
    ----------
    model : ProbabilisticModel
        Model to report on.
    X : array-like of shape (n, features)
        Rows that training, `tune` and `conformalize` did not see. Of more than 100,000, a random 100,000 are used.
    y : array-like of shape (n,)
        Outcomes of the rows.
    title : str, optional
        Heading of the page. Default: "How sure is this model?".
    tuning : TuneResult, optional
        Result of ``model.tune``, to show what it chose.
    init_score : array-like of shape (n,), optional
        Init scores of the rows, for a model that was trained with init scores.
    groups : column, tuple of columns, "mean" or "spread", optional
        Group of each row, such as a shop, for a section on the coverage in every group. A tuple of columns stands for
        their combination; "mean" and "spread" stand for tenths of the predicted mean or standard deviation. If
        `conformalize` got groups, give the same columns.
    time : column, optional
        When each row was: dates, numbers, or texts such as 2024-01-31. For a section on the coverage over time.
    id : column, optional
        Name of each row, such as a customer, for the table of the rows that the model is least sure of. Default: the
        number of the row.
    unit : str, optional
        Unit of the outcomes. A currency symbol, such as "$", comes before numbers, and all else, such as "kWh", behind.
    path : str or path, optional
        File to write the page to.

    Returns
    -------
    str or path
        The page, or `path` if there is one.
    """
    if not isinstance(model, ProbabilisticModel):
        raise TypeError(f"model must be a ProbabilisticModel, as wrap returns it, not a {type(model).__name__}")
    if tuning is not None and not isinstance(tuning, TuneResult):
        raise TypeError(f"tuning must be the TuneResult that model.tune returned, not a {type(tuning).__name__}")
    check_matplotlib()
    if path is not None:
        check_place(path)
    if not isinstance(unit, str):
        raise TypeError(f'unit must be text, such as "$" or "kWh", not {type(unit).__name__}')
    unit = unit.strip()
    f = assess(model, X, y, init_score, groups, time=time, id=id, unit=unit)
    main = [
        sections.calibration(f),
        *([] if f.groups is None else [sections.groups(f.groups, unit)]),
        *([] if f.time is None else [sections.time(f.time, unit)]),
        sections.rows(f),
        sections.support(f),
        sections.features(model, f),
        sections.trust(f),
        appendix(model, f, tuning),
    ]
    footer = f"Made by pgbm_plugin {__version__} on {datetime.date.today().isoformat()}."
    text = page(title or "How sure is this model?", sections.header(f), main, footer)
    if path is None:
        return text
    write_atomically(path, text.encode(errors="replace"))  # a title from a shell may not be valid text
    return path
