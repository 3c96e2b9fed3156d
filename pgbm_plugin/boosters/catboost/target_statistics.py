"""CatBoost's target statistics (CTRs): numbers that it looks up for a category, or for a combination of features.

A model stores a table of counts for each combination and type of statistic, under 64-bit keys. A statistic is a ratio
of two counts, each with a prior added to it. The formulas here repeat CatBoost's, in its precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UnsupportedModelError
from ...trees.looked_up import ABOVE, ABOVE_OR_MISSING, EQUAL, HASH, LookedUp
from .numbers import finite_single, whole

# CatBoost's hash of a combination: each further part x makes a key out of the key so far, FACTOR * (key + FACTOR * x).
_FACTOR, _MODULUS = 0x4906BA494954CB65, 1 << 64

# A key that CatBoost never finds, because it marks empty places: 2^64 - 1, as a signed number.
_NO_KEY = -1

# Parts of a combination: at most as many as CatBoost allows features in one.
_MOST_PARTS = 1 << 10

_MEANS, _COUNTERS, _CLASSES = (
    ("BinarizedTargetMeanValue", "FloatTargetMeanValue"),
    ("Counter", "FeatureFreq"),
    ("Borders", "Buckets"),
)

_PARTS = ("cat_feature_value", "float_feature", "cat_feature_exact_value")


@dataclass(frozen=True)
class Statistic:
    """A border of a statistic, as a split names it."""

    column: int  # number among the statistics
    border: float
    target_border: int
    knows_labels: bool  # a counter knows none


@dataclass(frozen=True)
class _Table:
    """The counts of one combination and type: E keys, and what is stored for each."""

    key: NDArray[np.int64]  # (E,) rising, signed
    counts: NDArray[np.float64]  # (E, stored numbers)
    denominator: float


def statistic_splits(info: Mapping[str, Any]) -> dict[int, Statistic]:
    """Return the splits on statistics by their numbers among all splits of a model, in CatBoost's order."""
    first = sum(len(feature.get("borders") or ()) for feature in info.get("float_features") or ())
    first += sum(len(feature.get("values") or ()) for feature in info.get("categorical_features") or ())
    listed = [
        Statistic(column, finite_single(border), whole(ctr["target_border_idx"]), ctr["ctr_type"] not in _COUNTERS)
        for column, ctr in enumerate(info.get("ctrs") or ())
        for border in ctr["borders"]
    ]
    return dict(enumerate(listed, first))


def read_statistics(document: Mapping[str, Any], columns: Mapping[str, NDArray[np.int64]]) -> LookedUp | None:
    """Return the statistics of a model as looked up columns; None if it has none.

    `columns` are those of a table that the features of each kind are in.
    """
    info = document["features_info"]
    ctrs = info.get("ctrs") or ()
    if not ctrs:
        return None
    _refuse_lost_tables(document["model_info"]["params"])
    if "ctr_data" not in document:
        raise UnsupportedModelError(
            "target statistics (CTRs) without their tables, so that not even CatBoost can predict: train without "
            "final_ctr_computation_mode=Skip"
        )
    missing_above = [f.get("nan_value_treatment", "AsIs") == "AsTrue" for f in info.get("float_features") or ()]
    tables: dict[str, _Table] = {}
    combinations: dict[tuple[Any, ...], int] = {}
    keys, parts, numbers, absent, combination = [], [], [], [], []
    for ctr in ctrs:
        stored, kind = ctr["identifier"], ctr["ctr_type"]
        if stored not in tables:
            tables[stored] = _read_table(document["ctr_data"][stored], kind)
        table = tables[stored]
        own = _read_parts(ctr["elements"], columns, missing_above)
        same = (own, table.key.tobytes())
        if same not in combinations:
            combinations[same] = len(combinations)
            parts.append(own)
            keys.append(table.key)
        combination.append(combinations[same])
        value, default = _values(ctr, kind, table)
        numbers.append(value)
        absent.append(default)
    flat = [part for own in parts for part in own]
    return LookedUp(
        part_start=_starts(parts),
        part_column=np.array([part[0] for part in flat], np.int32),
        part_kind=np.array([part[1] for part in flat], np.uint8),
        part_value=np.array([part[2] for part in flat], np.float64),
        part_factor=_signed([factor for own in parts for factor in _factors(len(own))]),
        key_start=_starts(keys),
        key=np.concatenate(keys),
        combination=np.array(combination, np.int32),
        absent=np.array(absent, np.float32),
        value_start=_starts(numbers),
        value=np.concatenate(numbers),
    )


def _starts(parts: Sequence[Sequence[Any] | NDArray[Any]]) -> NDArray[np.int64]:
    return np.cumsum([0, *map(len, parts)]).astype(np.int64)


def _factors(parts: int) -> list[int]:
    """Return what each part counts in the key: the hash is linear, modulo 2^64."""
    return [pow(_FACTOR, parts + 1 - i, _MODULUS) for i in range(parts)]


def _signed(numbers: Sequence[int]) -> NDArray[np.int64]:
    return np.array(numbers, np.uint64).view(np.int64)


def _refuse_lost_tables(params: Mapping[str, Any]) -> None:
    """Refuse models with several tables for one combination and type, of which a document holds only one."""
    settings = params["cat_feature_params"]
    for described in (settings["simple_ctrs"], settings["combinations_ctrs"], *settings["per_feature_ctrs"].values()):
        targets: dict[str, Any] = {}
        for ctr in described:
            kind, target = ctr["ctr_type"], ctr.get("target_binarization")
            if targets.setdefault(kind, target) != target:
                raise UnsupportedModelError(
                    f"target statistics (CTRs) of type {kind!r:.40} with several target borders, of which CatBoost "
                    f"exports only one: train with one TargetBorderCount for each type"
                )


def _read_parts(
    elements: Sequence[Mapping[str, Any]], columns: Mapping[str, NDArray[np.int64]], missing_above: Sequence[bool]
) -> tuple[tuple[int, int, float], ...]:
    """Return the parts of a combination: column, kind, and the value that it is compared with."""
    if not 0 < len(elements) <= _MOST_PARTS:
        raise ValueError(f"a statistic has {len(elements)} features")
    return tuple(_read_part(element, columns, missing_above) for element in elements)


def _read_part(
    element: Mapping[str, Any], columns: Mapping[str, NDArray[np.int64]], missing_above: Sequence[bool]
) -> tuple[int, int, float]:
    kind = element["combination_element"]
    if kind not in _PARTS:
        raise ValueError(f"a statistic has the unknown part {kind!r:.40}")
    is_float = kind == "float_feature"
    of_kind = columns["float_features" if is_float else "categorical_features"]
    j = whole(element["float_feature_index" if is_float else "cat_feature_index"])
    if not 0 <= j < len(of_kind):
        raise ValueError("a statistic uses a feature that the model does not list")
    if is_float:
        return int(of_kind[j]), ABOVE_OR_MISSING if missing_above[j] else ABOVE, finite_single(element["border"])
    if kind == "cat_feature_value":
        return int(of_kind[j]), HASH, 0.0
    return int(of_kind[j]), EQUAL, float(whole(element["value"]))


def _read_table(stored: Mapping[str, Any], kind: str) -> _Table:
    stride, flat = whole(stored["hash_stride"]), stored["hash_map"]
    expected = 3 if kind in _MEANS else 2
    if kind not in (*_MEANS, *_COUNTERS, *_CLASSES):
        raise UnsupportedModelError(f"target statistics (CTRs) of type {kind!r:.40}: train with other types")
    fits = expected <= stride <= max(len(flat), expected) and len(flat) % stride == 0
    if not fits or (kind not in _CLASSES and stride != expected):
        raise ValueError(f"a table of statistics has {len(flat)} numbers, {stride} a row")
    keys = [_key(text) for text in flat[::stride]]
    counts = np.array([flat[i::stride] for i in range(1, stride)], np.float64).T
    if not np.all(np.abs(counts) < 1e30):
        raise ValueError("a table of statistics holds numbers that are no counts")
    if kind not in _MEANS and not np.all((counts == np.round(counts)) & (np.abs(counts) < 1 << 31)):
        raise ValueError("a table of statistics holds numbers that are no counts")
    key = _signed(keys)
    order = np.argsort(key)
    order = order[key[order] != _NO_KEY]
    if np.any(key[order][1:] == key[order][:-1]):
        raise ValueError("a table of statistics holds a key twice")
    denominator = whole(stored["counter_denominator"])
    if abs(denominator) >= 1 << 31:
        raise ValueError(f"a table of statistics has the denominator {denominator}")
    return _Table(key[order], counts[order], float(denominator))


def _key(text: Any) -> int:
    if not (isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 20):
        raise ValueError(f"{text!r:.40} is not a key of a table of statistics")
    key = int(text)
    if key >= _MODULUS:
        raise ValueError(f"{text} is not a key of a table of statistics")
    return key


def _values(ctr: Mapping[str, Any], kind: str, table: _Table) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the statistic of every key, and that of rows without a key."""
    counts, border = table.counts, whole(ctr["target_border_idx"])
    nothing = np.zeros(1)
    if kind in _MEANS:
        good, total, default = counts[:, 0], counts[:, 1], nothing
    elif kind in _COUNTERS:
        good, default = counts[:, 0], nothing + table.denominator
        total = np.full(len(good), table.denominator)
    else:
        classes = counts.shape[1] - (kind == "Borders")  # there is a border less than there are classes
        if not 0 <= border < classes:
            raise ValueError(f"a statistic is for target border {border}, its table has {classes}")
        good = counts[:, border] if kind == "Buckets" else counts[:, border + 1 :].sum(axis=1)
        total, default = counts.sum(axis=1), nothing
    return _ratio(ctr, good, total), _ratio(ctr, nothing, default)[0]


def _ratio(ctr: Mapping[str, Any], good: NDArray[Any], total: NDArray[Any]) -> NDArray[np.float32]:
    """Return the ratios of counts with priors, every step in float32, as CatBoost computes them."""
    single = [
        np.float32(finite_single(ctr[name])) for name in ("prior_numerator", "prior_denomerator", "shift", "scale")
    ]
    with np.errstate(all="ignore"):
        ratio = (good.astype(np.float32) + single[0]) / (total.astype(np.float32) + single[1])
        return ((ratio + single[2]) * single[3]).astype(np.float32)
