"""record(): a training callback that gathers the moments while the trees grow, so that `wrap` needs no rows."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..boosters import BOOSTERS, booster_of_dataset, booster_of_model
from ..boosters.booster import shows_no_trees
from ..errors import UnsupportedModelError
from ..losses.custom_objectives import CustomObjective
from ..losses.torch_objective import TorchObjective
from ..parallel import resolve_jobs
from .training_rows import TrainingRows


def record(dtrain: Any = None, *, objective: CustomObjective | None = None, n_jobs: int | None = None) -> Any:
    """Return a callback after which ``wrap(booster)`` needs no data.

    Use ``record()`` in LightGBM and ``record(dtrain)`` in XGBoost. In XGBoost it must come after an
    ``EarlyStopping(save_best=True)``, which replaces the model. LightGBM's scores are read after every second
    iteration, so if a callback of your own ends training, it must not declare the last iteration the best one.

    Parameters
    ----------
    dtrain : xgb.DMatrix or xgb.QuantileDMatrix, optional
        The data that XGBoost is trained on.
    objective : callable or torch_objective, optional
        The custom objective of training, if it has one: ``(margin, y) -> (g, h)``, or a `torch_objective`.
    n_jobs : int, optional
        Threads. Default: half of the cores, because the booster's own threads spin for a while after their work.
    """
    n_jobs = max(1, resolve_jobs(None) // 2) if n_jobs is None else resolve_jobs(n_jobs)
    if objective is not None and not callable(objective):
        raise TypeError(f"objective must be a function (margin, y) -> (g, h), not {objective!r}")
    if isinstance(objective, TorchObjective) and objective.levels is not None and objective.hessian == "rowsum":
        raise UnsupportedModelError(
            "record does not work with levels and hessian='rowsum', because the variance needs other second "
            "derivatives than training: call wrap(booster, X, y)"
        )
    if dtrain is None:
        booster = next(booster for booster in BOOSTERS if booster.recorder is not None and not booster.records_data)
    else:
        owner = booster_of_dataset(dtrain)
        asked = owner or booster_of_model(dtrain)
        if asked is not None and asked.recorder is None:
            raise shows_no_trees(asked.name, "record")
        if owner is None or not owner.records_data:
            raise TypeError(
                f"record takes the xgb.DMatrix of training, not a {type(dtrain).__name__}; for LightGBM call record() "
                f"without data"
            )
        booster = owner
    assert booster.recorder is not None
    return booster.recorder(dtrain, partial(TrainingRows, objective=objective, n_jobs=n_jobs))
