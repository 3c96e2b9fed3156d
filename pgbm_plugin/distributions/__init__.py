"""Predictive distributions: one family a file, found by name."""

from __future__ import annotations

import inspect
import re
from typing import Any

from .base import Distribution
from .conformal import Conformal
from .discrete import Discrete
from .empirical import Empirical
from .gamma import Gamma
from .gumbel import Gumbel
from .laplace import Laplace
from .logistic import Logistic
from .lognormal import LogNormal
from .negativebinomial import NegativeBinomial
from .normal import Normal
from .poisson import Poisson
from .studentt import StudentT
from .weibull import Weibull

FAMILIES: dict[str, type[Distribution]] = {}

__all__ = [
    "FAMILIES",
    "Conformal",
    "Discrete",
    "Distribution",
    "Empirical",
    "Gamma",
    "Gumbel",
    "Laplace",
    "LogNormal",
    "Logistic",
    "NegativeBinomial",
    "Normal",
    "Poisson",
    "StudentT",
    "Weibull",
    "family",
    "register",
]


def register(cls: type[Distribution]) -> type[Distribution]:
    """Make a family known by its `name`; usable as a class decorator."""
    if not (isinstance(cls, type) and issubclass(cls, Distribution)):
        raise TypeError(f"a family is a subclass of Distribution, not {cls!r}")
    if inspect.isabstract(cls):
        raise TypeError(f"{cls.__name__} lacks {', '.join(sorted(cls.__abstractmethods__))}")
    if not re.fullmatch(r"[a-z]\w*", getattr(cls, "name", "")):
        raise ValueError(f"{cls.__name__} needs a class attribute name, in small letters")
    known = FAMILIES.get(cls.name, cls)
    # a cell of a notebook that is run again defines the same class anew
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"there is a family {cls.name!r} already; choose another name")
    FAMILIES[cls.name] = cls
    return cls


def family(spec: str) -> tuple[type[Distribution], dict[str, Any]]:
    """A family and its options from a name such as "normal" or "studentt(df=5)"."""
    if isinstance(spec, str) and spec in FAMILIES:
        return FAMILIES[spec], {}
    match = re.fullmatch(r"(\w+)(?:\((.*)\))?", spec.strip()) if isinstance(spec, str) else None
    if match is None or match.group(1) not in FAMILIES:
        raise ValueError(f"unknown distribution {spec!r}; known: {', '.join(sorted(FAMILIES))}")
    try:
        pairs = (option.split("=") for option in (match.group(2) or "").split(",") if option.strip())
        options = {key.strip(): float(value) for key, value in pairs}
    except ValueError:
        raise ValueError(f"cannot read the options of {spec!r}; write them as in 'studentt(df=5)'") from None
    cls = FAMILIES[match.group(1)]
    known = [key for key in inspect.signature(cls._parameters).parameters if key not in ("mean", "variance")]
    if unknown := [key for key in options if key not in known]:
        raise ValueError(f"{cls.name} has no option {unknown[0]!r}; it has {', '.join(known) or 'none'}")
    return cls, options


for _family in (
    Normal,
    StudentT,
    Logistic,
    Laplace,
    LogNormal,
    Gamma,
    Gumbel,
    Weibull,
    Poisson,
    NegativeBinomial,
    Empirical,
    Conformal,
):
    register(_family)
