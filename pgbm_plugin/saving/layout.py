"""Tables of what a saved model holds: every array with its type and length, every scalar with its kind.

The tables define the format, and every file is checked against them before anything is computed. Names are
"part.attribute" of dataclasses: saving reads the attributes, and loading passes them to the constructors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from ..boosters import booster_named
from ..leaves.certificate import Status
from ..leaves.moments import ARRAYS as MOMENTS
from ..leaves.moments import LeafMoments
from ..predict.conformal_groups import By
from ..predict.power_map import MAX_B
from ..trees.objectives import IDENTITY, LOG, SIGNED_SQRT
from .container import DTYPES

Kind = Callable[[Any], Any]
"""Check a scalar: take what JSON gave, and return what the dataclass wants or raise ValueError."""


class StoredArray(NamedTuple):
    """An array of one axis."""

    dtypes: str  # allowed types, by their names in `container.DTYPES`
    axis: str  # arrays of the same axis have the same length, apart from `more`
    more: int = 0  # number of entries beyond the length of the axis
    rule: str = "any"  # what every number must be, a key of `_RULES`
    optional: bool = False  # if True, the array may be absent, which is read as None


_RULES: dict[str, Callable[[NDArray[Any]], Any]] = {
    "any": lambda array: True,
    "finite": np.isfinite,
    "not NaN": lambda array: ~np.isnan(array),
    "finite and not negative": lambda array: np.isfinite(array) & (array >= 0),
    "positive and below 1e60": lambda array: (array > 0) & (array < 1e60),
}


def _kind(test: Callable[[Any], bool], fault: str, read: Kind = lambda value: value) -> Kind:
    """Return a check that reads a value, and refuses it with the words `fault` unless it passes the `test`."""

    def kind(value: Any) -> Any:
        value = read(value)
        if not test(value):
            raise ValueError(f"is {value!r:.60}, {fault}")
        return value

    return kind


def _number(value: Any) -> float:
    """Return a number, also NaN and inf."""
    if type(value) is int and abs(value) < 1 << 62:
        return float(value)
    if type(value) is not float:
        raise ValueError(f"is {value!r:.60}, not a number")
    return value


_real = _kind(math.isfinite, "not finite", _number)
_key = _kind(
    lambda value: type(value) is str or (type(value) is tuple and all(type(part) is str for part in value)),
    "and a key is a string, or a list of strings",
    lambda value: tuple(value) if type(value) is list else value,
)
_share = _kind(lambda number: 0.0 <= number <= MAX_B, f"not between 0 and {MAX_B:g}", _real)
_positive = _kind(lambda number: number > 0, "not positive", _real)
_not_negative = _kind(lambda number: number >= 0, "negative", _real)
_whole = _kind(lambda value: type(value) is int and 0 <= value < 1 << 62, "not a whole number from 0")
_flag = _kind(lambda value: type(value) is bool, "neither true nor false")
_text = _kind(lambda value: type(value) is str, "not a string")
_category = _kind(
    lambda value: value is None or type(value) in (str, int, float, bool),
    "and a category is a string, a number or a truth value",
)
# after a decay, the number of rows is not whole
_rows = _kind(
    lambda number: number > 0,
    "but moments need rows",
    lambda value: _whole(value) if type(value) is int else _real(value),
)


def _precision(value: Any) -> np.dtype[Any]:
    return np.dtype(_choice("float32", "float64")(value))


def _digest(value: Any) -> bytes:
    if re.fullmatch(r"[0-9a-f]{64}", _text(value)) is None:
        raise ValueError("is not a digest")
    return bytes.fromhex(value)


def _choice(*choices: Any) -> Kind:
    return _kind(
        lambda value: any(type(value) is type(choice) and value == choice for choice in choices),
        f"not one of {', '.join(map(str, choices))}",
    )


def _booster(value: Any) -> str:
    return booster_named(_text(value)).name


def _optional(kind: Kind) -> Kind:
    return lambda value: None if value is None else kind(value)


def _tuple_of(kind: Kind) -> Kind:
    is_list = _kind(lambda value: type(value) is list, "not a list")
    return lambda value: tuple(map(kind, is_list(value)))


TREE_ARRAYS = {
    "forest.root": StoredArray("I32", "trees"),
    "forest.category_start": StoredArray("I64", "category sets", 1),
    "forest.category_bits": StoredArray("U32", "words of category sets"),
    "forest.leaf_start": StoredArray("I64", "trees", 1),
    "forest.leaf_value": StoredArray("F32 F64", "leaves", rule="finite"),
    "forest.leaf_label": StoredArray("I32", "leaves"),
    "nodes.threshold": StoredArray("F64", "splits"),  # may be NaN: no value is below it
    "nodes.feature": StoredArray("I32", "splits"),
    "nodes.left": StoredArray("I32", "splits"),
    "nodes.right": StoredArray("I32", "splits"),
    "nodes.category_set": StoredArray("I32", "splits"),
    "nodes.flags": StoredArray("U8", "splits"),
    "looked_up.part_start": StoredArray("I64", "combinations", 1, optional=True),
    "looked_up.part_column": StoredArray("I32", "parts", optional=True),
    "looked_up.part_kind": StoredArray("U8", "parts", optional=True),
    "looked_up.part_value": StoredArray("F64", "parts", rule="finite", optional=True),
    "looked_up.part_factor": StoredArray("I64", "parts", optional=True),
    "looked_up.key_start": StoredArray("I64", "combinations", 1, optional=True),
    "looked_up.key": StoredArray("I64", "keys", optional=True),
    "looked_up.combination": StoredArray("I32", "looked up columns", optional=True),
    "looked_up.absent": StoredArray("F32", "looked up columns", optional=True),
    "looked_up.value_start": StoredArray("I64", "looked up columns", 1, optional=True),
    "looked_up.value": StoredArray("F32", "numbers", optional=True),
}


def _moments_arrays() -> dict[str, StoredArray]:
    """Return the arrays of moments: one that has a default may be absent."""
    arrays = {}
    for field in (field for field in fields(LeafMoments) if field.name in MOMENTS):
        rule = "finite" if field.name in ("g_mean", "h_mean", "gh") else "finite and not negative"
        dtypes = "I64 F64" if field.name == "count" else "F64"
        arrays[f"moments.{field.name}"] = StoredArray(dtypes, "leaves", 0, rule, field.default is not MISSING)
    return arrays


ARRAYS = {
    "spec.alpha": StoredArray("F64", "trees", rule="finite"),
    "spec.alpha_error": StoredArray("F64", "trees"),
    "spec.constant": StoredArray("BOOL", "trees"),
    "spec.lambda_": StoredArray("F64", "leaves", rule="finite"),
    "spec.iteration": StoredArray("I64", "trees"),
    "spec.folded": StoredArray("BOOL", "trees"),
    "spec.leaf_count": StoredArray("I64", "leaves", rule="finite and not negative", optional=True),
    "spec.leaf_cover": StoredArray("F64", "leaves"),
    **_moments_arrays(),
    "ranges.low": StoredArray("F64", "features", rule="not NaN", optional=True),
    "ranges.high": StoredArray("F64", "features", rule="not NaN", optional=True),
    "ranges.missing": StoredArray("BOOL", "features", optional=True),
    "ranges.column": StoredArray("I32", "categorical features", optional=True),
    "ranges.start": StoredArray("I64", "categorical features", 1, optional=True),
    "ranges.category": StoredArray("F64", "categories of features", rule="not NaN", optional=True),
    # stored although they follow from the moments: the last bits of powers differ between machines
    "weights.mu": StoredArray("F64", "leaves", rule="finite"),
    "weights.variance": StoredArray("F64", "leaves", rule="finite and not negative"),
    "weights.sd": StoredArray("F64", "leaves", rule="finite"),
    "scale.step": StoredArray("F64", "leaves", rule="finite", optional=True),
    "training_scale.step": StoredArray("F64", "leaves", rule="finite", optional=True),
    "settings.residuals": StoredArray("F64", "residuals", rule="finite", optional=True),
    "settings.residual_weight": StoredArray("F64", "residuals", rule="positive and below 1e60", optional=True),
    "settings.residual_bin": StoredArray("U8", "residuals", optional=True),
    "settings.bin_edges": StoredArray("F64", "edges of bins", rule="finite", optional=True),
    "observed.residuals": StoredArray("F64", "observed residuals", rule="finite", optional=True),
    "observed.inside": StoredArray("U8", "observed rows in the window", optional=True),
    "groups.code": StoredArray("I32", "residuals", optional=True),
    "groups.own": StoredArray("BOOL", "groups", optional=True),
    "groups.edges": StoredArray("F64", "edges of groups", rule="finite", optional=True),
    "support.values": StoredArray("F64", "values of labels", rule="finite", optional=True),
}

# Stored in place of the trees, if the trees are kept in a booster's own model.
DIGESTS = {"forest.tree_digest": StoredArray("I64", "trees")}

TREE_SCALARS: dict[str, dict[str, Kind]] = {
    "forest": {
        "base_margin": _real,
        "divisor": _whole,
        "link": _choice(IDENTITY, LOG, SIGNED_SQRT),
        "booster": _booster,
    },
    "features": {
        "count": _whole,
        "names": _optional(_tuple_of(_text)),
        "dtype": _precision,
        "integers": _precision,
        "absent": _number,
        "missing": _number,
        "categories": _tuple_of(_tuple_of(_category)),
        "category_columns": _optional(_tuple_of(_whole)),
        "code_columns": _tuple_of(_whole),
        "unseen_is_missing": _flag,
    },
}

_BOUNDS: dict[str, Kind] = {"lower": _number, "upper": _number}
_SCALE: dict[str, Kind] = {"start": _real, "power": _share, "floor": _positive}

SCALARS: dict[str, dict[str, Kind]] = {
    "spec": {
        "l1": _real,
        "max_step": _number,
        "start": _real,
        "start_is_mean": _flag,
        "subsampled": _optional(_flag),
        "approximate": _tuple_of(_text),
        "tolerance": _real,
        "rates_known": _flag,
        "sequential": _flag,
        "own_starts": _flag,
    },
    "objective": {"name": _text, "code": _whole, "value": _number, "coupled": _flag},
    "moments": {"rows": _rows},
    "certificate": {"status": _choice(*get_args(Status)), "error": _number, "tolerance": _real, "sentence": _text},
    "settings": {
        "rho": _real,
        "distribution": _text,
        "tuned_on": _optional(_digest),
        "around": _text,
        "by_user": _flag,
    },
    "calibration": {"b": _real, "c": _real, "floor": _real},
    "conformal": {"rho": _real, "b": _real, "c": _real, "floor": _real},
    "groups": {"by": _choice(*get_args(By)), "keys": _tuple_of(_key)},
    "correlation": {
        "levels": _tuple_of(_text),
        "r": _tuple_of(_not_negative),
        "standard_error": _tuple_of(_not_negative),
        "measured": _tuple_of(_real),
        "groups": _tuple_of(_whole),
        "rows": _whole,
        "rho": _real,
        "b": _real,
        "c": _real,
        "floor": _real,
        "distribution": _text,
    },
    "observed": {
        "rows": _whole,
        "window": _whole,
        "step": _real,
        "lower": _real,
        "upper": _real,
        "covered": _tuple_of(_whole),
        "batch": _optional(_digest),
    },
    "bounds": _BOUNDS,
    "support": _BOUNDS,
    "scale": _SCALE,
    "training_scale": {**_SCALE, "power": _choice(0.0)},  # made of residuals alone
    "surroundings": {"described": _text},
    "model": {"mean": _choice("booster", "pgbm"), "variance": _choice("pgbm", "boosted", "auto"), "default_rho": _real},
}

# Sections that older files do not have; they are written only if they are not null.
NEW_SECTIONS = ("groups", "correlation", "observed", "bounds", "support", "surroundings")
# Sections that may be null.
_OPTIONAL_SECTIONS = ("objective", "conformal", "scale", "training_scale", *NEW_SECTIONS)


def check_scalars(header: Mapping[str, Any], table: Mapping[str, Mapping[str, Kind]]) -> dict[str, Any]:
    """Return section -> attribute -> value; refuse values of a wrong kind, missing ones and unknown ones."""
    header = {name: None for name in NEW_SECTIONS if name in table} | dict(header)
    if header.keys() != table.keys():
        raise ValueError(f"its sections are not the sections of a model: {', '.join(header)}"[:200])
    parts: dict[str, Any] = {}
    for name, kinds in table.items():
        section = header[name]
        if section is None and name in _OPTIONAL_SECTIONS:
            parts[name] = None
            continue
        if not isinstance(section, dict) or section.keys() != kinds.keys():
            raise ValueError(f"its section {name!r} has missing or unknown entries")
        parts[name] = {}
        for field, kind in kinds.items():
            try:
                parts[name][field] = kind(section[field])
            except ValueError as error:
                raise ValueError(f"its {name}.{field} {error}") from None
    return parts


def check_arrays(arrays: Mapping[str, NDArray[Any]], table: Mapping[str, StoredArray]) -> None:
    """Refuse arrays that are missing, unknown, of a wrong type or length, or with numbers against their rule."""
    if unknown := arrays.keys() - table.keys():
        raise ValueError(f"it holds an array that no model has: {min(unknown)!r:.60}")
    lengths: dict[str, int] = {}
    for name, stored in table.items():
        array = arrays.get(name)
        if array is None:
            if not stored.optional:
                raise ValueError(f"its array {name!r} is missing")
            continue
        allowed = [DTYPES[dtype] for dtype in stored.dtypes.split()]
        if array.dtype not in allowed:
            raise ValueError(f"its array {name!r} has type {array.dtype}, not {' or '.join(map(str, allowed))}")
        length = len(array) - stored.more
        if length < 0 or lengths.setdefault(stored.axis, length) != length:
            raise ValueError(
                f"its array {name!r} has length {len(array)}, which does not fit the number of {stored.axis}"
            )
        if not np.all(_RULES[stored.rule](array)):
            raise ValueError(f"its array {name!r} has numbers that are not {stored.rule}")
