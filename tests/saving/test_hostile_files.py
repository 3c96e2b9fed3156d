"""Damaged and hostile files are refused by name, before a kernel sees them."""

from __future__ import annotations

import copy
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import load, wrap
from pgbm_plugin.predict.support import Support
from pgbm_plugin.saving.container import unpack
from pgbm_plugin.saving.model_bytes import to_bytes
from pgbm_plugin.version import __version__
from tests.saving.hostile import KINDS, Sealed

LGB = {"num_leaves": 7, "min_data_in_leaf": 10, "verbose": -1, "num_threads": 1}


@pytest.fixture(scope="module")
def models(make_data):
    """Between them: categories, NaN, every link, float32 and float64, tuned, conformal, boosted, the paper's mean."""
    X, y = make_data("mixed")
    tuned = wrap(lgb.train(LGB, lgb.Dataset(X[:200], y[:200]), 5), X[:200], y[:200])
    tuned.tune(X[200:300], y[200:300])
    tuned.conformalize(X[300:], y[300:], sample_weight=1.0 + np.arange(len(y) - 300.0))
    tuned.observe(X[200:230], y[200:230] + 0.1)
    poisson = {"objective": "count:poisson", "max_depth": 3, "nthread": 1}
    log = wrap(xgb.train(poisson, xgb.DMatrix(X, y, enable_categorical=True), 5), X, y, variance="boosted")
    sqrt = wrap(lgb.train({**LGB, "reg_sqrt": True}, lgb.Dataset(X, y), 5), X, y, mean="pgbm")
    shaped = wrap(lgb.train(LGB, lgb.Dataset(X[:200], y[:200]), 15), X[:200], y[:200])
    shaped.tune(X[100:], y[100:], distributions="empirical(by='mean', bins=3)", lower=-1e6, rho=0.0)
    shaped.correlate(X[100:], y[100:], {"day": np.arange(300) // 10, "weekday": np.arange(300) // 10 % 7})
    values = np.arange(5.0)
    shaped.state = replace(shaped.state, chosen=replace(shaped.chosen, support=Support(-1.0, 9.0, values)))
    grouped = wrap(lgb.train(LGB, lgb.Dataset(X[:200], y[:200]), 5), X[:200], y[:200])
    bins = copy.copy(grouped).conformalize(X[100:], y[100:], groups="spread")
    grouped.conformalize(X[100:], y[100:], groups=np.array(["a", "b"])[np.arange(300) % 2])
    return {"tuned": tuned, "log": log, "sqrt": sqrt, "shaped": shaped, "grouped": grouped, "bins": bins}


def test_thousands_of_files(models, tmp_path):
    """In a process of its own with a time limit, with kernels that check every index."""
    for name, model in models.items():
        model.save(tmp_path / f"{name}.pgbm")
    program = [sys.executable, "-X", "faulthandler", Path(__file__).with_name("hostile.py"), tmp_path, "0"]
    # numba's cache does not tell kernels that check indices from those that do not
    env = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    counts = json.loads(done.stdout)
    assert {kind: sum(count.values()) for kind, count in counts.items()} == {make.__name__: n for make, n in KINDS}
    # neither all nor none: what is refused is not refused for a change that had to be harmless
    assert all(count["refused"] > 0 for count in counts.values())
    assert all(counts[kind]["loaded"] > 0 for kind in ("values", "swaps", "scalars"))
    assert counts["cuts"]["loaded"] == counts["strangers"]["loaded"] == counts["flips"]["loaded"] == 0


def set_array(name, index, value):
    def change(sealed):
        sealed.arrays[name] = sealed.arrays[name].copy()
        sealed.arrays[name][index] = value

    return change


def set_scalar(part, field, value):
    return lambda sealed: sealed.model[part].update({field: value})


def leaf_of_another_tree(sealed):
    sealed.arrays["forest.leaf_start"][1] += 1


def other_dtype(sealed):
    sealed.arrays["weights.sd"] = sealed.arrays["weights.sd"].astype(np.float32)


def one_short(sealed):
    sealed.arrays["moments.gg"] = sealed.arrays["moments.gg"][:-1]


def swapped_subtrees(sealed):
    """Swap two children between two trees: every node still has one parent, and parents come first."""
    a = sealed.arrays
    second = int(a["forest.root"][1])
    i = next(i for i in range(second) if a["nodes.left"][i] < 0)
    j = next(j for j in range(second, len(a["nodes.left"])) if a["nodes.left"][j] < 0)
    a["nodes.left"][[i, j]] = a["nodes.left"][[j, i]]


def empty_category_set(sealed):
    starts = sealed.arrays["forest.category_start"]
    starts[-2] = starts[-1]


CASES = {
    "cycle": (set_array("nodes.left", 2, 0), "exactly one parent"),
    "outside": (set_array("nodes.left", 0, 10**6), "outside the trees"),
    "leaf outside": (set_array("nodes.left", 0, -(10**6)), "outside the trees"),
    "leaf of another tree": (leaf_of_another_tree, "another tree|one leaf more"),
    "swapped subtrees": (swapped_subtrees, "another tree"),
    "feature": (set_array("nodes.feature", 0, 6), r"feature outside 0\.\.5"),
    "category set": (set_array("nodes.category_set", slice(None), 10**6), "category set that does not exist"),
    "empty category set": (empty_category_set, "category set is empty"),
    "flags": (set_array("nodes.flags", 0, 8), "flags"),
    "leaf value": (set_array("forest.leaf_value", 0, np.nan), r"forest\.leaf_value.*finite"),
    "sum of leaves": (set_array("forest.leaf_value", slice(None), 1e308), "add up to more"),
    "sd": (set_array("weights.sd", 0, 1e200), "overflow"),
    "no rows in any leaf": (set_array("moments.count", slice(None), 0), "moments were gathered from no rows"),
    "count": (set_array("moments.count", 0, -1), r"moments\.count.*negative"),
    "moments": (set_array("moments.gg", 0, np.inf), r"moments\.gg.*finite"),
    "residuals": (set_array("settings.residuals", 3, np.nan), r"settings\.residuals.*finite"),
    "dtype": (other_dtype, r"weights\.sd.*float32, not float64"),
    "length": (one_short, r"moments\.gg.*number of leaves"),
    "missing": (lambda sealed: sealed.arrays.pop("weights.mu"), r"weights\.mu.*missing"),
    "unknown": (lambda sealed: sealed.arrays.update(more=np.zeros(1)), "'more'"),
    "rho": (set_scalar("settings", "rho", 1.5), r"rho must lie in \[-1, 1\]"),
    "family": (set_scalar("settings", "distribution", "cauchy"), "unknown distribution 'cauchy'"),
    "option": (set_scalar("settings", "distribution", "studentt(nu=3)"), "no option 'nu'"),
    "calibration": (set_scalar("calibration", "c", np.inf), r"calibration\.c is inf"),
    "exponent": (set_scalar("calibration", "b", -1.0), "calibration"),
    "floor": (set_scalar("calibration", "floor", -1.0), "floor of a calibration must not be negative"),
    "large floor": (set_scalar("calibration", "floor", 1e200), "could overflow"),
    "weight": (set_array("settings.residual_weight", 0, 0.0), r"settings\.residual_weight.*positive"),
    "weights alone": (lambda sealed: sealed.arrays.pop("settings.residuals"), "weights of residuals, but no residuals"),
    "link": (set_scalar("forest", "link", 3), r"forest\.link is 3"),
    "other link": (set_scalar("forest", "link", 1), "link of another"),
    "objective": (set_scalar("objective", "name", "binary"), "objective 'binary'"),
    "derivatives": (set_scalar("objective", "code", 5), "derivatives"),
    "certificate": (set_scalar("certificate", "status", "blessed"), r"certificate\.status is 'blessed'"),
    "divisor": (set_scalar("forest", "divisor", 0), "divided by 0"),
    "rows": (set_scalar("moments", "rows", 0), "moments need rows"),
    "names": (set_scalar("features", "names", ["a"]), "6 features, but 1 names"),
    "columns": (set_scalar("features", "category_columns", [1, 99]), "column that does not exist"),
    "category": (set_scalar("features", "categories", [[[]], []]), "category"),
    "digest": (set_scalar("settings", "tuned_on", "00"), "digest"),
    "section": (lambda sealed: sealed.model.pop("spec"), "sections"),
    "entry": (lambda sealed: sealed.model["spec"].pop("l1"), "section 'spec'"),
}


BOOSTED_CASES = {
    "start": (set_scalar("scale", "start", -1e308), "could overflow"),
    "share": (set_scalar("scale", "power", 4.0), r"scale\.power is 4\.0, not between 0 and 3"),
    # tune takes it for a scale of residuals alone: with a share of the recursion its spread would be a wrong one
    "share in training": (set_scalar("training_scale", "power", 3.0), r"training_scale\.power is 3\.0, not one of 0"),
    "floor": (set_scalar("scale", "floor", 0.0), r"scale\.floor is 0\.0, not positive"),
    "step": (set_array("scale.step", 0, -1e308), "could overflow"),
    "no steps": (lambda sealed: sealed.arrays.pop("training_scale.step"), "without steps"),
    "steps alone": (lambda sealed: sealed.model.update(scale=None), "its section 'scale' is null"),
    "source": (set_scalar("model", "variance", "none"), r"model\.variance is 'none'"),
}

SHAPED_CASES = {
    "bin outside": (set_array("settings.residual_bin", 0, 9), "other bins than those of its edges"),
    "empty bin": (set_array("settings.residual_bin", slice(None), 0), "other bins than those of its edges"),
    "bins of another length": (
        lambda sealed: sealed.arrays.update({"settings.residual_bin": np.zeros(3, np.uint8)}),
        r"residual_bin.*number of residuals",
    ),
    "bins of another type": (
        lambda sealed: sealed.arrays.update(
            {"settings.residual_bin": sealed.arrays["settings.residual_bin"].astype(np.int64)}
        ),
        r"residual_bin.*int64, not uint8",
    ),
    "no edges": (lambda sealed: sealed.arrays.pop("settings.bin_edges"), "without their edges"),
    "no residuals": (lambda sealed: sealed.arrays.pop("settings.residuals"), "without residuals"),
    "edge": (set_array("settings.bin_edges", 0, np.nan), r"settings\.bin_edges.*finite"),
    "falling edges": (set_array("settings.bin_edges", 0, 1e300), "edges that do not rise"),
    "fewer bins": (set_scalar("settings", "around", "empirical(bins=2)"), "other bins of residuals than the family"),
    "no bins": (set_scalar("settings", "around", "normal"), "other bins of residuals than the family"),
    "by": (set_scalar("settings", "distribution", "empirical(by='label', bins=3)"), "by must be"),
    "bounds": (set_scalar("bounds", "upper", -1e7), "lower must be less than upper"),
    "large bound": (set_scalar("bounds", "lower", -1e200), "beyond 1e"),
    "large value": (set_array("support.values", -1, 1e200), "2 to 200 finite values"),
    "bound": (set_scalar("bounds", "lower", np.nan), "lower must be less than upper"),
    "text bound": (set_scalar("bounds", "lower", "low"), r"bounds\.lower is 'low', not a number"),
    "values": (set_array("support.values", 0, 7.0), "rise strictly"),
    "value": (set_array("support.values", 0, np.inf), r"support\.values.*finite"),
    "many values": (
        lambda sealed: sealed.arrays.update({"support.values": np.arange(201.0)}),
        "2 to 200 finite values",
    ),
    "values alone": (lambda sealed: sealed.model.update(support=None), "its section 'support' is null"),
    "missing section": (lambda sealed: sealed.model.pop("support"), "its section 'support' is null"),
    "negative r": (set_scalar("correlation", "r", [-0.1, 0.0]), r"correlation\.r is -0\.1, negative"),
    "r of one level": (set_scalar("correlation", "r", [0.1]), "needs an r, its error and a number of groups for each"),
    "sum of r": (set_scalar("correlation", "r", [0.5, 0.5]), "add up to less than 1"),
    "large r": (set_scalar("correlation", "r", [0.1, np.inf]), r"correlation\.r is inf, not finite"),
    "levels": (set_scalar("correlation", "levels", ["day", "day"]), "names one twice: day, day"),
    "name": (set_scalar("correlation", "levels", ["day", ""]), "a level has an empty name"),
    "number for a name": (set_scalar("correlation", "levels", ["day", 7]), r"correlation\.levels is 7, not a string"),
    "measured": (set_scalar("correlation", "measured", 0.1), r"correlation\.measured is 0\.1, not a list"),
    "entry of bounds": (lambda sealed: sealed.model["bounds"].pop("upper"), "section 'bounds'"),
}


OBSERVED_CASES = {
    "window": (set_scalar("observed", "window", 1 << 40), "window must lie between 50 and"),
    "rows beyond the window": (set_scalar("observed", "window", 50), "more entries than rows"),
    "step": (set_scalar("observed", "step", 0.0), "step must lie above 0"),
    "no number": (set_scalar("observed", "step", np.nan), r"observed\.step is nan, not finite"),
    "factor": (set_scalar("observed", "upper", -700.0), "factors of observed residuals"),
    "no rows": (set_scalar("observed", "rows", 0), "more entries than rows"),
    "fewer covered": (set_scalar("observed", "covered", [9, 8, 7, 6]), "cover of observed rows must rise"),
    "more covered": (set_scalar("observed", "covered", [1, 2, 3, 31]), "cover of observed rows must rise"),
    "covered": (set_scalar("observed", "covered", [1, 2]), "cover of observed rows must rise"),
    "batch": (set_scalar("observed", "batch", "00"), "digest"),
    "interval": (set_array("observed.inside", 0, 16), "an interval that is not counted"),
    "no cover": (lambda sealed: sealed.arrays.update({"observed.inside": np.zeros(0, np.uint8)}), "have no cover"),
    "residual": (set_array("observed.residuals", 0, 1e200), "none of them beyond"),
    "infinite residual": (set_array("observed.residuals", 0, np.inf), r"observed\.residuals.*finite"),
    "no residuals": (lambda sealed: sealed.arrays.pop("observed.residuals"), "without their residuals"),
    "one residual": (
        lambda sealed: sealed.arrays.update({"observed.residuals": np.zeros(1)}),
        "more entries than rows",
    ),
    "no scores": (lambda sealed: sealed.model.update(conformal=None), "observed rows without conformal scores"),
    "residuals alone": (lambda sealed: sealed.model.update(observed=None), "its section 'observed' is null"),
}

GROUPED_CASES = {
    "group outside": (set_array("groups.code", 0, 2), "groups that do not exist"),
    "no group": (set_array("groups.code", 0, -1), "groups that do not exist"),
    "group without rows": (set_array("groups.code", slice(None), 1), "fewer than two"),
    "groups of another length": (
        lambda sealed: sealed.arrays.update({"groups.code": np.zeros(3, np.int32)}),
        r"groups\.code.*number of residuals",
    ),
    "groups of another type": (
        lambda sealed: sealed.arrays.update({"groups.code": sealed.arrays["groups.code"].astype(np.int64)}),
        r"groups\.code.*int64, not int32",
    ),
    "more groups": (
        lambda sealed: sealed.arrays.update({"groups.own": np.ones(3, bool)}),
        "fewer than two",
    ),
    "without rows": (lambda sealed: sealed.arrays.pop("groups.code"), "groups of conformal scores without their rows"),
    "without flags": (lambda sealed: sealed.arrays.pop("groups.own"), "groups of conformal scores without their rows"),
    "one key": (set_scalar("groups", "keys", ["a"]), "other keys than one for each"),
    "a key twice": (set_scalar("groups", "keys", ["a", "a"]), "other keys than one for each"),
    "keys of two widths": (set_scalar("groups", "keys", ["a", ["b", "c"]]), "other keys than one for each"),
    "number for a key": (set_scalar("groups", "keys", ["a", 3]), r"groups\.keys is 3, and a key is a string"),
    "nested key": (set_scalar("groups", "keys", ["a", ["b", ["c"]]]), r"groups\.keys is .*, and a key is a string"),
    "by": (set_scalar("groups", "by", "mean"), "have keys, or edges"),
    "other by": (set_scalar("groups", "by", "size"), r"groups\.by is 'size', not one of key, mean, spread"),
    "edges": (lambda sealed: sealed.arrays.update({"groups.edges": np.zeros(1)}), "have keys, or edges"),
    "groups alone": (
        lambda sealed: sealed.model.update(conformal=None),
        "groups of conformal scores without conformal",
    ),
    "arrays alone": (lambda sealed: sealed.model.pop("groups"), "its section 'groups' is null"),
}

BINS_CASES = {
    "edge": (set_array("groups.edges", 0, np.nan), r"groups\.edges.*finite"),
    "more edges": (
        lambda sealed: sealed.arrays.update({"groups.edges": np.arange(9.0)}),
        "other edges than those of their bins",
    ),
    "bin outside": (set_array("groups.code", 0, -2), "groups that do not exist"),
    "a bin that is not its own": (set_array("groups.own", 0, False), "other edges than those of their bins"),
}


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [("tuned", *case) for case in CASES.values()]
    + [("tuned", *case) for case in OBSERVED_CASES.values()]
    + [("log", *case) for case in BOOSTED_CASES.values()]
    + [("shaped", *case) for case in SHAPED_CASES.values()]
    + [("grouped", *case) for case in GROUPED_CASES.values()]
    + [("bins", *case) for case in BINS_CASES.values()],
    ids=[
        *CASES,
        *(f"observed: {case}" for case in OBSERVED_CASES),
        *(f"scale: {case}" for case in BOOSTED_CASES),
        *(f"shape: {case}" for case in SHAPED_CASES),
        *(f"groups: {case}" for case in GROUPED_CASES),
        *(f"bins: {case}" for case in BINS_CASES),
    ],
)
def test_what_is_wrong_is_named(name, change, words, models, tmp_path):
    sealed = Sealed(to_bytes(models[name]))
    change(sealed)
    (tmp_path / "m.pgbm").write_bytes(sealed.packed())
    with pytest.raises(ValueError, match=rf"cannot load .*m\.pgbm': .*({words})"):
        load(tmp_path / "m.pgbm")


def test_files_without_shape_are_as_before(models):
    """What older versions read: sections and arrays of the shape are there only if a model has one."""
    sealed = Sealed(to_bytes(models["log"]))
    assert not {"bounds", "support", "correlation", "observed", "groups"} & sealed.model.keys()
    assert not {"settings.residual_bin", "settings.bin_edges", "support.values", "groups.code"} & sealed.arrays.keys()


def test_a_later_version(models, tmp_path):
    raw = to_bytes(models["log"]).replace(b'"version":"2"', b'"version":"3"')
    (tmp_path / "m.pgbm").write_bytes(raw)
    written_by = re.escape(f"written by pgbm_plugin {__version__}, in file version 3")
    with pytest.raises(ValueError, match=rf"{written_by}; .*up to 2: upgrade"):
        load(tmp_path / "m.pgbm")


def test_a_flipped_bit_is_refused_wherever_it_is(models):
    """In the header too: in names, lengths, blanks, and in the checksum itself."""
    raw = to_bytes(models["sqrt"])
    places = [(byte, bit) for byte in range(400) for bit in range(8)]
    places += [(byte, byte % 8) for byte in range(400, len(raw))]
    for byte, bit in places:
        damaged = bytearray(raw)
        damaged[byte] ^= 1 << bit
        with pytest.raises(ValueError, match=r"damaged|not a model|later|upgrade|overlaps|bytes other than"):
            unpack(io.BytesIO(damaged), len(damaged))


def test_a_file_of_64_gigabytes_is_not_read(models, tmp_path):
    path = tmp_path / "m.pgbm"
    path.write_bytes(to_bytes(models["log"]))
    os.truncate(path, 2**36)  # a hole, which takes no place
    with pytest.raises(ValueError, match="cut off or damaged"):
        load(path)


def test_every_cut_of_the_header_is_refused(models, tmp_path):
    raw = to_bytes(models["log"])
    length = int.from_bytes(raw[:8], "little")
    for end in range(0, 8 + length, 7):
        (tmp_path / "m.pgbm").write_bytes(raw[:end])
        with pytest.raises(ValueError, match="cannot load"):
            load(tmp_path / "m.pgbm")
