"""Models as bytes and files: `layout` defines what they hold, `container` how it is written."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..boosters import booster_named
from ..checks import check_model_file
from ..leaves.certificate import Certificate
from ..leaves.moments import LeafMoments
from ..leaves.weights import LeafWeights
from ..predict.chosen import Chosen, ConformalScores
from ..predict.conformal_groups import ConformalGroups
from ..predict.correlation import Correlation
from ..predict.log_scale import LogScale
from ..predict.observed import Observed
from ..predict.power_map import Calibration
from ..predict.state import ModelState
from ..predict.support import Support
from ..surroundings.surroundings import Surroundings
from ..tables.ranges import Ranges
from ..trees.forest import NODE, Features, Forest, tree_digests
from ..trees.looked_up import LookedUp
from ..trees.objectives import SIGNED_SQRT, SQUARED, Objective, custom, forgotten
from ..trees.training_spec import TrainingSpec
from ..version import __version__
from ..writing import check_place, write_atomically
from .container import pack, unpack
from .layout import ARRAYS, DIGESTS, NEW_SECTIONS, SCALARS, TREE_ARRAYS, TREE_SCALARS, check_arrays, check_scalars
from .version_1 import complete_version_1, with_floor_of_version_1

# Larger standard deviations or variances could overflow in the formulas of a distribution.
_MAX_SD, _MAX_VARIANCE = 1e70, 1e140

T = TypeVar("T")


def save(state: ModelState, path: str | os.PathLike[str]) -> None:
    """Write a model to a file, see `ProbabilisticModel.save`."""
    check_place(path)
    content = to_bytes(state)
    try:
        from_bytes(content)  # never write a file that could not be loaded
    except ValueError as error:
        raise ValueError(f"this model cannot be saved: {error}") from error
    write_atomically(path, content)


def read(path: str | os.PathLike[str]) -> ModelState:
    """Read a model from a file that `save` wrote; ValueError for a damaged or hostile one."""
    source = check_model_file(path)
    try:
        with source.open("rb") as file:
            return _build(*unpack(file, os.fstat(file.fileno()).st_size))
    except ValueError as error:
        raise ValueError(f"cannot load {str(source)!r}: {error}") from error


def to_bytes(state: ModelState, *, trees: bool = True) -> bytes:
    """Return a model in the format of a file, with or without its trees."""
    chosen, forest = state.chosen, state.forest
    owners: dict[str, Any] = {
        "forest": forest,
        "features": forest.features,
        "looked_up": forest.features.looked_up,
        "spec": state.spec,
        "moments": state.moments,
        "ranges": state.moments.ranges,
        "weights": state.weights,
        "certificate": state.certificate,
        "settings": chosen,
        "calibration": chosen.calibration,
        "observed": chosen.observed,
        "groups": chosen.conformal and chosen.conformal.groups,
        "bounds": chosen.bounds,
        "support": chosen.support,
        "scale": chosen.scale,
        "training_scale": state.training_scale,
        "surroundings": state.surroundings if state.surroundings.described else None,
        "model": state,
    }
    arrays: dict[str, NDArray[Any]] = {}
    header: dict[str, Any] = {}
    if not trees:
        arrays["forest.tree_digest"] = tree_digests(forest)
    for name in TREE_ARRAYS | ARRAYS if trees else ARRAYS:
        part, field = name.split(".")
        array = forest.nodes[field] if part == "nodes" else getattr(owners[part], field, None)
        if array is not None:
            arrays[name] = array
    for part, kinds in (TREE_SCALARS | SCALARS if trees else SCALARS).items():
        if part in owners and not (part in NEW_SECTIONS and owners[part] is None):
            owner = owners[part]
            entries = None if owner is None else {field: _writable(getattr(owner, field)) for field in kinds}
            header[part] = entries
    header["objective"], scores = _objective_entries(state.spec.objective), chosen.conformal
    header["conformal"] = scores and {"rho": scores.rho, **vars(scores.calibration)}
    if chosen.correlation is not None:
        entries = dict(vars(chosen.correlation))
        header["correlation"] = entries | vars(entries.pop("calibration"))
    return pack(arrays, header, f"pgbm_plugin {__version__}")


def from_bytes(content: bytes, forest: Forest | None = None) -> ModelState:
    """Read a model from the result of `to_bytes`; pass its `forest` if it was written without trees."""
    return _build(*unpack(io.BytesIO(content), len(content)), forest)


def _build(
    arrays: Mapping[str, NDArray[Any]], header: dict[str, Any], version: int, forest: Forest | None = None
) -> ModelState:
    """Check what a file holds, and build a model from it."""
    if version == 1:
        complete_version_1(header)
    _complete_older(header)
    table = (DIGESTS if forest else TREE_ARRAYS) | ARRAYS
    parts = check_scalars(header, SCALARS if forest else TREE_SCALARS | SCALARS)
    check_arrays(arrays, table)
    for name in table:
        part, field = name.split(".")
        section = parts.setdefault(part, {})
        if section is not None:
            section[field] = arrays.get(name)
        elif name in arrays:
            raise ValueError(f"it has an array {name!r}, but its section {part!r} is null")
    if forest is None:
        nodes = np.zeros(len(parts["nodes"]["left"]), NODE)
        for field, array in parts["nodes"].items():
            nodes[field] = array
        booster = booster_named(parts["forest"]["booster"])
        rules: dict[str, Any] = {
            name: getattr(booster, name) for name in ("renamed", "numbers_are_values", "category_hash")
        }
        looked_up = _all_or_none(LookedUp, parts["looked_up"], "looked up columns")
        features = Features(**parts["features"], **rules, looked_up=looked_up)
        forest = Forest(**parts["forest"], nodes=nodes, features=features, **booster.start_rules())
    else:
        _check_same_trees(parts["forest"]["tree_digest"], forest)
    if len(parts["weights"]["sd"]) != forest.n_leaves:
        raise ValueError(f"it has moments of {len(parts['weights']['sd'])} leaves for trees of {forest.n_leaves}")
    _check_moments(parts["moments"])
    ranges = parts["ranges"]["low"]
    if ranges is not None and len(ranges) != forest.features.count:
        raise ValueError(f"it has ranges of {len(ranges)} features for trees on {forest.features.count}")
    with np.errstate(over="ignore", invalid="ignore"):  # `_check_range` refuses what overflows
        state = _state(parts, forest)
        if version == 1:
            state = with_floor_of_version_1(state)
        _check_range(state)
    return state


def _all_or_none(cls: type[T], arrays: Mapping[str, Any], name: str) -> T | None:
    """Return a record of arrays; None if there are none."""
    missing = [array is None for array in arrays.values()]
    if any(missing) and not all(missing):
        raise ValueError(f"it has some arrays of {name} without the others")
    return None if all(missing) else cls(**arrays)


def _complete_older(header: dict[str, Any]) -> None:
    """Add to older files what was not stored: who set rho or the power map, and that trees are sequential.

    The user set them if they are not the defaults. Trees that are not sequential could not be wrapped.
    """
    spec, settings, model, calibration = (header.get(name) for name in ("spec", "settings", "model", "calibration"))
    if isinstance(spec, dict):
        spec.setdefault("sequential", True)
    if isinstance(settings, dict) and isinstance(model, dict) and isinstance(calibration, dict):
        same = settings.get("rho") == model.get("default_rho") and calibration.get("b") == calibration.get("c") == 1.0
        settings.setdefault("by_user", not same and settings.get("tuned_on") is None)


def _check_moments(moments: Mapping[str, Any]) -> None:
    """Refuse moments that contradict themselves; see `LeafMoments` for the arrays that weights and a decay bring."""
    if not np.any(moments["count"]):
        raise ValueError("its moments were gathered from no rows")
    weighted, decayed = moments["weight"] is not None, moments["count"].dtype != np.int64
    needed = {"freedom": weighted or decayed, "effective": weighted and decayed}
    if any((moments[name] is not None) != is_needed for name, is_needed in needed.items()):
        raise ValueError("its moments contradict each other: weights or a decay need other arrays")


def _state(parts: Mapping[str, Any], forest: Forest) -> ModelState:
    booster = booster_named(forest.booster)
    objective = _objective(parts["objective"], forest)
    precision: dict[str, Any] = {"label_dtype": booster.label_dtype, "gradient_dtype": booster.gradient_dtype}
    return ModelState(
        forest=forest,
        spec=TrainingSpec(**parts["spec"], objective=objective, **precision),
        moments=LeafMoments(**parts["moments"], ranges=_all_or_none(Ranges, parts["ranges"], "ranges of features")),
        weights=LeafWeights(**parts["weights"]),
        certificate=Certificate(**parts["certificate"]),
        chosen=_chosen(parts),
        training_scale=_scale(parts["training_scale"]),
        surroundings=Surroundings(lost=(parts["surroundings"] or {}).get("described", "")),
        **parts["model"],
    )


def _check_same_trees(digest: NDArray[np.int64], forest: Forest) -> None:
    if len(digest) != forest.n_trees:
        raise ValueError(
            f"it was made for {len(digest)} trees, and there are {forest.n_trees}: training went on, trees were cut, "
            f"or an estimator stops at its best iteration and a booster does not"
        )
    changed = np.flatnonzero(digest != tree_digests(forest))
    if len(changed):
        raise ValueError(f"tree {changed[0]} is not the one that it was made for: the booster was changed since")


def _writable(value: Any) -> Any:
    if isinstance(value, np.dtype):
        return value.name
    return value.hex() if isinstance(value, bytes) else value


def _objective_entries(objective: Objective | None) -> dict[str, Any] | None:
    """Return the entries that depend on the model; the booster's table of objectives has the rest."""
    if objective is None:
        return None
    coupled = objective.diagonal is not None
    return {"name": objective.name, "code": objective.code, "value": objective.value, "coupled": coupled}


def _objective(entries: Mapping[str, Any] | None, forest: Forest) -> Objective | None:
    if entries is None:
        return None
    name, code = entries["name"], entries["code"]
    if name == "custom":
        objective, codes = custom(forgotten, forgotten if entries["coupled"] else None), {SQUARED}
    else:
        built_in = booster_named(forest.booster).objectives.get(name)
        if built_in is None:
            raise ValueError(f"its objective {name!r:.60} is not among those of {forest.booster} that can be wrapped")
        # a model without splits takes the spread of its labels, which is the squared loss
        objective, codes = replace(built_in, value=entries["value"], code=code), {built_in.code, SQUARED}
    if code not in codes or objective.link != forest.link:
        raise ValueError(f"its objective {name!r} has the derivatives or the link of another objective")
    return objective


def _chosen(parts: Mapping[str, Any]) -> Chosen:
    from ..distributions import family  # needs scipy, which `import pgbm_plugin` does not load

    name, residuals, conformal = parts["settings"]["distribution"], parts["settings"]["residuals"], parts["conformal"]
    try:
        family(name)
    except ValueError as error:
        raise ValueError(
            f"{error}; a family of your own must be registered first: distributions.register(cls)"
        ) from None
    if residuals is None and parts["settings"]["residual_weight"] is not None:
        raise ValueError("it has weights of residuals, but no residuals")
    if residuals is not None and len(residuals) < 2:
        raise ValueError("it has fewer than two residuals")
    if conformal is not None:
        if residuals is None:
            raise ValueError("it has conformal scores without residuals")
        groups = _groups(parts["groups"])
        conformal = ConformalScores(len(residuals), conformal.pop("rho"), Calibration(**conformal), groups)
    elif parts["groups"] is not None:
        raise ValueError("it has groups of conformal scores without conformal scores")
    _check_bins(parts["settings"])
    return Chosen(
        **parts["settings"],
        calibration=Calibration(**parts["calibration"]),
        conformal=conformal,
        correlation=_correlation(parts["correlation"]),
        observed=_observed(parts),
        scale=_scale(parts["scale"]),
        bounds=parts["bounds"] and Support(**parts["bounds"]),
        support=parts["support"] and Support(**parts["support"]),
    )


def _groups(entries: dict[str, Any] | None) -> ConformalGroups | None:
    if entries is None:
        return None
    if entries["code"] is None or entries["own"] is None:
        raise ValueError("it has groups of conformal scores without their rows")
    return ConformalGroups(**entries)


def _correlation(entries: dict[str, Any] | None) -> Correlation | None:
    if entries is None:
        return None
    calibration = Calibration(**{name: entries.pop(name) for name in ("b", "c", "floor")})
    return Correlation(**entries, calibration=calibration)


def _observed(parts: Mapping[str, Any]) -> Observed | None:
    entries = parts["observed"]
    if entries is None:
        return None
    if parts["conformal"] is None:
        raise ValueError("it has observed rows without conformal scores")
    if entries["residuals"] is None or entries["inside"] is None:
        raise ValueError("it has observed rows without their residuals")
    return Observed(**entries)


def _check_bins(settings: Mapping[str, Any]) -> None:
    """Refuse bins of residuals that contradict their edges."""
    from ..distributions import family

    place, edges = settings["residual_bin"], settings["bin_edges"]
    if edges is not None:
        if not 0 < len(edges) < family(settings["around"])[1].get("bins", 1):
            raise ValueError("it has other bins of residuals than the family that they are for")
        if np.any(np.diff(edges) <= 0.0):
            raise ValueError("its bins of residuals have edges that do not rise")
    if place is None:
        return
    if edges is None or settings["residuals"] is None:
        raise ValueError("it has bins of residuals without their edges, or without residuals")
    if not np.array_equal(np.unique(place), np.arange(len(edges) + 1)):
        raise ValueError("its residuals lie in other bins than those of its edges")


def _scale(entries: Mapping[str, Any] | None) -> LogScale | None:
    if entries is None:
        return None
    if entries["step"] is None:
        raise ValueError("it has a boosted scale without steps")
    return LogScale(**entries)


def _check_range(state: ModelState) -> None:
    """Refuse a model whose prediction or variance could overflow for some row."""
    forest, calibration = state.forest, state.chosen.calibration
    if not 1 <= forest.divisor <= forest.n_trees:
        raise ValueError(f"its sum of {forest.n_trees} trees is divided by {forest.divisor}")

    def reach(per_leaf: NDArray[Any]) -> float:
        """Return the largest absolute sum over trees that a row could have."""
        return float(np.maximum.reduceat(np.abs(per_leaf.astype(np.float64)), forest.leaf_start[:-1]).sum())

    margin, sd = reach(state.leaf_value) + abs(forest.base_margin), reach(state.weights.sd)
    variances = [np.float64(sd) ** 2]
    for scale in filter(None, (state.chosen.scale, state.training_scale)):
        recursion = np.maximum(variances[0], scale.floor) ** scale.power
        variances.append(recursion * np.exp(abs(scale.start) + reach(scale.step)))
    variance = max(calibration.c * max(variances) ** calibration.b, calibration.floor)
    largest = float(np.finfo(state.leaf_value.dtype).max) / 4.0
    if not margin <= (largest**0.25 if forest.link == SIGNED_SQRT else largest):
        raise ValueError("its leaf values could add up to more than a float holds")
    if not (sd <= _MAX_SD and variance <= _MAX_VARIANCE):
        raise ValueError("its variances could overflow, before or after calibration")
