"""Calibrated predictive distributions from the LightGBM and XGBoost models you already have.

>>> from pgbm_plugin import wrap
>>> model = wrap(lgb.train(...), X, y)
>>> model.predict_dist(X_new).ppf([0.05, 0.5, 0.95])
"""

from __future__ import annotations

from .autograd import torch_objective
from .callbacks.crps import crps_callback
from .callbacks.record import record
from .errors import UnsupportedModelError
from .model import ProbabilisticModel
from .moments import LeafMoments
from .saving.embed import embed
from .saving.io import load
from .streams.partial import partial_moments
from .wrap import wrap

__version__ = "0.1.0"
__all__ = [
    "LeafMoments",
    "ProbabilisticModel",
    "UnsupportedModelError",
    "crps_callback",
    "embed",
    "load",
    "partial_moments",
    "record",
    "torch_objective",
    "wrap",
]
