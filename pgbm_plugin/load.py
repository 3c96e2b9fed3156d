"""load(): a model from the file that `ProbabilisticModel.save` wrote."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from .boosters import read_model
from .device import check_device
from .model import ProbabilisticModel
from .predict.state import ModelState
from .saving.model_bytes import read
from .surroundings.peel import peel
from .surroundings.surroundings import Surroundings


def load(
    path: str | os.PathLike[str], *, around: Any = None, device: str = "auto", n_jobs: int | None = None
) -> ProbabilisticModel:
    """Load a model that `ProbabilisticModel.save` wrote: it predicts the same bits, and needs no booster installed.

    Everything in the file is checked before it is used; a damaged or hostile one is a ValueError. A family of your own
    must be registered first. The function of a custom objective is not in the file: the model predicts, but cannot
    take further moments.

    Parameters
    ----------
    path : str or path
        The file.
    around : fitted Pipeline, search, TransformedTargetRegressor or False
        What the booster was in when it was wrapped, as fitted then: a file holds only the booster's part. False for the
        booster's part alone, which takes rows as the steps leave them, and predicts the transformed outcome.
        Not needed for a booster that had nothing around it.
    device : str
        Where it predicts, as in `wrap`.
    n_jobs : int, optional
        Threads; None for all cores.
    """
    check_device(device)
    state = read(path)
    return ProbabilisticModel(replace(state, surroundings=_surroundings(state, around)), device=device, n_jobs=n_jobs)


def _surroundings(state: ModelState, around: Any) -> Surroundings:
    """Return what rows and outcomes of a loaded model pass through; refuse to guess."""
    lost = state.surroundings.lost
    if around is None and lost:
        raise ValueError(
            f"this file holds the booster's part of a model whose {lost}: give load(path, around=pipeline) the fitted "
            f"estimator that was wrapped, or load(path, around=False) and rows as the steps leave them"
        )
    if around is None or around is False:
        return state.surroundings
    booster, surroundings = peel(around)
    if surroundings.described != lost:
        raise ValueError(
            f"around= is another estimator than the one that was wrapped: there {lost or 'was nothing'}, here "
            f"{surroundings.described or 'is nothing'}"
        )
    if not np.array_equal(read_model(booster)[0].leaf_value, state.forest.leaf_value):
        raise ValueError("around= holds another booster than the one in this file: give the estimator that was wrapped")
    return surroundings.around(state.forest)
