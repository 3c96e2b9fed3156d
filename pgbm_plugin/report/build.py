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
    path: str | os.PathLike[str] | None = None,
) -> str:
    """Return a page of HTML with scores, coverage and plots of a model, each explained in a sentence.

    The page is for people who do not know the code. It is one file that loads nothing and runs no script, so it can
    be sent by mail.

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
    path : str or path, optional
        File to write the page to, in addition to returning it.

    Returns
    -------
    str
        The page.
    """
    if not isinstance(model, ProbabilisticModel):
        raise TypeError(f"model must be a ProbabilisticModel, as wrap returns it, not a {type(model).__name__}")
    if tuning is not None and not isinstance(tuning, TuneResult):
        raise TypeError(f"tuning must be the TuneResult that model.tune returned, not a {type(tuning).__name__}")
    check_matplotlib()
    if path is not None:
        check_place(path)
    f = assess(model, X, y, init_score, groups)
    main = [
        sections.scores(f),
        sections.calibration(f),
        *([] if f.groups is None else [sections.groups(f.groups)]),
        sections.rows(f),
        sections.support(f),
        sections.features(model, f),
        sections.trees(model, f, tuning),
        sections.about(model),
    ]
    footer = f"Made by pgbm_plugin {__version__} on {datetime.date.today().isoformat()}."
    text = page(title or "How sure is this model?", sections.header(f), main, footer)
    if path is not None:
        write_atomically(path, text.encode(errors="replace"))  # a title from a shell may not be valid text
    return text
