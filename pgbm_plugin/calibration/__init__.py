"""Settings from held-out rows: family, correlation, a power map on the variance, a boosted scale, conformal scores."""

from ..predict.power_map import Calibration

__all__ = ["Calibration"]
