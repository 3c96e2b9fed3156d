"""Calibrated predictive distributions from the gradient boosting models you already have.

Examples
--------
>>> from pgbm_plugin import wrap
>>> model = wrap(lgb.train(...), X, y)
>>> model.predict_dist(X_new).ppf([0.05, 0.5, 0.95])
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from . import interrupt  # noqa: F401, before all others: from here on, Ctrl-C ends the command quietly
from .embed import embed
from .errors import UnsupportedModelError, UntunedWarning
from .leaves.moments import LeafMoments
from .load import load
from .losses.torch_objective import torch_objective
from .model import ProbabilisticModel
from .out_of_fold import out_of_fold
from .partial_moments import partial_moments
from .training.crps import crps_callback
from .training.record import record
from .version import __version__ as __version__
from .wrap import wrap

__all__ = [
    "LeafMoments",
    "ProbabilisticModel",
    "UnsupportedModelError",
    "UntunedWarning",
    "crps_callback",
    "embed",
    "load",
    "out_of_fold",
    "partial_moments",
    "record",
    "torch_objective",
    "wrap",
]

# Doors for people, which take longer to import, or need further packages: each is imported at its first use.
_LATE = ("dask", "distributions", "mlflow", "plot", "report", "scores", "sklearn", "skpro", "spark")


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATE])
