"""Damaged and hostile model files: an error that names the file, where the booster would read other trees."""

from __future__ import annotations

import json
import re

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from pgbm_plugin import wrap

LGB = {"num_leaves": 8, "num_threads": 1, "verbose": -1}
XGB = {"max_depth": 3, "nthread": 1}


def train(kind, X, y):
    return lgb.train(LGB, lgb.Dataset(X, y), 3) if kind == "lightgbm" else xgb.train(XGB, xgb.DMatrix(X, y), 3)


@pytest.fixture(scope="module")
def text(numeric):
    return lgb.train(LGB, lgb.Dataset(*numeric), 4).model_to_string()


@pytest.fixture
def refused(numeric, tmp_path):
    """A check that a file is refused, as damaged and for this reason."""

    def check(name, content, reason):
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match=rf"(?s){re.escape(name)}.*damaged.*{reason}"):
            wrap(tmp_path / name, *numeric)

    return check


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_deep_nesting(depth, text, refused):
    refused("m.txt", text.replace("pandas_categorical:null", "pandas_categorical:" + "[" * depth), "")
    refused("m.json", '{"learner":' + "[" * depth, "")


@pytest.mark.parametrize("change", [lambda sizes: [sizes[0] + 1, *sizes[1:]], lambda sizes: sizes[:-1], reversed])
def test_sizes_of_trees(change, text, refused, numeric, tmp_path):
    """LightGBM goes from tree to tree by them."""
    sizes = [int(size) for size in re.search(r"tree_sizes=(.*)", text).group(1).split()]
    assert len(set(sizes)) > 1
    changed = re.sub(r"tree_sizes=.*", "tree_sizes=" + " ".join(map(str, change(sizes))), text)
    refused("m.txt", changed, "tree_sizes does not fit")
    (tmp_path / "m.txt").write_text(text.replace("\n", "\r\n"), newline="")
    assert wrap(tmp_path / "m.txt", *numeric).certificate.status == "certified"


@pytest.mark.parametrize("field", ["default_left", "split_type"])
@pytest.mark.parametrize("value", [2, 7, -1, -255, 257])
def test_flags_of_splits(field, value, refused, numeric, tmp_path):
    """Ignore default_left and split_type at leaves, where they mean nothing."""
    xgb.train(XGB, xgb.DMatrix(*numeric), 2).save_model(tmp_path / "m.json")
    content = json.loads((tmp_path / "m.json").read_text())
    tree = content["learner"]["gradient_booster"]["model"]["trees"][1]
    tree[field][tree["left_children"].index(-1)] = value
    (tmp_path / "m.json").write_text(json.dumps(content))
    assert wrap(tmp_path / "m.json", *numeric).certificate.status == "certified"
    tree[field][np.flatnonzero(np.array(tree["left_children"]) >= 0)[-1]] = value
    refused("m.json", json.dumps(content), f"{field} of a split is neither 0 nor 1")


def test_files(numeric, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no model file at .*nowhere.txt"):
        wrap(tmp_path / "nowhere.txt", *numeric)
    for content in (b"", b"hello", b"PK\x03\x04", b"{}", b'{"learner": 3}', b"{L\x00", b"\x00" * 100):
        (tmp_path / "no.model").write_bytes(content)
        with pytest.raises(ValueError, match=r"no.model.*(neither|not an XGBoost model)"):
            wrap(tmp_path / "no.model", *numeric)


@pytest.mark.parametrize(("kind", "name"), [("lightgbm", "m.txt"), ("xgboost", "m.json"), ("xgboost", "m.ubj")])
def test_truncated_files(kind, name, numeric, tmp_path):
    """Cut anywhere: an error that names the file, never a model of fewer trees."""
    path = tmp_path / name
    train(kind, *numeric).save_model(path)
    raw = path.read_bytes()
    end = raw.index(b"end of trees") if kind == "lightgbm" else len(raw) - 1
    for cut in np.linspace(10, end, 60).astype(int):
        path.write_bytes(raw[:cut])
        with pytest.raises(ValueError, match=name):
            wrap(path, *numeric)


@pytest.mark.parametrize("damage", [{"model": []}, {"model": {}}, {"name": "gbtree"}])
def test_damaged_xgboost_files(damage, numeric, tmp_path):
    X, y = numeric
    xgb.train({"max_depth": 2}, xgb.DMatrix(X, y), 3).save_model(tmp_path / "model.json")
    document = json.loads((tmp_path / "model.json").read_text())
    document["learner"]["gradient_booster"] = {"name": "gbtree", **damage}
    (tmp_path / "model.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"model\.json': damaged XGBoost model"):
        wrap(tmp_path / "model.json", X, y)


def test_an_odd_best_iteration(numeric, tmp_path):
    X, y = numeric
    xgb.train({"max_depth": 2}, xgb.DMatrix(X, y), 3).save_model(tmp_path / "model.json")
    document = json.loads((tmp_path / "model.json").read_text())
    document["learner"]["attributes"] = {"best_iteration": []}
    (tmp_path / "model.json").write_text(json.dumps(document))
    assert wrap(tmp_path / "model.json", X, y).certificate.status == "certified"
