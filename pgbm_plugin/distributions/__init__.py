"""Predictive distributions: one family per file, found by name."""

from __future__ import annotations

import inspect
import re
from typing import Any

from .base import Distribution
from .clipped import Clipped
from .conformal import Conformal
from .discrete import Discrete
from .empirical import Empirical
from .gamma import Gamma
from .gumbel import Gumbel
from .laplace import Laplace
from .logistic import Logistic
from .lognormal import LogNormal
from .mapped import Mapped
from .negativebinomial import NegativeBinomial
from .normal import Normal
from .poisson import Poisson
from .snapped import Snapped
from .studentt import StudentT
from .tweedie import Tweedie
from .weibull import Weibull

__all__ = [
    "FAMILIES",
    "Clipped",
    "Conformal",
    "Discrete",
    "Distribution",
    "Empirical",
    "Gamma",
    "Gumbel",
    "Laplace",
    "LogNormal",
    "Logistic",
    "Mapped",
    "NegativeBinomial",
    "Normal",
    "Poisson",
    "Snapped",
    "StudentT",
    "Tweedie",
    "Weibull",
    "family",
    "register",
]


_BUILT_IN: tuple[type[Distribution], ...] = (
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
    Tweedie,
    Empirical,
    Conformal,
)
FAMILIES = {cls.name: cls for cls in _BUILT_IN}


def register(cls: type[Distribution]) -> type[Distribution]:
    """Register a family under its `name`, so that `tune` and ``distribution=`` find it.

    Parameters
    ----------
    cls : type
        Subclass of Distribution. It is also returned, so that `register` works as a class decorator.
    """
    if not (isinstance(cls, type) and issubclass(cls, Distribution)):
        raise TypeError(f"register takes a subclass of Distribution, not {cls!r}")
    if inspect.isabstract(cls):
        raise TypeError(f"{cls.__name__} lacks {', '.join(sorted(cls.__abstractmethods__))}: define these methods")
    if not re.fullmatch(r"[a-z]\w*", getattr(cls, "name", "")):
        raise ValueError(f"{cls.__name__} needs a class attribute name in lower case, such as name = 'uniform'")
    registered = FAMILIES.get(cls.name, cls)
    # a notebook cell that runs again defines the same class again
    if (registered.__module__, registered.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"there is a family {cls.name!r} already: choose another name")
    FAMILIES[cls.name] = cls
    return cls


def family(spec: str) -> tuple[type[Distribution], dict[str, Any]]:
    """Return the class and the options of a family.

    Parameters
    ----------
    spec : str
        Name of the family, with options in parentheses: "normal" or "studentt(df=5)".

    Returns
    -------
    cls : type
        Subclass of Distribution.
    options : dict
        Keyword arguments of its `from_moments`.
    """
    if isinstance(spec, str) and spec in FAMILIES:
        return FAMILIES[spec], {}
    match = re.fullmatch(r"(\w+)(?:\((.*)\))?", spec.strip()) if isinstance(spec, str) else None
    if match is None or match.group(1) not in FAMILIES:
        raise ValueError(f"unknown distribution {spec!r}; known: {', '.join(sorted(FAMILIES))}")
    cls = FAMILIES[match.group(1)]
    defaults = {key: option.default for key, option in inspect.signature(cls._parameters).parameters.items()}
    allowed = [key for key in defaults if key not in ("mean", "variance")]
    options: dict[str, Any] = {}
    for option in filter(str.strip, (match.group(2) or "").split(",")):
        key, _, value = map(str.strip, option.partition("="))
        if value and key not in allowed:
            raise ValueError(f"{cls.name} has no option {key!r}; its options: {', '.join(allowed) or 'none'}")
        try:
            options[key] = value.strip("'\"") if isinstance(defaults.get(key), str) else float(value)
        except ValueError:
            raise ValueError(f"cannot read the options of {spec!r}; write them as in 'studentt(df=5)'") from None
    cls.check_options(**options)
    return cls, options
