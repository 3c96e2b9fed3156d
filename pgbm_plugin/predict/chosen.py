"""Settings: what turns the trees' margins into distributions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..calibration.conformal import ConformalScores
from .power_map import Calibration

if TYPE_CHECKING:
    from ..calibration.boosted_scale import LogScale
    from ..distributions import Distribution


@dataclass(frozen=True)
class Settings:
    """As the user, `tune` and `conformalize` set them.

    Attributes
    ----------
    rho : correlation between successive trees (paper eq. 12), in [-1, 1].
    distribution : name of a family, with its options.
    calibration : power map on the variance.
    residuals : (m,) (y - mean) / std of held-out rows, the shape of "empirical"; None before `tune`.
    conformal : what conformal quantiles are made of; None before `conformalize`.
    tuned_on : a digest of the labels that `tune` saw, or None.
    scale : a boosted scale that takes the place of the recursion's variance, or None.
    """

    rho: float
    distribution: str = "normal"
    calibration: Calibration = Calibration()  # noqa: RUF009, it is frozen
    residuals: NDArray[np.float64] | None = None
    conformal: ConformalScores | None = None
    tuned_on: bytes | None = None
    scale: LogScale | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", check_rho(self.rho))
        if not isinstance(self.calibration, Calibration):
            raise TypeError(f"calibration must be a Calibration(b, c), not {self.calibration!r}")
        _ = self._family

    def __getstate__(self) -> dict[str, Any]:
        """Without the family's class, which its name stands for."""
        return {name: value for name, value in vars(self).items() if name != "_family"}

    @cached_property
    def _family(self) -> tuple[type[Distribution], dict[str, Any]]:
        from ..distributions import family

        return family(self.distribution)

    def check_effect(self, rho: float) -> float:
        """Another correlation, if it would change anything."""
        rho = check_rho(rho)
        if rho != self.rho and self.scale is not None and not self.scale.power:
            raise ValueError(
                "rho has no effect on this model: its variance is a boosted scale without the recursion; tune it with "
                "variance='pgbm' or 'auto'"
            )
        return rho

    def checked_family(
        self, name: str | None, rho: float | None, support: float
    ) -> tuple[float, type[Distribution], dict[str, Any]]:
        """A correlation, a family and what to make it with, None for those that are set; refuses what cannot be made.

        `support` is the bound below which no outcome can lie.
        """
        rho = self.rho if rho is None else self.check_effect(rho)
        cls, options = self._family
        if name is not None:
            from ..distributions import family

            cls, options = family(name)
        if not cls.needs_residuals:
            return rho, cls, options
        from ..distributions import Conformal

        if issubclass(cls, Conformal):
            scores = self.conformal
            if scores is None:
                raise ValueError(
                    "there are no conformal scores, or update took them back: call model.conformalize first"
                )
            if (scores.rho, scores.calibration) != (rho, self.calibration):
                raise ValueError("rho or calibration changed after conformalize: call it again")
            return rho, cls, {"residuals": scores.residuals, "lower": scores.lower}
        if self.residuals is None:
            raise ValueError(f"{cls.name} needs residuals of validation rows: call model.tune or conformalize first")
        return rho, cls, {"residuals": self.residuals, "lower": support}

    def __str__(self) -> str:
        if self.distribution == "conformal" and self.conformal is not None:
            rows, around = len(self.conformal.residuals), self.conformal.family
            return f"{self.distribution} on {rows} rows around {around}, {self._source}variance -> {self.calibration}"
        if self.tuned_on is None:
            return f"{self.distribution}, untuned" + ("" if self.scale is None else " boosted variance")
        return f"{self.distribution}, {self._source}variance -> {self.calibration}"

    @property
    def _source(self) -> str:
        return "" if self.scale is None else "boosted "


def check_rho(value: float) -> float:
    try:
        value = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"rho must be a number, not {value!r}") from None
    if not -1.0 <= value <= 1.0:
        raise ValueError(f"rho must lie in [-1, 1], not {value}")
    return value


def digest(y: NDArray[np.float64]) -> bytes:
    """Of labels, to know them again in any order."""
    return hashlib.sha256(np.sort(y).tobytes()).digest()
