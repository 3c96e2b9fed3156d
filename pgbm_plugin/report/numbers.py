"""Numbers as people write them: 22,160 and not 2.216e+04, with a unit where there is one."""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass

import numpy as np

from ..arrays import Array

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Mean:
    """A mean over rows and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, values: Array) -> Mean:
        """Return the mean of (n,) values, and its standard error."""
        with np.errstate(invalid="ignore"):  # scores may be infinite
            return cls(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


def percent(share: float) -> str:
    """Return a share with one decimal: "90.7 %"."""
    return f"{100.0 * share:.1f} %"


def number(value: float) -> str:
    """Return a number with four significant digits and commas between thousands: "22,160", "0.5"."""
    if math.isnan(value):
        return "not defined"
    if math.isinf(value):
        return "∞" if value > 0.0 else "-∞"
    if value == 0.0:
        return "0"
    mantissa, _, power = f"{value:.3e}".partition("e")
    size = int(power)
    if not -5 < size < 12:
        return f"{_short(mantissa)} \u00d7 10{str(size).translate(_SUPERSCRIPTS)}"
    return _short(f"{round(value, 3 - size):,.{max(3 - size, 0)}f}")


def quantity(value: float, unit: str = "") -> str:
    """Return a number with its unit: before it for a currency symbol ("$22,160"), else behind it ("3.5 kWh")."""
    if not unit or math.isnan(value):
        return number(value)
    if unicodedata.category(unit[-1]) == "Sc":
        return f"{'-' if value < 0.0 else ''}{unit}{number(abs(value))}"
    return f"{number(value)} {unit}"


def plus_minus(mean: Mean) -> str:
    """Return a mean and its standard error, with the digits that the error leaves meaningful."""
    value, error = mean.value, mean.error
    if not (math.isfinite(value) and math.isfinite(error)) or error <= 0.0:
        return number(value)
    digits = 1 - math.floor(math.log10(error))
    if not -10 <= digits <= 6:
        return f"{number(value)} ± {number(float(f'{error:.1e}'))}"
    shown = max(digits, 0)
    return f"{round(value, digits):,.{shown}f} ± {round(error, digits):,.{shown}f}"


def _short(text: str) -> str:
    """Drop zeros behind the decimal point that say nothing."""
    return text.rstrip("0").rstrip(".") if "." in text else text
