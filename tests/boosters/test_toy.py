"""A third booster costs one record: registered, it goes wherever LightGBM and XGBoost go."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pgbm_plugin import UnsupportedModelError, boosters, embed, load, partial_moments, wrap
from pgbm_plugin.cli import main
from pgbm_plugin.sklearn import PGBMRegressor
from tests import ROOT
from tests.boosters import toy


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(boosters, "BOOSTERS", list(boosters.BOOSTERS))
    boosters.register(toy.TOY)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 4))
    return X, X[:, 0] + 0.3 * (1 + (X[:, 1] > 0)) * rng.normal(size=900) + 1e-9 * rng.normal(size=900)


def test_it_is_short():
    """The price of a booster: what users have of it and what the package must know, together."""
    assert len(Path(toy.__file__).read_text().splitlines()) < 100


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [30, 600])
def test_live_models_and_files_certify_in_float64(rows, weighted, n, tmp_path):
    X, y = rows[0][:n], rows[1][:n]
    weight = np.linspace(0.5, 2.0, n) if weighted else None
    model = toy.train(X, y, weight)
    model.save(tmp_path / "model.toy")
    for booster in (model, tmp_path / "model.toy", toy.ToyRegressor().fit(X, y, weight)):
        wrapped = wrap(booster, X, y, sample_weight=weight)
        assert wrapped.certificate.status == "certified"
        assert wrapped.certificate.error < 1e-14  # labels and gradients in float32 would leave 1e-8
        assert np.array_equal(wrapped.predict(X), model.predict(X))


def test_moments_are_those_of_numpy(rows):
    X, y = rows
    model = toy.train(X, y, rounds=1)
    moments = wrap(model, X, y).moments
    left = X[:, model.feature[0]] <= model.threshold[0]
    for leaf, side in enumerate((left, ~left)):
        g = model.base - y[side]
        np.testing.assert_allclose(moments.g_mean[leaf], g.mean(), rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(moments.var_g[leaf], g.var(ddof=1), rtol=1e-13)


def test_tune_save_load_pickle_and_parts(rows, tmp_path):
    X, y = rows
    model = wrap(toy.train(X[:600], y[:600]), X[:600], y[:600], variance="pgbm")
    assert model.tune(X[600:], y[600:]).best.score < model.predict_dist(X[600:], "normal", 0.5).crps(y[600:]).mean()
    model.save(tmp_path / "model.pgbm")
    for copy in (load(tmp_path / "model.pgbm"), pickle.loads(pickle.dumps(model))):  # noqa: S301
        assert np.array_equal(copy.predict_quantiles(X, [0.1, 0.9]), model.predict_quantiles(X, [0.1, 0.9]))
        assert copy.update(X[600:], y[600:]).spec.gradient_dtype == np.float64
    parts = [partial_moments(toy.train(X[:600], y[:600]), X[i:600:3], y[i:600:3]) for i in range(3)]
    merged = wrap(toy.train(X[:600], y[:600]), parts[0].merge(parts[1]).merge(parts[2]))
    assert merged.certificate.status == "certified"


def test_regressor(rows):
    X, y = rows
    for fitted in (
        PGBMRegressor(toy.ToyRegressor(), tune_fraction=0.3, random_state=0).fit(X, y),
        PGBMRegressor(toy.ToyRegressor(), cv=3).fit(X, y),
    ):
        assert fitted.model_.certificate.status == "certified"
        assert fitted.model_.chosen.tuned
        assert np.array_equal(fitted.predict(X), fitted.estimator_.model_.predict(X))


def test_command_line(rows, tmp_path, capsys):
    X, y = rows
    toy.train(X, y).save(tmp_path / "model.toy")
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=y)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    paths = {name: str(tmp_path / name) for name in ("model.toy", "rows.csv", "model.pgbm", "out.csv")}
    data = ["--data", paths["rows.csv"], "--label", "y"]
    assert main(["wrap", paths["model.toy"], *data, "-o", paths["model.pgbm"]]) == 0
    assert "Toy, squares" in capsys.readouterr().out
    frame.drop(columns="y").to_csv(tmp_path / "rows.csv", index=False)
    assert main(["predict", paths["model.pgbm"], paths["rows.csv"], "-o", paths["out.csv"]]) == 0
    out = np.genfromtxt(paths["out.csv"], delimiter=",", names=True)  # with all digits, which not every pandas reads
    assert np.array_equal(out["mean"], load(paths["model.pgbm"]).predict(X))
    assert main(["inspect", paths["model.toy"]]) == 0
    assert "Toy" in capsys.readouterr().out


def test_what_it_does_not_bring_is_refused_by_name(rows):
    model = toy.train(*rows)
    with pytest.raises(UnsupportedModelError, match="Toy drops what it does not know"):
        embed(model)
    with pytest.raises(TypeError, match="found neither moments nor training data"):
        wrap(model)


def test_an_unregistered_booster_is_refused_by_name(rows, tmp_path, monkeypatch):
    wrap(toy.train(*rows), *rows).save(tmp_path / "model.pgbm")
    monkeypatch.setattr(boosters, "BOOSTERS", boosters.BOOSTERS[:2])
    with pytest.raises(ValueError, match=r"forest\.booster is 'Toy', not one of LightGBM, XGBoost"):
        load(tmp_path / "model.pgbm")
    with pytest.raises(TypeError, match=r"cannot wrap a ToyModel; give a lightgbm\.Booster, .*, XGBRegressor or the"):
        wrap(toy.train(*rows), *rows)


def test_no_room_above_names_a_booster():
    """Code to the right of the seam compares with no booster's name; prose in errors and documents may."""
    names = {"lightgbm", "xgboost", "lgb", "xgb", "lgbmmodel", "xgbmodel", "lgbmregressor", "xgbregressor"}
    names |= {"histgradient", "histgradientboosting", "histgradientboostingregressor", "basehistgradientboosting"}
    found = []
    for path in sorted((ROOT / "pgbm_plugin").rglob("*.py")):
        if "boosters" in path.parts or "kernels" in path.relative_to(ROOT).parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            words = [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                words = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            found += [f"{path.name}: {word}" for word in words if word.lower().rpartition(".")[2] in names]
    assert not found
