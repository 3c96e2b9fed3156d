"""Calibrated predictive distributions from the LightGBM and XGBoost models you already have.

>>> from pgbm_plugin import wrap
>>> model = wrap(lgb.train(...), X, y)
>>> model.predict_dist(X_new).ppf([0.05, 0.5, 0.95])
"""

from __future__ import annotations

from .autograd import torch_objective
from .embed import embed
from .errors import UnsupportedModelError
from .io import load
from .model import ProbabilisticModel
from .moments import LeafMoments
from .partial import partial_moments
from .record import record
from .validation import crps_callback
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
