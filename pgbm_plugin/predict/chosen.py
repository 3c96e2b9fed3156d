"""Chosen: the settings of a model that turn margins into distributions."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..arrays import AnyArray, Array
from ..checks import check_rho
from .conformal_groups import ConformalGroups
from .correlation import Correlation
from .log_scale import LogScale
from .observed import Observed
from .power_map import Calibration
from .support import Support

if TYPE_CHECKING:
    from ..distributions import Distribution
    from ..distributions.residuals import Residuals


_Checked: TypeAlias = "tuple[float, type[Distribution], Mapping[str, Any]]"
"""A correlation, a family and its options."""


@dataclass(frozen=True)
class ConformalScores:
    """Settings that the residuals of the calibration rows were computed with, and the only ones they are valid for.

    With `groups`, each group of rows has quantiles of its own, in place of the bins of `tune`.
    """

    rows: int
    rho: float
    calibration: Calibration
    groups: ConformalGroups | None = None


@dataclass(frozen=True)
class CrossFitted:
    """What the residuals of `tune` with out-of-fold predictions are scores of."""

    scores: ConformalScores
    outcomes: bytes  # see `hash_outcomes`


@dataclass(frozen=True)
class Chosen:
    """The settings that `tune`, `conformalize` or the user chose. Read-only; `model.chosen` holds them.

    Attributes
    ----------
    rho : float
        Correlation between successive trees (paper eq. 12), in [-1, 1].
    distribution : str
        Name of a family, with its options.
    calibration : Calibration
        Power map on the variance.
    residuals : (m,) float array or None
        (y - mean) / std of the held-out rows of `tune`, or later of `conformalize`; None before. "empirical" and
        "conformal" are made of them.
    residual_weight : (m,) float array or None
        Weights of these rows; None if all count equally.
    conformal : ConformalScores or None
        What the residuals are conformal scores of; None before `conformalize`.
    tuned_on : bytes or None
        Hash of the labels that `tune` saw, see `hash_labels`; None before `tune`.
    scale : LogScale or None
        A boosted scale that replaces the recursion's variance.
    around : str
        The family that `tune` chose, or the later one that `conformalize` found and replaced by "conformal".
    residual_bin : (m,) uint8 array or None
        Bin of each residual, if the family `around` has residuals in bins; None for one bin.
    bin_edges : (B - 1,) float array or None
        Upper ends of all bins but the last, in the unit of the predicted mean or spread.
    bounds : Support or None
        Bounds that the user named, for every family.
    support : Support or None
        Bounds or lattice of the labels that `tune` found, for the family that it chose.
    cross_fitted : CrossFitted or None
        What the residuals of `tune` with out-of-fold predictions are scores of: each is in the unit of a scale that had
        not seen its row. None after any other `tune`; files do not keep it.
    by_user : bool
        Whether the user set `rho` or `calibration`, before or after `tune`.
    correlation : Correlation or None
        How much rows err together, which `correlate` measured; None before, and after `tune`, `conformalize` and
        `update`.
    observed : Observed or None
        Labels that arrived since, which `observe` moves the residuals of "conformal" by; None before, and after `tune`
        and `conformalize`.
    """

    rho: float
    distribution: str = "normal"
    calibration: Calibration = Calibration()  # noqa: RUF009, it is frozen
    residuals: Array | None = None
    conformal: ConformalScores | None = None
    tuned_on: bytes | None = None
    scale: LogScale | None = None
    residual_weight: Array | None = None
    around: str = "normal"
    residual_bin: AnyArray | None = None
    bin_edges: Array | None = None
    bounds: Support | None = None
    support: Support | None = None
    cross_fitted: CrossFitted | None = None
    by_user: bool = False
    correlation: Correlation | None = None
    observed: Observed | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", check_rho(self.rho))
        if not isinstance(self.calibration, Calibration):
            raise TypeError(f"calibration must be a Calibration(b, c), not {self.calibration!r}")
        _ = self._family

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is cached: the family's class, which is found again by its name, and sorted residuals."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _family(self) -> tuple[type[Distribution], dict[str, Any]]:
        from ..distributions import family

        return family(self.distribution)

    @property
    def tuned(self) -> bool:
        """Return whether `tune` chose the settings."""
        return self.tuned_on is not None

    @property
    def calibrated(self) -> bool:
        """Return whether held-out rows, or the user, chose how large the spread is."""
        return self.tuned or self.by_user or self.residuals is not None

    def check_effect(self, rho: float) -> float:
        """Return a correlation other than the chosen one; refuse it if it has no effect."""
        rho = check_rho(rho)
        if rho != self.rho and self.scale is not None and not self.scale.power:
            raise ValueError(
                "rho has no effect on this model, because its variance is a boosted scale without the recursion. Tune "
                "with variance='pgbm' or 'auto', if its trees have one (not with dropout)"
            )
        return rho

    def set_by_user(self, name: str, value: Any) -> Chosen:
        """Return the settings with one that the user sets: `rho`, `calibration` or `distribution`."""
        if name == "distribution":
            return replace(self, distribution=value, support=None)  # which `tune` found for its family
        if name == "rho":
            return replace(self, rho=self.check_effect(value), by_user=True)
        return replace(self, calibration=value, by_user=True)

    def checked_family(self, name: str | None, rho: float | None, support: float) -> _Checked:
        """Return (correlation, family, its options); refuse a family whose residuals are missing.

        A `name` or `rho` of None stands for the chosen one. Outcomes cannot lie below `support`.
        """
        if name is not None or rho is not None:
            return self._checked_family(name, rho, support)
        # kept, because predictions of single rows are made in microseconds
        found: _Checked | None = self._checked.get(support)
        if found is None:
            found = self._checked[support] = self._checked_family(None, None, support)
        return found

    @cached_property
    def _checked(self) -> dict[float, _Checked]:
        return {}

    def _checked_family(self, name: str | None, rho: float | None, support: float) -> _Checked:
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
                raise ValueError("there are no conformal scores, or update removed them: call model.conformalize first")
            if (scores.rho, scores.calibration) != (rho, self.calibration):
                raise ValueError("rho or calibration changed after conformalize: call model.conformalize again")
        if self.residuals is None:
            raise ValueError(f"{cls.name} needs residuals of validation rows: call model.tune or conformalize first")
        limits = self.limits(name)
        lower, upper = (support, math.inf) if limits is None else (max(limits.lower, support), limits.upper)
        conformal = issubclass(cls, Conformal)
        if conformal and self.conformal is not None and self.conformal.groups is not None:
            place, bins = "groups", self._group_bins
        else:
            bins = self._bins(cls, options)
            place = "bins" if bins else "one bin"
        sample = self._sample(place, conformal and self.observed is not None)
        return rho, cls, {"residuals": sample, "lower": lower, "upper": upper, **bins}

    @property
    def needs_groups(self) -> bool:
        """Return whether predictions need the group of each row, because `conformalize` got groups of keys."""
        groups = self.conformal.groups if self.distribution == "conformal" and self.conformal is not None else None
        return groups is not None and groups.by == "key"

    def checked_groups(self, name: str | None, values: Any) -> ConformalGroups | None:
        """Return the groups of keys that predictions need, or None; refuse keys that are missing or of no use."""
        is_conformal = (self.distribution if name is None else name) == "conformal"
        groups = self.conformal.groups if is_conformal and self.conformal is not None else None
        keyed = groups is not None and groups.by == "key"
        if keyed and values is None:
            raise ValueError(
                "conformalize got groups=, so that intervals depend on the group: give the group of each row, groups=, "
                "or call model.conformalize again without groups"
            )
        if keyed or values is None:
            return groups if keyed else None
        if groups is not None:
            raise ValueError(f"the groups of conformalize are bins of the predicted {groups.by}: leave groups= out")
        if is_conformal:
            raise ValueError(
                "conformalize got no groups: call model.conformalize(X_cal, y_cal, groups=) first, or leave groups= out"
            )
        raise ValueError(
            f"groups= belongs to conformalize, and {name or self.distribution} has no groups: leave it out"
        )

    def checked_correlation(self) -> Correlation:
        """Return how much rows err together; refuse if it was not measured, or with other settings."""
        found = self.correlation
        if found is None:
            raise ValueError(
                "rows of one day or shop err together, and this model does not know how much: first call "
                "model.correlate(X_val, y_val, levels={'day': day}); tune, conformalize and update discard it"
            )
        if (found.rho, found.calibration, found.distribution) != (self.rho, self.calibration, self.distribution):
            raise ValueError("rho, calibration or distribution changed after correlate: call model.correlate again")
        return found

    def limits(self, name: str | None) -> Support | None:
        """Return what outcomes are possible: what `tune` found, or the named bounds for a family that is named."""
        return self.support if name is None and self.support is not None else self.bounds

    @property
    def binned(self) -> dict[str, Any]:
        """Return the options of the family that the bins of residuals are for."""
        from ..distributions import family

        return family(self.around)[1]

    def rescaled_edges(self, ratio: float) -> Array | None:
        """Return the edges of bins after all variances became `ratio` times larger."""
        if self.bin_edges is None or self.binned.get("by") != "spread":
            return self.bin_edges
        return self.bin_edges * np.sqrt(ratio)

    def _bins(self, cls: type[Distribution], options: dict[str, Any]) -> dict[str, Any]:
        """Return the options of residuals in bins; refuse bins other than those of `tune`."""
        from ..distributions import Conformal

        if issubclass(cls, Conformal):
            options = {} if self.residual_bin is None else self.binned
        if options.get("bins", 1) == 1:
            return {}
        if options != self.binned or self.residual_bin is None:
            raise ValueError(
                f"the model has no residuals in {options['bins']:g} bins of the predicted {options.get('by', 'mean')}: "
                f"name such a family as distributions= of model.tune"
            )
        return {**options, "edges": self.bin_edges}

    @property
    def _group_bins(self) -> dict[str, Any]:
        """Return the options of groups that are bins of the mean or spread; none if they are keys."""
        assert self.conformal is not None
        groups = self.conformal.groups
        if groups is None or groups.edges is None:
            return {}
        return {"by": groups.by, "bins": len(groups.own), "edges": groups.edges}

    def _sample(self, place: str, adapted: bool) -> Residuals:
        """Return the residuals in "one bin", in "bins" or in "groups", perhaps `adapted` to the labels observed.

        It is made once, because predictions of single rows are made in microseconds.
        """
        found: Residuals | None = self._samples.get((place, adapted))
        if found is None:
            found = self._samples[place, adapted] = self._new_sample(place, adapted)
        return found

    @cached_property
    def _samples(self) -> dict[tuple[str, bool], Residuals]:
        return {}

    def _new_sample(self, place: str, adapted: bool) -> Residuals:
        from ..distributions.residuals import sorted_residuals

        assert self.residuals is not None
        values, weights, bins = self.residuals, self.residual_weight, self.residual_bin if place == "bins" else None
        if adapted:
            assert self.observed is not None
            values = self.observed.adapted(values, values, weights)
        if place == "groups":
            assert self.conformal is not None
            assert self.conformal.groups is not None
            index, bins = self.conformal.groups.bins_of_residuals()
            values, weights = values[index], None if weights is None else weights[index]
        return sorted_residuals(self.distribution, values, weights, bins, len(self.residuals))

    def __str__(self) -> str:
        text = f"{_in_words(*self._family)}, {'tuned,' if self.tuned else 'untuned'}"
        if self.distribution == "conformal" and self.conformal is not None:
            groups = "" if self.conformal.groups is None else f" {self.conformal.groups}"
            text = f"conformal on {self.conformal.rows} rows{groups} around {self.around},"
            if self.observed is not None:
                text = f"{text} adapted to {self.observed.rows} rows observed,"
        text = text.rstrip(",") if self.scale is None else f"{text} boosted variance"
        limits = self.limits(None)
        return text if limits is None else f"{text}, outcomes {limits}"


def _in_words(cls: type[Distribution], options: dict[str, Any]) -> str:
    """Return a family's name and its options in words."""
    if options.get("bins", 1) > 1:
        return f"{cls.name} in {options['bins']:g} bins of the predicted {options.get('by', 'mean')}"
    return cls.name + (f"({', '.join(f'{key}={value:g}' for key, value in options.items())})" if options else "")


def hash_labels(y: Array) -> bytes:
    """Hash labels regardless of their order, to recognise rows that `tune` has seen."""
    return hashlib.sha256(np.sort(y).tobytes()).digest()


def hash_outcomes(y: Array, prediction: AnyArray) -> bytes:
    """Hash labels and predictions in their order, to recognise rows whose residuals are known."""
    return hashlib.sha256(np.stack([y, prediction.astype(np.float64)]).tobytes()).digest()
