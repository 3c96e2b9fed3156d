"""Saved and loaded: every model of the matrix gives the same bits where no booster can be imported."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import stat
import subprocess
import sys
import warnings
from itertools import product
from pathlib import Path

import catboost as cb
import joblib
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.ensemble import HistGradientBoostingRegressor

from pgbm_plugin import ProbabilisticModel, load, wrap, writing
from pgbm_plugin.distributions import FAMILIES, Normal, register
from pgbm_plugin.predict.power_map import Calibration
from pgbm_plugin.saving import container
from pgbm_plugin.saving.layout import ARRAYS
from pgbm_plugin.saving.model_bytes import to_bytes
from tests.boosters import catboost_models
from tests.core.matrix import CATBOOST, HISTGRADIENT, KINDS, LIGHTGBM, XGBOOST
from tests.quiet import quiet_wrap
from tests.saving.saved import said

LGB = {"num_leaves": 7, "min_data_in_leaf": 10, "verbose": -1, "num_threads": 1}
XGB = {"max_depth": 3, "nthread": 1}
RANDOM_FOREST = {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}


def train(booster, X, y, params, **more):
    if booster == "lightgbm":
        return lgb.train({**LGB, **params}, lgb.Dataset(X, y, **more), 6)
    if booster == "histgradient":
        params = {"loss": params.pop("objective"), "max_leaf_nodes": 7, "max_iter": 6, **params}
        return HistGradientBoostingRegressor(**params).fit(X, y)
    if booster == "catboost":
        names = list(X.select_dtypes("category")) if isinstance(X, pd.DataFrame) else None
        own = {**catboost_models.FIXED, "iterations": 6, "loss_function": params.pop("objective"), **params}
        return cb.CatBoost(own).fit(cb.Pool(X, y, cat_features=names))
    return xgb.train({**XGB, **params}, xgb.DMatrix(X, y, enable_categorical=True, **more), 6)


def squared(margin, y):
    return margin - y, np.ones_like(y)


def frame(categories, n=400):
    rng = np.random.default_rng(7)
    code = rng.integers(0, len(categories), n)
    X = pd.DataFrame({"x": rng.normal(size=n), "c": pd.Categorical.from_codes(code, categories)})
    return X, X["x"].to_numpy() + code + 0.1 * rng.normal(size=n)


def models(make_data):
    """Name -> a model and rows to ask it about."""
    matrix = {"lightgbm": LIGHTGBM, "xgboost": XGBOOST, "histgradient": HISTGRADIENT, "catboost": CATBOOST}
    for booster, objectives in matrix.items():
        for objective, kind in product(objectives, KINDS):
            X, y = make_data(kind)
            if (booster, kind) == ("catboost", "mixed"):  # it refuses missing categories
                X["many"] = X["many"].cat.add_categories("none").fillna("none")
            model = quiet_wrap(train(booster, X, y, {"objective": objective, **objectives[objective][0]}), X, y)
            yield f"{booster}-{objective.replace(':', '-').replace(' ', '-')}-{kind}", model, X

    X, y = make_data("mixed", n=900)
    parts = [(X[i : i + 300], y[i : i + 300]) for i in (0, 300, 600)]
    for booster in ("lightgbm", "xgboost"):
        own = train(booster, *parts[0], {})
        for family in FAMILIES:
            if family != "conformal":
                model = wrap(own, *parts[0])
                model.tune(*parts[1], distributions=[family, "normal"])
                yield f"{booster}-tuned-{family}", model, parts[2][0]
        model = wrap(own, *parts[0])
        model.tune(*parts[1], distributions="empirical")
        yield f"{booster}-tuned-conformal", model.conformalize(*parts[2]), parts[1][0]
        yield f"{booster}-conformal", wrap(own, *parts[0]).conformalize(*parts[2]), parts[1][0]
        model = wrap(own, *parts[0])
        model.tune(*parts[1], distributions="empirical", sample_weight=np.arange(300.0))
        yield f"{booster}-weighted", model, parts[2][0]
        model = copy.copy(model).conformalize(*parts[2], sample_weight=np.arange(300.0))
        yield f"{booster}-weighted-conformal", model, parts[1][0]
        for by in ("mean", "spread"):
            model = wrap(own, *parts[0])
            model.tune(*parts[1], distributions=f"empirical(by='{by}', bins=3)", lower=parts[1][1].min())
            yield f"{booster}-bins-of-{by}", model, parts[2][0]
        thrice = np.tile(np.arange(300), 3)  # bins of 100 rows
        model = copy.copy(model).conformalize(X[600:].iloc[thrice], y[600:][thrice], lower=-1e9)
        assert model.chosen.residual_bin is not None
        yield f"{booster}-bins-conformal", model, parts[1][0]
        model = wrap(own, *parts[0])
        for by in ("mean", "spread"):
            grouped = copy.copy(model).conformalize(X[300:], y[300:], groups=by)
            yield f"{booster}-conformal-by-{by}", grouped, parts[1][0]
        marks = np.rint(parts[0][1]), np.rint(parts[1][1]).clip(-2.0, 3.0)
        model = wrap(train(booster, parts[0][0], marks[0], {}), parts[0][0], marks[0])
        model.tune(parts[1][0], marks[1], rho=0.0)
        assert model.chosen.support is not None
        yield f"{booster}-lattice", model, parts[2][0]
        yield f"{booster}-held-out", quiet_wrap(own, *parts[1]), parts[2][0]
        yield f"{booster}-pgbm", wrap(own, *parts[0], mean="pgbm"), parts[2][0]
        numbers = make_data("nan")
        custom = quiet_wrap(train(booster, *numbers, {}), *numbers, objective=squared)
        yield f"{booster}-custom", custom, numbers[0]
        constant = np.zeros((50, 2)), np.arange(50.0)
        yield f"{booster}-constant", quiet_wrap(train(booster, *constant, {}), *constant), constant[0]
        for name, values in (("int", [30, -7, 5]), ("str", ["b", "a", "1"])):
            table = frame(values)
            yield f"{booster}-{name}", wrap(train(booster, *table, {}), *table), table[0]

    X, y = make_data("nan")
    X[np.random.default_rng(8).random(X.shape) < 0.2] = 0.0
    for name, params in {
        "rf": RANDOM_FOREST,
        "no-missing": {"use_missing": False},
        "zero-missing": {"zero_as_missing": True},
    }.items():
        yield f"lightgbm-{name}", quiet_wrap(train("lightgbm", X, y, params), X, y), X
    for name, values in (("float", [0.5, np.inf, -1.5]), ("bool", [True, False])):
        table = frame(values)
        yield f"lightgbm-{name}", wrap(train("lightgbm", *table, {}), *table), table[0]
    score = np.linspace(0.0, 1.0, len(y))
    yield "lightgbm-start", wrap(train("lightgbm", X, y, {}, init_score=score), X, y, init_score=score), X
    yield "xgboost-parallel", wrap(train("xgboost", X, y, {"num_parallel_tree": 3}), X, y), X
    yield "xgboost-subsample", quiet_wrap(train("xgboost", X, y, {"subsample": 0.5}), X, y), X
    filled = np.nan_to_num(X, nan=-9.0)
    own = xgb.XGBRegressor(n_estimators=5, missing=-9.0, n_jobs=1).fit(filled, y)
    yield "xgboost-missing", wrap(own, filled, y), filled
    names = pd.DataFrame(X[:, :2], columns=["ä b", "日"])
    yield "lightgbm-names", wrap(lgb.train(LGB, lgb.Dataset(X, y, feature_name=["ä", "c1", "日", "q"]), 3), X, y), X
    yield "xgboost-names", wrap(xgb.XGBRegressor(n_estimators=3, n_jobs=1).fit(names, y), names, y), names


def check_same(a, b, name="model"):
    """Types, values and bits alike; what may be written to, too."""
    assert type(a) is type(b), name
    if dataclasses.is_dataclass(a):
        for field in dataclasses.fields(a):
            if field.name not in ("gradients", "diagonal"):
                check_same(getattr(a, field.name), getattr(b, field.name), f"{name}.{field.name}")
    elif isinstance(a, ProbabilisticModel):
        assert vars(a).keys() == vars(b).keys()
        for key in vars(a).keys() - {"n_jobs"}:
            check_same(vars(a)[key], vars(b)[key], key)
    elif isinstance(a, np.ndarray):
        assert (a.dtype, a.shape, a.flags.writeable) == (b.dtype, b.shape, b.flags.writeable), name
        for field in a.dtype.names or (...,):  # what lies between the fields of a split is not part of it
            assert a[field].tobytes() == b[field].tobytes(), name
    elif isinstance(a, tuple):
        assert len(a) == len(b), name
        for i, pair in enumerate(zip(a, b, strict=True)):
            check_same(*pair, f"{name}[{i}]")
    else:
        assert a == b or (a != a and b != b), name


def test_matrix_without_boosters(make_data, tmp_path):
    names = set()
    for name, model, X in models(make_data):
        names.add(name)
        path = tmp_path / f"{name}.pgbm"
        model.save(path)
        check_same(model, load(path), name)
        expected = said(model, X)
        assert isinstance(expected["interval"], tuple), expected["interval"]  # an answer, not a refusal
        path.with_suffix(".said").write_bytes(pickle.dumps((X, expected)))
    program = [sys.executable, "-W", "error", Path(__file__).with_name("saved.py"), tmp_path]
    done = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert (done.stdout.strip(), done.stderr[-2000:]) == (str(len(names)), "")


@pytest.fixture(scope="module")
def model(numeric):
    X, y = numeric
    return wrap(train("lightgbm", X, y, {}), X, y)


def pickled(model, folder):
    return pickle.loads(pickle.dumps(model))  # noqa: S301


def joblibbed(model, folder):
    joblib.dump(model, folder / "model.joblib")
    return joblib.load(folder / "model.joblib")


@pytest.mark.parametrize("again", [pickled, joblibbed, lambda m, _: copy.copy(m), lambda m, _: copy.deepcopy(m)])
@pytest.mark.parametrize("booster", ["lightgbm", "xgboost"])
def test_copies(again, booster, make_data, tmp_path):
    X, y = make_data("mixed", n=600)
    own = train(booster, X[:400], y[:400], {})
    for mean in ("booster", "pgbm"):
        model = wrap(own, X[:400], y[:400], mean=mean, n_jobs=1)
        model.tune(X[400:], y[400:], distributions=["laplace", "empirical"])
        expected = said(model, X)
        copied = again(model, tmp_path)
        check_same(model, copied)
        assert copied.n_jobs == 1
        assert said(copied, X) == expected
        model.rho = 0.5
        assert copied.rho != 0.5


def test_decayed_moments(numeric, tmp_path):
    """Rows that count for less than one each are no whole numbers; a loaded model takes more of them."""
    X, y = numeric
    models = [quiet_wrap(train("lightgbm", X, y, {}), X, y) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for model in models:
            model.update(X[:100], y[:100] + 0.1, decay=0.3)
    path = tmp_path / "model.pgbm"
    models[0].save(path)
    again = load(path)
    check_same(again, models[1])
    assert again.moments.freedom is not None
    assert np.array_equal(
        again.update(X, y, decay=0.5).predict_var(X), models[1].update(X, y, decay=0.5).predict_var(X)
    )


def test_nothing_compiled_is_pickled(numeric):
    X, y = numeric
    model = wrap(train("lightgbm", X, y, {}), X, y)
    before = len(pickle.dumps(model))
    model.predict(X)
    assert "replay" in model.forest.cache
    assert len(pickle.dumps(model)) == before


def test_a_custom_objective_is_forgotten_by_files_and_pickles(numeric, tmp_path):
    X, y = numeric
    model = quiet_wrap(train("lightgbm", X, y, {}), X, y, objective=lambda margin, y: squared(margin, y))
    model.save(tmp_path / "m.pgbm")
    for copied in (load(tmp_path / "m.pgbm"), pickled(model, tmp_path)):
        assert np.array_equal(copied.predict_var(X), model.predict_var(X))
        with pytest.raises(RuntimeError, match=r"custom objective.*wrap\(booster, X, y, objective=f\)"):
            copied.spec.objective.gradients(y, y)
    assert copy.deepcopy(model).spec.objective.gradients is model.spec.objective.gradients


def test_a_family_of_ones_own_is_stored_by_name(model, numeric, tmp_path, monkeypatch):
    X, _ = numeric
    monkeypatch.setattr("pgbm_plugin.distributions.FAMILIES", FAMILIES.copy())

    @register
    class Mine(Normal):
        name = "mine"

    model = copy.copy(model)
    model.distribution = "mine"
    model.save(tmp_path / "m.pgbm")
    assert isinstance(load(tmp_path / "m.pgbm").predict_dist(X), Mine)
    monkeypatch.setattr("pgbm_plugin.distributions.FAMILIES", FAMILIES)
    with pytest.raises(ValueError, match=r"unknown distribution 'mine'.*registered"):
        load(tmp_path / "m.pgbm")


@pytest.mark.parametrize("wrong", [Calibration(np.inf, 1.0), Calibration(1.0, np.inf)])
def test_what_could_not_be_loaded_is_not_written(wrong, model, tmp_path):
    model = copy.copy(model)
    model.calibration = wrong
    with pytest.raises(ValueError, match=r"cannot be saved: its .*calibration"):
        model.save(tmp_path / "m.pgbm")
    assert not list(tmp_path.iterdir())


def test_saving_is_repeatable_and_takes_any_path(model, tmp_path):
    model.save(str(tmp_path / "a"))
    model.save(tmp_path / "b.anything")
    load(str(tmp_path / "a"), n_jobs=1).save(tmp_path / "c")
    content = (tmp_path / "a").read_bytes()
    assert content == (tmp_path / "b.anything").read_bytes() == (tmp_path / "c").read_bytes() == to_bytes(model)
    assert load(tmp_path / "a", n_jobs=1).n_jobs == 1
    with pytest.raises(IsADirectoryError, match="directory"):
        model.save(tmp_path)
    with pytest.raises(FileNotFoundError, match="no directory"):
        model.save(tmp_path / "nowhere" / "m")
    with pytest.raises(IsADirectoryError, match="directory"):
        load(tmp_path)
    with pytest.raises(FileNotFoundError, match="no model file"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_crash_leaves_the_old_file(step, model, tmp_path, monkeypatch):
    (tmp_path / "m").write_bytes(b"old")

    def crash(*args):
        raise OSError("no space left")

    monkeypatch.setattr(writing.os, step, crash)
    with pytest.raises(OSError, match="no space left"):
        model.save(tmp_path / "m")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("m", b"old")]


@pytest.mark.skipif(sys.platform == "win32", reason="modes and links of POSIX")
def test_modes_and_links(model, tmp_path):
    def mode(name):
        return stat.S_IMODE((tmp_path / name).stat().st_mode)

    (tmp_path / "usual").touch()
    model.save(tmp_path / "new")
    assert mode("new") == mode("usual")
    (tmp_path / "old").touch()
    (tmp_path / "old").chmod(0o604)
    (tmp_path / "link").symlink_to("old")
    model.save(tmp_path / "link")
    assert mode("old") == 0o604
    assert (tmp_path / "link").is_symlink()
    load(tmp_path / "old")


OLD_FILES = sorted(Path(__file__).with_name("version_1").glob("*.pgbm"))


@pytest.mark.parametrize("path", OLD_FILES, ids=lambda path: path.stem)
def test_files_of_version_1_predict_as_they_did(path, tmp_path):
    """Rows without spread among them: such files have no floor, or that of the residuals, a millionth."""
    expected = json.loads(path.with_suffix(".json").read_text())
    X = np.array([[i, j] for i in range(4) for j in range(4)], float)
    model = load(path)
    model.save(tmp_path / "again.pgbm")
    for loaded in (model, load(tmp_path / "again.pgbm")):
        assert loaded.distribution == expected["family"]
        assert np.array_equal(loaded.predict(X), expected["mean"])
        np.testing.assert_allclose(loaded.predict_dist(X).std(), expected["std"], rtol=1e-12)
        np.testing.assert_allclose(loaded.predict_interval(X, 0.8), expected["interval"], rtol=1e-12, atol=1e-12)
        assert loaded.chosen.around == {"conformal": "laplace"}.get(path.stem, "normal")


def test_old_files_are_there():
    assert len(OLD_FILES) == 4


def test_arrays_of_moments_are_those_of_the_record(model):
    """A file follows `LeafMoments`: an array more there needs no line here."""
    stored = {name.split(".")[1] for name in ARRAYS if name.startswith("moments.")}
    assert stored == {field.name for field in dataclasses.fields(model.moments)} - {"rows", "ranges"}


def test_other_files_are_told_apart(model, numeric, tmp_path):
    X, y = numeric
    model.save(tmp_path / "m.pgbm")
    with pytest.raises(ValueError, match=r"pgbm_plugin.load\(path\)"):
        wrap(tmp_path / "m.pgbm", X, y)
    train("lightgbm", X, y, {}).save_model(tmp_path / "m.txt")
    train("xgboost", X, y, {}).save_model(tmp_path / "m.json")
    for name in ("m.txt", "m.json"):
        with pytest.raises(ValueError, match=r"a booster's: wrap\(path, X, y\)"):
            load(tmp_path / name)
    (tmp_path / "m.pickle").write_bytes(pickle.dumps(model))
    with pytest.raises(ValueError, match="a pickle"):
        load(tmp_path / "m.pickle")


def test_it_is_safetensors(model, tmp_path):
    """The public format, from its description: a length, JSON with offsets, the arrays aligned and without gaps."""
    model.save(tmp_path / "m.pgbm")
    raw = (tmp_path / "m.pgbm").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    assert all(isinstance(value, str) for value in header.pop("__metadata__").values())
    end = 0
    for entry in header.values():
        begin, stop = entry["data_offsets"]
        assert (begin, (8 + length + begin) % container.DTYPES[entry["dtype"]].itemsize) == (end, 0)
        end = stop
    assert end == len(raw) - 8 - length
    begin, stop = header["weights.sd"]["data_offsets"]
    assert np.array_equal(np.frombuffer(raw[8 + length :][begin:stop], "<f8"), model.weights.sd)
