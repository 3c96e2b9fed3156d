"""The logistic distribution."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit, log_expit, logit

from ..arrays import Array
from .base import Symmetric

_SD = math.pi / math.sqrt(3.0)


class Logistic(Symmetric):
    """Logistic distribution with mean loc and variance (pi scale)^2 / 3."""

    name = "logistic"
    _scipy_name = "logistic"

    @staticmethod
    def _parameters(mean: Array, variance: Array) -> dict[str, Array]:
        return {"loc": mean, "scale": np.sqrt(variance) / _SD}

    @staticmethod
    def _moments(loc: Array, scale: Array) -> tuple[Array, Array]:
        return loc, (_SD * scale) ** 2

    @staticmethod
    def _logpdf(x: Array, loc: Array, scale: Array) -> Array:
        z = (x - loc) / scale
        return log_expit(z) + log_expit(-z) - np.log(scale)

    @staticmethod
    def _cdf(x: Array, loc: Array, scale: Array) -> Array:
        return expit((x - loc) / scale)

    _standard_ppf = staticmethod(logit)

    @staticmethod
    def _rvs(rng: np.random.Generator, shape: tuple[int, ...], loc: Array, scale: Array) -> Array:
        return rng.logistic(loc, scale, shape)

    @staticmethod
    def _crps(y: Array, loc: Array, scale: Array) -> Array:
        """Return scale (z - 2 log F(z) - 1) (Jordan et al. 2019).

        It is the same for -z, so it is computed at |z|, where no digits cancel.
        """
        z = np.abs((y - loc) / scale)
        return scale * (z - 2.0 * log_expit(z) - 1.0)

    @staticmethod
    def _entropy(loc: Array, scale: Array) -> Array:
        return np.log(scale) + 2.0
