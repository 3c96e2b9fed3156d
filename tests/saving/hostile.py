"""Thousands of damaged and hostile files: each is refused by a ValueError or predicts finite numbers.

Run as a program on a folder of saved models, so that a crash or a hang is its own; prints how many files of each kind
were refused and how many were loaded, as JSON.
"""

from __future__ import annotations

import copy
import io
import json
import struct
import sys
import warnings
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np

from pgbm_plugin import load
from pgbm_plugin.predict.recursion import margins_and_variances
from pgbm_plugin.predict.response import to_response
from pgbm_plugin.saving import container
from pgbm_plugin.tables.rows import read_rows
from pgbm_plugin.trees.objectives import LOG

INTEGERS = [-1, 0, 1, 2, -2, 7, 31, 32, 1000, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
FLOATS = [np.nan, np.inf, -np.inf, 1e308, -1e308, 3e38, 1e160, 5e-324, -1.0, 0.0, -0.0, -1e-46, 1.0, 1e6]
SCALARS = [None, True, False, -1, 0, 1, 2, 3, 7, 2**31, 2**53, 2**70, -0.5, 0.5, 1.5, 1e308, -1e308, np.nan, np.inf]
SCALARS += ["", "x", "normal", "studentt(df=1)", "studentt(", "conformal", "empirical", "poisson", "float64", "XGBoost"]
SCALARS += ["f" * 64, "regression", "custom", [], [1], ["a"], [[1.5], [True]], [[[]]], {}, {"a": 1}, {"float": "1"}]


class Sealed:
    """A file's arrays and header, to be changed and packed again with the right checksum."""

    def __init__(self, raw):
        self.arrays, self.model, _ = container.unpack(io.BytesIO(raw), len(raw))

    def packed(self):
        return container.pack(self.arrays, self.model, "pgbm_plugin 0.1.0")


def values(sealed, rng):
    """Some numbers of an array are others."""
    name = rng.choice([name for name, array in sealed.arrays.items() if len(array)])
    array = sealed.arrays[name] = sealed.arrays[name].copy()
    at = rng.integers(0, len(array), rng.choice([1, 1, 2, 5]))
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            array[at] = np.array(rng.choice(FLOATS, len(at))).astype(array.dtype)
    elif array.dtype.kind == "b":
        array[at] = ~array[at]
    else:
        limits = np.iinfo(array.dtype)
        near = [len(array), len(array) - 1, ~len(array), int(array[at[0]]) + 1, int(array[rng.integers(len(array))])]
        for i in at:
            array[i] = min(max(int(rng.choice([*INTEGERS, *near])), limits.min), limits.max)


def swaps(sealed, rng):
    """Two numbers of an array change places: children, roots, leaf starts, category starts."""
    long = [name for name, array in sealed.arrays.items() if len(array) > 1]
    name = rng.choice([name for name in long if name.startswith(("nodes.", "forest."))] if rng.random() < 0.8 else long)
    array = sealed.arrays[name] = sealed.arrays[name].copy()
    i, j = rng.integers(0, len(array), 2)
    array[[i, j]] = array[[j, i]]


def trees(sealed, rng):
    """Consistent in their numbers, wrong in their structure."""
    a = sealed.arrays
    for name in a:
        a[name] = a[name].copy()
    n, t = len(a["nodes.left"]), len(a["forest.root"])
    side = rng.choice(["nodes.left", "nodes.right"])
    how = rng.integers(8)
    if how == 0:  # a cycle
        i, j = np.sort(rng.integers(0, n, 2))
        a[side][j] = i
    elif how == 1:  # two subtrees of any two trees change places
        i, j = rng.integers(0, n, 2)
        a[side][i], a[side][j] = a[side][j], a[side][i]
    elif how == 2:  # leaves are counted to another tree
        a["forest.leaf_start"][rng.integers(1, t)] += rng.choice([-3, -1, 1, 3])
    elif how == 3:  # two trees share a root
        i, j = rng.integers(0, t, 2)
        a["forest.root"][i] = a["forest.root"][j]
    elif how == 4:  # roots change places
        a["forest.root"][:] = rng.permutation(a["forest.root"])
    elif how == 5:  # every split is categorical, or none
        a["nodes.flags"][:] = rng.choice([0, 1, 3, 4, 5, 8, 255])
        a["nodes.category_set"][:] = rng.choice([0, -1, 1])
        a["nodes.threshold"][:] = rng.choice([-1.0, -1e-46, -np.inf, -40.0, np.nan, 5.0])
    elif how == 6:  # a categorical split with another lower bound
        a["nodes.threshold"][a["nodes.flags"] & 1 != 0] = rng.choice([-np.inf, -1e9, -33.0, -1.5, np.nan, 0.0, np.inf])
    else:  # parents after children
        order = rng.permutation(n)
        for name in [name for name in a if name.startswith("nodes.")]:
            a[name] = a[name][order]


def shapes(sealed, rng):
    """An array is longer, shorter, of another type, absent or of another name; or there is one more."""
    name = rng.choice(sorted(sealed.arrays))
    array = sealed.arrays.pop(name)
    how = rng.integers(8)
    if how == 0:
        sealed.arrays[name] = array[: rng.integers(0, max(len(array), 1))]
    elif how == 1:
        sealed.arrays[name] = np.concatenate([array, array[: rng.integers(1, 4)]])
    elif how == 2:
        kind = container.DTYPES[rng.choice(sorted(container.DTYPES))]
        with np.errstate(invalid="ignore", over="ignore"):
            sealed.arrays[name] = array.astype(kind)
    elif how == 3:
        sealed.arrays[rng.choice(["x", name + ".", "nodes", "settings.rho", *sealed.arrays])] = array
    elif how == 4:
        other = rng.choice(sorted(sealed.arrays))
        sealed.arrays[name], sealed.arrays[other] = sealed.arrays[other], array
    elif how == 5:  # all arrays of one axis, so that they agree with each other
        for key in [key for key, value in sealed.arrays.items() if len(value) == len(array)]:
            sealed.arrays[key] = sealed.arrays[key][:-1]
        sealed.arrays[name] = array[:-1]
    elif how == 6:
        sealed.arrays = {key: value[:0] for key, value in sealed.arrays.items()} | {name: array[:0]}


def scalars(sealed, rng):
    """An entry of the header is another."""
    model = sealed.model
    part = rng.choice(sorted(model))
    if not isinstance(model[part], dict) or not model[part] or rng.random() < 0.1:
        model[part] = copy.deepcopy(SCALARS[rng.integers(len(SCALARS))])
    elif rng.random() < 0.1:
        model[part].pop(rng.choice(sorted(model[part])))
    elif rng.random() < 0.1:
        model[str(rng.choice(["x", "forest", "settings"]))] = copy.deepcopy(model[part])
    else:
        field = rng.choice(sorted(model[part]))
        model[part][field] = copy.deepcopy(SCALARS[rng.integers(len(SCALARS))])


def sealed_file(change):
    def make(raw, rng):
        sealed = Sealed(raw)
        for _ in range(rng.choice([1, 1, 2])):
            change(sealed, rng)
        return sealed.packed()

    make.__name__ = change.__name__
    return make


def cuts(raw, rng):
    return raw[: rng.integers(0, len(raw)) if rng.random() < 0.7 else rng.integers(0, 5000)]


def flips(raw, rng):
    out = np.frombuffer(raw, np.uint8).copy()
    at = rng.integers(0, len(out) if rng.random() < 0.5 else 5000, rng.choice([1, 1, 2, 8]))
    out[at] ^= (1 << rng.integers(0, 8, len(at))).astype(np.uint8)
    return out.tobytes()


def splices(raw, rng):
    """Parts are removed, come twice, change places or are zeros."""
    a, b, c = np.sort(rng.integers(0, len(raw) + 1, 3))
    parts = (raw[:a], raw[a:b], raw[b:c], raw[c:])
    order = [(0, 2, 3), (0, 1, 1, 2, 3), (0, 2, 1, 3), (0, 1, 2, 3, 3), (3, 2, 1, 0), (1, 2, 3)][rng.integers(6)]
    out = b"".join(parts[i] for i in order)
    return out if rng.random() < 0.8 else raw[:a] + bytes(b - a) + raw[b:]


def resealed(head, data):
    """The file with the checksum that belongs to it, if it has a place for one."""
    at = 8 + len(container._BEFORE_CHECKSUM)
    if head[8:at] != container._BEFORE_CHECKSUM:
        return head + data
    return head[:at] + container._whole_digest(head, data).encode() + head[at + 64 :] + data


def headers(raw, rng):
    """The container's own header lies, and its checksum agrees."""
    length = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    about, name = header["__metadata__"], rng.choice([key for key in header if key != "__metadata__"])
    entry, number = header[name], int(rng.choice([-8, -1, 0, 1, 8, 2**31, 2**40, 2**60, 2**62, 2**63]))
    how = rng.integers(9)
    if how == 0:
        entry["shape"] = [[number], [], [1, 1], number, [1.0], ["1"], [True], None, [10**30]][rng.integers(9)]
    elif how == 1:
        entry["data_offsets"][rng.integers(2)] = number
    elif how == 2:
        entry["dtype"] = [*container.DTYPES, "BF16", "object", "|O", "", None, [], 8][rng.integers(14)]
    elif how == 3:  # a giant that agrees with itself
        size = container.DTYPES[entry["dtype"]].itemsize
        entry["shape"], entry["data_offsets"][1] = [abs(number)], entry["data_offsets"][0] + size * abs(number)
    elif how == 4:
        about["version"] = ["3", "99999999", "0", "-1", "1.0", "", "9" * 5000, "²", "one", " 1"][rng.integers(10)]
    elif how == 5:
        about[str(rng.choice(list(about)))] = ["", "{}", "[]", "null", "\ud800", "[" * 10**5, 1, None][rng.integers(8)]
    elif how == 6:
        del header[rng.choice(list(header))]
    elif how == 7:
        text = json.dumps(header, separators=(",", ":"))
        text = text.replace(f'"{name}"', '"forest.root"') if rng.random() < 0.5 else text.replace("[", "[" * 10**5, 1)
        return resealed(struct.pack("<Q", len(text)) + text.encode(), data)
    else:
        return struct.pack("<Q", abs(number) % 2**64) + raw[8:]
    text = json.dumps(header, separators=(",", ":")).encode()
    return resealed(struct.pack("<Q", len(text)) + text, data)


def strangers(raw, rng):
    """Other files, zip bombs among them."""
    how = rng.integers(6)
    if how == 0:
        return bytes(rng.integers(0, 256, rng.integers(0, 3000)).astype(np.uint8))
    if how == 1:
        bomb = io.BytesIO()
        with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("forest.root.npy", bytes(10**6))
        return bomb.getvalue()
    if how == 2:
        return raw[:8] + raw[8:60] + bytes(rng.integers(0, 200))
    if how == 3:
        return bytes(rng.integers(0, 100))
    if how == 4:
        return struct.pack("<Q", 10**6) + raw[8:56] + b"[" * 10**6
    return raw + raw[: rng.integers(1, 100)]


SEALED = [(values, 1500), (swaps, 800), (trees, 800), (shapes, 400), (scalars, 1200)]
KINDS = [(sealed_file(change), count) for change, count in SEALED]
KINDS += [(cuts, 300), (flips, 700), (splices, 400), (headers, 600), (strangers, 200)]


def rows(model, rng):
    """Rows that meet every branch: NaN, infinities, zeros, and categories that are none."""
    width = min(model.forest.features.count, 50)
    X = rng.normal(size=(64, width)) * rng.choice([1.0, 3.0, 1e30], (64, width))
    odd = rng.random(X.shape) < 0.4
    X[odd] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.5, -1.0, -33.0, 2.0, 31.5, 40.0, 1e300, -1e300], odd.sum())
    return X


def check_predictions(model, rng):
    """Finite numbers on both routes, or a ValueError of a family that does not fit."""
    X, scale = rows(model, rng), model.chosen.scale
    leaves = model.state.leaf_value, model.weights.sd, model.rho, None if scale is None else scale.step
    for part in (X, X[:5]):
        read = read_rows(part, model.forest.features)
        margin, variance, steps = margins_and_variances(model.forest, read, *leaves, n_jobs=1)
        variance = variance if scale is None else scale(variance, steps)
        assert np.all(np.isfinite(margin))
        assert np.all(np.isfinite(variance) & (variance >= 0.0))
        assert np.all(model.predict_support(part).rows >= 1.0)
        # exp may overflow, as the booster's own does
        assert model.forest.link == LOG or np.all(np.isfinite(to_response(model.forest, margin)))
    if scale is None and rng.random() < 0.2:
        model.explain_variance(X[:2])
    try:
        std = model.predict_dist(X, "normal").std()
        assert np.all(np.isfinite(std))
        model.predict_interval(X, groups=["a", "b"] * 32 if model.chosen.needs_groups else None)
    except ValueError:
        return


def limit_memory(more):
    """An allocation beyond what the process has is a MemoryError, which nothing here expects."""
    if sys.platform == "linux":
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main(folder, seed):
    limit_memory(2**30)
    warnings.simplefilter("ignore")  # overflow in numbers that are absurd, and absurdly few residuals
    sources = [path.read_bytes() for path in sorted(Path(folder).glob("*.pgbm"))]
    rng = np.random.default_rng(seed)
    path = Path(folder) / "hostile"
    counts = {}
    for make, count in KINDS:
        outcome = counts[make.__name__] = Counter(refused=0, loaded=0)
        for i in range(count):
            path.write_bytes(make(sources[i % len(sources)], rng))
            try:
                model = load(path, n_jobs=1)
            except ValueError as error:
                if not str(error).startswith("cannot load"):
                    raise
                outcome["refused"] += 1
            else:
                check_predictions(model, rng)
                outcome["loaded"] += 1
    print(json.dumps(counts))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
